"""TorchTitan 0.2.2: an experiment as a TOML file and a torchrun command."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from primus.backends import torchrun
from primus.command import Command
from primus.errors import ConfigError, Problem
from primus.experiment import Experiment
from primus.experiment.substitute import escaped
from primus.node import Node

# Inputs that may be a name on the Hugging Face hub; the others are paths.
HUB = frozenset({"training.dataset_path", "validation.dataset_path"})


def modules(experiment: Experiment) -> dict[str, str]:
    """The Python modules this run imports, each with what needs it."""
    needed = {"torchtitan": "framework: torchtitan"}
    for name in experiment.args.get("model", {}).get("converters", []):
        if name.startswith("quantize."):
            needed["torchao"] = f"model.converters: {name}"
    return needed


def inputs(experiment: Experiment) -> tuple[str, ...]:
    """The arguments that name files, directories or hub repositories this run reads."""
    data = ("training.dataset_path", "validation.dataset_path", "model.hf_assets_path")
    synthetic = experiment.args.get("training", {}).get("dataset") == "synthetic"
    return ("checkpoint.initial_load_path", *(() if synthetic else data))


def fetched(experiment: Experiment) -> Iterator[tuple[str, str, str]]:
    """The arguments whose value stands for something on the hub, what that is, and what to write instead.

    DATASETS of torchtitan/hf_datasets/text_datasets.py
    """
    sections = ("training", "validation") if _section(experiment, "validation").get("enable") else ("training",)
    for name in sections:
        said = _section(experiment, name)
        dataset = said.get("dataset", "c4_test" if name == "training" else "c4_validation")
        if dataset in ("c4", "c4_validation") and not said.get("dataset_path"):
            yield f"{name}.dataset", "allenai/c4", f"give a directory that holds it: {name}.dataset_path"


def _section(experiment: Experiment, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = experiment.args.get(name)
    return found or {}


def problems(experiment: Experiment) -> Iterator[Problem]:
    """A flavor that the model does not have, unless code of the user's own may bring it."""
    said = experiment.args.get("model", {})
    name, flavor = said.get("name", "llama3"), said.get("flavor", "debugmodel")
    table = json.loads((resources.files("primus") / "backends/torchtitan/models.json").read_text(encoding="utf-8"))
    known = table["models"].get(name, {})
    if not known or flavor in known or flavor.startswith("debug") or experiment.args.get("experimental"):
        return
    near = difflib.get_close_matches(flavor.lower(), [one.lower() for one in known], 1)
    meant = next((f"did you mean {one}? " for one in known if near and one.lower() == near[0]), "")
    at = experiment.origins.get("model.flavor")
    yield Problem(
        message=f"model.flavor: TorchTitan's {name} has no {flavor!r}",
        where=str(at.origin) if at else "",
        hint=f"{meant}it has {', '.join(known)}, and debugmodel",
    )


def command(experiment: Experiment, node: Node, run_dir: Path) -> Command:
    """torchrun with one process per GPU (or per CPU process), reading <run_dir>/torchtitan.toml."""
    config = run_dir / "torchtitan.toml"
    return Command(
        argv=(
            *torchrun.argv(
                node, run_dir, "primus.backends.torchtitan.worker", shown=str(_shown_rank(experiment, node))
            ),
            experiment.accelerator,
            f"--job.config_file={config}",
        ),
        env=torchrun.environment(experiment.accelerator, node),
        files={config: _toml(experiment, run_dir)},
    )


def _shown_rank(experiment: Experiment, node: Node) -> int:
    """The local rank whose output is shown: with a pipeline, only the last stage knows the loss."""
    pipeline = experiment.args.get("parallelism", {}).get("pipeline_parallel_degree", 1)
    return node.gpus - 1 if pipeline > 1 else 0


def _toml(experiment: Experiment, run_dir: Path) -> str:
    args: dict[str, Any] = dict(experiment.args)
    job = args["job"] = dict(args.get("job", {}))
    job["dump_folder"] = str(run_dir / job.get("dump_folder", ""))
    # TOML has no null: a null here is the backend's default, which is null wherever null is allowed.
    try:
        return tomli_w.dumps(_without_null(escaped(args)))
    except TypeError as error:  # a null inside a list, where an unknown argument was let through
        raise ConfigError(f"torchtitan.toml cannot hold the arguments: {error}") from error


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return value
