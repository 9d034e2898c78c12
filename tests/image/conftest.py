"""What the tests of images share: bake's plan, an engine, and the images that are built."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NEED_A_SOURCE, missing

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS = sorted(path.parent.name for path in ROOT.glob("images/*/Dockerfile"))
Bake = Callable[..., dict[str, Any]]
Run = Callable[..., str]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `framework` runs for each."""
    if "framework" in metafunc.fixturenames:
        metafunc.parametrize("framework", FRAMEWORKS)


def copy_checkout(to: Path) -> Path:
    """Copy what a build reads of the checkout; the copy."""
    for name in ("base", "examples", "images", "primus"):
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("docker-bake.hcl", ".dockerignore"):
        shutil.copy(ROOT / name, to / name)
    return to


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def bake(request: pytest.FixtureRequest) -> Bake:
    """`bake(*targets, **variables)` gives bake's plan; asks no engine, so that it works without one."""
    version = ["docker", "buildx", "version"]
    if shutil.which("docker") is None or subprocess.run(version, capture_output=True, check=False).returncode:
        missing(request, "docker", "docker buildx is not installed")
    names = ("REGISTRY", "VERSION", "ACCELERATOR", "REVISION", "SOURCE", "BASE_IMAGE", "BASE_IMAGE_JAX", "APT_SNAPSHOT")
    clean = {key: value for key, value in os.environ.items() if key not in names and not key.startswith("BUILD_")}

    def plan(*targets: str, **variables: str) -> dict[str, Any]:
        done = subprocess.run(
            ["docker", "buildx", "bake", "--print", *targets],
            cwd=ROOT,
            env={**clean, "DOCKER_HOST": "unix:///nonexistent", **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ValueError(done.stderr)
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    return plan


@pytest.fixture(scope="session")
def engine(docker: str) -> Run:
    """`engine(*words)` runs the client and gives what it printed."""

    def run(*words: str) -> str:
        done = subprocess.run([docker, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="session")
def settings(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """The environment in which the CPU images were built."""
    if os.environ.get("ACCELERATOR") != "cpu":
        missing(request, "docker", "no CPU images: build them with ACCELERATOR=cpu exported, as .ci/run does")
    return os.environ


@pytest.fixture(scope="session")
def targets(bake: Bake, settings: Mapping[str, str]) -> dict[str, Any]:
    """Every target as it was built here."""
    plan = bake(*FRAMEWORKS, **{key: value for key, value in settings.items() if key.isupper()})
    found: dict[str, Any] = plan["target"]
    return found


@pytest.fixture
def image(framework: str, targets: dict[str, Any], engine: Run, request: pytest.FixtureRequest) -> str:
    """The name of the framework's CPU image, which is on this machine."""
    name: str = targets[framework]["tags"][0]
    if not engine("image", "ls", "--quiet", name):
        needed = framework if framework in NEED_A_SOURCE else "docker"
        missing(request, needed, f"{name} is not built: docker buildx bake {framework}")
    return name
