"""Containers that no engine runs, images that are files, and what a launch inside an image makes sure of."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.launch.support import EXAMPLES, Run
from tests.slurm.cluster import KILL_WAIT, run, wait_for
from tests.slurm.conftest import Toys, containers

pytestmark = pytest.mark.timeout(300)
STAND_IN = Path(__file__).with_name("apptainer_stand_in.py")
OBEYS = "echo ready; while :; do sleep 0.1; done"
DEAF = "trap '' TERM INT HUP; echo ready; while :; do sleep 0.1; done"
SAVES = "trap 'echo saved >> saved; exit 0' TERM USR1; echo ready; while :; do sleep 0.1; done"


@dataclass
class Local:
    """Starts the container launcher on this machine, with a shell script in the place of the training."""

    engine: str
    image: str
    run_dir: Path
    environ: Mapping[str, str]

    def start(self, script: str, *words: str) -> subprocess.Popen[str]:
        argv = [
            *(sys.executable, "-m", "primus", "run", "--launcher=container", f"--config={EXAMPLES['torchtitan']}"),
            *(f"--engine={self.engine}", f"--image={self.image}", "--pull=never", f"--run-dir={self.run_dir}"),
            *("--env=TOY", "--env=MARKER", f"--mount={ROOT}/primus:/opt/primus/primus:ro", *words),
        ]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[1:]), **self.environ, "TOY": script}
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, env=environ, cwd=ROOT, stdout=pipe, stderr=subprocess.STDOUT, text=True)

    def run(self, script: str, *words: str) -> Run:
        process = self.start(script, *words)
        output, _ = process.communicate(timeout=120)
        return Run(code=process.returncode, output=output)

    def ready(self, script: str) -> subprocess.Popen[str]:
        process = self.start(script)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ready"):
                return process
        raise AssertionError("it never was")

    def processes(self) -> list[int]:
        """Everything that still runs of it, by the marker in its environment."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if b"MARKER=" + str(self.run_dir).encode() + b"\0" in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found


@pytest.fixture
def apptainer(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    """apptainer with the stand-in's image: the real one where it is and $SIF names a file made from that; else a
    stand-in, which knows its arguments."""
    run_dir = tmp_path / 'run (v2), $HOME #1 "日本"'
    environ = {"TMPDIR": str(tmp_path), "MARKER": str(run_dir)}
    if shutil.which("apptainer") and os.environ.get("SIF"):
        yield Local("apptainer", os.environ["SIF"], run_dir, environ)
        return
    image = request.getfixturevalue("toy")
    sif = tmp_path / "toy.sif"
    sif.write_bytes(b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0") + b"SIF_MAGIC\0" + b"01\002\0" + b"\7" * 16)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "apptainer").write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} {image} "$@"\n', encoding="utf-8")
    (tools / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    yield Local("apptainer", str(sif), run_dir, environ)
    wait_for(lambda: containers(run_dir) == [], 30, "the containers' end")


def attempts(run_dir: Path) -> list[dict[str, object]]:
    (file,) = run_dir.glob("*/node0.json")
    found: list[dict[str, object]] = json.loads(file.read_text())["attempts"]
    return found


def test_apptainer_runs_as_docker_does(apptainer: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same directory, same variables and no others, a HOME to write to, exit code and record."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret123")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("UNLISTED", "1")
    odd = "$(echo ran), a=b\n'c' \"d\""
    script = (
        'echo "at $(pwd)"; echo "home $HOME"; echo "token ${#HF_TOKEN} $NCCL_DEBUG ${UNLISTED-none}"; echo "odd $ODD"; '
        "touch $HOME/x /tmp/y here && echo wrote; exit 7"
    )
    done = apptainer.run(script, f"--env=ODD={odd}")
    assert done.code == 7, done.output
    for said in (f"at {apptainer.run_dir}", "home /tmp/primus-home", "token 12 INFO none", f"odd {odd}", "wrote"):
        assert said in done.output
    assert (apptainer.run_dir / "here").exists()
    (attempt,) = attempts(apptainer.run_dir)
    assert attempt["exit"] == 7
    assert str(attempt["image_id"]).startswith("sif:")
    (log,) = apptainer.run_dir.glob("*/node0.log")
    assert "token 12" in log.read_text()
    assert not list(Path(apptainer.environ["TMPDIR"]).glob("primus-*/*"))  # nothing is left of /tmp


@pytest.mark.parametrize(
    ("number", "script", "code"),
    [(signal.SIGTERM, SAVES, 143), (signal.SIGINT, OBEYS, 130), (signal.SIGUSR1, SAVES, 0)],
    ids=["TERM", "INT", "USR1"],
)
def test_signals_reach_the_training_once(apptainer: Local, number: signal.Signals, script: str, code: int) -> None:
    process = apptainer.ready(script)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == code
    if script is SAVES:
        assert (apptainer.run_dir / "saved").read_text().splitlines() == ["saved"]
    wait_for(lambda: apptainer.processes() == [], 10, "the processes' end")


@pytest.mark.parametrize("script", [OBEYS, DEAF], ids=["obeys", "deaf"])
@pytest.mark.parametrize("client", [False, True], ids=["launcher", "launcher and client"])
def test_a_killed_launcher_leaves_nothing(apptainer: Local, script: str, client: bool) -> None:
    process = apptainer.ready(script)
    children = [int(word) for word in run("pgrep", "-P", str(process.pid)).split()]
    os.kill(process.pid, signal.SIGKILL)
    for pid in children if client else []:
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=60)
    wait_for(lambda: apptainer.processes() == [], 40, "the processes' end")


def test_a_deaf_training_is_killed_after_the_grace(apptainer: Local) -> None:
    process = apptainer.ready(DEAF)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    wait_for(lambda: apptainer.processes() == [], 30, "the processes' end")


def test_a_file_that_is_no_image_is_said(apptainer: Local, tmp_path: Path) -> None:
    apptainer.image = str(tmp_path / "none.sif")
    done = apptainer.run("exit 0")
    assert done.code == 2
    assert "there is no such file here" in done.output


def test_apptainer_under_slurm(apptainer: Local, toys: Toys) -> None:
    toys.image = apptainer.image
    job = toys.submit('echo "place $NODE_RANK of $NNODES"', "--nodes=2", "--engine=apptainer")
    assert job.wait() == "0:0", job.log()
    assert [f"place {rank} of 2" in job.log(rank) for rank in range(2)] == [True, True]
    job = toys.submit(SAVES, "--nodes=2", "--engine=apptainer")
    for rank in range(2):
        job.wait_for_text("ready", rank)
    run("scancel", job.job)
    assert job.wait() == "0:15"
    wait_for(lambda: containers(toys.run_dir) == [], KILL_WAIT + 10, "the containers' end")
