"""The numbers of a run's steps are those that the backend printed, each once, whatever it is run with."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from primus.experiment import load_experiment
from primus.metrics import reader
from primus.node import Node
from primus.record import records
from tests.launch.support import EXAMPLES, ROOT, Run, primus

pytestmark = pytest.mark.timeout(400)

FEW = {
    "torchtitan": ("training.steps=6", "checkpoint.enable=false"),
    "maxtext": ("steps=6", "enable_checkpointing=false"),
    "megatron": ("train_iters=6", "save=null"),
    "megatron_bridge": ("train.train_iters=6", "checkpoint.save=null"),
    "specforge": ("training.max_steps=6",),
    "maxdiffusion": ("max_train_steps=6", "save_final_checkpoint=false"),
}


def metrics(run_dir: Path) -> list[dict[str, Any]]:
    (record,) = records(run_dir)
    return [json.loads(line) for line in record.metrics.read_text(encoding="utf-8").splitlines()]


def agree(framework: str, steps: list[dict[str, Any]], run: Run) -> None:
    printed = run.losses(framework)
    assert len(printed) >= 5
    assert [(one["step"], one["loss"]) for one in steps] == list(printed.items())
    assert all(one["steps"] == 6 for one in steps)


@pytest.mark.parametrize("framework", sorted(FEW))
def test_metrics_are_what_the_backend_printed(framework: str, image: Callable[[str], str], run_dir: Path) -> None:
    image(framework)
    done = primus("run", f"--config={EXAMPLES[framework]}", f"--run-dir={run_dir}", *FEW[framework])
    assert done.code == 0, done.output[-3000:]
    agree(framework, metrics(run_dir), done)
    assert "\x1b" not in done.output  # no terminal, no line below it


def test_metrics_of_maxdiffusion_without_an_image(maxdiffusion_python: Path, run_dir: Path) -> None:
    example = EXAMPLES["maxdiffusion"]
    words = ("--launcher=direct", f"--config={example}", f"--run-dir={run_dir}", *FEW["maxdiffusion"])
    done = primus("run", *words, python=maxdiffusion_python)
    assert done.code == 0, done.output[-3000:]
    found = reader(load_experiment(example, ["max_train_steps=6"], environ={}), Node())
    steps = [numbers for line in done.output.splitlines() if (numbers := found.feed(line)) is not None]
    agree("maxdiffusion", steps, done)


@pytest.mark.parametrize("framework", ["torchtitan", "megatron", "maxtext"])
def test_two_processes_tell_once(framework: str, image: Callable[[str], str], run_dir: Path) -> None:
    image(framework)
    words = (f"--config={EXAMPLES[framework]}", f"--run-dir={run_dir}", "--gpus-per-node=2", *FEW[framework])
    done = primus("run", *words)
    assert done.code == 0, done.output[-3000:]
    steps = metrics(run_dir)
    agree(framework, steps, done)
    assert {one["world_size"] for one in steps} == {2}


def test_events_instead_of_output(image: Callable[[str], str], run_dir: Path) -> None:
    image("torchtitan")
    words = (f"--config={EXAMPLES['torchtitan']}", f"--run-dir={run_dir}", "--output=json", *FEW["torchtitan"])
    done = primus("run", *words)
    events = [json.loads(line) for line in done.output.splitlines() if not line.startswith("primus: ")]
    told = [event.get("stage", event["event"]) for event in events]
    assert told == ["pulling", "start", "starting", "compiling", "training", *["step"] * 6, "end"]
    start, end = events[1], events[-1]
    assert end["exit"] == 0
    assert Path(start["record"], "metrics.jsonl").exists()
    assert "step:  6" in Path(start["log"]).read_text(encoding="utf-8")


def test_a_terminal_shows_a_line_and_is_left_as_it_was(image: Callable[[str], str], run_dir: Path) -> None:
    image("torchtitan")
    words = (
        f"--config={EXAMPLES['torchtitan']}",
        f"--run-dir={run_dir}",
        "training.steps=1000",
        "checkpoint.enable=false",
    )
    ours, theirs = os.openpty()
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [sys.executable, "-m", "primus", "run", *words],
        stdout=theirs,
        stderr=theirs,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm"},
    )
    shown, stopped = "", False
    deadline = time.monotonic() + 120
    while process.poll() is None or select.select([ours], [], [], 0.2)[0]:
        assert time.monotonic() < deadline, shown[-3000:]
        if select.select([ours], [], [], 0.2)[0]:
            shown += os.read(ours, 1 << 16).decode(errors="replace")
        if "step 3 of 1000 | loss " in shown and not stopped:
            process.send_signal(signal.SIGINT)
            stopped = True
    assert process.returncode == 128 + signal.SIGINT
    assert re.search(r"\[(starting|compiling) 0:\d\d\]", shown)
    assert "primus: SIGINT, stopping primus-" in shown
    assert re.search(
        r"primus: ended with exit code 130 after \d+ steps; what it printed is in /.*/node0\.log\r\n$", shown
    )
    assert set(re.findall(r"\x1b[^a-zA-Z]*[a-zA-Z]", shown)) <= {"\x1b[K", "\x1b[1m", "\x1b[0m"}
    assert termios.tcgetattr(theirs) == before
    (record,) = records(run_dir)
    assert "\x1b" not in record.log(0).read_text(encoding="utf-8")
