"""Loading an experiment reads, and does nothing else: seen with one example of each kind."""

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
def test_loading_writes_nothing_and_asks_nothing(representative: Path) -> None:
    environ = {"PRIMUS_WORKSPACE": str(Path.cwd() / "new" / "workspace"), "PRIMUS_TEAM": "team"}
    before = listing(Path.cwd(), Path(os.environ["HOME"]))
    first = load_experiment(representative, environ=environ)
    assert first.run_dir.is_relative_to(Path.cwd() / "new" / "workspace" / "team")
    assert listing(Path.cwd(), Path(os.environ["HOME"])) == before
    assert environ == {"PRIMUS_WORKSPACE": str(Path.cwd() / "new" / "workspace"), "PRIMUS_TEAM": "team"}


@pytest.mark.usefixtures("sealed")
def test_loading_twice_gives_the_same(representative: Path) -> None:
    first, second = (load_experiment(representative, environ={}) for _ in range(2))
    assert first == second
    assert resolved_yaml(first) == resolved_yaml(second)
    assert as_json(first, image="i", origins=True) == as_json(second, image="i", origins=True)


@pytest.mark.usefixtures("sealed")
def test_only_the_environment_that_is_given_counts(representative: Path) -> None:
    os.environ["PRIMUS_TEAM"] = "from-outside"
    assert load_experiment(representative, environ={}).work_group == "amd"


@pytest.mark.parametrize("launcher", ["direct", "container"])
def test_a_dry_run_of_an_example_works_anywhere_and_writes_nothing(
    representative: Path, launcher: str, primus: Primus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_options: object) -> NoReturn:
        raise AssertionError("a dry run started a process")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "execvpe", refuse)
    found = load_experiment(representative)
    nodes = layout.smallest(found, 8 if found.accelerator == "rocm" else 1)
    os.environ.update(NNODES=str(nodes), NODE_RANK="0", MASTER_ADDR="10.0.0.1")
    before = listing(Path.cwd(), Path(os.environ["HOME"]))
    done = primus("run", "--config", representative, "--launcher", launcher, "--dry-run")
    assert done.code == 0
    # What such an experiment reads is not in this empty directory, and this run would be refused elsewhere too.
    notes = [line for line in done.err.splitlines() if line.startswith("primus: ")]
    allowed = ("does not exist on this machine", "is not built yet", "GiB on each of")
    assert (bool(done.err), all(any(part in note for part in allowed) for note in notes)) == (bool(notes), True)
    assert done.out.startswith("# on this machine")
    assert listing(Path.cwd(), Path(os.environ["HOME"])) == before


def test_show_check_and_explain_write_nothing(representative: Path, primus: Primus) -> None:
    before = listing(Path.cwd(), Path(os.environ["HOME"]))
    assert primus("config", "show", representative).code == 0
    assert primus("config", "explain", representative, "exp_name").code == 0
    assert primus("config", "check", representative) == (0, f"{representative}: ok\n", "")
    assert listing(Path.cwd(), Path(os.environ["HOME"])) == before
