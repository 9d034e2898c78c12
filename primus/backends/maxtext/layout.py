"""What MaxText 0.2.4 demands of the numbers of a run, and how it spreads a model.

File and function of each demand stand beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from math import inf, prod
from typing import Any

from primus.layout import Number, Requirement, Said, Size, computed
from primus.models.architecture import Architecture
from primus.models.memory import PRODUCTS, Layout

_TYPES = "maxtext/configs/types.py MaxTextConfig"
_MESH = "maxtext/utils/max_utils.py fill_unspecified_mesh_axes"
_SHARDING = "jax/_src/sharding.py IndivisibleError"  # seen with each of these on a CPU
# The mesh's axes and the word of the arguments for each; "stage" is what pipeline_parallelism makes.
_WORDS = {"stage": "pipeline", "model": "tensor"}
# Ways to run that give MaxText other devices or another mesh than the counted ones.
_OWN_MESH = (
    *("compile_topology", "custom_mesh_and_rule", "elastic_enabled", "inference_benchmark_test", "internal_compile"),
    "subslice_shape",
)


def requirements(said: Said, size: Size | None) -> Iterator[Requirement]:
    """All of them; those about the number of devices where that is known."""
    if any(said[name] for name in _OWN_MESH) or "mesh_axes" in said.values:
        return
    model = _models().get(said["model_name"], {})
    known = (model or said["model_name"] == "default") and said[
        "global_parameter_scale"
    ] == 1  # it multiplies the model
    if size is not None:
        slices = said["num_slices"] if said["num_slices"] > 0 else _slices(said, size)
        devices = max(1, size.world.value // slices)
        inner = _axes(said, "ici", computed("devices of a slice", devices, f"{size}, slices: {slices}"))
        outer = _axes(said, "dcn", computed("slices", slices, f"{size}"))
        yield inner
        yield outer
        if inner.met and outer.met and known and "logical_axis_rules" not in said.values:
            degrees = _resolved(said, "ici", devices)
            across = _resolved(said, "dcn", slices)
            degrees = {axis: degrees[axis] * across[axis] for axis in degrees}
            yield from _divided(said, model, degrees, size)
    for kind in ("ici", "dcn"):
        open_ = tuple(name for axis in said["mesh_axes"] if said[name := _argument(kind, axis)] == -1)
        if open_:
            one = computed("", 1, "axis that takes what is left")
            left = computed("axes that are -1:", len(open_), ", ".join(open_), keys=open_)
            yield Requirement(whole=(one,), parts=(left,), relation="at least", source=_MESH)
    if known:
        yield from _pipeline(said, model)


def _slices(said: Said, size: Size) -> int:
    """On GPUs each host is a slice (XLA, BuildGlobalTopology: by boot id); CPU devices have none, which is one."""
    return 1 if said.accelerator == "cpu" else size.nodes


def _argument(kind: str, axis: str) -> str:
    return f"{kind}_{_WORDS.get(axis, axis)}_parallelism"


def _axes(said: Said, kind: str, devices: Number) -> Requirement:
    """The product of one kind's degrees is the number of devices, or divides it where one of them is -1."""
    numbers = [said.number(_argument(kind, axis)) for axis in said["mesh_axes"]]
    given = tuple(number for number in numbers if number.value != -1)
    if len(given) < len(numbers):
        return Requirement(whole=(devices,), parts=given, source=_MESH)
    if kind == "dcn" and devices.value == 1:  # with one slice MaxText asks only whether more were wanted
        return Requirement(whole=(devices,), parts=given, relation="at least", source=_TYPES)
    return Requirement(whole=(devices,), parts=given, relation="equal", source=_MESH)


