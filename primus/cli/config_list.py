"""primus config list"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import click

from primus import layout, shipped
from primus.cli import note
from primus.cli.many import each, experiments, gpus_of
from primus.cli.options import COUNT, EXPERIMENT, ExperimentFile
from primus.errors import ConfigError, PrimusError
from primus.experiment import load_experiment
from primus.experiment.paths import absent, exists
from primus.experiment.schema import frameworks
from primus.models.gpus import SKUS

# What follows the model in an example's name: precision and stage.
_NOT_THE_MODEL = re.compile("-|_(?:lora|sft|pretrain|posttrain)")


@dataclass(frozen=True, kw_only=True)
class _Row:
    """What the list says of one experiment."""

    file: str
    framework: str
    sku: str  # the GPU that the directory is named after; "" outside of <framework>/configs/<SKU>/
    model: str
    precision: str
    stage: str
    nodes: int | None  # the fewest that can start it; null if no number can
    by_memory: int | None  # the fewest on which it is estimated to fit; 0 if none do, null where that is not known


@click.command("list")
@click.argument("directories", nargs=-1, type=ExperimentFile(), metavar="[FILE|DIRECTORY]...")
@click.option("--framework", type=click.Choice(frameworks()), help="Only this backend's.")
@click.option("--sku", help=f"Only for this GPU: {', '.join((*SKUS, 'CPU'))}.")
@click.option("--model", help="Only models with this in their name, e.g. llama3.")
@click.option("--precision", help="Only with this in their precision, e.g. fp8, bf16.")
@click.option("--gpus-per-node", type=COUNT, help="GPUs of each node.  [default: 8; on cpu 1]")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@EXPERIMENT
def list_(
    directories: tuple[Path, ...],
    framework: str | None,
    sku: str | None,
    model: str | None,
    precision: str | None,
    gpus_per_node: int | None,
    form: str,
    accelerator: str | None,
    registry: str,
    preset_dirs: tuple[Path, ...],
    allow_unknown: tuple[str, ...],
) -> None:
    """List experiments. Without a DIRECTORY, the checkout's examples/, or those that came with Primus.

    `nodes` is the fewest that an experiment can start on, by its parallelism and batch; `by memory` the fewest of
    1, 2, 4, ... times as many on which its model is estimated to fit into its GPU: "none" if more nodes do not help, as
    where nothing of it is sharded over them, and "-" where that is not known.
    """
    for path in directories:
        if not exists(path):
            raise ConfigError(absent(path), where=str(path))
    paths = experiments(directories or (_examples(),))
    row = partial(_row, gpus=gpus_per_node, accelerator=accelerator, presets=preset_dirs, allow=allow_unknown)
    found = each(row, paths, label="reading")
    wrong = found.count(None)
    rows = [
        row
        for row in found
        if row is not None
        and framework in (None, row.framework)
        and (sku is None or sku.lower() == row.sku.lower())
        and (model or "").lower() in row.model.lower()
        and (precision or "").lower() in row.precision
    ]
    if form == "json":
        click.echo(json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False))
    elif rows:
        click.echo("\n".join(_table(rows)))
    if not rows:
        there = sorted({row.sku for row in found if row is not None and row.sku})
        note(f"no example is like that; there are {', '.join(there)}; primus config list shows all")
    if wrong:
        note(f"{wrong} file(s) wrong and not listed; primus config check says what is")


def _examples() -> Path:
    """examples/ of the checkout that the current directory lies in, or those that came with the package."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "examples").is_dir():
            return (folder / "examples").relative_to(here) if folder == here else folder / "examples"
    if (ours := shipped.examples()) is not None:
        return ours
    raise ConfigError("there is no examples/ here or above", hint="name a directory: primus config list DIRECTORY")


def _row(
    path: Path, *, gpus: int | None, accelerator: str | None, presets: tuple[Path, ...], allow: tuple[str, ...]
) -> _Row | None:
    try:
        found = load_experiment(path, preset_dirs=presets, accelerator=accelerator, allow_unknown=allow)
    except PrimusError:
        return None
    # Here, so that the other commands of this group do not wait for what only this one needs.
    from primus.models.report import fewest

    each_node = gpus_of(found.accelerator, gpus)
    nodes = layout.smallest(found, each_node)
    return _Row(
        file=str(path),
        framework=found.framework,
        sku=path.parent.name if path.parent.parent.name == "configs" else "",
        model=_NOT_THE_MODEL.split(path.stem)[0],
        precision=layout.precision(found),
        stage=found.stage,
        nodes=nodes,
        by_memory=None if nodes is None else fewest(found, nodes, each_node),
    )


def _table(rows: list[_Row]) -> list[str]:
    titles = ("framework", "sku", "model", "precision", "stage", "nodes", "by memory", "file")
    names = tuple(title.replace(" ", "_") for title in titles)
    lines = [titles, *(tuple(_cell(getattr(row, name)) for name in names) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _cell(value: object) -> str:
    return "none" if value == 0 else "-" if value in (None, "") else str(value)
