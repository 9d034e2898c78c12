"""primus tune hipblaslt, and what `primus run` does for it"""

from __future__ import annotations

import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path

import click

from primus.cli import note
from primus.command import Command
from primus.errors import ConfigError
from primus.experiment import Experiment, Template
from primus.experiment.paths import absolute
from primus.job import Mount
from primus.record import Record
from primus.tune import results, shapes

# With one of these, hipBLASLt logs no products: the level beats the mask, and an override, even an empty one, ends it.
_SILENCING = ("HIPBLASLT_LOG_LEVEL", results.VARIABLE)
FOLDER = "hipblaslt"  # in a run's record

DUMP = click.option("--hipblaslt-dump", is_flag=True, hidden=True)
TUNING = click.option(
    "--hipblaslt-tuning",
    type=click.Path(path_type=Path),
    metavar="RESULT",
    help="Use the kernels that primus tune hipblaslt tune has found, for the same image, GPU and library.",
)


def dumping(experiment: Experiment, record: Path | None, *, nodes: int) -> Experiment:
    """The experiment with each process's products logged into the record.

    https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/reference/env-variables.html: mask 32 is bench, and %i in the
    name of the file is the number of the process, which is the same on two nodes as often as not.
    """
    if record is None:
        raise ConfigError(
            "primus tune hipblaslt dump: the direct launcher keeps no record to dump into",
            hint="leave --launcher out, or set HIPBLASLT_LOG_MASK=32 and HIPBLASLT_LOG_FILE yourself",
        )
    for name in _SILENCING:
        if name in experiment.env:
            raise ConfigError(f"{name} is in the experiment's env: hipBLASLt would log no products", hint="take it out")
    rank = "${NODE_RANK}" if nodes > 1 else "0"
    file = Template(f"{record / FOLDER}/node{rank}-%i.log")
    return replace(experiment, env={**experiment.env, "HIPBLASLT_LOG_MASK": "32", "HIPBLASLT_LOG_FILE": file})


def heard(environ: MutableMapping[str, str], *, dump: bool) -> None:
    """Take out of the shell's variables what would silence a dump; and say so if upstream's switch is among them."""
    for name in _SILENCING if dump else ():
        if environ.pop(name, None) is not None:
            note(f"{name} is left out: with it, hipBLASLt logs no products")
    if environ.get("PRIMUS_HIPBLASLT_TUNING", "0") not in ("", "0") and not dump:
        note("PRIMUS_HIPBLASLT_TUNING is upstream's: --from-env reads it, else primus tune hipblaslt is its place")


def tuned(experiment: Experiment, found: results.Results) -> Experiment:
    """The experiment with the result in use. Raises ConfigError if it names another itself."""
    if experiment.env.get(results.VARIABLE, str(found.tuning)) != str(found.tuning):
        raise ConfigError(
            f"--hipblaslt-tuning {found.path}: the experiment's env has {results.VARIABLE}", hint="leave one out"
        )
    return replace(experiment, env={**experiment.env, results.VARIABLE: str(found.tuning)})


def result(path: Path | None, environ: Mapping[str, str]) -> tuple[results.Results | None, tuple[Mount, ...]]:
    """The result that --hipblaslt-tuning names, announced, and the mount that shows it to a container."""
    if path is None:
        return None, ()
    found = results.load(absolute(path))
    if environ.get(results.VARIABLE, str(found.tuning)) != str(found.tuning):
        note(f"{results.VARIABLE} of this shell gives way to --hipblaslt-tuning")
    note(f"hipBLASLt uses the kernels of {found}")
    return found, (Mount(source=found.path, target=found.path, read_only=True),)


def prepare(record: Path) -> None:
    """Make the directory of the logs, as the user: the library makes none."""
    try:
        (record / FOLDER).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {record}: {error.strerror}") from error


def gather(directory: Path) -> Path:
    """Write the products of all logs in a directory to one file, say how many, and return its path."""
    found = shapes.read(shapes.logs(directory))
    for why, count in found.left_out.items():
        note(f"{count} line(s) left out: {why}")
    if not found.counts:
        raise ConfigError(
            f"{directory}: no product was logged",
            hint="hipBLASLt logs on GPUs only, and when the training got as far as its first step",
        )
    file = directory / shapes.FILE
    Command(argv=(), files={file: found.text()}).write()
    note(f"{len(found.counts)} products, asked for {sum(found.counts.values())} times: {file}")
    return file


def is_no_run(path: Path) -> bool:
    """Whether SHAPES|RUN is itself a file of products or a directory of logs, and so has no run to tell of it."""
    return path.is_file() or (path.is_dir() and bool(shapes.logs(path)))


def products(text: str, workspace: Path) -> Path:
    """The file of products that SHAPES|RUN means: a file, or that of logs or of a run, made anew from its logs."""
    from primus.record import find

    path = Path(text)
    if is_no_run(path):
        return absolute(path) if path.is_file() else gather(absolute(path))
    record: Record = find(text, workspace)
    if not shapes.logs(record.path / FOLDER):
        raise ConfigError(
            f"{record.path}: this run dumped no products", hint="primus tune hipblaslt dump --config FILE runs one"
        )
    return gather(record.path / FOLDER)


def finish(code: int, record: Path) -> None:
    """After a run that dumped: one file of products; a run that failed has said so already."""
    try:
        print(gather(record / FOLDER))
    except ConfigError:
        if code == 0:
            raise
    sys.exit(code)
