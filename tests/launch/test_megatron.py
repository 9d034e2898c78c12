"""Megatron learns, on the host and in its image; however many processes share the work, the losses are the same."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from primus.backends.megatron import adapter
from primus.experiment import load_experiment
from tests.launch.support import EXAMPLES, ROOT, primus

pytestmark = pytest.mark.timeout(420)

EXAMPLE = f"--config={EXAMPLES['megatron']}"
HALF, WHOLE = 10, 20
# What one process's sums may differ by from several processes': two units of the last digit that is printed.
TOLERANCE = 2e-6


def train(*words: str, python: Path | None = None) -> dict[int, float]:
    """The losses of a run, in its image unless `python` is the one of a host that has Megatron."""
    place = {"python": python} if python else {}
    how = "--launcher=direct" if python else "--engine-arg=--network=none"
    run = primus("run", EXAMPLE, how, *words, **place)  # type: ignore[arg-type]
    assert run.code == 0, run.output[-3000:]
    return run.losses("megatron")


@pytest.fixture(scope="module")
def halfway(megatron_python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, float]]:
    """The checkpoint that one process saved half way, and the losses it went on to have."""
    run_dir = tmp_path_factory.mktemp("megatron")
    losses = train(f"--run-dir={run_dir}", python=megatron_python)
    assert list(losses) == list(range(1, WHOLE + 1))
    assert losses[WHOLE] < losses[1] - 2.5
    shutil.rmtree(run_dir / f"checkpoints/iter_{WHOLE:07}")
    (run_dir / "checkpoints/latest_checkpointed_iteration.txt").write_text(str(HALF))
    return run_dir / "checkpoints", {step: loss for step, loss in losses.items() if step > HALF}


@pytest.mark.parametrize(
    ("processes", "parallel", "tolerance"),
    [
        (1, (), 0.0),
        (2, (), TOLERANCE),
        (2, ("tensor_model_parallel_size=2",), TOLERANCE),
        (2, ("pipeline_model_parallel_size=2",), TOLERANCE),
    ],
    ids=["alone", "data", "tensor", "pipeline"],
)
def test_megatron_goes_on_from_a_checkpoint(
    megatron_python: Path,
    halfway: tuple[Path, dict[int, float]],
    run_dir: Path,
    processes: int,
    parallel: tuple[str, ...],
    tolerance: float,
) -> None:
    checkpoints, expected = halfway
    shutil.copytree(checkpoints, run_dir / "checkpoints")
    words = (f"--run-dir={run_dir}", f"--gpus-per-node={processes}", *parallel)
    losses = train(*words, python=megatron_python)
    assert list(losses) == list(expected)
    for step, loss in losses.items():
        # In its second line after a start, Megatron prints the mean of two steps.
        if step != HALF + 2:
            assert abs(loss - expected[step]) <= tolerance, (step, loss, expected[step])


@pytest.mark.parametrize(
    "words",
    [
        ("num_experts=4", "moe_router_topk=2", "expert_model_parallel_size=2"),
        ("mtp_num_layers=1", "pipeline_model_parallel_size=2"),
        ("bf16=true",),
    ],
    ids=["experts", "multi-token prediction", "bf16"],
)
def test_megatron_trains_other_models_too(megatron_python: Path, run_dir: Path, words: tuple[str, ...]) -> None:
    fixed = (f"--run-dir={run_dir}", "--gpus-per-node=2", "train_iters=6", "save=null")
    losses = train(*fixed, *words, python=megatron_python)
    assert losses[6] < losses[1] - 0.5
    assert not (run_dir / "checkpoints").exists()


HYBRID = """
import os, sys
sys.argv[1:] = [word for word in sys.argv[1:] if not word.startswith("--tokenizer")]
sys.argv += ["--tokenizer-type=NullTokenizer", "--vocab-size=50257", "--no-rope-fusion"]
os.environ |= {"WORLD_SIZE": "8", "RANK": "0"}
from primus.backends.megatron import worker
from megatron.training.arguments import parse_and_validate_args
config = worker.model_config(parse_and_validate_args(worker.turbo.add_arguments))
attention = config.hybrid_stack_spec.submodules.mla_layer.submodules.self_attention.submodules
assert attention.linear_q_up_proj is attention.linear_kv_up_proj
assert attention.linear_q_up_proj is not attention.linear_q_proj
print("layers", config.hybrid_layer_pattern, config.transformer.num_layers)
"""


def test_megatron_takes_a_hybrid_model(megatron_python: Path) -> None:
    """Its kernels are for GPUs only: here it is Megatron's parser and the model's configuration that are tried."""
    path = ROOT / "examples/megatron/configs/MI300X/hylo_llama_mamba_3B_BF16-pretrain.yaml"
    found = load_experiment(path, environ={})
    flags = list(adapter.flags(found.args))
    command = [str(megatron_python), "-W", "ignore", "-c", HYBRID, *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"layers {'+-M-M-M-' * 7} 56" in done.stdout.splitlines()


def test_primus_turbos_functions_take_the_place_of_megatrons(megatron_python: Path) -> None:
    """With stand-ins for both: the kernels themselves need a GPU."""
    command = [str(megatron_python), "-W", "ignore", "tests/launch/turbo_stand_in.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["done"]), done.stderr


MAKE_DATA = """
import json, sys, torch
from primus.backends.megatron import worker
from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder
builder = IndexedDatasetBuilder(sys.argv[1] + ".bin", dtype=DType.optimal_dtype(1024))
for line in open("examples/data/tales.jsonl", encoding="utf-8"):
    document = torch.tensor([*json.loads(line)["text"].encode(), 1023])
    builder.add_document(document, [len(document)])
