"""A small project whose images are built and pushed in no time, and a user with credentials of their own."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from primus.image.names import take_apart
from primus.image.registry import Found, Registry, digest_of
from tests.conftest import ROOT
from tests.registry.server import Server

BAKE = """\
variable "REGISTRY"    { default = "" }
variable "VERSION"     { default = "0" }
variable "ACCELERATOR" { default = "rocm" }
variable "REVISION"    { default = "" }
variable "BASE_IMAGE"  { default = "" }
target "image" {
  name     = framework
  matrix   = { framework = ["torchtitan", "maxtext"] }
  context  = "."
  args     = BASE_IMAGE == "" ? {} : { BASE_IMAGE = BASE_IMAGE }
  tags     = ["${REGISTRY}/primus-${framework}:${VERSION}-${ACCELERATOR}"]
  labels = {
    "io.primus.framework"               = framework
    "io.primus.accelerator"             = ACCELERATOR
    "org.opencontainers.image.revision" = REVISION
  }
}
group "default" { targets = ["torchtitan", "maxtext"] }
"""
DOCKERFILE = """\
FROM scratch
COPY image.json /etc/primus/image.json
COPY content /content
CMD ["/content"]
"""
IMAGE = {"base_image": "os@sha256:1", "sources": {"titan": "c0ffee"}, "lock_sha256": "1234"}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


_OF_BUILDS = re.compile(r"ACCELERATOR$|APT_SNAPSHOT$|BASE_IMAGE|BUILD_|REGISTRY$|VERSION$|REVISION$|SOURCE$")


@dataclass
class Project:
    """A checkout with a docker-bake.hcl of its own, and `primus` as its user types it."""

    path: Path
    registry: str
    env: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list, repr=False)

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
        done = subprocess.run(("git", *identity, *words), cwd=self.path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, content: bytes) -> str:
        (self.path / "content").write_bytes(content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=change")
        return self.git("rev-parse", "HEAD")

    def start(self, *words: str, session: bool = False) -> subprocess.Popen[str]:
        # Not what the images under test were built with: a build from a local OS image cannot be published.
        inherited = {name: value for name, value in os.environ.items() if not _OF_BUILDS.match(name)}
        environ = {**inherited, "PYTHONPATH": str(ROOT), "PRIMUS_ACCELERATOR": "cpu", **self.env}
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [sys.executable, "-m", "primus", *words],
            env=environ,
            cwd=self.path,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=session,
        )
        self.started.append(process)
        return process

    def stop(self) -> None:
        """What a failed test left running would fail another one, as a warning, when Python forgets it."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate(timeout=60)

    def primus(self, *words: str) -> Done:
        process = self.start(*words)
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in err, err
        return Done(process.returncode, out, err)

    def image(self, *words: str) -> Done:
        return self.primus("image", *words, f"--registry={self.registry}")

    def publish(self, version: str, *names: str) -> str:
        """What was printed: NAME@DIGEST."""
        done = self.image("publish", *(names or ("torchtitan",)), f"--version={version}")
        assert done.code == 0, done.err
        return done.out.strip()


def docker(*words: str) -> str:
    done = subprocess.run(("docker", *words), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout.strip()


def forget(host: str) -> None:
    """Remove the images of a registry from this machine, whatever names they have."""
    found = docker("image", "ls", "--digests", "--no-trunc", "--format={{.Repository}}|{{.Tag}}|{{.Digest}}")
    for line in found.splitlines():
        repository, tag, digest = line.split("|")
        if repository.startswith(host):
            name = f"{repository}:{tag}" if tag != "<none>" else f"{repository}@{digest}"
            subprocess.run(("docker", "image", "rm", name), capture_output=True, check=False)


@pytest.fixture
def project(registry: Server, docker: str, tmp_path: Path) -> Iterator[Project]:
    made = make_project(tmp_path / "project (v2)", f"{registry.registry}/{tmp_path.name.lower().strip('_')}")
    yield made
    made.stop()
    forget(f"{made.registry}/")


def make_project(path: Path, registry: str) -> Project:
    path.mkdir()
    (path / "docker-bake.hcl").write_text(BAKE, encoding="ascii")
    (path / "Dockerfile").write_text(DOCKERFILE, encoding="ascii")
    (path / "image.json").write_text(json.dumps(IMAGE), encoding="ascii")
    made = Project(path=path, registry=registry, env={"DOCKER_CONFIG": str(path.with_name("docker"))})
    config = path.with_name("docker") / "config.json"  # podman 4 wants to see it
    config.parent.mkdir()
    config.write_text("{}", encoding="ascii")
    made.git("init", "--quiet")
    made.commit(b"one")
    return made


def put_image(registry: str, framework: str, tag: str, content: bytes) -> str:
    """An image that this machine's engine has never seen, made by hand. Gives its ID."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, data in (("etc/primus/image.json", json.dumps(IMAGE).encode()), ("content", content)):
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    layer = gzip.compress(archive.getvalue(), 1)
    labels = {"io.primus.framework": framework, "io.primus.accelerator": "cpu"}
    config = {
        **{"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/content"], "Labels": labels}},
        "rootfs": {"type": "layers", "diff_ids": [digest_of(archive.getvalue())]},
    }
    parts = take_apart(f"{registry}/primus-{framework}")
    there = Registry(parts.host, parts.path)
    about = json.dumps(config).encode()
    media = "application/vnd.docker.distribution.manifest.v2+json"
    kind = "application/vnd.docker.container.image.v1+json"
    compressed = "application/vnd.docker.image.rootfs.diff.tar.gzip"
    manifest = {
        **{"schemaVersion": 2, "mediaType": media},
        "config": {"mediaType": kind, "digest": there.upload(about), "size": len(about)},
        "layers": [{"mediaType": compressed, "digest": there.upload(layer), "size": len(layer)}],
    }
    text = json.dumps(manifest).encode()
    there.put(tag, Found(digest=digest_of(text), media_type=media, content=text, platform=manifest))
    return digest_of(about)
