"""Nodes that are hosts of their own, each with its name, its address and its own engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import KILL_WAIT, Cluster, wait_for
from tests.slurm.hosts import PYTHON, Hosts, hosts

pytestmark = pytest.mark.timeout(300)

EXAMPLE = "/src/examples/torchtitan/configs/CPU/llama3_tiny-pretrain.yaml"


@pytest.fixture(scope="module")
def machines(cluster: Cluster, toy: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two hosts and a controller, with the stand-in's image in both engines (`cluster` sees to Slurm's presence)."""
    with hosts(tmp_path_factory.mktemp("shared")) as started:
        for name in ("node1", "node2"):
            started.load(name, toy)
        yield started


def submit(machines: Hosts, toy: str, script: str, run: str, *words: str) -> str:
    said = machines.on(
        *("ctl", PYTHON, "-m", "primus", "run", "--launcher=slurm", f"--config={EXAMPLE}", "--nodes=2"),
        *(f"--image={toy}", "--pull=never", "--mount=/src/primus:/opt/primus/primus:ro", "--env=TOY"),
        *(f"--run-dir=/shared/{run}", *words),
        env=(f"TOY={script}",),
    )
    return said.strip()


def record(machines: Hosts, run: str) -> Path:
    return next(path.parent for path in Path(machines.shared, run).glob("*/run.json"))


def state(machines: Hosts, job: str) -> str:
    text = machines.on("ctl", "scontrol", "show", "job", job, "--oneliner")
    return next(word.partition("=")[2] for word in text.split() if word.startswith("JobState="))


def log(machines: Hosts, run: str, rank: int) -> str:
    path = record(machines, run) / f"node{rank}.log"
    return path.read_text() if path.exists() else ""


def containers(machines: Hosts, host: str) -> list[str]:
    return machines.on(host, "docker", "ps", "--all", "--quiet").split()


def test_they_meet_under_the_first_ones_name(machines: Hosts, toy: str) -> None:
    job = submit(machines, toy, 'echo "at $MASTER_ADDR"; getent hosts "$MASTER_ADDR"', "meet")
    wait_for(lambda: state(machines, job) == "COMPLETED", 60, "the job's end")
    assert [log(machines, "meet", rank).count("at node1\n") for rank in range(2)] == [1, 1]
    found = [json.loads((record(machines, "meet") / f"node{rank}.json").read_text()) for rank in range(2)]
    assert [one["attempts"][0]["host"] for one in found] == ["node1", "node2"]


def test_another_image_under_the_same_name_is_refused(machines: Hosts, toy: str) -> None:
    machines.on("node2", "sh", "-c", f"echo FROM {toy} | docker build --quiet --label=x=y --tag={toy} -")
    try:
        job = submit(machines, toy, "sleep 60", "differ")
        wait_for(lambda: state(machines, job) == "FAILED", 90, "the job's end")
        logs = "".join(log(machines, "differ", rank) for rank in range(2))
        assert "error: the image is sha256:" in logs
        end = json.loads((record(machines, "differ") / "end.json").read_text())
        assert end["exit"] == 4
        assert containers(machines, "node1") == containers(machines, "node2") == []
    finally:
        machines.on("node2", "docker", "rmi", "--force", toy)
        machines.load("node2", toy)


def test_a_host_crashes(machines: Hosts, toy: str) -> None:
    job = submit(machines, toy, "echo ready; while :; do sleep 0.1; done", "crash")
    for rank in range(2):
        wait_for(lambda: "ready" in log(machines, "crash", rank), 60, "the training")  # noqa: B023
    machines.crash("node2")
    wait_for(lambda: state(machines, job) == "NODE_FAIL", 90, "the job's end")
    wait_for(lambda: containers(machines, "node1") == [], KILL_WAIT + 20, "the container's end on the other host")
