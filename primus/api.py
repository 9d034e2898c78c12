"""What a Python program does with Primus: load experiments, check them, build their commands, read what became of them.

Nothing here starts, writes or asks for anything: whoever has a Command may run it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from primus import job, layout
from primus.command import Command
from primus.errors import ConfigError, PrimusError, Problem
from primus.experiment import Experiment, load_experiment
from primus.experiment.paths import absolute
from primus.job import Mount, Slurm
from primus.launchers import container, direct, slurm
from primus.plan import Wanted, plan
from primus.record import DRY_RUN, Record, find, records

Launcher = Literal["container", "direct", "slurm"]


def check_experiment(
    path: Path | str,
    overrides: Sequence[str] = (),
    *,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    environ: Mapping[str, str] = os.environ,
    preset_dirs: Sequence[Path] = (),
    accelerator: str | None = None,
    allow_unknown: Sequence[str] = (),
) -> tuple[Problem, ...]:
    """All that `primus config check` finds wrong with the experiment in `path`; nothing, if it is well.

    With `nodes`, also whether it can start on so many, of `gpus_per_node` (8; on cpu, 1).
    """
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
    environ: Mapping[str, str] = os.environ,
) -> Command:
    """The command that `primus run --dry-run` shows first for this machine, with the files it wants to be written.

    The options are those of `primus run`, from nowhere else: settings files and PRIMUS_* variables are not looked at;
    the nearest primus-images.lock.json above the current directory is. `env` are names of variables. `slurm_options`
    are Slurm's own (partition, time, ...). `run_id` names the record's directory: what starts commands gives each its
    own.
    `Command.start()` writes the files and starts it, `Command.exec()` becomes it; neither pulls an image, holds the run
    directory or keeps a record, as `primus run` does. Raises ConfigError for what cannot start.
    """
    if unknown := {*(slurm_options or {})} - {*Slurm.__dataclass_fields__}:
        raise ConfigError(
            f"slurm_options: there is no {', '.join(sorted(unknown))}",
            hint=f"there are {', '.join(Slurm.__dataclass_fields__)}",
        )
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
    made = plan(experiment, wanted, environ=environ, say=_silent)
    if launcher == "slurm":
        return slurm.dry_run((made,), environ)[0][1]
    if launcher == "direct":
        return direct.command(made, direct.node(made, environ), environ)
    return container.dry_run_here(made, environ)


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
