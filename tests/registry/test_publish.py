"""Publishing to a real registry: what arrives, what is refused, and channels."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from primus.image.publish import content_tag
from tests.conftest import ROOT
from tests.registry.conftest import Project, docker, forget, make_project
from tests.registry.server import Server

pytestmark = pytest.mark.timeout(180)


def name(project: Project, framework: str = "torchtitan") -> str:
    """The repository below the registry's `team`."""
    return f"{project.registry.partition('/team/')[2]}/primus-{framework}"


def test_a_version_and_a_tag_of_its_content_are_published(project: Project, registry: Server) -> None:
    done = project.image("publish", "torchtitan", "maxtext", "--version=1.0")
    assert done.code == 0, done.err
    for line, framework in zip(done.out.splitlines(), ("torchtitan", "maxtext"), strict=True):
        reference = f"{project.registry}/primus-{framework}:1.0-cpu"
        identifier = docker("image", "inspect", "--format={{.Id}}", reference)
        beside = registry.digest(name(project, framework), "1.0-cpu").replace(":", "-")  # SBOM and provenance
        assert registry.tags(name(project, framework)) == {"1.0-cpu", content_tag(identifier), beside}
        assert line == f"{project.registry}/primus-{framework}@{registry.digest(name(project, framework), '1.0-cpu')}"
        labels = json.loads(docker("image", "inspect", "--format={{json .Config.Labels}}", reference))
        assert labels["org.opencontainers.image.revision"] == project.git("rev-parse", "HEAD")
    for step in ("building torchtitan, maxtext", "[2/2]", "pushing", "published"):
        assert step in done.err


def test_the_same_content_again_is_no_error_and_other_content_is(project: Project, registry: Server) -> None:
    first = project.publish("1.0")
    again = project.image("publish", "torchtitan", "--version=1.0")
    assert (again.code, again.out.strip()) == (0, first)
    assert "is published already, with this content" in again.err
    project.commit(b"two")
    other = project.image("publish", "torchtitan", "--version=1.0")
    assert (other.code, other.out) == (3, "")
    assert re.search(r"is published with other content: sha256:\w+ there, sha256:\w+ here", other.err)
    assert "hint: a version stays what it is: publish under another --version" in other.err
    assert first.endswith(registry.digest(name(project), "1.0-cpu"))


def test_if_one_of_several_is_refused_none_is_pushed(project: Project, registry: Server) -> None:
    project.publish("1.0", "maxtext")
    project.commit(b"two")
    assert project.image("publish", "torchtitan", "maxtext", "--version=1.0").code == 3
    assert registry.tags(name(project)) == set()


@pytest.mark.parametrize("file", ["content", "new file"])
def test_a_dirty_checkout_is_refused(project: Project, file: str) -> None:
    (project.path / file).write_text("changed")
    done = project.image("publish", "torchtitan", "--version=1.0")
    assert done.code == 3
    assert f"has changes that are in no commit: {json.dumps(file) if ' ' in file else file}" in done.err


def test_an_input_without_a_digest_is_refused(project: Project) -> None:
    project.env["BASE_IMAGE"] = "ubuntu:24.04"
    done = project.image("publish", "torchtitan", "--version=1.0")
    assert (done.code, "BASE_IMAGE=ubuntu:24.04: has no digest" in done.err) == (3, True)
    assert "--allow-mutable" in done.err
    allowed = project.image("publish", "torchtitan", "--version=1.0", "--allow-mutable")
    assert allowed.code == 0, allowed.err
    assert "published all the same" in allowed.err


def test_a_dry_run_builds_and_pushes_nothing(project: Project, registry: Server) -> None:
    done = project.image("publish", "torchtitan", "--version=1.0", "--dry-run")
    assert done.code == 0, done.err
    assert "docker buildx bake --file=docker-bake.hcl --progress=plain --load torchtitan" in done.out
    assert "1.0-cpu: is new" in done.err
    assert registry.tags(name(project)) == set()


