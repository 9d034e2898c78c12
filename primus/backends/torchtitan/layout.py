"""What TorchTitan 0.2.2 demands of the numbers of a run, and how it spreads a model.

File and function of each demand stand beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal

from primus.layout import Number, Requirement, Said, Size, computed
from primus.models.architecture import Architecture
from primus.models.memory import Layout

_DIMS = "torchtitan/distributed/parallel_dims.py ParallelDims"
_TRAINER = "torchtitan/train.py Trainer.__init__"
_PIPELINE = "torchtitan/distributed/pipeline_parallel.py"
_SPLIT = "generate_llm_fqn_per_model_part"
# Schedules of torch/distributed/pipelining/schedules.py that give each rank one stage; get_schedule_class ignores case.
_SINGLE = ("1f1b", "gpipe")
# Models whose attention sees its heads as a plain tensor, which must hold whole heads; DTensors may do otherwise.
_WHOLE_HEADS = ("llama3", "llama3_ft", "llama4", "deepseek_v3")


def requirements(said: Said, size: Size | None) -> Iterator[Requirement]:
    """All of them; those about the number of processes where that is known."""
    if size is not None:
        yield from _processes(said, size)
    if said["model.name"] == "flux":  # no transformer over text: its own trainer, its own rules
        return
    tensor = _degree(said, "tensor")
    context = _degree(said, "context")
    yield Requirement(
        whole=(said.number("training.seq_len"),),
        parts=(tensor, context, computed("", 2, "in any case")),
        source=f"{_DIMS}.seq_len_divisor",
    )
    model = _models().get((said["model.name"], said["model.flavor"]))
    if model is not None and not said["experimental.custom_import"]:
        yield from _model(said, model)


def _degree(said: Said, name: str) -> Number:
    return said.number(f"parallelism.{name}_parallel_degree")


def _processes(said: Said, size: Size) -> Iterator[Requirement]:
    world = size.world
    replicate, shard = (
        said.number("parallelism.data_parallel_replicate_degree"),
        said.number("parallelism.data_parallel_shard_degree"),
    )
    context, tensor, pipeline = _degree(said, "context"), _degree(said, "tensor"), _degree(said, "pipeline")
    given = (replicate, context, tensor, pipeline)
    if shard.value == -1:  # whatever is left
        whole = Requirement(whole=(world,), parts=given, source=_DIMS)
        if whole.met:
            value = size.world.value
            for number in given:
                value //= number.value
            shard = computed("data parallel shards", value, "what is left of the world size")
    else:
        whole = Requirement(whole=(world,), parts=(*given, shard), relation="equal", source=_DIMS)
    yield whole
    if not whole.met:
        return
    yield Requirement(
        whole=(shard, context, tensor),
        parts=(_degree(said, "expert"), _degree(said, "expert_tensor")),
        source=f"{_DIMS}.build_mesh",
    )
    if said["parallelism.expert_parallel_degree"] > 1 and said["parallelism.expert_tensor_parallel_degree"] != 1:
        yield Requirement(whole=(_degree(said, "expert_tensor"),), parts=(tensor,), relation="equal", source=_DIMS)
    if said["training.global_batch_size"] >= 0:
        yield Requirement(
            whole=(said.number("training.global_batch_size"),),
            parts=(said.number("training.local_batch_size"), replicate, shard),
            source=_TRAINER,
        )


def _model(said: Said, model: Mapping[str, Any]) -> Iterator[Requirement]:
    tensor, expert, pipeline = _degree(said, "tensor"), _degree(said, "expert"), _degree(said, "pipeline")
    label = f"{said['model.name']} {said['model.flavor']}"
    if said["model.name"] in _WHOLE_HEADS:
        for what in ("heads", "kv_heads"):
            if model[what] is not None:
                heads = computed(what, model[what], f"of {label}", keys=("model.flavor",))
                yield Requirement(
                    whole=(heads,), parts=(tensor,), source="torchtitan/models/*/model/model.py Attention.forward"
                )
    if model["experts"] is not None:
        experts = computed("experts", model["experts"], f"of {label}", keys=("model.flavor",))
        yield Requirement(
            whole=(experts,),
            parts=(expert,),
            source="torchtitan/distributed/expert_parallel.py ExpertParallel._token_dispatch",
        )
    if pipeline.value > 1 and said["parallelism.module_fqns_per_model_part"] is None:
        yield from _pipeline(said, model["layers"], label)


def _pipeline(said: Said, layers: int, label: str) -> Iterator[Requirement]:
    pipeline = _degree(said, "pipeline")
    single = said["parallelism.pipeline_parallel_schedule"].lower() in _SINGLE
    first = said["parallelism.pipeline_parallel_first_stage_less_layers"]
    last = said["parallelism.pipeline_parallel_last_stage_less_layers"]
    each = said["parallelism.pipeline_parallel_layers_per_stage"]
    weight = layers + first + last
    words = f"{layers} of {label}, and {first + last} for embedding and output"
    if each is None:
        total = computed("layers", weight, words, keys=("model.flavor",))
        stages = computed("stages of each rank", 1 if single else 2)
        heaviest = computed("layers of embedding or output", max(1, first, last))
        yield Requirement(
            whole=(total,), parts=(pipeline, stages, heaviest), relation="at least", source=f"{_PIPELINE} {_SPLIT}"
        )
    elif each > 0:
        made = computed("stages", -(-weight // each), f"of {each} layers: {words}", keys=("model.flavor",))
        two = computed("stages of each rank", 1 if single else 2)
        relation: Literal["equal", "multiple"] = "equal" if single else "multiple"
        yield Requirement(whole=(made,), parts=(pipeline,), relation=relation, source=f"{_PIPELINE} pipeline_llm")
        yield Requirement(whole=(made,), parts=(pipeline, two), relation="at least", source=f"{_PIPELINE} pipeline_llm")
    if not said["parallelism.pipeline_parallel_schedule_csv"]:
        batch = said.number("training.local_batch_size")
        micro = said.number("parallelism.pipeline_parallel_microbatch_size")
        yield Requirement(whole=(batch,), parts=(micro,), source=f"{_PIPELINE} build_pipeline_schedule")
        if said["parallelism.pipeline_parallel_schedule"].lower() == "1f1b":
            source = "torch/distributed/pipelining/schedules.py Schedule1F1B.__init__"
            yield Requirement(whole=(batch,), parts=(micro, pipeline), relation="at least", source=source)


def architecture(said: Said) -> Architecture:
    """The experiment's model. Raises ValueError if it is not known."""
    from primus.models import torchtitan

    return torchtitan.architecture(said)


