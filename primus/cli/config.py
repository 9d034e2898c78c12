"""primus config show | explain, and the group that the others belong to."""

from __future__ import annotations

from pathlib import Path

import click

from primus import layout
from primus.cli.config_check import check
from primus.cli.config_diff import diff
from primus.cli.config_env import env
from primus.cli.config_list import list_
from primus.cli.config_schema import schema_
from primus.cli.config_settings import settings
from primus.cli.import_hf import import_hf
from primus.cli.import_settings import import_settings
from primus.cli.later import later
from primus.cli.locked import LOCK, named
from primus.cli.many import gpus_of, note_other_gpu
from primus.cli.options import (
    COUNT,
    EXPERIMENT,
    OVERRIDES,
    PASS_UNKNOWN,
    ExperimentFile,
    option_names,
    without_assignments,
)
from primus.cli.settings import with_settings
from primus.cli.values import text, values
from primus.errors import ConfigError
from primus.experiment import Experiment, load_experiment
from primus.experiment.render import as_json, resolved_yaml
from primus.experiment.rules import rules, worded
from primus.experiment.schema import not_here, schema, suggestion


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def config() -> None:
    """Show, check, list and compare experiments, import models: no GPU, engine or backend is needed.

    Only import-hf writes anything.
    """


@config.command(context_settings=PASS_UNKNOWN)
@click.argument("file", type=ExperimentFile(), shell_complete=later("config_file"))
@click.option("--origin", is_flag=True, help="Say where each value comes from, and what it shadowed.")
@click.option("--format", "form", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@EXPERIMENT
@LOCK
@OVERRIDES
def show(
    file: Path,
    origin: bool,
    form: str,
    accelerator: str | None,
    registry: str,
    preset_dirs: tuple[Path, ...],
    allow_unknown: tuple[str, ...],
    lock: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Print the experiment with everything resolved. Secrets stay names."""
    experiment = load_experiment(
        file,
        overrides,
        preset_dirs=preset_dirs,
        accelerator=accelerator,
        allow_unknown=allow_unknown,
        flags=option_names(show),
    )
    note_other_gpu([file], accelerator)
    if form == "json":
        click.echo(as_json(experiment, image=named(lock, experiment, registry), origins=origin))
    elif origin:
        click.echo("\n".join(_with_origin(experiment)))
    else:
        click.echo(resolved_yaml(experiment), nl=False)


@config.command()
@click.argument("file", type=ExperimentFile(), shell_complete=later("config_file"))
@click.argument(
    "key",
    nargs=-1,
    metavar="[KEY] [KEY=VALUE]...",
    callback=without_assignments,
    shell_complete=later("overrides"),
)
@click.option(
    "--nodes",
    type=COUNT,
    default=1,
    show_default=True,
    help="Nodes of 8 GPUs, or on cpu of one process, for the memory.",
)
@EXPERIMENT
def explain(
    file: Path,
    key: tuple[str, ...],
    nodes: int,
    accelerator: str | None,
    registry: str,
    preset_dirs: tuple[Path, ...],
    allow_unknown: tuple[str, ...],
    overrides: tuple[str, ...],
) -> None:
    """Say what KEY is in FILE: value, type, default, where it comes from and what it shadowed.

    Without KEY: the model's size, how it is spread over GPUs (on cpu, processes), and the memory that each needs.
    KEY=VALUE is an override, as for primus run.
    """
    if len(key) > 1:
        raise click.UsageError(f"One KEY at a time, not {', '.join(key)}.")
    experiment = load_experiment(
        file, overrides, preset_dirs=preset_dirs, accelerator=accelerator, allow_unknown=allow_unknown
    )
    note_other_gpu([file], accelerator)
    if key:
        _explain_key(experiment, key[0])
    else:
        _explain_memory(experiment, nodes)


def _explain_key(experiment: Experiment, key: str) -> None:
    table = schema(experiment.framework)
    said = values(experiment)
    argument = table.arguments.get(key)
    if argument is None and key not in said:
        inside = [name for name in {**table.arguments, **said} if name.startswith(f"{key}.")]
        if inside:
            raise ConfigError(f"{key}: is a section; name one of its keys", hint=", ".join(inside))
        if key.startswith("env."):
            raise ConfigError(f"{key}: is not set in this experiment", hint="the backend's own: docs/environment.md")
        raise ConfigError(
            f"{key}: {not_here(key, table)}",
            hint=suggestion(key, table)
            or "KEY is an argument of the backend, env.NAME, or a key at the head of the file",
        )
    rows: list[tuple[str, str]] = [("key", key)]
    if key in said:
        rows.append(("value", text(said[key])))
    else:
        assert argument is not None
        value, whose = layout.Said.of(experiment).below.get(key, (argument.default, "the backend's default"))
        rows.append(("value", f"{text(value)} (not set: {whose})"))
    if argument is not None:
        rows.append(("type", argument.type))
        rows.append(("default", text(argument.default)))
        if argument.choices:
            rows.append(("choices", ", ".join(map(str, argument.choices))))
        if argument.since:
            rows.append(("since", f"{experiment.framework} {argument.since}"))
        if bounds := rules(experiment.framework).bounds.get(key):
            rows.append(("must be", " and ".join(map(worded, bounds))))
    if provenance := experiment.origins.get(key):
        rows.append(("from", f"{provenance.origin.layer}, {provenance.origin}"))
        rows += [("shadows", f"{text(value)} from {at.layer}, {at}") for value, at in reversed(provenance.shadowed)]
    for name, line in rows:
        click.echo(f"{name:<8} {line}")


def _explain_memory(experiment: Experiment, nodes: int) -> None:
    from primus.models.report import report, rows

    try:
        found = report(experiment, gpus=nodes * gpus_of(experiment.accelerator, None))
    except ValueError as error:
        raise ConfigError(f"the memory cannot be estimated: {error}", where=str(experiment.source)) from None
    for name, line in rows(found):
        click.echo(f"{name:<16}{line}")


for _command in (check, diff, list_, schema_, settings, env, import_hf, import_settings):
    config.add_command(_command)
for _command in (show, check, explain, diff, list_, import_hf):
    with_settings(_command)


def _with_origin(experiment: Experiment) -> list[str]:
    lines = []
    for key, value in values(experiment).items():
        line = f"{key}: {text(value)}"
        if provenance := experiment.origins.get(key):
            line += f"  # {provenance.origin.layer}, {provenance.origin}"
            for shadowed, at in reversed(provenance.shadowed):
                line += f"; shadows {text(shadowed)} ({at.layer}, {at})"
        lines.append(line)
    return lines
