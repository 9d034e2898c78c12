"""How long `primus config check examples/` takes, beside parsing the same files with PyYAML alone, in turns in one run.

    .venv/bin/python benchmarks/check.py [ROUNDS]

Both are whole processes. PyYAML parses each file once, with the loader that `yaml.safe_load` takes and, for comparison,
with libyaml's. The check also reads what the files extend and the presets that they stand on.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
_PARSE = """
import pathlib, sys, yaml
for path in sorted(pathlib.Path("examples").rglob("*.yaml")):
    yaml.load(path.read_bytes(), getattr(yaml, sys.argv[1]))
"""
COMMANDS = {
    "yaml.safe_load": ("-c", _PARSE, "SafeLoader"),
    "yaml.CSafeLoader": ("-c", _PARSE, "CSafeLoader"),
    "primus config check": ("-m", "primus", "config", "check", "examples/"),
    "primus config list": ("-m", "primus", "config", "list", "examples/"),
}


def seconds(words: tuple[str, ...]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds + 1):
        for name, words in COMMANDS.items():
            times[name].append(seconds(words))
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}  # the first round warms the disk
    base = medians["yaml.safe_load"]
    print(f"{len([*ROOT.glob('examples/**/*.yaml')])} files")
    for name, median in medians.items():
        print(f"{name:<20} {median * 1e3:6.0f} ms   {median / base:4.1f} x")


if __name__ == "__main__":
    main()
