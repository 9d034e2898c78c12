"""primus config check"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import click

from primus import job, layout, shipped
from primus.cli import note, report
from primus.cli.later import later
from primus.cli.many import each, experiments, gpus_of, note_other_gpu
from primus.cli.options import COUNT, EXPERIMENT, without_assignments
from primus.errors import ConfigError, PrimusError, Problem
from primus.experiment import load_experiment
from primus.experiment.paths import shown
from primus.experiment.types import COMMAND_LINE


class _Way(NamedTuple):
    """How each file is checked, as every process needs to know it."""

    accelerator: str | None
    preset_dirs: tuple[Path, ...]
    allow_unknown: tuple[str, ...]
    nodes: int | None
    gpus_per_node: int | None
    overrides: tuple[str, ...]


@click.command()
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE|DIRECTORY... [KEY=VALUE]...",
    callback=without_assignments,
    shell_complete=later("config_file"),
)
@click.option("--nodes", type=COUNT, help="Check that they can start on so many nodes, too.")
@click.option("--gpus-per-node", type=COUNT, help="GPUs of each node; on cpu, processes.  [default: 8; 1]")
@EXPERIMENT
def check(
    files: tuple[str, ...],
    nodes: int | None,
    gpus_per_node: int | None,
    accelerator: str | None,
    registry: str,
    preset_dirs: tuple[Path, ...],
    allow_unknown: tuple[str, ...],
    overrides: tuple[str, ...],
) -> None:
    """Check experiments, and say everything that is wrong with each. Exits with 2 if anything is.

    Of a directory, every *.yaml below it is checked, but for presets (modules/, models/) and primus.yaml.
    What can never start, such as layers that do not divide by the stages, is refused in any case; whether the world
    size fits is seen with --nodes. KEY=VALUE, after the files, overrides an argument of them all.
    """
    if not files:
        raise click.UsageError(f"Missing argument 'FILE|DIRECTORY...' before {overrides[0]}.")
    paths = experiments(shipped.instead(Path(name)) or Path(name) for name in files)
    note_other_gpu(paths, accelerator)
    way = _Way(accelerator, preset_dirs, allow_unknown, nodes, gpus_per_node, overrides)
    wrong = 0
    found = each(_check, [(path, way) for path in paths], label="checking")
    for path, problems in zip(paths, found, strict=True):
        if problems:
            wrong += 1
            if all(problem.where.startswith(COMMAND_LINE) for problem in problems):
                note(f"{path}:")
            elif not any(problem.where.startswith(shown(path)) for problem in problems):
                note(f"{path}, by what it extends or stands on:")
            report(PrimusError(problems))
        elif len(paths) == 1:
            click.echo(f"{path}: ok")
    if wrong:
        note(f"{wrong} of {len(paths)} file(s) wrong")
        sys.exit(ConfigError.exit_code)
    if len(paths) > 1:
        click.echo(f"{len(paths)} files: ok")


def _check(task: tuple[Path, _Way]) -> tuple[Problem, ...]:
    path, way = task
    try:
        found = load_experiment(
            path,
            way.overrides,
            preset_dirs=way.preset_dirs,
            accelerator=way.accelerator,
            allow_unknown=way.allow_unknown,
        )
    except PrimusError as error:
        return error.problems
    try:
        wrong = job.problems(found)
    except PrimusError as error:
        wrong = error.problems
    return (*wrong, *layout.problems(found, nodes=way.nodes, gpus=gpus_of(found.accelerator, way.gpus_per_node)))
