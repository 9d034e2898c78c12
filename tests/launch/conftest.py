"""What the launch tests share: built images, and run directories that leave no container behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from primus.image.names import reference
from tests.conftest import NEED_A_SOURCE
from tests.launch.support import containers


@pytest.fixture(scope="session")
def image(docker: str, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """The name of a framework's CPU image, which must have been built."""

    def name(framework: str) -> str:
        wanted = reference(framework, "cpu")
        if subprocess.run([docker, "image", "inspect", wanted], capture_output=True, check=False).returncode != 0:
            reason = f"{wanted} is not built; ACCELERATOR=cpu docker buildx bake {framework}"
            needed = framework if framework in NEED_A_SOURCE else "docker"
            if needed in request.config.getoption("--require").split(","):
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)
        return wanted

    return name


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """A run directory with a name that shells and CSV would trip over."""
    directory = tmp_path / "run (v2), $HOME #1"
    yield directory
    for name in containers(directory) if os.access("/var/run/docker.sock", os.W_OK) else []:
        subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=False)
