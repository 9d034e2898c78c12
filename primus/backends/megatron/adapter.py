"""Megatron-LM (megatron-core 0.19.2): an experiment as a torchrun command with Megatron's own flags."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from primus.backends import torchrun
from primus.command import Command
from primus.errors import ConfigError, Problem
from primus.experiment import Experiment, Template
from primus.experiment.paths import absolute, is_file
from primus.experiment.types import LAYERS
from primus.node import Node

# The kernels of hybrid_layer_pattern's layers, which run on a GPU only: M is Mamba, G gated delta net.
_KERNELS = {"M": ("mamba_ssm", "causal_conv1d"), "G": ("fla", "causal_conv1d")}

# Primus-Turbo's switches, which stand on Transformer Engine's layers; its attention calls AITER's kernels.
_TURBO = {"use_turbo_attention": ("primus_turbo", "aiter"), "use_turbo_grouped_gemm": ("primus_turbo",)}

# Inputs that may be a name on the Hugging Face hub; the others are paths.
HUB = frozenset({"tokenizer_model"})
_DATA = ("data_path", "train_data_path", "valid_data_path", "test_data_path")
# What makes an input that is missing.
MAKERS = dict.fromkeys(_DATA, "primus data prepare-megatron makes data of text; its name is without .bin or .idx")


def modules(experiment: Experiment) -> dict[str, str]:
    """The Python modules this run imports, each with what needs it."""
    needed = {"megatron": "framework: megatron"}
    pattern = experiment.args.get("hybrid_layer_pattern") or experiment.args.get("hybrid_override_pattern") or ""
    kind = experiment.args.get("transformer_impl", "transformer_engine")
    if pattern and not experiment.args.get("spec"):
        needed["transformer_engine"] = "hybrid_layer_pattern: Megatron has such layers for Transformer Engine alone"
    elif kind == "transformer_engine":
        needed["transformer_engine"] = "transformer_impl: transformer_engine (transformer_impl=local does not)"
    for symbol, kernels in _KERNELS.items():
        if symbol in pattern:
            needed |= dict.fromkeys(kernels, f"hybrid_layer_pattern: its layers {symbol}")
    if experiment.args.get("enable_primus_turbo"):
        for switch, packages in _TURBO.items():
            if experiment.args.get(switch):
                needed |= dict.fromkeys(packages, switch)
    if experiment.args.get("wandb_project"):
        needed["wandb"] = "wandb_project"
    return needed


def inputs(experiment: Experiment) -> tuple[str, ...]:
    """The arguments that name files, directories or hub repositories this run reads."""
    lists = ("data_args_path", "per_split_data_args_path", "per_dataset_sequences_path")
    made_up = experiment.args.get("mock_data", False)
    return (
        *("load", "pretrained_checkpoint", "tokenizer_model", "vocab_file", "merge_file", "metadata_path"),
        *(() if made_up else (*_DATA, *lists)),
    )


def unfolded(experiment: Experiment) -> Experiment:
    """The experiment with what its list files name in their place: a container has to be shown it, a bundle to have it.

    The files are read as Megatron does (get_blend_and_blend_per_split); one that is not here stays. Raises ConfigError.
    """
    args, origins = dict(experiment.args), dict(experiment.origins)
    if args.get("mock_data"):
        return experiment
    for key, names in (("data_args_path", ("data_path",)), ("per_split_data_args_path", _DATA[1:])):
        path = absolute(value) if isinstance(value := args.get(key), str) and not isinstance(value, Template) else None
        if path is None or not is_file(path):
            continue
        args[key] = None
        for name, said in zip(names, _listed(path, key, len(names)), strict=True):
            args[name] = said
            if key in origins:
                origins[name] = origins[key]
    return replace(experiment, args=args, origins=origins)


def _listed(path: Path, key: str, count: int) -> list[list[str]]:
    """The words of a list file; of one for each split, those of train, valid and test."""
    try:
        text = path.read_text(encoding="utf-8")
        if count == 1:
            return [text.split()]
        said = json.loads(text)
        words = [said[split] for split in ("train", "valid", "test")]
        return [one.split() if isinstance(one, str) else [str(word) for word in one] for one in words]
    except (OSError, ValueError, LookupError, TypeError) as error:
        what = f"it has no {error.args[0]!r}" if isinstance(error, KeyError) else str(error)
        raise ConfigError(
            f"{key}: {path} cannot be read: {what}",
            hint="paths and weights, parted by blanks"
            if count == 1
            else 'JSON: {"train": [...], "valid": [...], "test": [...]}, paths and weights',
        ) from error


def problems(experiment: Experiment) -> Iterator[Problem]:
    """What was let through and no flag can say (of Megatron's own, each value but the default has one); the warm-up."""
    yield from _warmup(experiment)
    for name in experiment.unknown:
        where = str(experiment.origins[name].origin) if name in experiment.origins else ""
        if isinstance(experiment.args.get(name.partition(".")[0]), Mapping):
            yield Problem(message=f"{name}: a flag cannot hold a mapping", where=where)
        elif experiment.args.get(name) is False:
            yield Problem(
                message=f"{name}: false is no flag of an argument that the launcher does not know",
                where=where,
                hint="leave it out, or let the flag through that turns it off",
            )


def _warmup(experiment: Experiment) -> Iterator[Problem]:
    """It must end before the decay does (megatron/core/optimizer_param_scheduler.py)."""
    args = experiment.args
    for unit in ("iters", "samples"):
        over = next((name for name in (f"lr_decay_{unit}", f"train_{unit}") if args.get(name)), "")
        warm = args.get(f"lr_warmup_{unit}")
        if not over or not warm or isinstance(warm, Template) or isinstance(args[over], Template) or warm < args[over]:
            continue
        names = [name for name in (over, f"lr_warmup_{unit}") if name in experiment.origins]
        last = max(names, key=lambda name: LAYERS.index(experiment.origins[name].origin.layer), default="")
        yield Problem(
            message=f"lr_warmup_{unit} {warm}: is not less than {over} {args[over]}, and Megatron stops at once",
            where=str(experiment.origins[last].origin) if last else "",
            hint=f"write lr_warmup_{unit}={min(warm, args[over] // 10)}",
        )


def command(experiment: Experiment, node: Node, run_dir: Path) -> Command:
    """torchrun with one process per GPU (or per CPU process) and every argument as a flag."""
    env = torchrun.environment(experiment.accelerator, node)
    if not (experiment.args.get("use_torch_fsdp2") or experiment.args.get("use_megatron_fsdp")):
        env["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"  # Megatron insists on it; with FSDP it insists on the opposite
    return Command(
        argv=(
            *torchrun.argv(node, run_dir, "primus.backends.megatron.worker", shown=torchrun.first_and_last(node)),
            experiment.accelerator,
            *flags(_with_places(experiment.args, run_dir)),
        ),
        env=env,
    )


def preparation(experiment: Experiment, options: Mapping[str, Any], sources: tuple[Path, ...]) -> Command:
    """Writes .bin and .idx files from text, with the tokenizer that the experiment's arguments describe."""
    return Command(
        argv=(
            *("python", "-W", "ignore", "-m", "primus.backends.megatron.prepare"),
            *flags(options),
            *flags(experiment.args),
            *("--", *map(str, sources)),
        ),
        # What is only named is in the process's own environment already.
        env={name: value for name, value in experiment.env.items() if not isinstance(value, Template)},
    )


def _with_places(args: Mapping[str, Any], run_dir: Path) -> dict[str, Any]:
    """The arguments, with what is written in the run directory: always the same, so that a run resumes."""
    placed = dict(args)
    # Megatron saves where it has both a place and an interval, and refuses one without the other.
    if placed.get("save_interval"):
        placed.setdefault("save", "checkpoints")
    # Indexes of the data: Megatron's default is beside the data, which a container mounts read-only.
    placed.setdefault("data_cache_path", "data_cache")
    placed.setdefault("tensorboard_dir", "tensorboard")
    for name in ("save", "data_cache_path", "tensorboard_dir"):
        if placed.get(name):
            placed[name] = str(run_dir / placed[name])
    # Megatron starts anew where there is no checkpoint yet.
    if placed.get("save"):
        placed.setdefault("load", placed["save"])
    return placed


def flags(args: Mapping[str, Any]) -> Iterator[str]:
    """The arguments as Megatron's flags, in the order of their names; null is Megatron's default."""
    table = _table()
    for name, value in sorted(args.items()):
        row = table.get(name, {})
        if value is None:
            continue
        if any(isinstance(item, Template) for item in (value if isinstance(value, list) else [value])):
            raise ConfigError(
                f"{name}: is a secret, and Megatron prints its arguments",
                hint="trackers and hubs read theirs from the environment: WANDB_API_KEY, HF_TOKEN",
            )
        if isinstance(value, bool):
            # A flag for what is not the default, or one for each value; what is in no table was let through.
            word = row.get(str(value).lower(), "" if row or not value else _spelt(name))
            yield from (word,) if word else ()
        elif isinstance(value, Mapping):
            raise ConfigError(f"{name}: a flag cannot hold a mapping")
        elif isinstance(value, list):
            yield from (row.get("flag", _spelt(name)), *map(str, value)) if value else ()
        else:
            yield f"{row.get('flag', _spelt(name))}={value}"


def _spelt(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    """arguments.json by name. A flag is spelt as its argument unless the row says how ("flag"; for a boolean the one
    that makes it "true" or "false")."""
    text = (resources.files("primus") / "backends/megatron/arguments.json").read_text(encoding="utf-8")
    return {row["name"]: row for row in json.loads(text)["arguments"]}
