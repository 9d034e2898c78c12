"""An installed Primus, without a checkout: its wheel has the examples, and they are taken where there are none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.launch.support import ROOT

EXAMPLE = "examples/megatron/configs/MI355X/qwen2.5_7B-FP8-pretrain.yaml"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel holds, as an installation lays it out."""
    source, place = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for name in ("primus", "examples"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    words = ("-m", "pip", "wheel", "-qq", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "-w", ".")
    done = subprocess.run([sys.executable, *words, "."], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = source.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(place)
    return place


def primus(installed: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, "-m", "primus", *words], cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )


def test_its_examples_are_those_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    listed = primus(installed, tmp_path, "examples", "list").stdout
    assert len(listed.splitlines()) == len([*ROOT.glob("examples/*/configs/**/*.yaml")])
    done = primus(installed, tmp_path, "config", "list", "--format=json")
    assert (done.returncode, "wrong" in done.stderr) == (0, False)
    assert done.stdout.count(str(installed)) == len(listed.splitlines())


def test_they_run_and_are_copied_from_anywhere(installed: Path, tmp_path: Path) -> None:
    shown = primus(installed, tmp_path, "run", f"--config={EXAMPLE}", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert f"{installed}/primus/{EXAMPLE}" in shown.stderr
    copied = primus(installed, tmp_path, "examples", "copy", "megatron/MI355X/qwen2.5_7B-FP8-pretrain")
    assert copied.stdout == "qwen2.5_7B-FP8-pretrain.yaml\n"
    assert primus(installed, tmp_path, "config", "check", copied.stdout.strip()).returncode == 0
