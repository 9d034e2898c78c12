"""What the launcher adds to a bare sbatch of the same script, and what a job of 1,024 nodes costs more than one of one.

    .venv/bin/python benchmarks/submission.py [ROUNDS]

Where no Slurm answers, a cluster of two nodes is started for the time being (as root, Debian's slurmctld and slurmd).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.slurm.cluster import Cluster, run  # noqa: E402

EXAMPLE = "examples/torchtitan/configs/CPU/llama3_tiny-pretrain.yaml"
RUN = (sys.executable, "-m", "primus", "run", f"--config={EXAMPLE}", "--launcher=slurm", "--sbatch-arg=--hold")


def seconds(words: tuple[str, ...]) -> float:
    started = time.perf_counter()
    subprocess.run(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with tempfile.TemporaryDirectory() as scratch:
        started = None
        if subprocess.run(("sinfo",), capture_output=True, check=False).returncode != 0:
            started = Cluster(Path(scratch, "slurm"), 2, ROOT / "examples" / "slurm" / "epilog.sh")
        run_dir = Path(scratch, "run")
        seconds((*RUN, f"--run-dir={run_dir}"))
        job = next(run_dir.glob("*/job.sh"))
        commands = {
            "sbatch job.sh": ("sbatch", "--hold", str(job)),
            "primus run": (*RUN, f"--run-dir={run_dir}"),
            "dry run, 1 node": (*RUN, "--dry-run", "--nodes=1"),
            "dry run, 1024 nodes": (*RUN, "--dry-run", "--nodes=1024", "training.global_batch_size=4096"),
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds + 1):
            for name, words in commands.items():
                times[name].append(seconds(words))
        medians = {name: statistics.median(values[1:]) for name, values in times.items()}
        base = medians["sbatch job.sh"]
        for name, median in medians.items():
            print(f"{name:<20} {median * 1e3:6.0f} ms   {(median - base) * 1e3:+5.0f} ms   {median / base:5.1f} x")
        run("scancel", f"--user={os.getuid()}", check=False)
        if started is not None:
            started.stop()


if __name__ == "__main__":
    main()
