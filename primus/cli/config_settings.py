"""primus config settings"""

from __future__ import annotations

import json
import os
from typing import Any

import click

from primus.cli.settings import files, layers, options_of, profile_of


@click.command("settings")
@click.option("--profile", metavar="NAME", help="With the settings of this profile.")
def settings(profile: str | None) -> None:
    """Print the options of primus run that a file or a variable sets, each with where it comes from."""
    from primus.cli.run import run

    found = layers(run, files(), profile or profile_of([]))
    lines = []
    for key, option in sorted(options_of(run).items()):
        said = found.get(str(option.name), [])
        if isinstance(option.envvar, str) and (variable := os.environ.get(option.envvar)):
            said = [*said, (variable, f"${option.envvar}")]
        if said:
            *below, (value, where) = said
            shadowed = "".join(f"; shadows {_text(value)} ({at})" for value, at in reversed(below))
            lines.append(f"{key}: {_text(value)}  # {where}{shadowed}")
    click.echo("\n".join(lines) if lines else "{}")


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, tuple)) else str(value)
