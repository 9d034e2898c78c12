"""primus config import-settings"""

from __future__ import annotations

from pathlib import Path

import click

from primus.cli import note
from primus.experiment.yaml import dump


@click.command("import-settings")
@click.argument("file", type=click.Path(path_type=Path))
def import_settings(file: Path) -> None:
    """Print FILE, a .primus.yaml of upstream Primus, as a primus.yaml.

    \b
    primus config import-settings ~/.primus.yaml > primus.yaml
    """
    from primus.upstream.settings import as_ours, options

    made, notes = as_ours(options(file))
    for text in notes:
        note(text)
    click.echo(dump(made) if made else "# nothing in it differs from what is so here\n", nl=False)
