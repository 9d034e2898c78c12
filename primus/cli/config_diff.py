"""primus config diff"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from primus.cli.later import later
from primus.cli.options import ASSIGNMENTS, EXPERIMENT, WORKSPACE, ExperimentFile
from primus.cli.values import text, values
from primus.experiment import Experiment, load_experiment
from primus.experiment.paths import absolute, exists, is_file
from primus.experiment.schema import schema
from primus.record import find


@click.command()
@click.argument("a", type=ExperimentFile(), shell_complete=later("config_file"))
@click.argument("b", type=ExperimentFile(), shell_complete=later("config_file"))
@WORKSPACE
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@EXPERIMENT
@ASSIGNMENTS
def diff(
    a: Path,
    b: Path,
    workspace: Path,
    form: str,
    accelerator: str | None,
    registry: str,
    preset_dirs: tuple[Path, ...],
    allow_unknown: tuple[str, ...],
    overrides: tuple[str, ...],
) -> None:
    """Compare two experiments by what they come to, the backend's defaults included, with where each value is said.

    A and B are experiments or past runs, as primus logs takes them: a directory, an identifier, a job's number, an
    exp_name. KEY=VALUE overrides an argument of both. Exits with 0 whatever they differ in.
    """
    files = (_file(path, absolute(workspace)) for path in (a, b))
    first, second = (
        load_experiment(file, overrides, preset_dirs=preset_dirs, accelerator=accelerator, allow_unknown=allow_unknown)
        for file in files
    )
    found = differences(first, second)
    if form == "json":
        rows = [{"key": key, "a": _said(key, one, first), "b": _said(key, two, second)} for key, one, two in found]
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    if not found:
        click.echo("the same")
        return
    click.echo(f"--- {a}\n+++ {b}")
    for key, one, two in found:
        click.echo(f"{key}\n- {_line(key, one, first)}\n+ {_line(key, two, second)}")


# What one side does not have: an argument of another backend, a variable that is not set.
_NONE = object()


def differences(first: Experiment, second: Experiment) -> list[tuple[str, Any, Any]]:
    """Each key with both values where they are not the same; what nobody said has the backend's default."""
    one, two = _complete(first, second), _complete(second, first)
    places = {"workspace", *_inputs(first), *_inputs(second)}
    keys = [*one, *(key for key in two if key not in one)]
    pairs = [(key, one.get(key, _NONE), two.get(key, _NONE)) for key in keys]
    return [(key, a, b) for key, a, b in pairs if not _same(a, b, place=key in places)]


def _complete(experiment: Experiment, other: Experiment) -> dict[str, Any]:
    own = values(experiment)
    arguments = schema(experiment.framework).arguments
    defaults = {key: arguments[key].default for key in values(other) if key in arguments and key not in own}
    return {**own, **defaults}


def _inputs(experiment: Experiment) -> tuple[str, ...]:
    """Arguments that may hold paths, which a run's own file has in full."""
    names: tuple[str, ...] = import_module(f"primus.backends.{experiment.framework}.adapter").inputs(experiment)
    return names


def _same(a: Any, b: Any, *, place: bool) -> bool:
    if place and isinstance(a, str) and isinstance(b, str) and a and b:
        return absolute(a) == absolute(b)
    return type(a) is type(b) and bool(a == b)


def _file(path: Path, workspace: Path) -> Path:
    """The experiment that is meant: a file, or what a run keeps in its directory."""
    if exists(path) and not path.is_dir():
        return path
    if is_file(path / "experiment.yaml"):
        return path / "experiment.yaml"
    if path.suffix in (".yaml", ".yml"):  # load_experiment says what is near
        return path
    return find(str(path), workspace).experiment


def _said(key: str, value: Any, experiment: Experiment) -> dict[str, Any] | None:
    """A value for a program: with its place, or as the backend's default; null if there is none."""
    if value is _NONE:
        return None
    if provenance := experiment.origins.get(key):
        at = provenance.origin
        return {"value": value, "layer": at.layer, "file": at.file, "line": at.line}
    return {"value": value, "layer": "default"}


def _line(key: str, value: Any, experiment: Experiment) -> str:
    if value is _NONE:
        return "(not there)"
    provenance = experiment.origins.get(key)
    place = f"{provenance.origin.layer}, {provenance.origin}" if provenance else "the default"
    return f"{text(value)}  # {place}"
