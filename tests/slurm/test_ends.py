"""However a job ends, no node keeps a container of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.launch.support import in_podman
from tests.slurm.cluster import KILL_WAIT, Cluster, run, wait_for
from tests.slurm.conftest import Submitted, Toys, containers

pytestmark = pytest.mark.timeout(300)

OBEYS = "echo ready; while :; do sleep 0.1; done"
DEAF = "trap '' TERM INT HUP; echo ready; while :; do sleep 0.1; done"
SAVES = "trap 'echo saved >> saved; exit 0' TERM USR1; echo ready; while :; do sleep 0.1; done"


def started(toys: Toys, script: str, *words: str) -> Submitted:
    job = toys.submit(script, "--nodes=2", *words)
    for rank in range(2):
        job.wait_for_text("ready", rank)
    assert len(containers(toys.run_dir)) == 2
    return job


def started_again(job: Submitted, run_dir: Path) -> bool:
    """Slurm waits two minutes before a job starts again; the tests do not. One that is still ending cannot be told."""
    if job.state() == "PENDING":
        time.sleep(3)  # at once, its credential is still the revoked one of the try before
        run("scontrol", "update", f"JobId={job.job}", "StartTime=now", check=False)
    return len(containers(run_dir)) == 2


def clean(toys: Toys, seconds: float) -> None:
    wait_for(lambda: containers(toys.run_dir) == [], seconds, "the containers' end")


def launchers(job: Submitted) -> list[int]:
    """The node launchers' process ids."""
    found = pgrep(rf"-m primus run .*--slurm-task .*--record={re.escape(str(job.record.path))}")
    return [pid for pid in found if Path(f"/proc/{pid}/exe").resolve().name.startswith("python")]


def pgrep(pattern: str) -> list[int]:
    done = subprocess.run(["pgrep", "-f", "--", pattern], capture_output=True, text=True, check=False)
    return [int(pid) for pid in done.stdout.split()]


@pytest.mark.parametrize("script", [OBEYS, DEAF], ids=["obeys", "deaf"])
def test_scancel(toys: Toys, script: str) -> None:
    job = started(toys, script)
    run("scancel", job.job)
    assert job.wait() == "0:15"
    clean(toys, KILL_WAIT + 5)


def test_scancel_leaves_time_to_save_and_asks_once(toys: Toys) -> None:
    job = started(toys, SAVES)
    run("scancel", job.job)
    job.wait()
    clean(toys, KILL_WAIT)
    assert (toys.run_dir / "saved").read_text().splitlines() == ["saved"] * 2


def test_time_limit_and_a_signal_before_it(toys: Toys) -> None:
    """Two jobs at once: a minute is the least that Slurm limits."""
    deaf = started(toys, DEAF, "--time=1", "--nodelist=node[3-4]")
    first, toys.run_dir = toys.run_dir, toys.cwd / "saves"
    job = started(toys, SAVES, "--time=1", "--signal=USR1@50", "--nodelist=node[1-2]")
    assert job.wait(120) == "0:0"
    clean(toys, 5)
    assert (toys.run_dir / "saved").read_text().splitlines() == ["saved"] * 2
    deaf.wait(150)
    assert deaf.state() == "TIMEOUT"
    wait_for(lambda: containers(first) == [], KILL_WAIT + 5, "the containers' end")


def test_requeue_by_the_administrator(toys: Toys) -> None:
    """As a preemption does it."""
    job = started(toys, SAVES, "--requeue=2")
    run("scontrol", "requeue", job.job)
    clean(toys, KILL_WAIT + 10)
    wait_for(lambda: started_again(job, toys.run_dir), 90, "the second attempt")
    assert {attempt.attempt for attempt in job.record.attempts()} == {0, 1}
    run("scancel", job.job)
    clean(toys, KILL_WAIT + 10)


def test_preemption(toys: Toys) -> None:
    """The job gives way within the time to save, and goes on when the urgent one is through."""
    job = started(toys, SAVES, "--requeue=2", "--nodelist=node[5-6]", "--exclusive")
    saved, first = toys.run_dir / "saved", toys.run_dir
    toys.run_dir = toys.cwd / "urgent"
    urgent = toys.submit("exit 0", "--partition=urgent", "--nodes=2", "--nodelist=node[5-6]", "--exclusive")
    assert urgent.wait() == "0:0"
    assert containers(first) == []
    assert saved.read_text().splitlines() == ["saved"] * 2
    wait_for(lambda: started_again(job, first), 90, "the second attempt")
    run("scancel", job.job)
    wait_for(lambda: containers(first) == [], KILL_WAIT + 10, "the containers' end")


