"""primus report"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from primus import failure
from primus.cli import note
from primus.cli.later import later
from primus.cli.options import WORKSPACE
from primus.command import Command, write_bytes
from primus.errors import ConfigError, PrimusError
from primus.experiment import load_experiment
from primus.experiment.paths import absolute
from primus.experiment.render import as_json
from primus.launchers.state import states
from primus.record import Record, find, now
from primus.report.page import page, title
from primus.report.runs import gather


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, short_help="Write a page about runs.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=later("runs"))
@WORKSPACE
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="[default: report.html in the record of the run; of several, in this directory]",
)
@click.option(
    "--png", type=click.Path(dir_okay=False, path_type=Path), help="A picture of loss and throughput, instead."
)
def report(runs: tuple[str, ...], workspace: Path, output: Path | None, png: Path | None) -> None:
    """Write one HTML page about one run, or about several side by side, and print its path.

    Curves, times, configuration with where each value is said, environment, and the last lines of a node that failed.
    The page needs no network; --png wants matplotlib: pip install 'primus[png]'. RUN is what primus logs takes: a
    directory, an identifier, a job's number, an exp_name.
    """
    found = list({record.path: record for record in (find(run, absolute(workspace)) for run in runs)}.values())
    now_states = states(found)
    pages = [
        gather(one, state=str(now_states[one.path]), config=_config(one), why=failure.explain(one)) for one in found
    ]
    for one in pages:
        if not one.steps:
            note(f"{one.name}: no step is recorded")
    if png is not None:
        from primus.report.png import picture

        _placed(png, "--png")
        write_bytes(absolute(png), picture(title(pages), pages))
        click.echo(absolute(png))
        if output is None:
            return
    target = absolute(output) if output else (found[0].path if len(found) == 1 else Path.cwd()) / "report.html"
    if output:
        _placed(output, "--output")
    Command(argv=(), files={target: page(pages, now=now())}).write()
    click.echo(target)


def _placed(path: Path, option: str) -> None:
    if not absolute(path).parent.is_dir():
        raise ConfigError(f"{option} {path}: {absolute(path).parent} is no directory", hint="create it first")


def _config(record: Record) -> dict[str, Any]:
    """For a record of before there was a config.json: the resolved experiment, which says everything itself."""
    if record.read("config.json"):
        return {}
    try:
        experiment = load_experiment(record.experiment, environ={})
    except (PrimusError, OSError):
        return {}
    values: dict[str, Any] = json.loads(as_json(experiment, image="", origins=True))
    return values