builder.finalize(sys.argv[1] + ".idx")
"""


def test_megatron_reads_its_data_files(megatron_python: Path, run_dir: Path) -> None:
    data = run_dir.parent / "tales"
    subprocess.run([megatron_python, "-W", "ignore", "-c", MAKE_DATA, str(data)], cwd=ROOT, check=True)
    data_files = sorted(path.name for path in run_dir.parent.iterdir())
    words = ("mock_data=false", f"data_path=[{data}]", "split='90,10,0'", "save=null")
    losses = train(f"--run-dir={run_dir}", *words, python=megatron_python)
    assert losses[WHOLE] < losses[1] - 2.5
    assert sorted(path.name for path in run_dir.parent.iterdir() if path != run_dir) == data_files


def test_two_megatron_nodes(megatron_python: Path, run_dir: Path) -> None:
    """Two nodes on one machine; the last one's last process knows the loss."""
    words = ("run", "--launcher=direct", "--nodes=2", EXAMPLE, f"--run-dir={run_dir}", "train_iters=6", "save=null")
    command = [str(megatron_python), "-m", "primus", *words]
    meet = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29613"}
    with (run_dir.parent / "0.log").open("w") as log:
        first = subprocess.Popen(command, env={**meet, "NODE_RANK": "0"}, cwd=ROOT, stdout=log, stderr=log)
    last = primus(*words, python=megatron_python, env={**meet, "NODE_RANK": "1"})
    assert (first.wait(60), last.code) == (0, 0), last.output[-3000:]
    losses = last.losses("megatron")
    assert list(losses) == list(range(1, 7))
    assert losses[6] < losses[1] - 0.5


def test_megatron_in_its_image(image: Callable[[str], str], run_dir: Path) -> None:
    image("megatron")
    words = (f"--run-dir={run_dir}", "--gpus-per-node=2")
    first = train(*words)
    assert list(first) == list(range(1, WHOLE + 1))
    assert first[WHOLE] < first[1] - 2.5
    more = train(*words, "train_iters=23")
    assert list(more) == [21, 22, 23]
    assert max(more.values()) < first[1] - 2