def spread(said: Said, model: Architecture, gpus: int) -> Layout:
    """How the model is spread over so many GPUs, or over more if its parallelism takes more."""
    part = {name: _degree(said, name).value for name in ("tensor", "pipeline", "context", "expert")}
    replicate, shard = (said[f"parallelism.data_parallel_{name}_degree"] for name in ("replicate", "shard"))
    whole = part["tensor"] * part["pipeline"] * part["context"]
    gpus = max(gpus, whole * replicate * max(1, shard))
    shard = shard if shard > 0 else max(1, gpus // (whole * replicate))
    batch = said["training.local_batch_size"]
    micro = said["parallelism.pipeline_parallel_microbatch_size"] if part["pipeline"] > 1 else batch
    mode, option = said["activation_checkpoint.mode"], said["activation_checkpoint.selective_ac_option"]
    every = int(option) if mode == "selective" and option.isdigit() else 0  # every so many layers: all of it
    full = said["training.dtype"] == "float32"
    fp8 = any("float8" in name for name in said["model.converters"])
    again = "full" if mode in ("full", "memory_budget") or every else "products" if mode == "selective" else mode
    # torchtitan/distributed/activation_checkpoint.py keeps every second mm of a layer; FP8's products are no mm.
    forced = said["activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns"]
    products = {"attention.wq": "query", "attention.wv": "value", "feed_forward.w1": "gate", "feed_forward.w2": "down"}
    kept = [short for name, short in products.items() if not any(word in name for word in forced)]
    return Layout(
        gpus=gpus,
        tensor=part["tensor"],
        pipeline=part["pipeline"],
        context=part["context"],
        expert=part["expert"] if model.moe else 1,
        expert_tensor=said["parallelism.expert_tensor_parallel_degree"] if model.moe else 1,
        sequence_parallel=part["tensor"] > 1,
        batch=micro,
        length=said["training.seq_len"],
        microbatches=max(1, batch // micro),
        recompute=again,
        recompute_layers=model.layers // part["pipeline"] // every if every else 0,
        products=() if fp8 else tuple(kept),
        fp8=fp8,
        shard_all=shard * part["context"] > 1,
        shards=shard * part["context"],
        parameter_bytes=4 if full else 2,
        gradient_bytes=4 if full else 2,
        optimizer_bytes=8 if full else 4,
    )


@cache
def _models() -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """models.json by name and flavor: torchtitan/models/*/__init__.py at the pin."""
    text = (resources.files("primus") / "backends/torchtitan/models.json").read_text(encoding="utf-8")
    return {
        (name, flavor): {
            "layers": row["n_layers"],
            "heads": row["n_heads"],
            "kv_heads": row.get("n_kv_heads"),
            "experts": row["moe_args"]["num_experts"] if "moe_args" in row and row.get("moe_enabled", True) else None,
        }
        for name, flavors in json.loads(text)["models"].items()
        for flavor, row in flavors.items()
    }


def precision(said: Said) -> str:
    converters = [str(name) for name in said["model.converters"] or ()]
    if any(name.endswith(".mx") for name in converters):
        return "mxfp8"
    if any(name.endswith(".float8") for name in converters):
        return "fp8"
    return {"bfloat16": "bf16", "float32": "fp32"}.get(said["training.mixed_precision_param"], "")
