"""The numbers of a step, from what each backend printed in a run on the CPU (logs/<framework>.log)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from primus.experiment import load_experiment
from primus.launchers.view import Plain
from primus.launchers.watch import Watch
from primus.metrics import Reader, printed, reader, tells
from primus.node import Node

ROOT = Path(__file__).parents[2]
LOGS = Path(__file__).parent / "logs"
EXAMPLES = {path.parts[-4]: path for path in sorted(ROOT.glob("examples/*/configs/CPU/*.yaml"), reverse=True)}
FRAMEWORKS = sorted(path.parent.name for path in ROOT.glob("primus/backends/*/adapter.py"))

# Copied by hand from the second step in each log.
SECOND: dict[str, dict[str, Any]] = {
    "torchtitan": {
        **{"step": 2, "steps": 30, "loss": 8.22558, "grad_norm": 2.0232, "memory_gib": 0.64},
        **{"tokens_per_second": 547, "tflops_per_device": 0.02},
    },
    "megatron": {
        **{"step": 2, "steps": 8, "loss": 6.970792, "learning_rate": 0.003, "grad_norm": 1.227, "seconds": 0.0757},
        **{"tokens_per_second": 8 * 64 / 0.0757, "tflops_per_device": 0.0, "memory_gib": 519.54 / 1024},
    },
    "megatron_bridge": {
        **{"step": 2, "steps": 8, "loss": 6.959108, "learning_rate": 0.003, "grad_norm": 1.575, "seconds": 0.0557},
        **{"tflops_per_device": 0.0, "memory_gib": 0.76098e9 / 2**30},
    },
    "maxtext": {
        **{"step": 1, "steps": 20, "loss": 7.468, "seconds": 1.725},
        **{"tokens_per_second": 148.363, "tflops_per_device": 0.0},
    },
    "maxdiffusion": {"step": 1, "steps": 600, "loss": 3.504, "seconds": 0.324, "tflops_per_device": 0.0},
    "specforge": {
        **{"step": 2, "steps": 40, "loss": 6.641249656677246, "learning_rate": 0.017746503898383073},
        **{"grad_norm": 3.696460485458374, "seconds": 0.21675972299999557},
    },
}


def lines(framework: str) -> list[str]:
    return (LOGS / f"{framework}.log").read_text(encoding="utf-8").splitlines()


def read(framework: str, node: Node | None = None) -> list[dict[str, Any]]:
    found = reader(load_experiment(EXAMPLES[framework], environ={}), node or Node())
    return [numbers for line in lines(framework) if (numbers := found.feed(line)) is not None]


def test_every_backend_says_what_it_prints() -> None:
    assert sorted(SECOND) == FRAMEWORKS == sorted(path.stem for path in LOGS.glob("*.log"))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_step_has_what_its_line_says_and_no_more(framework: str) -> None:
    steps = read(framework)
    assert steps[1] == pytest.approx({**SECOND[framework], "world_size": 1})
    first = printed(framework).first
    assert [one["step"] for one in steps] == list(range(first, first + 4))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_stages_come_in_their_order(framework: str) -> None:
    found = reader(load_experiment(EXAMPLES[framework], environ={}), Node())
    stages = [found.stage]
    for line in lines(framework):
        found.feed(line)
        stages += [found.stage] if found.stage != stages[-1] else []
    compiles = ["compiling"] if printed(framework).compiling else []
    assert stages == ["starting", *compiles, "training"]


@pytest.mark.parametrize(("framework", "factor"), [("torchtitan", 16), ("maxtext", 16), ("megatron", 1)])
def test_tokens_are_those_of_the_whole_job(framework: str, factor: int) -> None:
    one, many = read(framework)[1], read(framework, Node(nodes=2, gpus=8, rank=1))[1]
    assert many["tokens_per_second"] == pytest.approx(one["tokens_per_second"] * factor)
    assert many["tflops_per_device"] == one["tflops_per_device"]
    assert many["world_size"] == 16


def test_colours_are_no_part_of_a_number() -> None:
    line = (
        "[rank7]:[titan] 2026-11-30 21:38:14,611 - root - INFO - \x1b[31mstep: 12  \x1b[32mloss:  8.22558  "
        "\x1b[38;2;180;60;0mgrad_norm:  2.0232  \x1b[36mmemory: 170.64GiB(88.74%)  \x1b[34mtps: 12,547  "
        "\x1b[36mtflops: 1,512.30  \x1b[35mmfu: 48.01%\x1b[39m"
    )
    numbers = Reader(printed("torchtitan")).feed(line)
    assert numbers == {
        **{"step": 12, "loss": 8.22558, "grad_norm": 2.0232, "memory_gib": 170.64, "tokens_per_second": 12547},
        **{"tflops_per_device": 1512.3, "world_size": 1},
    }


def test_a_number_that_is_none_is_null() -> None:
    numbers = Reader(printed("maxtext")).feed("completed step: 3, seconds: 0.128, loss: nan, lm_loss: nan")
    assert numbers == {"step": 3, "seconds": 0.128, "loss": None, "world_size": 1}


@pytest.mark.parametrize(
    "line",
    [
        "[rank0]:[titan] 2026-11-30 - root - INFO - validate step:  2  loss:  7.4  memory: 0.59GiB(2.49%)  tps: 288",
        "[rank0]:[titan] 2026-11-30 - root - INFO - Saving a full checkpoint at last step, step 8.",
        "I1130 checkpoint_manager.py:1514] [process=0] Saving checkpoint at step 7",
        " validation loss at iteration 20 | lm loss value: 5.5E+00 | lm loss PPL: 2.4E+02 |",
        "[rank0]:saving checkpoint at iteration       8 to /runs/checkpoints in torch_dist format",
        "Completed eval after train step 3, loss=6.100",
    ],
)
def test_other_lines_are_no_steps(line: str) -> None:
    assert [Reader(printed(name)).feed(line) for name in FRAMEWORKS] == [None] * len(FRAMEWORKS)


def test_one_node_tells() -> None:
    nodes = [Node(nodes=3, rank=rank) for rank in range(3)]
    assert [tells("megatron", node) for node in nodes] == [False, False, True]
    assert [tells("maxtext", node) for node in nodes] == [True, False, False]


class Seen(Plain):
    """A view that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def stage(self, name: str) -> None:
        self.told.append(name)

    def step(self, numbers: Any, done: int) -> None:
        self.told.append(done)


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
def test_pieces_of_any_size_make_the_same_lines(tmp_path: Path, size: int) -> None:
    view, file = Seen(), tmp_path / "metrics.jsonl"
    watch = Watch(Reader(printed("maxtext")), view, metrics=file, about={"attempt": 1})
    data = (LOGS / "maxtext.log").read_bytes().rstrip(b"\n")
    for start in range(0, len(data), size):
        watch.feed(1, data[start : start + size])
        watch.feed(2, "\r 50%|█████     \r".encode()[:9])  # a progress bar on the other stream, cut anywhere
    watch.end()
    assert view.told == ["compiling", "training", 1, 2, 3, 4]
    written = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [(one["step"], one["attempt"]) for one in written] == [(0, 1), (1, 1), (2, 1), (3, 1)]


def test_a_disk_that_is_full_stops_nothing(tmp_path: Path) -> None:
    view = Seen()
    watch = Watch(Reader(printed("maxtext")), view, metrics=Path("/dev/full"), about={})
    watch.feed(1, (LOGS / "maxtext.log").read_bytes())
    watch.end()
    assert view.told[-1] == 4
