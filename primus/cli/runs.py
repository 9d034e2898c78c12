"""primus runs, primus logs"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import click

from primus import failure
from primus.cli import note
from primus.cli.later import later
from primus.cli.options import WORKSPACE
from primus.errors import ConfigError
from primus.experiment.paths import absolute
from primus.experiment.schema import frameworks
from primus.launchers.state import STATES, states
from primus.launchers.view import Live, Plain, choose
from primus.metrics import printed
from primus.record import Record, find, numbers, records


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, short_help="List runs and how they stand.")
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@WORKSPACE
@click.option("--state", "wanted", type=click.Choice(STATES), multiple=True, help="Only runs in this state.")
@click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def runs(directory: Path | None, workspace: Path, wanted: tuple[str, ...], output: str) -> None:
    """The runs recorded below DIRECTORY (or the workspace), the newest last."""
    where = absolute(directory or workspace)
    if not where.is_dir():
        raise ConfigError(f"{where}: is no directory", hint="say where the runs are: primus runs DIRECTORY")
    found = sorted(records(where), key=lambda one: one.path.name if one.path.name[:8].isdecimal() else str(one.path))
    now = states(found)
    rows = []
    for one in found:
        about, state = one.read("run.json"), now[one.path]
        if wanted and state.name not in wanted:
            continue
        attempts = {attempt.attempt for attempt in one.attempts()}
        rows.append(
            {
                "run": about.get("run_id", one.path.name),
                "state": state.name,
                "exit": state.exit,
                "why": state.why,
                "experiment": about.get("exp_name", "?"),
                "framework": about.get("framework", "?"),
                "nodes": about.get("nodes", 0),
                "job": one.read("slurm.json").get("job", ""),
                "attempts": len(attempts),
                "started": about.get("started", ""),
                "path": str(one.path),
                "shown": str(state),
            }
        )
    if output == "json":
        for row in rows:
            del row["shown"]
        click.echo(json.dumps(rows, indent=1))
        return
    if not rows:
        note(f"no runs below {where}" + (f" are {' or '.join(wanted)}" if wanted else ""))
        return
    columns = ("run", "state", "framework", "experiment", "nodes", "job", "started")
    table = [[*(name.upper() for name in columns)]]
    table += [
        [str(row["shown"] if name == "state" else row[name])[: 19 if name == "started" else None] for name in columns]
        for row in rows
    ]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for line in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, short_help="Print what a run printed.")
@click.argument("run", shell_complete=later("runs"))
@WORKSPACE
@click.option(
    "-f", "--follow", is_flag=True, help="Go on printing until the run ends; in a terminal, with its state below."
)
@click.option("--node", type=click.IntRange(0), default=0, show_default=True, help="The node's rank.")
def logs(run: str, workspace: Path, follow: bool, node: int) -> None:
    """The output of a run's node.

    RUN is a run's directory or identifier, Slurm's job number, or an experiment's exp_name: then its newest run.
    """
    record = find(run, absolute(workspace))
    nodes = record.read("run.json").get("nodes", 1)
    if node >= nodes:
        raise ConfigError(f"--node {node}: the run has {nodes} node(s)", hint=f"their ranks are 0 to {nodes - 1}")
    path = record.log(node)
    if follow and not path.exists():
        _wait(record, path)
    if not path.exists():
        state = states([record])[record.path]
        for file in sorted(record.path.glob("slurm*.log")):  # why it did not come so far
            click.echo(file.read_text(encoding="utf-8", errors="replace"), nl=False)
        note(f"node {node} has printed nothing: the run is {state}")
        return
    with path.open("rb") as stream, choose("text", os.environ) if follow else Plain() as view:
        asked, steps = time.monotonic(), _Steps(record, view)
        while True:
            data = stream.read(1 << 16)
            steps.tell()
            if data:
                _print(view, data)
                continue
            if not follow:
                break
            if _over(record, asked):
                _print(view, stream.read())
                break
            asked = asked if time.monotonic() - asked < 10 else time.monotonic()
            time.sleep(0.3)
    state = states([record])[record.path]
    if state.name == "failed" and (why := failure.explain(record)):
        click.echo(why, err=True)
    if follow:
        note(f"the run is {state}")


def _print(view: Plain, data: bytes) -> None:
    if isinstance(view, Live):
        view.output(1, data)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


class _Steps:
    """What the record has of steps, told to a view as it comes; of those before, the last."""

    def __init__(self, record: Record, view: Plain) -> None:
        self._file, self._view, self._read = record.metrics, view, 0
        framework = str(record.read("run.json").get("framework", ""))
        self._first = printed(framework).first if framework in frameworks() else 1

    def tell(self) -> None:
        if not isinstance(self._view, Live):
            return
        try:
            with self._file.open("rb") as stream:
                stream.seek(self._read)
                whole, end, _ = stream.read().rpartition(b"\n")
        except OSError:  # no step yet
            return
        lines = whole.splitlines()
        if self._read == 0 and lines:
            self._view.stage("training")
            lines = lines[-1:]
        self._read += len(whole + end)
        for line in lines:
            if one := numbers(line):
                self._view.step(one, one["step"] + 1 - self._first)


def _wait(record: Record, path: Path) -> None:
    """Until the node prints something, or the run is over."""
    said = ""
    while not path.exists():
        state = states([record])[record.path]
        if state.over:
            return
        if str(state) != said:
            note(f"the run is {state}")
            said = str(state)
        time.sleep(1)


def _over(record: Record, asked: float) -> bool:
    """Whether the run has ended; Slurm is asked every ten seconds only."""
    if record.read("end.json"):
        return True
    return time.monotonic() - asked >= 10 and states([record])[record.path].over
