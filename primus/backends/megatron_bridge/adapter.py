"""Megatron Bridge 0.6.2: an experiment as a recipe's name and the values that differ from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from primus.backends import torchrun
from primus.backends.megatron_bridge import recipes
from primus.command import Command
from primus.errors import ConfigError, Problem
from primus.experiment import Experiment, Template
from primus.node import Node

# What chooses the recipe; all other arguments are values of its configuration.
_CHOICE = ("recipe", "flavor", "hf_path", "peft_scheme")
# Arguments that need a package which is not among Bridge's imports -> the package.
_OPTIONAL = {
    "logger.wandb_project": "wandb",
    "logger.mlflow_experiment": "mlflow",
    "logger.comet_project": "comet_ml",
    "inprocess_restart.enabled": "nvidia_resiliency_ext",
    "ft.enable_ft_package": "nvidia_resiliency_ext",
    "nvrx_straggler.enabled": "nvidia_resiliency_ext",
    "tensor_inspect.enabled": "nvdlfw_inspect",
}

# Inputs that may be a name on the Hugging Face hub; the others are paths.
HUB = frozenset(
    {
        *("hf_path", "checkpoint.pretrained_checkpoint", "checkpoint.hf_source_path", "tokenizer.tokenizer_model"),
        *("dataset.hf_dataset.path_or_dataset", "dataset.hf_validation_dataset.path_or_dataset"),
    }
)
# What makes an input that is missing.
MAKERS = {"dataset.data_path": "primus data prepare-megatron makes data of text; its name is without .bin or .idx"}


def modules(experiment: Experiment) -> dict[str, str]:
    """The Python modules this run imports, each with what needs it."""
    needed = dict.fromkeys(("megatron", "megatron.bridge"), "framework: megatron_bridge")
    # Some recipes have it one part deeper.
    places = ("model.transformer_impl", "model.transformer.transformer_impl")
    if "local" not in (_get(experiment.args, place) for place in places):
        needed["transformer_engine"] = (
            "model.transformer_impl: transformer_engine, which recipes have unless told otherwise "
            "(model.transformer_impl=local does not)"
        )
    return needed | {module: key for key, module in _OPTIONAL.items() if _get(experiment.args, key)}


def inputs(experiment: Experiment) -> tuple[str, ...]:
    """The arguments that name files, directories or hub repositories this run reads."""
    packed = ("packed_train_data_path", "packed_val_data_path", "packed_metadata_path")
    return (
        *("hf_path", "checkpoint.load", "checkpoint.pretrained_checkpoint", "checkpoint.hf_source_path"),
        *("tokenizer.tokenizer_model", "tokenizer.vocab_file", "tokenizer.merge_file"),
        *("dataset.data_path", "dataset.per_dataset_sequences_path", "dataset.dataset_root"),
        *("dataset.hf_dataset.path_or_dataset", "dataset.hf_validation_dataset.path_or_dataset"),
        *(f"dataset.offline_packing_specs.{name}" for name in packed),
    )


def fetched(experiment: Experiment) -> Iterator[tuple[str, str, str]]:
    """A recipe's own model is a name on the hub, if nothing is said instead."""
    if not experiment.args.get("hf_path"):
        name, _ = recipes.model(experiment.args)
        if name:
            yield "flavor", name, "give a directory: hf_path"


def problems(experiment: Experiment) -> Iterator[Problem]:
    """What keeps the experiment from being launched although each of its arguments is right."""
    for name in ("recipe", "flavor"):
        if not experiment.args.get(name):
            hint = "recipe: llama.llama3, flavor: llama3_8b_pretrain_config"
            yield Problem(message=f"{name}: is missing", where=str(experiment.source), hint=hint)
    if (flavor := experiment.args.get("flavor")) and recipes.recipe(flavor) is None:
        where = str(experiment.origins["flavor"].origin) if "flavor" in experiment.origins else ""
        yield Problem(
            message=f"flavor: Megatron Bridge 0.6.2 has {flavor} in name only: it cannot be built", where=where
        )


def command(experiment: Experiment, node: Node, run_dir: Path) -> Command:
    """torchrun with one process per GPU (or per CPU process), reading <run_dir>/megatron_bridge.json."""
    if wrong := tuple(problems(experiment)):
        raise ConfigError(wrong)
    _refuse_secrets(experiment.args, "")
    config = run_dir / "megatron_bridge.json"
    chosen = {name: experiment.args[name] for name in _CHOICE if experiment.args.get(name) is not None}
    values = {name: value for name, value in experiment.args.items() if name not in _CHOICE}
    settings = {**chosen, "stage": experiment.stage, "values": _with_places(values, run_dir)}
    return Command(
        argv=(
            *torchrun.argv(
                node,
                run_dir,
                "primus.backends.megatron_bridge.worker",
                shown=torchrun.first_and_last(node),
            ),
            experiment.accelerator,
            str(config),
        ),
        env=_environment(experiment, node, run_dir),
        files={config: json.dumps(settings, indent=2, ensure_ascii=False) + "\n"},
    )


def _environment(experiment: Experiment, node: Node, run_dir: Path) -> dict[str, str]:
    env = torchrun.environment(experiment.accelerator, node)
    env["NEMO_DATASETS_CACHE"] = str(run_dir / "data_cache")
    fsdp = any(
        _get(experiment.args, key)
        for key in ("dist.use_torch_fsdp2", "dist.use_megatron_fsdp", "ddp.use_megatron_fsdp")
    )
    return env if fsdp else env | {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}  # Megatron insists on it; with FSDP not


def _with_places(values: Mapping[str, Any], run_dir: Path) -> dict[str, Any]:
    """The values, with what is written in the run directory: always the same, so that a run resumes."""
    placed = {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    checkpoint, logger = placed.setdefault("checkpoint", {}), placed.setdefault("logger", {})
    checkpoint.setdefault("save", "checkpoints")
    logger.setdefault("tensorboard_dir", "tensorboard")
    for section, name in ((checkpoint, "save"), (logger, "tensorboard_dir"), (logger, "wandb_save_dir")):
        if section.get(name):
            section[name] = str(run_dir / section[name])
    # Bridge starts anew where there is no checkpoint yet.
    checkpoint.setdefault("load", checkpoint["save"])
    return placed


def _refuse_secrets(value: Any, path: str) -> None:
    if isinstance(value, Template):
        raise ConfigError(
            f"{path}: is a secret, and Megatron Bridge prints its arguments and saves them in its checkpoints",
            hint="trackers and hubs read theirs from the environment: WANDB_API_KEY, HF_TOKEN",
        )
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        _refuse_secrets(item, f"{path}.{name}" if path else str(name))


def _get(args: Mapping[str, Any], dotted: str, default: Any = None) -> Any:
    value: Any = args
    for name in dotted.split("."):
        if not isinstance(value, Mapping) or value.get(name) is None:
            return default
        value = value[name]
    return value
