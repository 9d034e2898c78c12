"""What the unit tests share: an empty directory, an empty environment, no network, and short ways to write and run."""

from __future__ import annotations

import itertools
import os
import re
import socket
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from primus.cli import main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = tuple(sorted(ROOT.glob("examples/*/configs/**/*.yaml")))

_PRECISION = re.compile("fp8|fp4", re.IGNORECASE)


def kind(example: Path) -> tuple[str, str, bool]:
    """What an example is one of: its framework, its GPU, and whether it is one of low precision."""
    framework, _, *sku, name = example.relative_to(ROOT / "examples").parts
    return framework, "".join(sku), _PRECISION.search(name) is not None


REPRESENTATIVES = tuple({kind(example): example for example in reversed(EXAMPLES)}.values())[::-1]

_NUMBERS = itertools.count()


class Outcome(NamedTuple):
    """What a command line did."""

    code: int
    out: str
    err: str


Primus = Callable[..., Outcome]
Write = Callable[[str, str], Path]
Experiment = Callable[..., Path]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `example` runs for each shipped experiment; with `representative`, for one of each kind."""
    for argument, paths in (("example", EXAMPLES), ("representative", REPRESENTATIVES)):
        if argument in metafunc.fixturenames:
            names = [str(path.relative_to(ROOT / "examples")).replace("/configs", "") for path in paths]
            metafunc.parametrize(argument, paths, ids=names)


@pytest.fixture(autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An empty current directory, no home, engine or network, and nothing of the user's in the environment."""
    work = tmp_path_factory.getbasetemp() / f"unit-{next(_NUMBERS)}"  # tmp_path takes as long as most tests here
    home = work.with_name(f"{work.name}-home")  # which nobody has made yet
    work.mkdir()

    def refuse(*_args: object, **_options: object) -> NoReturn:
        raise AssertionError("a unit test used the network")

    before = dict(os.environ)
    # Not the test's own monkeypatch, which would undo what the test set after the environment is back.
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        patch.setattr(socket, "getaddrinfo", refuse)
        patch.setattr(socket.socket, "connect", refuse)
        os.environ.clear()
        os.environ.update(PATH=str(home), HOME=str(home), LANG="C.UTF-8")
        yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def write() -> Write:
    """Write a file below the current directory and get its path."""

    def call(name: str, text: str) -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8", newline="")
        return path

    return call


@pytest.fixture
def experiment(write: Write) -> Experiment:
    """Write exp.yaml, a small valid experiment on the CPU.

    `overrides` are YAML, each line indented as it is; `top` and `module` are lines of those levels. The overrides
    begin on line 10.
    """

    def call(
        overrides: str = "{}",
        *,
        framework: str = "torchtitan",
        top: str = "",
        module: str = "",
        trainer: str = "pre_trainer",
    ) -> Path:
        lines = [
            "work_group: amd",
            "user_name: root",
            "exp_name: tiny",
            "workspace: ./output",
            "accelerator: cpu",
            "modules:",
            f"  {trainer}:",
            f"    framework: {framework}",
            "    overrides:",
            textwrap.indent(textwrap.dedent(overrides).strip("\n"), " " * 6),
            textwrap.indent(textwrap.dedent(module).strip("\n"), " " * 4),
            textwrap.dedent(top).strip("\n"),
        ]
        return write("exp.yaml", "\n".join(line for line in lines if line) + "\n")

    return call


@pytest.fixture
def primus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Primus:
    """Run `primus WORDS...` in this process."""

    def call(*words: Any) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["primus", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), out, err)

    return call
