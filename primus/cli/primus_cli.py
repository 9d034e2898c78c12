"""primus-cli: upstream Primus' command line, translated."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from primus._version import __version__
from primus.cli import cli, note, report
from primus.errors import ConfigError, PrimusError
from primus.experiment.types import STAGES
from primus.experiment.yaml import Map, read
from primus.upstream.call import MODES, parse
from primus.upstream.settings import found, options
from primus.upstream.translation import shown, translate

USAGE = """\
Usage: primus-cli [--config FILE] [--debug] [--dry-run] MODE [OPTIONS]... -- train pretrain|posttrain --config FILE ...

  Upstream Primus' command line. It is translated to primus run, which is printed, and run.

Modes:
  direct     in this Python
  container  in a container on this machine
  slurm      in a container on each node of a Slurm job: slurm [srun|sbatch] [SLURM OPTIONS]...

primus run --help lists what it is translated to, docs/migrating.md the words of both."""


def main() -> None:
    """The console script. Its exit codes are those of primus."""
    words = sys.argv[1:]
    mine = words[: words.index("--")] if "--" in words else words
    if not words or {"-h", "--help"} & {*mine}:
        click.echo(USAGE)
        sys.exit(0)
    if "--version" in mine and not {*MODES} & {*mine}:
        click.echo(f"primus {__version__}")
        sys.exit(0)
    if {"-h", "--help"} & {*words}:
        cli(["run", "--help"], prog_name="primus")
    try:
        _run(words)
    except PrimusError as error:
        report(error)
        sys.exit(error.exit_code)


def _run(words: list[str]) -> None:
    try:
        cwd = str(Path.cwd())
    except FileNotFoundError:
        raise ConfigError("the current directory does not exist any more") from None
    call = parse(words)
    settings = found(call.settings, os.environ)
    made = translate(call, file=options(settings) if settings else None, environ=os.environ, cwd=cwd)
    _refuse_other_half(made.suite, made.config)
    if settings is not None:
        note(f"{settings} is upstream's file of settings; ours is primus.yaml")
    for text in made.notes:
        note(text)
    note(f"in the new form: {shlex.join(('primus', *shown(made.words)))}")
    cli(list(made.words), prog_name="primus")


def _refuse_other_half(suite: str, config: str) -> None:
    """`train posttrain` with an experiment that pretrains, and the other way round, would train something else."""
    try:
        modules = read(Path(config), layer="experiment").items.get("modules")
    except PrimusError:
        return  # what is wrong with the file is said by who loads it
    names = [name for name in modules.items if name in STAGES] if isinstance(modules, Map) else []
    if names and suite not in {STAGES[name] for name in names}:
        other = STAGES[names[0]]
        raise ConfigError(f"train {suite}: {config} is an experiment to {other}", hint=f"write train {other}")


if __name__ == "__main__":
    main()
