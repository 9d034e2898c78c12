"""What megatron-core 0.19.2 demands of the numbers of a run, and how it spreads a model: for the backends built on it.

File and function of each demand stand beside it. Arguments have megatron.training's names; a backend with names of its
own gives a Said that takes these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

from primus.layout import Number, Requirement, Said, Size, computed
from primus.models.architecture import Architecture
from primus.models.memory import Layout

ARGUMENTS = "megatron/training/arguments.py validate_args"
_STATE = "megatron/core/parallel_state.py initialize_model_parallel"
_CONFIG = "megatron/core/transformer/transformer_config.py TransformerConfig.__post_init__"
_BLOCK = "megatron/core/transformer/transformer_block.py get_num_layers_to_build"
_BATCHES = "megatron/core/num_microbatches_calculator.py ConstantNumMicroBatchesCalculator"
_MAPPINGS = "megatron/core/tensor_parallel/mappings.py _reduce_scatter_along_first_dim"
_TP, _PP, _CP = "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"
_REPEATED = re.compile(r"\(([^()]*)\)\*(\d{1,4})")
_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}


def requirements(said: Said, size: Size | None) -> Iterator[Requirement]:
    """All of them; those about the number of processes where that is known."""
    if not said["use_mp_args_from_checkpoint_args"]:  # else the checkpoint decides how the model is split
        if size is not None:
            yield from _processes(said, size)
        if not (said["use_checkpoint_args"] or said["heterogeneous_layers_config_path"]):  # and what the model is
            yield from _model(said)
            yield from _pipeline(said)
        yield from _sequence(said)


def _processes(said: Said, size: Size) -> Iterator[Requirement]:
    tensor = _shards(said, said.number(_TP), "tensor_parallel_num_weight_shards")
    expert = said.number("expert_tensor_parallel_size") if said["expert_tensor_parallel_size"] else said.number(_TP)
    experts = _shards(said, expert, "expert_tensor_parallel_num_weight_shards")
    pipeline, world = said.number(_PP), size.world
    dense = (tensor, pipeline, said.number(_CP))
    whole = Requirement(whole=(world,), parts=dense, source=ARGUMENTS)
    yield whole
    yield Requirement(
        whole=(world,), parts=(experts, said.number("expert_model_parallel_size"), pipeline), source=_STATE
    )
    if not whole.met:
        return
    replicas = computed("data parallel size", size.world.value // prod(number.value for number in dense))
    micro = said.number("micro_batch_size")
    if said["global_batch_size"] is None:
        batch = computed("global batch size", micro.value * replicas.value, "one micro batch for each replica")
    else:
        batch = said.number("global_batch_size")
    if not said["decrease_batch_size_if_needed"]:
        yield Requirement(whole=(batch,), parts=(micro, replicas), source=_BATCHES)
    # Evaluation takes the training's sizes where it has none of its own, and must fit whatever the above says.
    own = said["eval_global_batch_size"], said["eval_micro_batch_size"]
    if any(own) or said["decrease_batch_size_if_needed"]:
        yield Requirement(
            whole=(said.number("eval_global_batch_size") if own[0] else batch,),
            parts=(said.number("eval_micro_batch_size") if own[1] else micro, replicas),
            source=ARGUMENTS,
        )
    virtual = _virtual(said)
    if virtual > 1 and not said["microbatch_group_size_per_vp_stage"]:
        yield Requirement(
            whole=(batch,),
            parts=(micro, replicas, pipeline),
            source="megatron/core/pipeline_parallel/schedules.py forward_backward_pipelining_with_interleaving",
        )


def _shards(said: Said, degree: Number, name: str) -> Number:
    """How many share one weight: megatron/core/model_parallel_config.py resolve_tensor_parallel_weight_shards"""
    return said.number(name) if said[name] else degree


def _model(said: Said) -> Iterator[Requirement]:
    tensor = said.number(_TP)
    if said["num_attention_heads"] is not None:
        yield Requirement(whole=(said.number("num_attention_heads", "model"),), parts=(tensor,), source=_CONFIG)
        if said["kv_channels"] is None and said["hidden_size"] is not None:
            yield Requirement(
                whole=(said.number("hidden_size", "model"),),
                parts=(said.number("num_attention_heads", "model"),),
                source=ARGUMENTS,
            )
    if said["group_query_attention"]:
        yield Requirement(
            whole=(said.number("num_query_groups", "model"),),
            parts=(tensor,),
            relation="multiple or divisor",
            source=_CONFIG,
        )
    if said["num_experts"]:
        yield Requirement(
            whole=(said.number("num_experts", "model"),),
            parts=(said.number("expert_model_parallel_size"),),
            source=ARGUMENTS,
        )


def _pipeline(said: Said) -> Iterator[Requirement]:
    """Layers over the stages. A layout of its own, or a hybrid's pattern, says itself what is where."""
    layers = said["num_layers"]
    if layers is None or said["pipeline_model_parallel_layout"]:
        return
    if said["hybrid_layer_pattern"] or said["hybrid_override_pattern"]:
        return
    pipeline, virtual = said.number(_PP), _virtual(said)
    first, last = said["decoder_first_pipeline_num_layers"], said["decoder_last_pipeline_num_layers"]
    names = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")
    uneven = tuple(name for name in names if said[name])
    if not uneven:
        extra = said["account_for_embedding_in_pipeline_split"] + said["account_for_loss_in_pipeline_split"]
        whole = said.number("num_layers", "model")
        if extra:
            whole = computed("layers", layers + extra, f"num_layers {layers}, and {extra} for embedding or loss")
        yield Requirement(whole=(whole,), parts=(pipeline, *_stages(said, virtual)), source=_BLOCK)
    else:
        kept = " and ".join(f"{said.name(name)} {said[name]}" for name in uneven)
        keys = tuple(map(said.name, uneven))
        layers -= (first or 0) + (last or 0)
        middle = computed(
            "layers of the middle stages", layers, f"num_layers {said['num_layers']} without {kept}", keys=keys
        )
        stages = pipeline.value - len(uneven)
        note = f"{pipeline.name} {pipeline.value} without {len(uneven)}"
        between = computed("middle stages", stages, note, keys=(pipeline.name,))
        if stages > 0:
            yield Requirement(whole=(middle,), parts=(between, *_stages(said, virtual)), source=_CONFIG)
        else:
            yield Requirement(whole=(middle,), parts=(between,), relation="equal", source=_CONFIG)
        for name in uneven if virtual > 1 else ():
            yield Requirement(whole=(said.number(name),), parts=_stages(said, virtual), source=_CONFIG)
    if virtual > 1:
        overlap = said["overlap_p2p_comm"]
        names = ("num_virtual_stages_per_pipeline_rank", "num_layers_per_virtual_pipeline_stage")
        keys = tuple(map(said.name, names))
        note = f"with virtual stages and overlap_p2p_comm: {str(overlap).lower()}"
        least = computed("", 2 if overlap else 3, note, keys=keys)
        yield Requirement(whole=(pipeline,), parts=(least,), relation="at least", source=ARGUMENTS)


