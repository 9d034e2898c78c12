"""How long the launcher takes to answer, beside what importing click alone takes, measured in turns in one run.

    .venv/bin/python benchmarks/startup.py [ROUNDS]

Prints the median wall time of each command, and its difference from and ratio to the first.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLE = "examples/torchtitan/configs/MI300X/llama3.1_8B-FP8-pretrain.yaml"
COMMANDS = {
    "import click": ("-c", "import click"),
    "primus --help": ("-m", "primus", "--help"),
    "primus run --help": ("-m", "primus", "run", "--help"),
    "primus config check": ("-m", "primus", "config", "check", EXAMPLE),
    "primus run --dry-run": ("-m", "primus", "run", "--config", EXAMPLE, "--dry-run"),
}


def seconds(words: tuple[str, ...]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds + 1):
        for name, words in COMMANDS.items():
            times[name].append(seconds(words))
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}  # the first round warms the disk
    base = medians["import click"]
    for name, median in medians.items():
        print(f"{name:<22} {median * 1e3:6.0f} ms   {(median - base) * 1e3:+5.0f} ms   {median / base:4.1f} x")


if __name__ == "__main__":
    main()
