"""primus doctor"""

from __future__ import annotations

import json
import os
import sys

import click

from primus.cli import note
from primus.cli.options import COUNT, REGISTRY, RUNTIME
from primus.cli.settings import with_settings
from primus.doctor.machine import FAIL, OK, WARN, Asked, Machine, Row
from primus.doctor.report import rows
from primus.experiment.schema import frameworks
from primus.job import default_engine
from primus.node import number

_COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    short_help="Look for what keeps a training from running on this machine.",
)
@click.option("--framework", type=click.Choice(frameworks()), help="Look at its image, too.")
@click.option("--nodes", type=COUNT, default=1, help="Nodes of the run to come.  [default: 1, or the step's]")
@click.option(
    "--accelerator",
    type=click.Choice(["rocm", "cpu"]),
    envvar="PRIMUS_ACCELERATOR",
    show_envvar=True,
    help="[default: rocm where there is a GPU]",
)
@click.option("--image", envvar="PRIMUS_IMAGE", show_envvar=True, help="[default: the image of the framework]")
@REGISTRY
@RUNTIME
@click.option("--offline", is_flag=True, envvar="PRIMUS_OFFLINE", show_envvar=True, help="Ask no registry.")
@click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def doctor(
    framework: str | None,
    nodes: int,
    accelerator: str | None,
    image: str | None,
    registry: str,
    engine: str | None,
    offline: bool,
    output: str,
) -> None:
    """Look for what keeps a training from running on this machine, and say what to do about it.

    On a laptop, a login node, inside an image, or on each node of a job: srun primus doctor. Changes nothing. The exit
    code is 1 if something fails.
    """
    machine = Machine.here()
    found = rows(
        machine,
        Asked(
            engine=engine or default_engine(),
            framework=framework or "",
            accelerator=accelerator or "",
            image=image or "",
            registry=registry,
            nodes=nodes,
            offline=offline,
        ),
    )
    if output == "json":
        click.echo(json.dumps({"host": machine.host, "rows": [row._asdict() for row in found]}, indent=1))
    elif (number(os.environ, "SLURM_STEP_NUM_TASKS", 1) or 1) > 1:
        _one_of_many(machine.host, found)
    else:
        _table(found)
    sys.exit(any(row.state == FAIL for row in found))


def _table(found: list[Row]) -> None:
    width = max(len(row.check) for row in found)
    for row in found:
        state = click.style(row.state.ljust(4), fg=_COLOURS[row.state], bold=row.state != OK)
        click.echo(f"{state}  {row.check.ljust(width)}  {row.found}")
        if row.state != OK and row.remedy:
            click.echo(f"      {' ' * width}  {click.style('hint: ', fg='cyan')}{row.remedy}")
    note(_summary(found))


def _one_of_many(host: str, found: list[Row]) -> None:
    """What is not ok, each line with the host's name, written at once: other nodes write, too."""
    wrong = [row for row in found if row.state != OK]
    lines = [f"{host}: {row.state}  {row.check}: {row.found} (hint: {row.remedy})" for row in wrong]
    click.echo("\n".join([*lines, f"{host}: {_summary(found)}"]))


def _summary(found: list[Row]) -> str:
    counts = {state: sum(row.state == state for row in found) for state in (FAIL, WARN)}
    if not any(counts.values()):
        return f"{len(found)} checks, nothing wrong"
    return f"{len(found)} checks: {counts[FAIL]} failed, {counts[WARN]} to look at"


doctor = with_settings(doctor)