def _resolved(said: Said, kind: str, devices: int) -> dict[str, int]:
    """Each axis' degree, with -1 replaced by what is left."""
    values = {axis: said[_argument(kind, axis)] for axis in said["mesh_axes"]}
    rest = max(1, devices // prod(value for value in values.values() if value != -1))
    return {axis: rest if value == -1 else value for axis, value in values.items()}


def _of(said: Said, model: Mapping[str, Any], name: str) -> Any:
    """A number of the model: the experiment beats MaxText's models/<model_name>.yml, which beats the default."""
    if name in said.values and (said["override_model_config"] or name not in model):
        return said[name]
    return model.get(name, said[name])


def _divided(said: Said, model: Mapping[str, Any], degrees: Mapping[str, int], size: Size) -> Iterator[Requirement]:
    def over(*axes: str) -> tuple[Number, ...]:
        keys = {axis: (_argument("ici", axis), _argument("dcn", axis)) for axis in axes}
        return tuple(computed(f"{_WORDS.get(axis, axis)} parallelism", degrees[axis], keys=keys[axis]) for axis in axes)

    def number(name: str) -> Number:
        if name in said.values:
            return Number(name=name, value=_of(said, model, name), kind="model")
        return computed(name, _of(said, model, name), f"of {said['model_name']}", keys=("model_name",))

    if degrees["stage"] == 1:
        embedding = over("fsdp", "context", "context_usp_ulysses", "expert")
        yield Requirement(whole=(number("base_emb_dim"),), parts=embedding, source=_SHARDING)
    plain = _of(said, model, "attention_type") not in ("mla", "compressed") and not _of(said, model, "fused_qkv")
    if plain and said["ici_context_autoregressive_parallelism"] == 1:
        for name in ("base_num_kv_heads", "global_num_kv_heads"):
            if _of(said, model, name):
                yield Requirement(
                    whole=(number(name),),
                    parts=over("tensor", "tensor_sequence", "autoregressive"),
                    source="maxtext/layers/attentions.py Attention._validate_kv_head_sharding",
                )
    if _of(said, model, "num_experts") > 1:
        yield Requirement(whole=(number("num_experts"),), parts=over("expert"), source=_SHARDING)
    yield Requirement(whole=(said.number("max_target_length"),), parts=over("context"), source=_SHARDING)
    each = said["per_device_batch_size"]
    if 1 <= each < inf and each != int(each) and said["gradient_accumulation_steps"] == 1 and degrees["stage"] == 1:
        batch = computed(
            "batch",
            int(size.world.value * each),
            f"per_device_batch_size {each} on {size.world.value}",
            keys=("per_device_batch_size",),
        )
        yield Requirement(whole=(batch,), parts=over("data", "fsdp", "fsdp_transpose", "expert"), source=_SHARDING)


def _pipeline(said: Said, model: Mapping[str, Any]) -> Iterator[Requirement]:
    inner, outer = said.number("ici_pipeline_parallelism"), said.number("dcn_pipeline_parallelism")
    if (inner.value <= 1 and outer.value <= 1) or -1 in (inner.value, outer.value):
        return
    if said["pipeline_parallel_layers"] != -1:
        layers = said.number("pipeline_parallel_layers")
    else:
        dense = _of(said, model, "first_num_dense_layers") if _of(said, model, "decoder_block") == "deepseek" else 0
        value = _of(said, model, "base_num_decoder_layers") - dense
        layers = computed("layers in the pipeline", value, f"of {said['model_name']}", keys=("model_name",))
    parts = (inner, outer, said.number("num_layers_per_pipeline_stage"))
    if said["num_pipeline_repeats"] == -1:
        yield Requirement(whole=(layers,), parts=parts, source=_TYPES)
    else:
        repeats = said.number("num_pipeline_repeats")
        yield Requirement(whole=(layers,), parts=(*parts, repeats), relation="equal", source=_TYPES)
    if said["num_pipeline_microbatches"] != -1:
        yield Requirement(whole=(said.number("num_pipeline_microbatches"),), parts=(inner, outer), source=_TYPES)


def architecture(said: Said) -> Architecture:
    """The experiment's model. Raises ValueError if it is not known."""
    from primus.models import maxtext

    return maxtext.architecture(said.values)


def spread(said: Said, model: Architecture, gpus: int) -> Layout:
    """How the model is spread over so many GPUs, or over more if its parallelism takes more."""
    nodes = max(1, gpus // 8)
    inside, across = _resolved(said, "ici", min(gpus, 8)), _resolved(said, "dcn", nodes)

    def ways(*axes: str) -> int:
        return prod(max(1, inside.get(axis, 1)) * max(1, across.get(axis, 1)) for axis in axes)

    tensor, pipeline = ways("tensor", "tensor_transpose", "tensor_sequence"), ways("stage")
    context, expert, fsdp = ways("context", "sequence"), ways("expert"), ways("fsdp", "fsdp_transpose")
    weight = 2 if said["weight_dtype"] == "bfloat16" else 4
    policy = said["remat_policy"] or "none"
    without_mlp = ("mlp", "moe") if any(word in policy for word in ("except_mlp", "qkv_proj", "out_proj")) else ()
    return Layout(
        gpus=max(gpus, tensor * pipeline * context * expert * fsdp),
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        expert=expert if model.moe else 1,
        sequence_parallel=tensor > 1,  # MaxText splits hidden states along with the weights
        batch=max(1, int(said["per_device_batch_size"])) * max(1, tensor * context),
        length=said["max_target_length"],
        recompute="full" if policy == "full" else "none" if policy == "none" else "selective",
        modules=(*PRODUCTS, *without_mlp),
        fp8="fp8" in (said["quantization"] or ""),
        shard_all=fsdp * expert > 1,
        shards=fsdp * expert * context,
        parameter_bytes=weight,
        gradient_bytes=weight,  # XLA casts them to grad_dtype as the optimizer reads them
        optimizer_bytes=weight + {"bfloat16": 2, "float32": 4}.get(said["mu_dtype"] or "", weight),
    )


@cache
def _models() -> Mapping[str, Mapping[str, Any]]:
    """models.json by name: maxtext/configs/models/*.yml at the pin."""
    text = (resources.files("primus") / "backends/maxtext/models.json").read_text(encoding="utf-8")
    models: Mapping[str, Mapping[str, Any]] = json.loads(text)["models"]
    return models


def precision(said: Said) -> str:
    return said["quantization"] or {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(said["dtype"], "")
