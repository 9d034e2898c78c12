"""primus config schema"""

from __future__ import annotations

import json

import click

from primus.experiment.editor import json_schema
from primus.experiment.schema import frameworks


@click.command("schema")
@click.argument("framework", type=click.Choice(frameworks()))
def schema_(framework: str) -> None:
    """Print a JSON Schema of FRAMEWORK's experiments, for editors.

    \b
    primus config schema torchtitan > torchtitan.schema.json
    and at the head of an experiment:
    # yaml-language-server: $schema=torchtitan.schema.json
    """
    click.echo(json.dumps(json_schema(framework), indent=1, allow_nan=False))
