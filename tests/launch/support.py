"""Real runs: the launcher as a user starts it, and what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = {
    "torchtitan": ROOT / "examples/torchtitan/configs/CPU/llama3_tiny-pretrain.yaml",
    "maxtext": ROOT / "examples/maxtext/configs/CPU/llama2_tiny-pretrain.yaml",
    "specforge": ROOT / "examples/specforge/configs/CPU/llama_tiny-dflash.yaml",
    "megatron": ROOT / "examples/megatron/configs/CPU/llama2_tiny-pretrain.yaml",
    "maxdiffusion": ROOT / "examples/maxdiffusion/configs/CPU/wan2.1_tiny-pretrain.yaml",
    "megatron_bridge": ROOT / "examples/megatron_bridge/configs/CPU/vanilla_gpt_tiny-pretrain.yaml",
}
# What upstream's launch scripts run, and what a launch of ours must never call.
FORBIDDEN = (
    "pip",
    "pip3",
    "uv",
    "conda",
    "apt-get",
    "git",
    "curl",
    "wget",
    "make",
    "cmake",
    "ninja",
    "gcc",
    "g++",
    "cc",
)
# A shell inside an allocation of eight tasks: libraries that look for a cluster by themselves must not wait for it.
SLURM = {
    "SLURM_JOB_ID": "4242",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_NTASKS": "8",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_JOB_NUM_NODES": "2",
}
_STEP = {
    "torchtitan": re.compile(r"step:\s*(\d+)\s+loss:\s*([\d.]+)"),
    "maxtext": re.compile(r"completed step: (\d+),.*? loss: ([\d.]+)"),
    "specforge": re.compile(r"step (\d+): \{.*?'train/loss': ([\d.]+)"),
    "maxdiffusion": re.compile(r"completed step: (\d+),.*? loss: ([\d.]+)"),
    "megatron": re.compile(r"iteration +(\d+)/ .*? lm loss: ([\d.E+-]+)"),
    "megatron_bridge": re.compile(r"iteration +(\d+)/ .*? lm loss: ([\d.E+-]+)"),
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished launch."""

    code: int
    output: str

    def losses(self, framework: str) -> dict[int, float]:
        """The loss of each step that was shown."""
        return {int(step): float(loss) for step, loss in _STEP[framework].findall(self.output)}


def primus(
    *words: str, python: Path | str = sys.executable, env: Mapping[str, str] | None = None, timeout: float = 240
) -> Run:
    """Run `primus WORDS` to its end, as in a shell of a Slurm allocation; nothing is installed or compiled for it."""
    with tempfile.TemporaryDirectory() as scratch:
        for name in FORBIDDEN:
            tool = Path(scratch, name)
            tool.write_text(f'#!/bin/sh\necho "{name} $*" >> {scratch}/called\nexit 1\n', encoding="utf-8")
            tool.chmod(0o755)
        run = _primus(words, python, {"PATH": f"{scratch}:{os.environ['PATH']}", **SLURM, **(env or {})}, timeout)
        called = Path(scratch, "called")
        words_called = called.read_text(encoding="utf-8").splitlines() if called.exists() else []
        # Megatron logs the commit of the directory it is started in, if that is one's.
        assert [line for line in words_called if not line.startswith("git rev-parse")] == []
    return run


def _primus(words: tuple[str, ...], python: Path | str, env: Mapping[str, str], timeout: float) -> Run:
    done = subprocess.run(
        [str(python), "-m", "primus", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **env},
        cwd=ROOT,
        timeout=timeout,
        check=False,
    )
    return Run(code=done.returncode, output=done.stdout)


def containers(run_dir: Path) -> list[str]:
    """The containers of a run directory, dead or alive."""
    done = subprocess.run(
        ["docker", "ps", "--all", "--filter", f"label=io.primus.run={run_dir}", "--format", "{{.Names}}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def in_podman(image: str) -> None:
    """Copy an image of docker's into podman, unless that has it."""
    if subprocess.run(["podman", "image", "exists", image], check=False).returncode != 0:
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as save:
            subprocess.run(["podman", "load"], stdin=save.stdout, capture_output=True, check=True)


def inspect(name: str) -> object:
    done = subprocess.run(["docker", "inspect", name], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