@pytest.mark.parametrize("script", [OBEYS, DEAF], ids=["obeys", "deaf"])
def test_killed_launchers(toys: Toys, script: str) -> None:
    job = started(toys, script)
    pids = launchers(job)
    assert len(pids) >= 2
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert job.wait() != "0:0"
    clean(toys, KILL_WAIT + 15)


def test_killed_launchers_and_clients(toys: Toys) -> None:
    job = started(toys, DEAF)
    for pid in [*launchers(job), *pgrep(rf"^docker run .*io.primus.job={job.job} ")]:
        os.kill(pid, signal.SIGKILL)
    clean(toys, KILL_WAIT + 15)


def test_a_node_fails(toys: Toys, cluster: Cluster) -> None:
    job = started(toys, OBEYS, "--nodelist=node[7-8]")
    run("scontrol", "update", "NodeName=node8", "State=DOWN", "Reason=test")
    try:
        wait_for(lambda: job.state() in ("NODE_FAIL", "FAILED", "CANCELLED"), 60, "the job's end")
        clean(toys, KILL_WAIT + 20)
    finally:
        run("scontrol", "update", "NodeName=node8", "State=RESUME", check=False)  # it may have come back by itself


def test_killed_slurmstepd(toys: Toys) -> None:
    """Nobody is left who would tell the launchers; the job's epilog removes what there is."""
    job = started(toys, DEAF)
    for pid in pgrep(rf"slurmstepd: \[{job.job}\."):
        os.kill(pid, signal.SIGKILL)
    for pid in launchers(job):  # they go on until they are asked
        os.kill(pid, signal.SIGSTOP)
    run("scancel", job.job)
    clean(toys, 60)
    for pid in launchers(job):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_the_foreground_is_stopped(toys: Toys, number: signal.Signals) -> None:
    process = toys.start(SAVES, "--nodes=2", "--wait")
    wait_for(lambda: len(containers(toys.run_dir)) == 2, 60, "the start")
    wait_for(lambda: len(list(toys.run_dir.glob("*/node*.log"))) == 2, 60, "the logs")
    wait_for(lambda: all("ready" in log.read_text() for log in toys.run_dir.glob("*/node*.log")), 60, "the training")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 128 + number
    clean(toys, 10)
    assert (toys.run_dir / "saved").read_text().splitlines() == ["saved"] * 2


def test_the_foreground_is_killed(toys: Toys) -> None:
    process = toys.start(OBEYS, "--nodes=2", "--wait")
    wait_for(lambda: len(containers(toys.run_dir)) == 2, 60, "the start")
    process.kill()
    process.communicate()
    clean(toys, KILL_WAIT + 20)
    wait_for(lambda: not run("squeue", "--noheader").strip(), 30, "the job's end")


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_what_a_dead_job_left_is_swept_and_nothing_else(
    toys: Toys, engine: str, request: pytest.FixtureRequest
) -> None:
    """At the next start of the same user's; a container of somebody else's job, or of none, is left alone."""
    request.getfixturevalue(engine)
    if engine == "podman":
        in_podman(toys.image)
    planted = {
        "dead": ("io.primus.job=999999", f"io.primus.uid={os.getuid()}"),
        "other-user": ("io.primus.job=999999", "io.primus.uid=4242"),
        "no-job": ("io.primus.run=/somewhere",),
        "foreign": ("job=999999",),
    }
    for name, labels in planted.items():
        words = [f"--label={label}" for label in labels]
        run(engine, "run", "--detach", f"--name=primus-test-{name}", *words, toys.image, "sleep", "600")
    try:
        assert toys.submit("exit 0", f"--engine={engine}").wait() == "0:0"
        left = run(engine, "ps", "--all", "--filter=name=primus-test-", "--format={{.Names}}").split()
        assert sorted(left) == ["primus-test-foreign", "primus-test-no-job", "primus-test-other-user"]
    finally:
        for name in planted:
            run(engine, "rm", "--force", f"primus-test-{name}", check=False)


def test_podman(podman: str, toys: Toys) -> None:
    in_podman(toys.image)
    toys.run_dir = toys.cwd / "plain"  # podman's filters, which this test uses, take no comma
    job = toys.submit(SAVES, "--nodes=2", "--engine=podman")
    for rank in range(2):
        job.wait_for_text("ready", rank)
    run("scancel", job.job)
    job.wait()
    wait_for(lambda: containers(toys.run_dir, "podman") == [], KILL_WAIT + 5, "the containers' end")
    assert (toys.run_dir / "saved").read_text().splitlines() == ["saved"] * 2
