"""What a Python program does with Primus: load experiments, check them, build their commands, read what became of them.

Nothing here starts, writes or asks for anything: whoever has a Command may run it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args

from primus import job, layout, shipped
from primus.command import Command
from primus.errors import ConfigError, PrimusError, Problem
from primus.experiment import Experiment, load_experiment
from primus.experiment.paths import absolute
from primus.image.runtimes import RUNTIMES
from primus.job import Mount, Slurm
from primus.launchers import container, direct, slurm
from primus.launchers import engine_args as engine_arguments
from primus.node import MOST
from primus.plan import Wanted, plan
from primus.record import DRY_RUN, Record, find, records

Launcher = Literal["container", "direct", "slurm"]


def check_experiment(
    path: Path | str,
    overrides: Sequence[str] = (),
    *,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    environ: Mapping[str, str] | None = None,
    preset_dirs: Sequence[Path] = (),
    accelerator: str | None = None,
    allow_unknown: Sequence[str] = (),
) -> tuple[Problem, ...]:
    """All that `primus config check` finds wrong with the experiment in `path`; nothing, if it is well.

    With `nodes`, also whether it can start on so many, of `gpus_per_node` (8; on cpu, 1).
    """
    _check_size(nodes, gpus_per_node)
    path = shipped.instead(Path(path)) or path
    try:
        found = load_experiment(
            path,
            overrides,
            environ=environ,
            preset_dirs=preset_dirs,
            accelerator=accelerator,
            allow_unknown=allow_unknown,
        )
        wrong = job.problems(found)
    except PrimusError as error:
        return error.problems
    gpus = gpus_per_node or (8 if found.accelerator == "rocm" else 1)
    return (*wrong, *layout.problems(found, nodes=nodes, gpus=gpus))


def build_command(
    experiment: Experiment,
    *,
    launcher: Launcher = "container",
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    image: str | None = None,
    registry: str = "",
    lock: Path | str | None = None,
    engine: str | None = None,
    mounts: Sequence[str] = (),
    env: Sequence[str] = (),
    engine_args: Sequence[str] = (),
    run_dir: Path | str | None = None,
    run_id: str = DRY_RUN,
    offline: bool = False,
    slurm_options: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Command:
    """The command that `primus run --dry-run` shows first for this machine, with the files it wants to be written.

    The options are those of `primus run`, from nowhere else: settings files and PRIMUS_* variables are not looked at;
    the nearest primus-images.lock.json above the current directory is. `env` are names of variables. `slurm_options`
    are Slurm's own (partition, time, ...). `run_id` names the record's directory: what starts commands gives each its
    own.
    `Command.start()` writes the files and starts it, `Command.exec()` becomes it; neither pulls an image, holds the run
    directory or keeps a record, as `primus run` does. Raises ConfigError for what cannot start.
    """
    for name, value, possible in (("launcher", launcher, get_args(Launcher)), ("engine", engine, (None, *RUNTIMES))):
        if value not in possible:
            raise ConfigError(f"{name}={value!r}: is none of {', '.join(filter(None, possible))}")
    _check_size(nodes, gpus_per_node)
    for name, words in (("mounts", mounts), ("env", env), ("engine_args", engine_args)):
        _check(name, words, _are_words(words), "is no list of strings")
    for word in env:
        _check("env", word, word.isidentifier(), "is no name of a variable")
    _check("run_dir", run_dir, run_dir is None or bool(str(run_dir)), "is empty")
    engine_arguments.check(engine_args)
    _check_slurm(slurm_options or {})
    wanted = Wanted(
        launcher=launcher,
        image=image,
        registry=registry,
        lock=None if lock is None else Path(lock),
        engine=engine,
        offline=offline,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        mounts=tuple(map(Mount.parse, mounts)),
        env=tuple(env),
        engine_args=tuple(engine_args),
        run_dir=None if run_dir is None else Path(run_dir),
        slurm=Slurm(**(slurm_options or {})),
        run_id=run_id,
    )
    environ = os.environ if environ is None else environ
    made = plan(experiment, wanted, environ=environ, say=_silent)
    if launcher == "slurm":
        return slurm.dry_run((made,), environ)[0][1]
    if launcher == "direct":
        return direct.command(made, direct.node(made, environ), environ)
    return container.dry_run_here(made, environ)


def _check(name: str, value: object, good: bool, wrong: str) -> None:
    if not good:
        raise ConfigError(f"{name}={value!r}: {wrong}")


def _check_size(nodes: int | None, gpus_per_node: int | None) -> None:
    for name, number in (("nodes", nodes), ("gpus_per_node", gpus_per_node)):
        _check(name, number, number is None or _is_count(number, 1), f"is no whole number from 1 to {MOST}")


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST


def _are_words(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(word, str) for word in value)


def _check_slurm(options: Mapping[str, Any]) -> None:
    """What the options of the command line convert and check is of its type here too."""
    kinds = {one.name: str(one.type) for one in fields(Slurm)}
    if unknown := {*options} - {*kinds}:
        raise ConfigError(
            f"slurm_options: there is no {', '.join(sorted(unknown))}", hint=f"there are {', '.join(kinds)}"
        )
    for name, value in options.items():
        kind = kinds[name].removesuffix(" | None")
        if value is None and kind != kinds[name]:
            continue
        good, wrong = {
            "str": (isinstance(value, str), "is no string"),
            "bool": (isinstance(value, bool), "is neither True nor False"),
            "int": (_is_count(value, 1 if name == "cpus_per_task" else 0), "is no whole number that can be"),
            "tuple[str, ...]": (_are_words(value), "is no list of strings"),
        }[kind]
        _check(f"slurm_options: {name}", value, good, wrong)


def _silent(text: str) -> None:
    """A lock without the image is all that there is to say, and the image's tag is then taken."""


def find_runs(where: Path | str = "output") -> tuple[Record, ...]:
    """The records at or below a workspace, a run directory or a record itself, the oldest first."""
    return tuple(sorted(records(absolute(where)), key=lambda one: one.path.name))


def find_run(run: str, workspace: Path | str = "output") -> Record:
    """The record that `primus logs RUN` means: by directory, identifier, Slurm's number or exp_name (its newest).

    Raises ConfigError if there is none.
    """
    return find(run, absolute(workspace))


def read_metrics(run: Record | Path | str) -> list[dict[str, Any]]:
    """The numbers of each step of a run, by the names of docs/watching.md; None is a number that is not finite."""
    record = run if isinstance(run, Record) else find(str(run), absolute("output"))
    return record.steps()
