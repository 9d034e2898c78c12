"""A backend's arguments as the memory estimate sees them; what they must divide by is in backends/*/layout.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from primus.models.architecture import Architecture
from primus.models.memory import Layout

Args = Mapping[str, Any]

# Selective recomputation that keeps what matrix products give, and little else.
_PRODUCTS = ("core_attn", "layernorm", "act")
_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}


def layout(framework: str, args: Args, model: Architecture, gpus: int) -> Layout:
    """The layout of an experiment's arguments (all, by dotted name) on so many GPUs, or more if it takes more."""
    return _READERS[framework](args, model, gpus)


def frameworks() -> tuple[str, ...]:
    """The backends whose layouts can be read."""
    return tuple(_READERS)


def _megatron(args: Args, model: Architecture, gpus: int) -> Layout:
    tensor, pipeline = args["tensor_model_parallel_size"], args["pipeline_model_parallel_size"]
    context, expert = args["context_parallel_size"], args["expert_model_parallel_size"]
    expert_tensor = args["expert_tensor_parallel_size"] or tensor
    gpus = max(gpus, pipeline * max(tensor * context, expert * expert_tensor if model.moe else 1))
    fsdp = args["use_torch_fsdp2"] or (
        args["use_megatron_fsdp"] and args["data_parallel_sharding_strategy"] == "optim_grads_params"
    )
    half = args["bf16"] or args["fp16"]
    # PyTorch's FSDP keeps gradients in the parameters' own type.
    short = args["grad_reduce_in_bf16"] or args["main_grads_dtype"] == "bf16" or args["use_torch_fsdp2"]
    micro = args["micro_batch_size"] or 1
    data = max(1, gpus // (tensor * pipeline * context))
    recompute = args["recompute_granularity"] or ("selective" if args["recompute_activations"] else "none")
    full = recompute == "full"
    per = args["recompute_num_layers"] if full and args["recompute_method"] == "block" else 0
    piece = args["num_layers_per_virtual_pipeline_stage"]
    virtual = args["num_virtual_stages_per_pipeline_rank"] or (model.layers // pipeline // piece if piece else 1)
    return Layout(
        gpus=gpus,
        tensor=tensor,
        pipeline=pipeline,
        virtual=max(1, virtual),
        first=args["decoder_first_pipeline_num_layers"] or 0,
        last=args["decoder_last_pipeline_num_layers"] or 0,
        context=context,
        expert=expert if model.moe else 1,
        expert_tensor=expert_tensor,
        sequence_parallel=args["sequence_parallel"] and tensor > 1,
        batch=micro,
        length=args["seq_length"] or 1,
        microbatches=max(1, (args["global_batch_size"] or micro * data) // (micro * data)),
        recompute=recompute,
        modules=tuple(args["recompute_modules"] or ("core_attn",)),
        recompute_layers=per or 0,
        flash=args["transformer_impl"] != "local",
        dropout=args["hidden_dropout"] > 0,
        fp8=bool(args["fp8"]),
        shard_optimizer=args["use_distributed_optimizer"],
        shard_all=fsdp,
        parameter_bytes=2 if half else 4,
        gradient_bytes=2 if half and short else 4,
        optimizer_bytes=_optimizer_bytes(args, half),
    )


def _optimizer_bytes(args: Args, half: bool) -> float:
    moments = {"adam": 2, "sgd": 1, "lion": 1}.get(args["optimizer"], 1)
    aware = args["use_precision_aware_optimizer"]
    sizes = [_BYTES[args[name]] if aware else 4 for name in ("exp_avg_dtype", "exp_avg_sq_dtype")[:moments]]
    main = (_BYTES[args["main_params_dtype"]] if aware else 4) if half else 0
    on_gpu = 1 - args["optimizer_offload_fraction"] if args["optimizer_cpu_offload"] else 1
    return float((main + sum(sizes)) * on_gpu)


def _torchtitan(args: Args, model: Architecture, gpus: int) -> Layout:
    part = {name: args[f"parallelism.{name}_parallel_degree"] for name in ("tensor", "pipeline", "context", "expert")}
    replicate, shard = (args[f"parallelism.data_parallel_{name}_degree"] for name in ("replicate", "shard"))
    whole = part["tensor"] * part["pipeline"] * part["context"]
    gpus = max(gpus, whole * replicate * max(1, shard))
    shard = shard if shard > 0 else max(1, gpus // (whole * replicate))
    batch = args["training.local_batch_size"]
    micro = args["parallelism.pipeline_parallel_microbatch_size"] if part["pipeline"] > 1 else batch
    mode, option = args["activation_checkpoint.mode"], args["activation_checkpoint.selective_ac_option"]
    every = int(option) if mode == "selective" and option.isdigit() else 0  # every so many layers: all of it
    sharded = shard * part["context"] > 1
    return Layout(
        gpus=gpus,
        tensor=part["tensor"],
        pipeline=part["pipeline"],
        context=part["context"],
        expert=part["expert"] if model.moe else 1,
        expert_tensor=args["parallelism.expert_tensor_parallel_degree"] if model.moe else 1,
        sequence_parallel=part["tensor"] > 1,
        batch=micro,
        length=args["training.seq_len"],
        microbatches=max(1, batch // micro),
        recompute="full" if mode in ("full", "memory_budget") or every else mode,
        recompute_layers=model.layers // part["pipeline"] // every if every else 0,
        modules=_PRODUCTS,
        fp8=any("float8" in name for name in args["model.converters"]),
        shard_all=sharded,
        shards=shard * part["context"],
        parameter_bytes=4 if args["training.dtype"] == "float32" else 2,
        gradient_bytes=4 if args["training.dtype"] == "float32" else 2,
        optimizer_bytes=8 if args["training.dtype"] == "float32" else 4,
    )


def _maxtext(args: Args, model: Architecture, gpus: int) -> Layout:
    inside, across = _axes(args, "ici", min(gpus, 8)), _axes(args, "dcn", max(1, gpus // 8))

    def ways(*names: str) -> int:
        return prod(inside.get(name, 1) * across.get(name, 1) for name in names)

    tensor, pipeline = ways("tensor", "tensor_transpose", "tensor_sequence"), ways("pipeline")
    context, expert, fsdp = ways("context", "sequence"), ways("expert"), ways("fsdp", "fsdp_transpose")
    weight = 2 if args["weight_dtype"] == "bfloat16" else 4
    policy = args["remat_policy"] or "none"
    without_mlp = ("mlp", "moe") if any(word in policy for word in ("except_mlp", "qkv_proj", "out_proj")) else ()
    return Layout(
        gpus=max(gpus, tensor * pipeline * context * expert * fsdp),
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        expert=expert if model.moe else 1,
        sequence_parallel=tensor > 1,  # MaxText splits hidden states along with the weights
        batch=max(1, int(args["per_device_batch_size"])) * max(1, tensor * context),
        length=args["max_target_length"],
        recompute="full" if policy == "full" else "none" if policy == "none" else "selective",
        modules=(*_PRODUCTS, *without_mlp),
        fp8="fp8" in (args["quantization"] or ""),
        shard_all=fsdp * expert > 1,
        shards=fsdp * expert * context,
        parameter_bytes=weight,
        gradient_bytes=weight,  # XLA casts them to grad_dtype as the optimizer reads them
        optimizer_bytes=weight + {"bfloat16": 2, "float32": 4}.get(args["mu_dtype"] or "", weight),
    )


def _axes(args: Args, network: str, devices: int) -> dict[str, int]:
    """How many ways each axis of a network is split; the one that says -1 takes what is left."""
    names = [name for name in args if name.startswith(f"{network}_") and name.endswith("_parallelism")]
    sizes = {name.removeprefix(f"{network}_").removesuffix("_parallelism"): args[name] for name in names}
    left = max(1, devices // prod(size for size in sizes.values() if size > 0))
    return {name: left if size == -1 else max(1, size) for name, size in sizes.items()}


_READERS: Mapping[str, Callable[[Args, Architecture, int], Layout]] = {
    "megatron": _megatron,
    "torchtitan": _torchtitan,
    "maxtext": _maxtext,
}
