"""A host without a network: a privileged container with an engine of its own, and the machine's programs."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

BASE = "primus-base:0.1.0-cpu"
PYTHON = "/opt/venv/bin/python"
START = """\
mkdir -p /var/log /run
dockerd {network}--iptables=false --ip6tables=false >/var/log/dockerd.log 2>&1 &
until docker version >/dev/null 2>&1; do sleep 0.1; done
touch /run/up
wait
"""


class Host:
    """A host, and /shared, which is a directory of the tests' machine."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, *words: str, cwd: str = "/shared", source: bool = True) -> subprocess.CompletedProcess[str]:
        """Run words there; `source`: with this checkout's launcher."""
        env = ("--env=PYTHONPATH=/src",) if source else ()
        return subprocess.run(
            ("docker", "exec", *env, f"--workdir={cwd}", self.name, *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )

    def primus(self, *words: str, cwd: str = "/shared") -> subprocess.CompletedProcess[str]:
        return self.run(PYTHON, "-m", "primus", *words, cwd=cwd)


@contextlib.contextmanager
def host(shared: Path, *, disk: str = "", builds: bool = False) -> Iterator[Host]:
    """A host; with `disk`, the engine's storage is in memory and so large: 30m.

    To build, the engine wants a bridge, though it leads nowhere.
    """
    start = START.format(network="" if builds else "--bridge=none ")
    name = f"primus-air-gap-{os.getpid()}"
    storage = f"--tmpfs=/var/lib/docker:size={disk}" if disk else "--mount=type=volume,dst=/var/lib/docker"
    words = (
        *("docker", "run", "--detach", "--privileged", "--network=none", f"--name={name}", "--env=HOME=/root"),
        *(storage, f"--volume={shared}:/shared", "--volume=/usr:/usr:ro"),
        *("--volume=/etc/alternatives:/etc/alternatives:ro", f"--volume={ROOT / 'primus'}:/src/primus:ro"),
        *(BASE, "sh", "-c", start),
    )
    try:
        subprocess.run(words, check=True, capture_output=True)
        up = "until test -e /run/up; do sleep 0.1; done"
        subprocess.run(("docker", "exec", name, "timeout", "60", "sh", "-c", up), check=True)
        yield Host(name)
    finally:
        subprocess.run(("docker", "rm", "--force", "--volumes", name), capture_output=True, check=False)
