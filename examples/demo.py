"""The main job, small: a Llama learns on two CPU processes, saves a checkpoint, and goes on from it.

`make demo` runs this. It calls the launcher as a user would and shows the loss.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = Path("output/demo/llama3_tiny")
STEP = re.compile(r"step:\s*(\d+)\s+loss:\s*([\d.]+)")
RUN = (
    *("primus", "run", "--launcher", "direct", "--gpus-per-node", "2", "--run-dir", str(RESULTS)),
    *("--config", "examples/torchtitan/configs/CPU/llama3_tiny-pretrain.yaml"),
    *("training.dataset=text", "training.dataset_path=examples/data/tales.jsonl"),
    "model.hf_assets_path=examples/data/tokenizer",
)


def train(steps: int) -> dict[int, float]:
    """Run to `steps`, showing each step's loss as it comes. Returns the losses by step."""
    command = (*RUN, f"training.steps={steps}")
    print(f"$ {' '.join(command)}\n", flush=True)
    losses: dict[int, float] = {}
    log: list[str] = []
    primus = (sys.executable, "-m", "primus", *command[1:])
    with subprocess.Popen(
        primus, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            log.append(line)
            if match := STEP.search(line):
                step, loss = int(match[1]), float(match[2])
                losses[step] = loss
                if step == 1 or step % 5 == 0 or len(losses) == 1:
                    print(f"  step {step:>3}   loss {loss:6.3f}  {'#' * round(loss * 6)}", flush=True)
    if process.returncode != 0:
        sys.exit(f"{''.join(log[-40:])}\nthe run failed with exit code {process.returncode}; its last lines are above")
    return losses


def main() -> None:
    os.chdir(HERE.parent)
    shutil.rmtree(RESULTS, ignore_errors=True)
    started = time.monotonic()
    print("A Llama of 6 million parameters learns to tell tales: TorchTitan, two processes on the CPU.\n")
    first = train(30)
    print("\nA checkpoint is saved. The same command with more steps goes on from it:\n")
    second = train(50)
    if min(second) != 31 or not max(first[30], second[50]) < first[1] / 2:
        sys.exit(f"expected to go on at step 31 with less than half the first loss; got {first} and then {second}")
    print(
        f"\nLoss {first[1]:.2f} -> {first[30]:.2f} -> {second[50]:.2f} in {time.monotonic() - started:.0f} s.\n"
        f"Results:     {RESULTS}/  (experiment.yaml, torchtitan.toml, logs/, checkpoint/)\n"
        "Try next:    . .venv-torchtitan/bin/activate\n"
        "             primus config show --origin examples/torchtitan/configs/MI300X/llama3.1_8B-FP8-pretrain.yaml\n"
        "             primus run --config examples/torchtitan/configs/MI300X/llama3.1_8B-FP8-pretrain.yaml --dry-run\n"
        "In an image: ACCELERATOR=cpu docker buildx bake torchtitan\n"
        "             primus run --config examples/torchtitan/configs/CPU/llama3_tiny-pretrain.yaml"
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped")
