"""The tables of arguments are what the backends at their pins take: each is asked, in its own Python."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import source

ROOT = Path(__file__).resolve().parents[2]


def arguments(python: Path, *words: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    program = root / "images/arguments.py"
    return subprocess.run([python, "-B", program, *words], cwd="/", capture_output=True, text=True, check=False)


def test_the_table_is_what_the_backend_takes(torchtitan_python: Path) -> None:
    """Here for one backend; for each, its image's build does it (tests/image/test_files.py)."""
    done = arguments(torchtitan_python, "torchtitan", "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "arguments\n" in done.stdout


def test_the_options_of_a_capture_are_the_scripts(
    specforge_python: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    script = "scripts/prepare_hidden_states.py"  # in ROCm's image only
    repository = source(request, "specforge")
    plan = (ROOT / "docker-bake.hcl").read_text(encoding="utf-8")
    (commit,) = re.findall(r"^ +specforge = \{\n.*\n +commit +\= \"([0-9a-f]{40})\"$", plan, re.MULTILINE)
    text = subprocess.check_output(["git", "-C", repository, "show", f"{commit}:{script}"])
    (tmp_path / script).parent.mkdir()
    (tmp_path / script).write_bytes(text)
    done = arguments(specforge_python, "specforge", "--check", f"--source={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_difference_is_named_and_written(torchtitan_python: Path, tmp_path: Path) -> None:
    for path in (*ROOT.glob("images/*.py"), *ROOT.glob("images/torchtitan/*.py")):
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    name = "primus/backends/torchtitan/arguments.json"
    table = tmp_path / name
    table.parent.mkdir(parents=True)
    right = (ROOT / name).read_text(encoding="utf-8")
    table.write_text(
        right.replace(
            '"training.steps", "type": "int", "default": 10000', '"training.stepz", "type": "int", "default": 1'
        ).replace('"default": 0.5', '"default": 0.25'),
        encoding="utf-8",
    )
    done = arguments(torchtitan_python, "torchtitan", "--check", root=tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "torchtitan: added: training.steps",
        "torchtitan: removed: training.stepz",
        "torchtitan: activation_checkpoint.memory_budget: default: 0.25 must be 0.5",
    ]
    assert f"{name} is not what torchtitan 0.2.2 takes\nhint: " in done.stderr
    assert arguments(torchtitan_python, "torchtitan", "--write", root=tmp_path).returncode == 0
    assert table.read_text(encoding="utf-8") == right
    # A table of an older version, and a key that it had.
    table.write_text(
        table.read_text(encoding="utf-8").replace('"0.2.2"', '"0.2.1"').replace("training.steps", "training.stepz"),
        encoding="utf-8",
    )
    assert arguments(torchtitan_python, "torchtitan", "--write", root=tmp_path).returncode == 0
    assert '"removed": {"training.stepz": "0.2.2"}' in table.read_text(encoding="utf-8")
    assert '{"name": "training.steps", "type": "int", "default": 10000, "since": "0.2.2"}' in table.read_text(
        encoding="utf-8"
    )
