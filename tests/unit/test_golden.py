"""The commands of every shipped example, as they were last looked at.

PRIMUS_UPDATE_GOLDEN=1 python -m pytest tests/unit/test_golden.py rewrites them; read the difference before you keep it.
"""

from __future__ import annotations

import os
from pathlib import Path

from primus._version import __version__
from primus.experiment import load_experiment
from primus.job import Job
from primus.launchers import container, direct
from primus.launchers.container import Host
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


def golden(example: Path) -> Path:
    """examples/<framework>/configs/<SKU>/<name>.yaml -> golden/<framework>/<SKU>/<name>.txt"""
    framework, _, *sku, name = example.relative_to(ROOT / "examples").parts
    return GOLDEN.joinpath(framework, *sku, f"{Path(name).stem}.txt")


def text(example: Path) -> str:
    found = load_experiment(example, environ={})
    job = Job(
        experiment=found,
        image=f"primus-{found.framework}:VERSION-{found.accelerator}",
        run_dir=Path("/run"),
        gpus_per_node=2 if found.accelerator == "cpu" else None,
    )
    inside = direct.command(job, NODES.get(example.parent.name, Node(gpus=2)), {})
    outside = container.command(job, HOST, {}, "NAME")
    assert outside.files[Path("/run/experiment.yaml")] == inside.files[Path("/run/experiment.yaml")]
    parts = [f"# container\n{outside}\n", f"# direct\n{inside}\n"]
    parts += [f"# {path}\n{content}" for path, content in inside.files.items()]
    return "\n".join(parts).replace(__version__, "VERSION")


def test_the_commands_of_an_example_are_the_golden_ones(example: Path) -> None:
    path, found = golden(example), text(example)
    if UPDATE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found, encoding="utf-8")
    expected = path.read_text(encoding="utf-8") if path.is_file() else ""
    assert found == expected, "if the new text is right: PRIMUS_UPDATE_GOLDEN=1 python -m pytest " + __file__


def test_no_golden_file_is_left_over() -> None:
    assert sorted(GOLDEN.rglob("*.txt")) == sorted(golden(example) for example in EXAMPLES)
