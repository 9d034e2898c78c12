"""Loading an experiment reads, and does nothing else."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import NoReturn

import pytest

from primus import layout
from primus.experiment import load_experiment
from primus.experiment.render import as_json, resolved_yaml

from .conftest import Primus


def listing(*roots: Path) -> dict[str, int]:
    """Every path below `roots`, with the time of its last change."""
    return {str(path): path.lstat().st_mtime_ns for root in roots for path in [root, *root.rglob("*")] if path.exists()}


@pytest.fixture
def sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No clock, no network and no child process."""

    def refuse(*_args: object, **_options: object) -> NoReturn:
        raise AssertionError("loading is not pure")

    for name in ("time", "time_ns", "monotonic", "sleep", "localtime", "gmtime"):
        monkeypatch.setattr(time, name, refuse)
    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)


@pytest.mark.usefixtures("sealed")
def test_loading_writes_nothing_and_asks_nothing(example: Path) -> None:
    environ = {"PRIMUS_WORKSPACE": str(Path.cwd() / "new" / "workspace"), "PRIMUS_TEAM": "team"}
    before = listing(Path.cwd(), Path(os.environ["HOME"]))
    first = load_experiment(example, environ=environ)
    assert first.run_dir.is_relative_to(Path.cwd() / "new" / "workspace" / "team")
    assert listing(Path.cwd(), Path(os.environ["HOME"])) == before
    assert environ == {"PRIMUS_WORKSPACE": str(Path.cwd() / "new" / "workspace"), "PRIMUS_TEAM": "team"}


@pytest.mark.usefixtures("sealed")
def test_loading_twice_gives_the_same(example: Path) -> None:
    first, second = (load_experiment(example, environ={}) for _ in range(2))
    assert first == second
    assert resolved_yaml(first) == resolved_yaml(second)
    assert as_json(first, image="i", origins=True) == as_json(second, image="i", origins=True)


@pytest.mark.usefixtures("sealed")
def test_only_the_environment_that_is_given_counts(example: Path) -> None:
    os.environ["PRIMUS_TEAM"] = "from-outside"
    assert load_experiment(example, environ={}).work_group == "amd"


@pytest.mark.parametrize("launcher", ["direct", "container"])
def test_a_dry_run_of_an_example_works_anywhere_and_writes_nothing(
    example: Path, launcher: str, primus: Primus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_options: object) -> NoReturn:
        raise AssertionError("a dry run started a process")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "execvpe", refuse)
    found = load_experiment(example)
    nodes = layout.smallest(found, 8 if found.accelerator == "rocm" else 1)
    os.environ.update(NNODES=str(nodes), NODE_RANK="0", MASTER_ADDR="10.0.0.1")
    before = listing(Path.cwd(), Path(os.environ["HOME"]))
    done = primus("run", "--config", example, "--launcher", launcher, "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("# on this machine")
    assert listing(Path.cwd(), Path(os.environ["HOME"])) == before


def test_show_check_and_explain_write_nothing(example: Path, primus: Primus) -> None:
    before = listing(Path.cwd(), Path(os.environ["HOME"]))
    assert primus("config", "show", example).code == 0
    assert primus("config", "explain", example, "exp_name").code == 0
    assert primus("config", "check", example) == (0, f"{example}: ok\n", "")
    assert listing(Path.cwd(), Path(os.environ["HOME"])) == before