def test_a_version_goes_through_the_channels_and_back(project: Project, registry: Server) -> None:
    one = project.publish("1.0")
    project.commit(b"two")
    two = project.publish("2.0")
    for source, channel in (("1.0", "candidate"), ("candidate", "stable"), ("2.0", "candidate"), ("2.0", "stable")):
        done = project.image("promote", source, channel)
        assert done.code == 0, done.err
        assert "without a tag" in done.err  # maxtext, and those that were never published
    assert two.endswith(registry.digest(name(project), "stable-cpu"))
    assert two.endswith(registry.digest(name(project), "candidate-cpu"))
    back = project.image("rollback", "stable", "torchtitan")
    assert (back.code, back.out.strip()) == (0, one)
    assert one.endswith(registry.digest(name(project), "stable-cpu"))
    assert two.endswith(registry.digest(name(project), "candidate-cpu"))
    further = project.image("rollback", "stable", "torchtitan")
    assert (further.code, "has never been anything else" in further.err) == (3, True)
    moves = json.loads(project.image("channels", "torchtitan", "--format=json").out)
    stable = [(move["action"], move["tag"]) for move in moves if move["channel"] == "stable"]
    assert stable == [("promote", "candidate-cpu"), ("promote", "2.0-cpu"), ("rollback", "")]


def test_a_channel_that_something_else_moved_is_still_rolled_back(project: Project, registry: Server) -> None:
    one = project.publish("1.0")
    project.image("promote", "1.0", "stable", "torchtitan")
    project.commit(b"two")
    project.publish("2.0")
    address = f"docker://{registry.registry}/{name(project)}"
    words = ("skopeo", "copy", "--quiet", "--src-tls-verify=false", "--dest-tls-verify=false")
    subprocess.run((*words, f"{address}:2.0-cpu", f"{address}:stable-cpu"), check=True)
    moves = json.loads(project.image("channels", "torchtitan", "--format=json").out)
    assert [move["action"] for move in moves] == ["promote", "found"]
    assert project.image("rollback", "stable", "torchtitan").out.strip() == one


def test_promoting_what_is_not_there_names_what_is(project: Project) -> None:
    project.publish("1.0")
    done = project.image("promote", "1.00", "stable", "torchtitan")
    assert (done.code, "hint: did you mean 1.0-cpu?" in done.err) == (3, True)
    assert project.image("promote", "9", "stable").code == 3
    assert project.image("promote", "stable", "stable").code == 2
    assert project.image("promote", "1.0", "latest").code == 2
    assert "is not set" in project.image("rollback", "stable", "torchtitan").err


@pytest.mark.parametrize("version", ["latest", "stable", "id-12", "a b", "-x"])
def test_what_is_no_version_is_refused(project: Project, version: str) -> None:
    assert project.image("publish", "torchtitan", f"--version={version}").code == 2


@pytest.mark.usefixtures("docker")
def test_this_checkout_publishes_what_its_images_share(registry: Server, tmp_path: Path) -> None:
    """With the real docker-bake.hcl: its smallest image, on an OS image that has a digest."""
    subprocess.run(("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(tmp_path / "clone")), check=True)
    made = make_project(tmp_path / "project", f"{registry.registry}/real")
    system = f"{made.registry}/os"
    docker("tag", os.environ.get("BASE_IMAGE", "primus-ci/os:bookworm"), system)
    docker("push", "--quiet", system)
    made.env["BASE_IMAGE"] = f"{system}@{registry.digest('real/os', 'latest')}"
    done = made.image("publish", "launcher", "--version=1.0", f"--file={tmp_path}/clone/docker-bake.hcl")
    forget(f"{made.registry}/")
    assert done.code == 0, done.err
    assert done.out.strip().endswith(registry.digest("real/primus-launcher", "1.0-cpu"))
