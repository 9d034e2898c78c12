"""The experiment that tries a model out: on mock data, for a few steps, with nothing saved."""

from __future__ import annotations

from primus.models.architecture import Architecture

SKUS = ("MI300X", "MI325X", "MI350X", "MI355X")

_HEAD = """\
# {name} on mock data, for {steps} steps on {gpus} GPUs: a first test, not a recipe.
work_group: ${{PRIMUS_TEAM:amd}}
user_name: ${{PRIMUS_USER:root}}
exp_name: ${{PRIMUS_EXP_NAME:{name}-pretrain}}
workspace: ${{PRIMUS_WORKSPACE:./output}}

modules:
  pre_trainer:
    framework: {framework}
    config: pre_trainer.yaml
    model: {name}.yaml
    overrides:
"""
_STEPS, _GPUS = 50, 8


def experiment(framework: str, name: str, model: Architecture) -> str:
    """The experiment's text."""
    lines = {"megatron": _megatron, "torchtitan": _torchtitan, "maxtext": _maxtext}[framework](model)
    head = _HEAD.format(name=name, framework=framework, steps=_STEPS, gpus=_GPUS)
    return head + "".join(f"      {line}\n" for line in lines)


def _length(model: Architecture) -> int:
    return min(4096, model.positions or 4096)


def _megatron(model: Architecture) -> list[str]:
    lines = [
        "mock_data: true",
        f"train_iters: {_STEPS}",
        f"lr_decay_iters: {_STEPS}",
        "lr_warmup_iters: 2",
        "lr: 1.0e-5",
        "micro_batch_size: 1",
        f"global_batch_size: {_GPUS}",
        f"seq_length: {_length(model)}",
        "save: null",
    ]
    if model.moe:
        lines += [
            f"expert_model_parallel_size: {next(size for size in (8, 4, 2, 1) if model.moe.experts % size == 0)}",
            "moe_token_dispatcher_type: alltoall",
            "moe_grouped_gemm: true",
        ]
    return lines


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
