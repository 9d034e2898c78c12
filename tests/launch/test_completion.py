"""Completion as a person has it: a real bash, zsh and fish, the script that Primus prints, and the tab key."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.support import ROOT

EXAMPLE = "examples/torchtitan/configs/CPU/llama3_tiny-pretrain.yaml"
# What is typed before the tab key, and the line that it makes.
CASES = {
    "a command": ("primus exa", "primus examples "),
    "an option": ("primus run --laun", "primus run --launcher "),
    "a value": ("primus doctor --framework specf", "primus doctor --framework specforge "),
    "an example": (
        "primus examples copy specforge/CPU/llama_tiny-d",
        "primus examples copy specforge/CPU/llama_tiny-dflash ",
    ),
    "a file": (f"primus run --config {EXAMPLE[:-4]}", f"primus run --config {EXAMPLE}"),
    "a key": (
        f"primus run --config {EXAMPLE} training.local_b",
        f"primus run --config {EXAMPLE} training.local_batch_size=",
    ),
    "a value of a key": (
        f"primus run --config {EXAMPLE} compile.enable=f",
        f"primus run --config {EXAMPLE} compile.enable=false",
    ),
    "a run": ("primus logs 20261130-20", "primus logs 20261130-203300-1a2b "),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout's examples and one run; `primus` on the PATH."""
    where = tmp_path_factory.mktemp("shell")
    (where / "examples").symlink_to(ROOT / "examples")
    record = where / "output/a/b/exp/20261130-203300-1a2b"
    record.mkdir(parents=True)
    (record / "run.json").write_text('{"run_id": "20261130-203300-1a2b", "exp_name": "exp"}', encoding="utf-8")
    (where / "bin").mkdir()
    tool = where / "bin/primus"
    tool.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m primus "$@"\n', encoding="utf-8")
    tool.chmod(0o755)
    return where


PROMPT = "prompt> "


class Shell:
    """An interactive shell on a terminal of its own."""

    def __init__(self, argv: list[str], start: str, place: Path) -> None:
        environ = {"PATH": f"{place}/bin:/usr/bin:/bin", "HOME": str(place), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 300, 0, 0))  # no line is cut
        self._end = ours
        self._process = subprocess.Popen(
            argv, cwd=place, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self.type(f"{start}; PS1=pro''mpt'> '\n")
        assert PROMPT in self.shown(PROMPT)

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def shown(self, until: str) -> str:
        """What appears, up to `until`, or as far as it comes."""
        text, last = "", time.monotonic() + 20
        while until not in text and time.monotonic() < last:
            if select.select([self._end], [], [], 0.5)[0]:
                text += os.read(self._end, 65536).decode(errors="replace")
        return text

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._end)


STARTS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        'bind "set enable-bracketed-paste off"; eval "$(primus completion bash)"',
    ),
    "zsh": (
        ["zsh", "-f", "-i", "-o", "no_prompt_sp"],
        'autoload -U compinit; compinit -u -D; eval "$(primus completion zsh)"',
    ),
}


@pytest.fixture(scope="module", params=STARTS)
def shell(request: pytest.FixtureRequest, place: Path) -> Iterator[Shell]:
    name = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    started = Shell(*STARTS[name], place)
    yield started
    started.close()


@pytest.mark.parametrize("case", CASES)
def test_the_tab_key(case: str, shell: Shell) -> None:
    """The line is not run: Ctrl-U takes it away."""
    typed, made = CASES[case]
    shell.type(f"{typed}\t")
    rest = made.removeprefix(typed)
    text = shell.shown(rest.rstrip())
    shell.type("\x15\n")
    shell.shown(PROMPT)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\x07\r\n]", "", text)
    assert made.rstrip() in plain, repr(text)


@pytest.mark.parametrize("case", CASES)
def test_fish(case: str, place: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    typed, made = CASES[case]
    environ = {"PATH": f"{place}/bin:/usr/bin:/bin", "HOME": str(place), "LC_ALL": "C.UTF-8"}
    script = 'primus completion fish | source; complete -C "$argv"'
    done = subprocess.run(
        ["fish", "-c", script, typed], cwd=place, env=environ, capture_output=True, text=True, check=True
    )
    assert made.split()[-1] in [line.split("\t")[0] for line in done.stdout.splitlines()], done
