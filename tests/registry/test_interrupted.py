"""A push or a pull that is cut off, by whatever: nothing half is offered, and the same command again completes it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.registry.conftest import Project, docker, forget, make_project, put_image
from tests.registry.server import Server
from tests.registry.test_publish import name

pytestmark = pytest.mark.timeout(240)

SIZE = 120_000_000  # random bytes: long enough to be cut off


@pytest.fixture
def large(registry: Server, docker: str, tmp_path: Path) -> Iterator[Project]:
    made = make_project(tmp_path / "project", f"{registry.registry}/{tmp_path.name.lower()}")
    made.commit(os.urandom(SIZE))
    yield made
    made.stop()
    forget(f"{made.registry}/")


def until(condition: object, what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


def uploaded(registry: Server, project: Project) -> int:
    sizes = [0]
    for path in registry.uploads():
        if path.is_relative_to(registry.directory / "data/docker/registry/v2/repositories/team" / name(project)):
            sizes.append(path.stat().st_size if path.exists() else 0)
    return max(sizes)


def put_large(project: Project, registry: Server) -> str:
    """An image in the registry of which this machine has no layer: NAME@DIGEST."""
    put_image(project.registry, "torchtitan", "1.0-cpu", os.urandom(SIZE))
    return f"{project.registry}/primus-torchtitan@{registry.digest(name(project), '1.0-cpu')}"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
def test_a_push_whose_client_ends(large: Project, registry: Server, number: int) -> None:
    words = ("image", "publish", "torchtitan", "--version=1.0", f"--registry={large.registry}")
    process = large.start(*words, session=True)
    until(lambda: uploaded(registry, large) > 1_000_000, "the upload")
    with registry.paused():
        os.killpg(process.pid, number)
        process.communicate(timeout=60)
    assert process.returncode != 0
    assert "1.0-cpu" not in registry.tags(name(large))  # the version is named last
    published = large.publish("1.0")
    assert published.endswith(registry.digest(name(large), "1.0-cpu"))


def test_a_push_while_the_registry_restarts(large: Project, registry: Server) -> None:
    process = large.start("image", "publish", "torchtitan", "--version=1.0", f"--registry={large.registry}")
    until(lambda: uploaded(registry, large) > 1_000_000, "the upload")
    registry.stop(signal.SIGKILL)
    time.sleep(1)
    registry.start()
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert out.strip().endswith(registry.digest(name(large), "1.0-cpu"))


def test_a_pull_whose_client_is_killed(large: Project, registry: Server) -> None:
    digest = put_large(large, registry)
    words = ("image", "pull", "torchtitan", "--version=1.0", f"--registry={large.registry}")
    process = large.start(*words, session=True)
    assert process.stderr is not None
    assert any("Pulling fs layer" in line for line in process.stderr)  # it has begun to arrive
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    time.sleep(2)
    assert docker("image", "ls", "--quiet", f"{large.registry}/*") == ""
    done = large.primus(*words)
    assert (done.code, done.out.strip()) == (0, digest), done.err
    assert (
        docker("image", "inspect", "--format={{.RepoTags}}", digest) == f"[{large.registry}/primus-torchtitan:1.0-cpu]"
    )


def test_a_pull_while_the_registry_restarts(large: Project, registry: Server) -> None:
    digest = put_large(large, registry)
    process = large.start("image", "pull", "torchtitan", "--version=1.0", f"--registry={large.registry}")
    assert process.stderr is not None
    assert any("Pulling fs layer" in line for line in process.stderr)
    registry.stop(signal.SIGKILL)
    time.sleep(1)
    registry.start()
    out, err = process.communicate(timeout=200)
    assert (process.returncode, out.strip()) == (0, digest), err


def test_a_registry_that_is_down_is_waited_for_and_then_named(large: Project, registry: Server) -> None:
    registry.stop()
    timer = threading.Timer(1.5, registry.start)
    try:
        timer.start()
        done = large.image("promote", "9", "stable", "torchtitan")
        assert (done.code, "trying again in" in done.err, "has no tag 9-cpu" in done.err) == (3, True, True)
        timer.join()
        registry.stop()
        down = large.image("promote", "9", "stable", "torchtitan")
        assert (down.code, f"{registry.host} does not answer: Connection refused" in down.err) == (3, True)
    finally:
        timer.join()
        registry.stop()
        registry.start()
