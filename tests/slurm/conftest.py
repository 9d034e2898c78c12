"""A cluster for the whole session, and a stand-in for a training that takes no time to start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from primus.record import Record
from tests.conftest import ROOT, missing
from tests.launch.support import EXAMPLES, Run
from tests.slurm.cluster import Cluster, installed, run, wait_for

TOY_IMAGE = "primus-torchtitan:toy"
EPILOG = ROOT / "examples" / "slurm" / "epilog.sh"
BASE = ("primus-base:0.1.0-cpu", "primus-launcher:0.1.0-cpu")


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Slurm with 8 nodes on loopback."""
    if not installed() or os.getuid() != 0:
        missing(request, "slurm", "needs root and Debian's slurmctld, slurmd, slurm-client and munge")
    started = Cluster(tmp_path_factory.mktemp("slurm"), 8, EPILOG)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def toy(request: pytest.FixtureRequest, docker: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of the stand-in's image."""
    for name in BASE:
        if subprocess.run([docker, "image", "inspect", name], capture_output=True, check=False).returncode != 0:
            missing(request, "docker", f"{name} is not built; ACCELERATOR=cpu docker buildx bake base launcher")
    context = Path(__file__).parent / "toy"
    words = [docker, "buildx", "build", "--load", "--quiet", f"--tag={TOY_IMAGE}"]
    for name, image in zip(("base", "launcher"), BASE, strict=True):
        words.append(f"--build-context={name}=docker-image://{image}")
    done = subprocess.run([*words, str(context)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return TOY_IMAGE


@dataclass
class Submitted:
    """A submitted job and its record."""

    job: str
    record: Record
    said: str

    def state(self) -> str:
        return next(iter(field("JobState", self.job)), "")

    def wait(self, seconds: float = 90) -> str:
        """The exit code as Slurm has it, CODE:SIGNAL, once the job is over."""
        over = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"}
        wait_for(lambda: self.state() in over, seconds, f"the end of job {self.job}")
        return field("ExitCode", self.job)[0]

    def log(self, node: int = 0) -> str:
        path = self.record.log(node)
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for_text(self, text: str, node: int = 0, seconds: float = 60) -> None:
        wait_for(lambda: text in self.log(node), seconds, f"{text!r} in the log of node {node}")


def field(name: str, job: str) -> list[str]:
    text = run("scontrol", "show", "job", job, "--oneliner", check=False)
    return [word.partition("=")[2] for word in text.split() if word.startswith(f"{name}=")]


@dataclass
class Toys:
    """Starts the launcher as a user does, with a shell script in the place of the training."""

    image: str
    run_dir: Path
    cwd: Path

    def words(self, *words: str) -> list[str]:
        return [
            *(sys.executable, "-m", "primus", "run", "--launcher=slurm", f"--config={EXAMPLES['torchtitan']}"),
            f"--mount={ROOT}/primus:/opt/primus/primus:ro",  # the launcher that is tested, whatever the image has
            *([f"--image={self.image}"] if self.image else []),  # without one, the test's lock says it
            *("--pull=never", f"--run-dir={self.run_dir}", "--env=TOY"),
            *words,
        ]

    def start(self, script: str, *words: str) -> subprocess.Popen[str]:
        environ = {**os.environ, "TOY": script, "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        return subprocess.Popen(self.words(*words), env=environ, cwd=self.cwd, stdout=pipe, stderr=pipe, text=True)

    def run(self, script: str, *words: str) -> Run:
        process = self.start(script, *words)
        out, err = process.communicate(timeout=120)
        return Run(code=process.returncode, output=out + err)

    def submit(self, script: str, *words: str) -> Submitted:
        process = self.start(script, *words)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, out + err
        newest = max(path for path in self.run_dir.iterdir() if path.name[:8].isdecimal())
        return Submitted(job=out.strip(), record=Record(newest), said=err)


@pytest.fixture
def toys(cluster: Cluster, toy: str, tmp_path: Path) -> Iterator[Toys]:
    """Toys in a directory whose name shells trip over; nothing is left of them afterwards."""
    place = tmp_path / "run (v2), $HOME #1 日本"
    yield Toys(image=toy, run_dir=place, cwd=tmp_path)
    run("scancel", "--user=root", check=False)
    wait_for(lambda: not run("squeue", "--noheader").strip(), 60, "an empty queue")
    left = containers(place)
    for name in left:
        run("docker", "rm", "--force", name, check=False)
    assert left == []


def containers(run_dir: Path, engine: str = "docker") -> list[str]:
    return run(engine, "ps", "--all", f"--filter=label=io.primus.run={run_dir}", "--format={{.Names}}").split()
