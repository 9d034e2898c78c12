"""What the launcher costs a run: its start beside that of the bare `docker run`, and the training's rate beside it.

    .venv/bin/python benchmarks/overhead.py start [ROUNDS]
    .venv/bin/python benchmarks/overhead.py rate [ROUNDS] [STEPS]

The bare command is the very one that `primus run` starts and --dry-run prints. In turns in one run: of `start`, the
seconds around a whole launch of a training that is the shell's `true` (the image primus-torchtitan:toy of tests/slurm);
of `rate`, the tokens a second that TorchTitan prints in its CPU image, and the launcher's own seconds of CPU.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from primus import build_command, load_experiment
from primus.metrics import reader
from primus.node import Node

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples/torchtitan/configs/CPU/llama3_tiny-pretrain.yaml"


def bare(run_dir: Path, image: str, words: list[str], log: Path) -> float:
    """docker run alone. Its standard input is what the container lives by: it stays open to the end."""
    command = build_command(load_experiment(EXAMPLE, words), run_dir=run_dir, image=image, env=["TOY"])
    run_dir.mkdir()
    command.write()
    return _timed(command.argv, log)


def launched(run_dir: Path, image: str, words: list[str], log: Path) -> float:
    """primus run, whose record and live reading of the output are what it has more."""
    options = (f"--config={EXAMPLE}", f"--run-dir={run_dir}", f"--image={image}", "--pull=never", "--env=TOY")
    return _timed((sys.executable, "-m", "primus", "run", *options, *words), log)


WAYS = {"docker run": bare, "primus run": launched}


def _timed(argv: tuple[str, ...], log: Path) -> float:
    with log.open("wb") as file:
        started = time.perf_counter()
        with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT) as process:
            assert process.stdin is not None
            process.stdin.write(b"{}\n")  # no secrets
            process.stdin.flush()
            code = process.wait()
        taken = time.perf_counter() - started
    if code:
        sys.exit(f"{log.read_text(errors='replace')[-2000:]}\nexit code {code}")
    return taken


def tokens_per_second(log: Path) -> float:
    """The median, without the first steps."""
    found = reader(load_experiment(EXAMPLE), Node())
    steps = [numbers for line in log.read_text(errors="replace").splitlines() if (numbers := found.feed(line))]
    return statistics.median(float(one["tokens_per_second"] or 0) for one in steps[3:])


def start(root: Path, rounds: int) -> None:
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(rounds + 1):
        for name, way in WAYS.items():
            times[name].append(way(root / f"{name} {number}", "primus-torchtitan:toy", [], root / "log"))
    first, second = (statistics.median(values[1:]) for values in times.values())
    pairs = [b - a for a, b in zip(*times.values(), strict=True)][1:]
    more = statistics.median(pairs)
    print(f"docker run {first:.3f} s, primus run {second:.3f} s: {more:+.3f} s, {second / first:.2f} x")


def rate(root: Path, rounds: int, steps: int) -> None:
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    words = [f"training.steps={steps}", "checkpoint.enable=false"]
    spent = []
    for number in range(rounds):
        for name, way in list(WAYS.items())[:: -1 if number % 2 else 1]:
            before = os.times()
            taken = way(root / f"{name} {number}", "primus-torchtitan:0.1.0-cpu", words, root / "log")
            after = os.times()
            rates[name].append(tokens_per_second(root / "log"))
            cpu = sum(after[2:4]) - sum(before[2:4])
            spent += [(name, cpu, taken)]
            print(f"  {name}: {rates[name][-1]:,.0f} tokens/s, {cpu:.2f} s of CPU in {taken:.1f} s", flush=True)
    first, second = (statistics.median(values) for values in rates.values())
    more = [statistics.median(cpu for name, cpu, _ in spent if name == way) for way in WAYS]
    whole = statistics.median(taken for _, _, taken in spent)
    print(f"docker run {first:,.0f} tokens/s, primus run {second:,.0f}: ratio {second / first:.4f}")
    print(f"the launcher's CPU beside the client's: {more[1] - more[0]:+.2f} s of {whole:.1f} s")


def main() -> None:
    os.environ["TOY"] = "true"
    numbers = [int(word) for word in sys.argv[2:]]
    root = Path(tempfile.mkdtemp(prefix="primus-overhead-"))
    try:
        if sys.argv[1:2] == ["start"]:
            start(root, *(numbers or [11]))
        elif sys.argv[1:2] == ["rate"]:
            rate(root, *[*numbers, *(4, 150)[len(numbers) :]])
        else:
            sys.exit(__doc__)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
