"""Locking and pulling against a real registry and a real engine; and removing what was replaced."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from primus.image import lock as locks
from tests.launch.support import EXAMPLES
from tests.registry.conftest import IMAGE, Project, docker, put_image
from tests.registry.server import Server
from tests.registry.test_publish import name

pytestmark = pytest.mark.timeout(180)


def locked(project: Project, framework: str = "torchtitan") -> locks.Locked:
    return locks.read(project.path / locks.NAME)[framework, "cpu"]


def test_a_lock_says_what_the_image_is_without_fetching_it(project: Project, registry: Server) -> None:
    revision = project.git("rev-parse", "HEAD")
    project.publish("1.0")
    put_image(project.registry, "maxtext", "1.0-cpu", b"x")
    done = project.image("lock", "--version=1.0")
    assert (done.code, done.out) == (0, f"{locks.NAME}\n"), done.err
    one = locked(project)
    assert one.digest == registry.digest(name(project), "1.0-cpu")
    assert one.id == docker("image", "inspect", "--format={{.Id}}", one.tagged)
    assert (one.tagged, one.revision) == (f"{project.registry}/primus-torchtitan:1.0-cpu", revision)
    assert (one.sources, one.lock_sha256, one.base_image) == tuple(
        IMAGE[key] for key in ("sources", "lock_sha256", "base_image")
    )
    assert locked(project, "maxtext").sources == IMAGE["sources"]
    assert docker("image", "ls", "--quiet", f"{project.registry}/primus-maxtext") == ""
    assert "not locked: " in done.err  # those that were not published


def test_a_lock_keeps_what_it_has_of_others_and_says_what_changed(project: Project) -> None:
    project.publish("1.0", "torchtitan", "maxtext")
    project.image("lock", "--version=1.0")
    before = locked(project, "maxtext")
    project.git("add", "--all")
    project.commit(b"two")
    project.publish("2.0")
    was = locked(project).digest
    done = project.image("lock", "torchtitan", "--version=2.0")
    assert f"(was {was} (1.0-cpu))" in done.err
    assert locked(project, "maxtext") == before
    assert locked(project).tag == "2.0-cpu"


def test_what_is_pulled_is_what_was_locked_though_its_tag_moved(project: Project, registry: Server) -> None:
    first = put_image(project.registry, "torchtitan", "1.0-cpu", b"first")
    project.image("lock", "--version=1.0")
    digest = locked(project).digest
    assert put_image(project.registry, "torchtitan", "1.0-cpu", b"second") != first
    done = project.primus("image", "pull")  # the lock knows the registry
    assert (done.code, done.out) == (0, f"{project.registry}/primus-torchtitan@{digest}\n"), done.err
    assert docker("image", "inspect", "--format={{.Id}}", f"{project.registry}/primus-torchtitan:1.0-cpu") == first
    assert "is here already" in project.primus("image", "pull", "torchtitan").err


def test_room_on_the_engines_disk_is_looked_for_first(project: Project, tmp_path: Path) -> None:
    """/proc has none."""
    put_image(project.registry, "torchtitan", "1.0-cpu", os.urandom(100_000))
    shim = tmp_path / "bin" / "docker"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\n[ "$1" = info ] && echo /proc && exit\nexec {shutil.which("docker")} "$@"\n')
    shim.chmod(0o755)
    project.env["PATH"] = f"{shim.parent}:{os.environ['PATH']}"
    done = project.image("pull", "torchtitan", "--version=1.0")
    assert (done.code, "0.1 MB to fetch need about 0.5 MB in /proc, and there is 0.0 MB" in done.err) == (4, True)
    assert "primus image prune" in done.err


def test_podman_pulls_too(project: Project, podman: str) -> None:
    identifier = put_image(project.registry, "torchtitan", "1.0-cpu", os.urandom(64))
    done = project.image("pull", "torchtitan", "--version=1.0", f"--engine={podman}")
    words = (podman, "image", "inspect", "--format={{.Id}}", f"{project.registry}/primus-torchtitan:1.0-cpu")
    found = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    subprocess.run((podman, "image", "rm", "--force", found), capture_output=True, check=False)
    assert done.code == 0, done.err
    assert found == identifier.removeprefix("sha256:")


def test_a_channel_can_be_locked_and_pulled(project: Project) -> None:
    put_image(project.registry, "torchtitan", "1.0-cpu", b"one")
    project.image("promote", "1.0", "stable", "torchtitan")
    assert project.image("lock", "torchtitan", "--version=stable").code == 0
    assert locked(project).tag == "stable-cpu"
    assert project.image("pull", "torchtitan", "--version=stable").code == 0


@pytest.mark.parametrize("command", ["pull", "lock"])
def test_a_missing_tag_names_the_nearest(project: Project, command: str) -> None:
    put_image(project.registry, "torchtitan", "1.0-cpu", b"one")
    done = project.image(command, "torchtitan", "--version=1.O")
    assert (done.code, done.out) == (3, "")
    assert "has no tag 1.O-cpu\nhint: did you mean 1.0-cpu?" in done.err


def test_a_locked_digest_that_the_registry_has_no_more(project: Project, registry: Server) -> None:
    put_image(project.registry, "torchtitan", "1.0-cpu", b"one")
    project.image("lock", "--version=1.0")
    below = registry.directory / "data/docker/registry/v2/repositories/team" / name(project)
    shutil.rmtree(below / "_manifests/revisions")
    done = project.primus("image", "pull")
    assert (done.code, f"has no {locked(project).digest}, which the lock has" in done.err) == (3, True)


def test_a_layer_that_is_damaged_in_the_registry_is_refused(project: Project, registry: Server) -> None:
    put_image(project.registry, "torchtitan", "1.0-cpu", os.urandom(4096))
    for path in registry.directory.glob("data/docker/registry/v2/blobs/sha256/*/*/data"):
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b" and path.stat().st_mtime == max(
            other.stat().st_mtime
            for other in registry.directory.glob("data/docker/registry/v2/blobs/sha256/*/*/data")
            if other.read_bytes()[:2] == b"\x1f\x8b"
        ):
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    done = project.image("pull", "torchtitan", "--version=1.0")
    assert done.code == 3
    assert docker("image", "ls", "--quiet", f"{project.registry}/*") == ""


def test_a_run_takes_the_locked_digest_and_says_that_its_tag_moved(project: Project) -> None:
    put_image(project.registry, "torchtitan", "1.0-cpu", b"first")
    project.image("lock", "--version=1.0")
    by_digest = f"{project.registry}/primus-torchtitan@{locked(project).digest}"
    run = ("run", f"--config={EXAMPLES['torchtitan']}", f"--run-dir={project.path}/run")
    dry = project.primus(*run, "--dry-run")
    assert (dry.code, f" {by_digest} -m primus.launchers.lifeline" in dry.out) == (0, True), dry.err
    put_image(project.registry, "torchtitan", "1.0-cpu", b"second")
    # The image has no Python: it starts, and fails; what is said before that, and recorded, is what counts.
    done = project.primus(*run)
    assert "1.0-cpu is sha256:" in done.err
    assert "in the registry by now; the lock has sha256:" in done.err
    record = json.loads(next(project.path.glob("run/*/run.json")).read_text())
    assert (record["image"], record["image_digest"]) == (by_digest, locked(project).digest)
    assert (record["image_id"], record["lock"]) == (locked(project).id, str(project.path / locks.NAME))
    other = project.primus(*run, "--dry-run", "--no-lock", f"--registry={project.registry}")
    assert f" {project.registry}/primus-torchtitan:0.1.0-cpu " in other.out


def test_an_image_that_lost_its_digest_is_found_by_its_id(project: Project, tmp_path: Path) -> None:
    """As after docker save and load, where there is no registry."""
    put_image(project.registry, "torchtitan", "1.0-cpu", b"first")
    project.image("lock", "--version=1.0")
    project.primus("image", "pull")
    file = tmp_path / "image.tar"
    docker("save", f"--output={file}", locked(project).tagged)
    docker("image", "rm", locked(project).tagged)
    docker("load", f"--input={file}")
    run = ("run", f"--config={EXAMPLES['torchtitan']}", f"--run-dir={project.path}/run", "--offline")
    done = project.primus(*run)
    assert "torchtitan in " in done.err  # it was started, and fails for want of a Python
    record = json.loads(next(project.path.glob("run/*/run.json")).read_text())
    assert record["image_id"] == locked(project).id


def test_an_image_that_cannot_say_what_it_is_is_not_locked(project: Project) -> None:
    """What is on this machine alone is asked by running it; the stand-in has no program to answer with."""
    project.publish("1.0")
    version = project.path.parent.name.lower()
    alone = f"primus-torchtitan:{version}-cpu"
    docker("tag", f"{project.registry}/primus-torchtitan:1.0-cpu", alone)
    done = project.primus("image", "lock", "torchtitan", f"--version={version}")
    docker("image", "rm", alone)
    assert (done.code, "has no /etc/primus/image.json" in done.err) == (3, True)
    assert not (project.path / locks.NAME).exists()


def test_only_our_own_images_are_pruned(project: Project, tmp_path: Path) -> None:
    """The engine is not ours alone: docker shows the test its own images, and no others."""
    shim = tmp_path / "bin" / "docker"
    shim.parent.mkdir()
    mark = f"test={tmp_path.name}"
    real = shutil.which("docker")
    shim.write_text(
        f'#!/bin/sh\n[ "$1 $2" = "image ls" ] && exec {real} "$@" --filter=label={mark}\nexec {real} "$@"\n'
    )
    shim.chmod(0o755)
    project.env["PATH"] = f"{shim.parent}:{os.environ['PATH']}"
    text = (project.path / "docker-bake.hcl").read_text()
    (project.path / "docker-bake.hcl").write_text(
        text.replace("labels = {\n", f'labels = {{\n    "test" = "{tmp_path.name}"\n', 1)
    )
    project.commit(b"one")
    project.publish("1.0")
    project.image("lock", "torchtitan", "--version=1.0")
    kept = locked(project).id
    project.git("add", "--all")
    project.commit(b"two")
    project.publish("2.0")
    replaced = docker("image", "inspect", "--format={{.Id}}", f"{project.registry}/primus-torchtitan:2.0-cpu")
    assert project.primus("image", "prune").out == ""  # all have tags
    would = project.primus("image", "prune", "--all-but-locked", "--dry-run")
    assert "would remove" in would.err
    assert "2.0-cpu" in would.err
    assert project.primus("image", "prune", "--all-but-locked", "maxtext").out == ""
    done = project.primus("image", "prune", "--all-but-locked")
    assert "primus-torchtitan:2.0-cpu" in done.out
    left = docker("image", "ls", "--no-trunc", "--quiet", f"--filter=label={mark}").split()
    assert (kept in left, replaced in left) == (True, False)


def test_the_run_record_under_no_lock_has_the_digest_too(project: Project) -> None:
    put_image(project.registry, "torchtitan", "0.1.0-cpu", b"first")
    run = ("run", f"--config={EXAMPLES['torchtitan']}", f"--run-dir={project.path}/run")
    project.primus(*run, f"--registry={project.registry}")
    record = json.loads(next(project.path.glob("run/*/run.json")).read_text())
    assert record["image"] == f"{project.registry}/primus-torchtitan:0.1.0-cpu"
    assert record["image_digest"].startswith("sha256:")
    assert record["lock"] is None


def test_a_run_whose_tag_is_missing_names_the_nearest(project: Project) -> None:
    put_image(project.registry, "torchtitan", "0.1.1-cpu", b"first")
    run = ("run", f"--config={EXAMPLES['torchtitan']}", f"--run-dir={project.path}/run")
    done = project.primus(*run, f"--registry={project.registry}")
    assert (done.code, "the registry has no such tag" in done.err) == (3, True)
    assert "did you mean 0.1.1-cpu?" in done.err
