"""The commands of every shipped example, as they were last looked at.

golden/<framework>/<SKU>.txt begins with the command that starts the container, where it is the same for all examples of
that framework and GPU, and goes on with what each of them gives its backend.

PRIMUS_UPDATE_GOLDEN=1 python -m pytest tests/unit/test_golden.py rewrites them; read the difference before you keep it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from primus._version import __version__
from primus.experiment import load_experiment
from primus.job import Job
from primus.launchers import container, direct
from primus.launchers.host import Host
from primus.node import Node

from .conftest import EXAMPLES, ROOT

GOLDEN = Path(__file__).parent / "golden"
UPDATE = os.environ.get("PRIMUS_UPDATE_GOLDEN") == "1"
NODES = {
    "MI300X": Node(gpus=8, gfx="gfx942"),
    "MI325X": Node(gpus=8, gfx="gfx942"),
    "MI355X": Node(gpus=8, gfx="gfx950"),
    "configs": Node(gpus=8, gfx="gfx950"),  # SpecForge's are for whatever its image has kernels for
}
HOST = Host(uid=1000, gid=1000, own_groups=(), groups=(109, 993), infiniband=True, rootless=False)
FOLDERS = sorted({example.parent for example in EXAMPLES})
RESOLVED = Path("/run/experiment.yaml")


def golden(folder: Path) -> Path:
    """examples/<framework>/configs/<SKU> -> golden/<framework>/<SKU>.txt"""
    framework, _, *sku = folder.relative_to(ROOT / "examples").parts
    return GOLDEN / framework / f"{''.join(sku) or 'any'}.txt"


def commands(example: Path) -> tuple[str, str]:
    """The command around the container, and what runs inside it with the files it reads."""
    found = load_experiment(example, environ={})
    job = Job(
        experiment=found,
        image=f"primus-{found.framework}:VERSION-{found.accelerator}",
        run_dir=Path("/run"),
        gpus_per_node=2 if found.accelerator == "cpu" else None,
    )
    inside = direct.command(job, NODES.get(example.parent.name, Node(gpus=2)), {})
    outside = container.command(job, HOST, {}, "NAME")
    assert outside.files[RESOLVED] == inside.files[RESOLVED]
    # The resolved experiment is what the files and flags are made of; one of each backend shows what it looks like.
    shown = {path: text for path, text in inside.files.items() if path != RESOLVED or found.accelerator == "cpu"}
    parts = [f"{inside}\n", *(f"# {path}\n{text}" for path, text in shown.items())]
    return str(outside), "\n".join(parts)


def text(folder: Path) -> str:
    """The golden file of the examples in a folder."""
    both = {example: commands(example) for example in EXAMPLES if example.parent == folder}
    around = {outside for outside, _ in both.values()}
    shared = [f"# the container\n{outside}\n" for outside in around if len(around) == 1]
    own = {example: "" if shared else f"# the container\n{outside}\n\n" for example, (outside, _) in both.items()}
    parts = [*shared, *(f"##### {example.stem}\n{own[example]}{inside}" for example, (_, inside) in both.items())]
    return "\n".join(parts).replace(__version__, "VERSION")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.parent.name}/{folder.name}")
def test_the_commands_of_the_examples_are_the_golden_ones(folder: Path) -> None:
    path, found = golden(folder), text(folder)
    if UPDATE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found, encoding="utf-8")
    expected = path.read_text(encoding="utf-8") if path.is_file() else ""
    wrong = [one.partition("\n")[0] for one in found.split("##### ") if one not in expected.split("##### ")]
    assert wrong == [], "if the new text is right: PRIMUS_UPDATE_GOLDEN=1 python -m pytest " + __file__
    assert found == expected


def test_no_golden_file_is_left_over() -> None:
    assert sorted(path for path in GOLDEN.rglob("*") if path.is_file()) == sorted(map(golden, FOLDERS))
