"""Many experiments at once: finding them, and going through them with as many processes as there are cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import click

from primus.cli import note
from primus.errors import ConfigError
from primus.experiment.paths import exists
from primus.models.gpus import SKUS

# Below this many for each, starting processes takes longer than what they save.
_WORTH_A_PROCESS = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


def experiments(given: Iterable[Path]) -> list[Path]:
    """The files, and those below the directories, each once. Raises ConfigError for a directory without any."""
    found: dict[Path, None] = {}
    for path in given:
        if not exists(path) or not path.is_dir():
            found[path] = None
            continue
        inside = [file for file in sorted(path.rglob("*.y*ml")) if _is_experiment(file.relative_to(path))]
        if not inside:
            raise ConfigError("no *.yaml below this directory is an experiment", where=str(path))
        found.update(dict.fromkeys(inside))
    return list(found)


def _is_experiment(file: Path) -> bool:
    """Whether the file is one by its place: no preset, no settings, nothing hidden."""
    return (
        file.suffix in (".yaml", ".yml")
        and file.name != "primus.yaml"
        and not any(part.startswith(".") for part in file.parts)
        and not {"modules", "models"} & {*file.parts[:-1]}
    )


def each(function: Callable[[Item], Result], items: Sequence[Item], *, label: str) -> list[Result]:
    """The function's results in the order of the items; on a terminal with a progress bar."""
    hidden = len(items) <= _WORTH_A_PROCESS or not sys.stderr.isatty()
    results = []
    with click.progressbar(length=len(items), label=label, file=sys.stderr, hidden=hidden) as bar:
        for result in _each(function, items):
            results.append(result)
            bar.update(1)
    return results


def _each(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    processes = min(len(os.sched_getaffinity(0)), len(items) // _WORTH_A_PROCESS)
    if processes < 2:
        yield from map(function, items)
        return
    import multiprocessing

    # A fork has everything imported already; nothing here has threads.
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(function, items, chunksize=8)


def note_other_gpu(paths: Sequence[Path], accelerator: str | None) -> None:
    """Say so if the option makes CPU runs of examples that are written for a GPU."""
    gpus = {path.absolute().parent.name for path in paths if path.absolute().parent.parent.name == "configs"}
    if accelerator == "cpu" and (meant := sorted(gpus & SKUS.keys())):
        note(f"--accelerator cpu: written for {', '.join(meant)}, and taken as it is; examples/*/configs/CPU are small")


def gpus_of(accelerator: str, given: int | None) -> int:
    """GPUs of a node that is not this one: as given, or 8, which AMD's training servers have; on cpu one process."""
    return given or (8 if accelerator == "rocm" else 1)