def _virtual(said: Said) -> int:
    """The virtual stages of each pipeline rank, 1 if there are none."""
    if plan := said["pipeline_model_parallel_layout"]:
        text = plan if isinstance(plan, str) else "|".join("t" for _ in plan)
        stages = _REPEATED.sub(lambda match: match[1] * min(int(match[2]), 1024), text).count("|") + 1
        return max(1, stages // max(1, said.number(_PP).value))
    if said["num_virtual_stages_per_pipeline_rank"]:
        return said.number("num_virtual_stages_per_pipeline_rank").value
    each, layers, pipeline = said["num_layers_per_virtual_pipeline_stage"], said["num_layers"], said[_PP]
    if each and layers and pipeline:
        extra = said["account_for_embedding_in_pipeline_split"] + said["account_for_loss_in_pipeline_split"]
        return int(max(1, (layers + extra) // pipeline // each))
    return 1


def _stages(said: Said, virtual: int) -> tuple[Number, ...]:
    if said["num_layers_per_virtual_pipeline_stage"]:
        return (said.number("num_layers_per_virtual_pipeline_stage"),)
    return (said.number("num_virtual_stages_per_pipeline_rank"),) if virtual > 1 else ()


def _sequence(said: Said) -> Iterator[Requirement]:
    if said["seq_length"] is None:
        return
    sequence, context, tensor = said.number("seq_length"), said.number(_CP), said.number(_TP)
    if context.value > 1:
        two = computed("", 2, "each rank takes two pieces")
        yield Requirement(whole=(sequence,), parts=(context, two), source=ARGUMENTS)
    if said["sequence_parallel"] and tensor.value > 1:
        yield Requirement(whole=(sequence,), parts=(tensor, context), source=_MAPPINGS)
    if said["max_position_embeddings"] is not None and not said["use_checkpoint_args"]:
        yield Requirement(
            whole=(said.number("max_position_embeddings"),), parts=(sequence,), relation="at least", source=ARGUMENTS
        )


def spread(said: Said, model: Architecture, gpus: int) -> Layout:
    """How the model is spread over so many GPUs, or over more if its parallelism takes more."""
    tensor, pipeline, context = said.number(_TP).value, said.number(_PP).value, said.number(_CP).value
    expert = said.number("expert_model_parallel_size").value if model.moe else 1
    expert_tensor = said["expert_tensor_parallel_size"] or tensor
    gpus = max(gpus, pipeline * max(tensor * context, expert * expert_tensor if model.moe else 1))
    fsdp = said["use_torch_fsdp2"] or (
        said["use_megatron_fsdp"] and said["data_parallel_sharding_strategy"] == "optim_grads_params"
    )
    half = said["bf16"] or said["fp16"]
    # PyTorch's FSDP keeps gradients in the parameters' own type.
    short = said["grad_reduce_in_bf16"] or said["main_grads_dtype"] == "bf16" or said["use_torch_fsdp2"]
    micro = said["micro_batch_size"] or 1
    data = max(1, gpus // (tensor * pipeline * context))
    recompute = said["recompute_granularity"] or ("selective" if said["recompute_activations"] else "none")
    full = recompute == "full"
    virtual = _virtual(said)
    # Each virtual stage is a block of its own, which recomputes so many of its layers: megatron/core/recompute.py
    per = (said["recompute_num_layers"] or 0) * virtual if full and said["recompute_method"] == "block" else 0
    return Layout(
        gpus=gpus,
        tensor=tensor,
        pipeline=pipeline,
        virtual=virtual,
        first=said["decoder_first_pipeline_num_layers"] or 0,
        last=said["decoder_last_pipeline_num_layers"] or 0,
        context=context,
        expert=expert,
        expert_tensor=expert_tensor,
        routed=1,  # scores multiply what follows the activation function: megatron/core/transformer/moe/experts.py
        sequence_parallel=said["sequence_parallel"] and tensor > 1,
        batch=micro,
        length=said["seq_length"] or 1,
        microbatches=max(1, (said["global_batch_size"] or micro * data) // (micro * data)),
        recompute=recompute,
        modules=tuple(said["recompute_modules"] or ("core_attn",)),
        recompute_layers=per,
        flash=said["transformer_impl"] != "local",
        dropout=said["hidden_dropout"] > 0,
        fp8=bool(said["fp8"]),
        shard_optimizer=said["use_distributed_optimizer"],
        shard_all=fsdp,
        parameter_bytes=2 if half else 4,
        gradient_bytes=2 if half and short else 4,
        optimizer_bytes=_optimizer_bytes(said, half),
    )


def _optimizer_bytes(said: Said, half: bool) -> float:
    moments = {"adam": 2, "sgd": 1, "lion": 1}.get(said["optimizer"], 1)
    aware = said["use_precision_aware_optimizer"]
    sizes = [_BYTES[said[name]] if aware else 4 for name in ("exp_avg_dtype", "exp_avg_sq_dtype")[:moments]]
    main = (_BYTES[said["main_params_dtype"]] if aware else 4) if half else 0
    on_gpu = 1 - said["optimizer_offload_fraction"] if said["optimizer_cpu_offload"] else 1
    return float((main + sum(sizes)) * on_gpu)


def precision(said: Said) -> str:
    if said["fp4"]:
        return "fp4"
    if said["fp8"]:
        return "mxfp8" if said["fp8_recipe"] == "mxfp8" else "fp8"
    return "bf16" if said["bf16"] else "fp16" if said["fp16"] else "fp32"
