"""Prerequisites: a test that lacks one is skipped with the reason, or fails where `--require` names it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.registry.server import Server, installed

ROOT = Path(__file__).parent.parent
PREREQUISITES = (
    "docker",
    "podman",
    "slurm",
    "registry",
    "torchtitan",
    "maxtext",
    "megatron",
    "megatron_bridge",
    "specforge",
    "maxdiffusion",
)
# Their images are built only where their source is.
NEED_A_SOURCE = ("maxdiffusion",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        default="",
        metavar="NAME,...",
        help=f"prerequisites whose absence is a failure, not a skip: {', '.join(PREREQUISITES)}",
    )
    parser.addoption(
        "--source",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="the source of NAME (maxdiffusion, specforge: a git directory; transformer_engine: a wheel's tree)",
    )


def pytest_configure(config: pytest.Config) -> None:
    unknown = set(_required(config)) - set(PREREQUISITES)
    if unknown:
        raise pytest.UsageError(f"--require {','.join(sorted(unknown))}: there is only {', '.join(PREREQUISITES)}")


def source(request: pytest.FixtureRequest, name: str) -> Path:
    """The directory of `--source NAME=DIR`; without it, the test is skipped."""
    given = dict(option.split("=", 1) for option in request.config.getoption("--source"))
    if name not in given:
        pytest.skip(f"{name}: no --source {name}=DIR")
    return Path(given[name]).resolve()


def _required(config: pytest.Config) -> list[str]:
    return [name for name in config.getoption("--require").split(",") if name]


def missing(request: pytest.FixtureRequest, name: str, reason: str) -> None:
    """Skip the test because the prerequisite is missing, or fail it if it was required."""
    if name in _required(request.config):
        pytest.fail(f"{name} is required: {reason}", pytrace=False)
    pytest.skip(f"{name}: {reason}")


@pytest.fixture(scope="session")
def docker(request: pytest.FixtureRequest) -> str:
    """The docker client's name, with an engine that answers."""
    if shutil.which("docker") is None:
        missing(request, "docker", "the client is not installed")
    done = subprocess.run(["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, check=False)
    if done.returncode != 0:
        missing(request, "docker", "no engine answers")
    return "docker"


@pytest.fixture(scope="session")
def podman(request: pytest.FixtureRequest) -> str:
    """podman's name, where it can run a container."""
    if shutil.which("podman") is None:
        missing(request, "podman", "is not installed")
    return "podman"


@pytest.fixture(scope="session")
def registry(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A registry on loopback that anybody may write to."""
    if not installed():
        missing(request, "registry", "needs Debian's docker-registry, skopeo and apache2-utils")
    started = Server(tmp_path_factory.mktemp("registry"))
    yield started
    started.stop()


def _python_of(framework: str) -> Callable[..., Path]:
    """The fixture <framework>_python: a Python with the backend for CPUs and this package."""

    @pytest.fixture(scope="session", name=f"{framework}_python")
    def python(request: pytest.FixtureRequest) -> Path:
        path = ROOT / f".venv-{framework}" / "bin" / "python"
        if not (path.parent.parent / "ready").is_file():
            missing(request, framework, f"no .venv-{framework}; make .venv-{framework}/ready makes it")
        return path

    return python


torchtitan_python = _python_of("torchtitan")
maxtext_python = _python_of("maxtext")
maxdiffusion_python = _python_of("maxdiffusion")
megatron_python = _python_of("megatron")
megatron_bridge_python = _python_of("megatron_bridge")
specforge_python = _python_of("specforge")


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No PRIMUS_* variable, token or settings file of whoever runs the tests reaches one."""
    # Not the test's own, which would then be undone after every other fixture, the environment of tests/unit included.
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("PRIMUS_") or name in ("HF_TOKEN", "WANDB_API_KEY"):
                patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "no-settings"))
        yield


_PATH = os.environ.get("PATH", "")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """A test that leaves another PATH behind fails itself, and not one that looks for a program an hour later."""
    yield
    left = os.environ.get("PATH", "")
    os.environ["PATH"] = _PATH
    assert left == _PATH
