"""--offline, seen from the kernel: what the launcher and the training speak to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launch.support import EXAMPLES, ROOT

pytestmark = pytest.mark.timeout(300)


def run(words: tuple[str, ...], before: tuple[str, ...], python: Path | str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, str(python), "-m", "primus", "run", "--offline", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_torchtitan_trains_where_there_is_no_network(
    image: Callable[[str], str], run_dir: Path, tmp_path: Path
) -> None:
    """The launcher has no interface but its own loopback, which is down, and the engine's socket; nor has the image."""
    if os.getuid() != 0 or shutil.which("unshare") is None or shutil.which("strace") is None:
        pytest.skip("needs root, unshare and strace")
    trace = tmp_path / "trace"
    # The launcher with all that it starts: the engine's client too.
    before = ("unshare", "--net", "strace", "-f", "-qq", "-e", "trace=connect,sendto", "-o", str(trace))
    words = (f"--config={EXAMPLES['torchtitan']}", f"--image={image('torchtitan')}", f"--run-dir={run_dir}")
    done = run((*words, "--dev", "--engine-arg=--network=none", "training.steps=2"), before, sys.executable)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "step:  2" in done.stdout + done.stderr
    said = trace.read_text(encoding="utf-8", errors="replace")
    assert "AF_UNIX" in said
    assert re.findall(r"sa_family=AF_INET6?.*", said) == []
    assert "HF_HUB_OFFLINE" in next(run_dir.glob("*/experiment.yaml")).read_text(encoding="utf-8")


def test_what_is_missing_is_said_without_asking_anybody(docker: str, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    trace = tmp_path / "trace"
    before = ("strace", "-f", "-qq", "-e", "trace=connect,sendto", "-o", str(trace))
    words = (f"--config={EXAMPLES['torchtitan']}", f"--run-dir={tmp_path / 'run'}", "--pull=always")
    done = run((*words, "--registry=registry.invalid/team", "training.dataset=c4"), before, sys.executable)
    assert done.returncode == 2, done.stderr
    assert "training.dataset" in done.stderr
    assert "registry.invalid/team/primus-torchtitan:0.1.0-cpu is not on this machine" in done.stderr
    assert re.findall(r"sa_family=AF_INET6?.*", trace.read_text(encoding="utf-8", errors="replace")) == []
    assert not (tmp_path / "run").exists()
