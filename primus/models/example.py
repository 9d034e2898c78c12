"""The experiment that tries a model out: on mock data, for a few steps, with nothing saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from primus import layout
from primus.experiment.schema import schema
from primus.models import memory
from primus.models.architecture import Architecture
from primus.models.gpus import SKUS
from primus.models.preset import Row, scalar

_HEAD = """\
# {name} on mock data, for {steps} steps on {where}: a first test, not a recipe.
work_group: ${{PRIMUS_TEAM:amd}}
user_name: ${{PRIMUS_USER:root}}
exp_name: ${{PRIMUS_EXP_NAME:{name}-pretrain}}
workspace: ${{PRIMUS_WORKSPACE:./output}}

modules:
  pre_trainer:
    framework: {framework}
    config: {config}
    model: {name}.yaml
    overrides:
"""
_STEPS, _GPUS = 50, 8


def experiment(framework: str, name: str, model: Architecture, *, sku: str, rows: tuple[Row, ...] = ()) -> str:
    """The experiment's text, for the GPUs of a SKU; `rows` are the model's preset."""
    gpus, config = _GPUS, "pre_trainer.yaml"
    preset = {row.key: row.value for row in rows}
    if framework == "megatron":
        gpus, lines = _megatron(model, SKUS[sku], preset)
    elif framework == "megatron_bridge":
        config = "pretrain_trainer.yaml"
        gpus, lines = _megatron_bridge(model, SKUS[sku], str(preset["flavor"]))
    else:
        lines = {"torchtitan": _torchtitan, "maxtext": _maxtext}[framework](model)
    where = f"{gpus} GPUs" if gpus <= _GPUS else f"{gpus // _GPUS} nodes of {_GPUS} GPUs"
    head = _HEAD.format(name=name, framework=framework, config=config, steps=_STEPS, where=where)
    return head + "".join(f"      {line}\n" for line in lines)


def _length(model: Architecture) -> int:
    return min(4096, model.positions or 4096)


def _megatron(model: Architecture, gib: int, preset: dict[str, Any]) -> tuple[int, list[str]]:
    """The fewest GPUs on which the model is estimated to fit, and the arguments that spread it over them."""
    gpus, spread = _fewest(model, gib, preset)
    table = schema("megatron")
    said = {
        "mock_data": True,
        "train_iters": _STEPS,
        "lr_decay_iters": _STEPS,
        "lr_warmup_iters": 2,
        "lr": 1e-5,
        "micro_batch_size": 1,
        **{key: value for key, value in spread.items() if value != table.arguments[key].default},
        "seq_length": _length(model),
        "save": None,
    }
    if model.moe:
        said |= {"moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": True}
    return gpus, [f"{key}: {scalar(value)}" for key, value in said.items()]


def _megatron_bridge(model: Architecture, gib: int, flavor: str) -> tuple[int, list[str]]:
    """The same for Bridge, where every number is said: a recipe has its own for other GPUs."""
    gpus, spread = _fewest(model, gib, {"hidden_dropout": 0.0})
    length = _length(model)
    batch = spread.pop("global_batch_size")
    said = {
        "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "virtual_pipeline_model_parallel_size": None,
        "pipeline_model_parallel_layout": None,
        "context_parallel_size": 1,
        "expert_model_parallel_size": 1,
        "expert_tensor_parallel_size": None,
        **spread,
        "seq_length": length,
    }
    return gpus, [
        f"flavor: {flavor.replace('_sft_', '_pretrain_')}",
        "train:",
        f"  train_iters: {_STEPS}",
        "  micro_batch_size: 1",
        f"  global_batch_size: {batch}",
        "model:",
        *(f"  {key}: {scalar(value)}" for key, value in said.items()),
        "dataset:",
        f"  seq_length: {length}",
        "scheduler:",
        "  lr_warmup_iters: 2",
        "  lr_decay_iters: null",
        "validation:",
        "  eval_iters: 0",
        "checkpoint:",
        "  save: null",
    ]


def _fewest(model: Architecture, gib: int, preset: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    args = {"bf16": True, "use_distributed_optimizer": True, "micro_batch_size": 1, "seq_length": _length(model)}
    for gpus, spread in _spreads(model):
        tried = layout.Said(values=preset | args | spread, table=schema("megatron"), accelerator="rocm")
        found = layout.spread("megatron", tried, model, gpus)
        if found.gpus == gpus and memory.estimate(model, found).total < 0.9 * gib * memory.GIB:
            break
    return gpus, spread


def _spreads(model: Architecture) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbers of GPUs, and ways to spread a model over them that Megatron accepts, the simplest first."""
    kv_heads = model.heads if model.mla else model.kv_heads
    tensors = [size for size in (1, 2, 4, 8) if model.heads % size == 0 and kv_heads % size == 0]
    stages = [size for size in (1, 2, 4, 8, 16) if model.layers % size == 0]
    experts = [size for size in (1, 2, 4, 8, 16, 32, 64) if model.moe and model.moe.experts % size == 0] or [1]
    for gpus in (8, 16, 32, 64, 128, 256, 512, 1024):
        for recompute in (None, "full"):
            for pipeline in stages:
                for tensor in tensors:
                    fitting = [size for size in experts if gpus % (pipeline * tensor * size) == 0]
                    if gpus % (pipeline * tensor) or not fitting:
                        continue
                    yield (
                        gpus,
                        {
                            "global_batch_size": gpus // tensor,  # as many microbatches as there are stages
                            "tensor_model_parallel_size": tensor,
                            "sequence_parallel": tensor > 1,
                            "pipeline_model_parallel_size": pipeline,
                            "expert_model_parallel_size": fitting[-1],
                            "recompute_granularity": recompute,
                            "recompute_method": recompute and "uniform",
                            "recompute_num_layers": 1 if recompute else None,
                        },
                    )


def _torchtitan(model: Architecture) -> list[str]:
    return [
        "training:",
        "  dataset: synthetic",
        f"  steps: {_STEPS}",
        "  local_batch_size: 1",
        f"  seq_len: {_length(model)}",
        "lr_scheduler:",
        "  warmup_steps: 2",
        "activation_checkpoint:",
        "  mode: full",
    ]


def _maxtext(model: Architecture) -> list[str]:
    return [
        "dataset_type: synthetic",
        f"steps: {_STEPS}",
        "per_device_batch_size: 1",
        f"max_target_length: {_length(model)}",
        f"ici_fsdp_parallelism: {_GPUS}",
        "remat_policy: full",
        'profiler: ""',
    ]
