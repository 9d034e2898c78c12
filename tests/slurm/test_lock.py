"""A job whose image is locked: the registry's digest on every node, whatever the tag has become."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from primus.image import lock
from tests.conftest import ROOT
from tests.registry.conftest import docker, forget
from tests.registry.server import Server
from tests.slurm.conftest import Toys

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def published(registry: Server, toy: str) -> Iterator[str]:
    """The stand-in's image, in the registry."""
    name = f"{registry.registry}/primus-torchtitan:1.0-cpu"
    docker("tag", toy, name)
    docker("push", "--quiet", name)
    yield name
    forget(registry.registry)


def test_a_job_runs_the_locked_digest(toys: Toys, published: str, registry: Server, tmp_path: Path) -> None:
    words = (sys.executable, "-m", "primus", "image", "lock", "torchtitan", "--accelerator=cpu", "--version=1.0")
    more = (f"--registry={registry.registry}", f"--lock={tmp_path}/images.json")
    done = subprocess.run((*words, *more), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    locked = lock.read(tmp_path / "images.json")["torchtitan", "cpu"]
    by_digest = f"{published.rpartition(':')[0]}@{locked.digest}"
    toys.image = ""  # no --image: the lock says it
    job = toys.submit("echo ran", "--nodes=2", f"--lock={tmp_path}/images.json")
    assert job.wait() == "0:0", job.log()
    script = (job.record.path / "job.sh").read_text()
    assert f"--image={by_digest} --image-id={locked.id}" in script
    record = job.record.read("run.json")
    assert (record["image"], record["image_digest"], record["image_id"]) == (by_digest, locked.digest, locked.id)
    assert {attempt.image_id for attempt in job.record.attempts()} == {locked.id}


def test_an_image_of_this_machine_is_held_to_the_lock(toys: Toys, toy: str, tmp_path: Path) -> None:
    alone = "primus-torchtitan:lock-test-cpu"
    docker("tag", toy, alone)
    words = (sys.executable, "-m", "primus", "image", "lock", "torchtitan", "--accelerator=cpu", "--version=lock-test")
    path = tmp_path / "images.json"
    done = subprocess.run((*words, f"--lock={path}"), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    toys.image = ""
    try:
        assert toys.run("echo ran", "--wait", f"--lock={path}").code == 0
        document = json.loads(path.read_text())
        document["images"]["torchtitan"]["cpu"]["id"] = f"sha256:{'0' * 64}"
        path.write_text(json.dumps(document))
        other = toys.run("echo ran", "--wait", f"--lock={path}")
    finally:
        docker("image", "rm", alone)
    assert (other.code, "and the lock says sha256:000" in other.output) == (3, True), other.output
