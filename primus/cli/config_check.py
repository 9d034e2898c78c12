"""primus config check"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import click

from primus import layout
from primus.cli import note, report
from primus.cli.options import EXPERIMENT
from primus.errors import ConfigError, PrimusError, Problem
from primus.experiment import load_experiment
from primus.experiment.paths import exists, shown

# Below this, starting processes takes longer than what they save.
_WORTH_PROCESSES = 16


class _Way(NamedTuple):
    """How each file is checked, as every process needs to know it."""

    accelerator: str | None
    preset_dirs: tuple[Path, ...]
    allow_unknown: tuple[str, ...]
    nodes: int | None
    gpus_per_node: int | None


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE|DIRECTORY...")
@click.option("--nodes", type=click.IntRange(1), help="Check that they can start on so many nodes, too.")
@click.option("--gpus-per-node", type=click.IntRange(1), help="GPUs of each node; on cpu, processes.  [default: 8; 1]")
@EXPERIMENT
def check(
    files: tuple[Path, ...],
    nodes: int | None,
    gpus_per_node: int | None,
    accelerator: str | None,
    registry: str,
    preset_dirs: tuple[Path, ...],
    allow_unknown: tuple[str, ...],
) -> None:
    """Check experiments, and say everything that is wrong with each. Exits with 2 if anything is.

    Of a directory, every *.yaml below it is checked, but for presets (modules/, models/) and primus.yaml.
    What can never start, such as layers that do not divide by the stages, is refused in any case; whether the world
    size fits is seen with --nodes.
    """
    paths = experiments(files)
    way = _Way(accelerator, preset_dirs, allow_unknown, nodes, gpus_per_node)
    wrong = 0
    with click.progressbar(
        length=len(paths), label="checking", file=sys.stderr, hidden=len(paths) == 1 or not sys.stderr.isatty()
    ) as bar:
        found = []
        for path, problems in _checked(paths, way):
            bar.update(1)
            found.append((path, problems))
    for path, problems in found:
        if problems:
            wrong += 1
            if not any(problem.where.startswith(shown(path)) for problem in problems):
                note(f"{path}, by what it extends or stands on:")
            report(PrimusError(problems))
        elif len(paths) == 1:
            click.echo(f"{path}: ok")
    if wrong:
        note(f"{wrong} of {len(paths)} file(s) wrong")
        sys.exit(ConfigError.exit_code)
    if len(paths) > 1:
        click.echo(f"{len(paths)} files: ok")


def experiments(given: Iterable[Path]) -> list[Path]:
    """The files, and those below the directories, each once. Raises ConfigError for a directory without any."""
    found: dict[Path, None] = {}
    for path in given:
        if not exists(path) or not path.is_dir():
            found[path] = None
            continue
        inside = [file for file in sorted(path.rglob("*.y*ml")) if _experiment(file.relative_to(path))]
        if not inside:
            raise ConfigError("no *.yaml below this directory is an experiment", where=str(path))
        found.update(dict.fromkeys(inside))
    return list(found)


def _experiment(file: Path) -> bool:
    """Whether the file is one by its place: no preset, no settings, nothing hidden."""
    folders = file.parts[:-1]
    return (
        file.suffix in (".yaml", ".yml")
        and file.name != "primus.yaml"
        and not any(part.startswith(".") for part in file.parts)
        and not {"modules", "models"} & {*folders}
    )


def _checked(paths: list[Path], way: _Way) -> Iterator[tuple[Path, tuple[Problem, ...]]]:
    """Each path with what is wrong with it, in their order; by several processes if they are many."""
    processes = min(len(os.sched_getaffinity(0)), len(paths) // _WORTH_PROCESSES)
    if processes < 2:
        for path in paths:
            yield path, _check((path, way))
        return
    import multiprocessing

    # A fork has everything imported already; nothing here has threads.
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from zip(paths, pool.imap(_check, ((path, way) for path in paths), chunksize=8), strict=True)


def _check(job: tuple[Path, _Way]) -> tuple[Problem, ...]:
    path, way = job
    try:
        found = load_experiment(
            path, preset_dirs=way.preset_dirs, accelerator=way.accelerator, allow_unknown=way.allow_unknown
        )
    except PrimusError as error:
        return error.problems
    return layout.problems(found, nodes=way.nodes, gpus=gpus_of(found.accelerator, way.gpus_per_node))


def gpus_of(accelerator: str, given: int | None) -> int:
    """GPUs of a node that is not this one: as given, or 8, which all of AMD's training servers have."""
    return given or (8 if accelerator == "rocm" else 1)
