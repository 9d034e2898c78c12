"""Real runs: the launcher as a user starts it, and what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = {
    "torchtitan": ROOT / "examples/torchtitan/configs/CPU/llama3_tiny-pretrain.yaml",
    "maxtext": ROOT / "examples/maxtext/configs/CPU/llama2_tiny-pretrain.yaml",
    "megatron": ROOT / "examples/megatron/configs/CPU/llama2_tiny-pretrain.yaml",
    "maxdiffusion": ROOT / "examples/maxdiffusion/configs/CPU/wan2.1_tiny-pretrain.yaml",
}
_STEP = {
    "torchtitan": re.compile(r"step:\s*(\d+)\s+loss:\s*([\d.]+)"),
    "maxtext": re.compile(r"completed step: (\d+),.*? loss: ([\d.]+)"),
    "maxdiffusion": re.compile(r"completed step: (\d+),.*? loss: ([\d.]+)"),
    "megatron": re.compile(r"iteration +(\d+)/ .*? lm loss: ([\d.E+-]+)"),
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
    """Run `primus WORDS` to its end."""
    done = subprocess.run(
        [str(python), "-m", "primus", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **(env or {})},
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


def inspect(name: str) -> object:
    done = subprocess.run(["docker", "inspect", name], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
