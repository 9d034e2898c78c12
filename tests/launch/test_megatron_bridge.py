"""Megatron Bridge learns, on the host and in its image: from nothing, and from a model of Hugging Face's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from primus.backends.megatron_bridge import adapter
from primus.experiment import load_experiment
from primus.node import Node
from tests.launch.support import EXAMPLES, ROOT, primus

pytestmark = pytest.mark.timeout(900)

PRETRAIN = EXAMPLES["megatron_bridge"]
SFT = PRETRAIN.parent / "llama3_tiny-sft.yaml"
LORA = PRETRAIN.parent / "llama3_tiny-lora.yaml"
HALF, WHOLE = 10, 20
# What one process's sums may differ by from several processes': two units of the last digit that is printed.
TOLERANCE = 2e-6


def train(
    example: Path, run_dir: Path, *words: str, python: Path | None = None, env: Mapping[str, str] | None = None
) -> dict[int, float]:
    """The losses of a run without a network: in its image, unless `python` is the one of a host that has Bridge."""
    how = "--launcher=direct" if python else "--engine-arg=--network=none"
    offline = {"HF_HUB_OFFLINE": "1", **(env or {})}
    words = ("run", f"--config={example}", f"--run-dir={run_dir}", how, *words)
    done = primus(*words, python=python or sys.executable, env=offline, timeout=420)
    assert done.code == 0, done.output[-3000:]
    return done.losses("megatron_bridge")


@pytest.fixture(scope="module")
def whole(megatron_bridge_python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, float]]:
    """The checkpoints of one process, and the losses it had after the first of them."""
    run_dir = tmp_path_factory.mktemp("bridge")
    losses = train(PRETRAIN, run_dir, python=megatron_bridge_python)
    assert list(losses) == list(range(1, WHOLE + 1))
    assert losses[WHOLE] < losses[1] - 1.5
    return run_dir / "checkpoints", {step: loss for step, loss in losses.items() if step > HALF}


# On two processes by the tensors; by data and pipeline they are Megatron's own, whose tests are beside this file.
@pytest.mark.parametrize(
    ("processes", "parallel", "tolerance"),
    [(1, (), 0.0), (2, ("model.tensor_model_parallel_size=2",), TOLERANCE)],
    ids=["alone", "tensor"],
)
def test_bridge_goes_on_from_a_checkpoint(
    megatron_bridge_python: Path,
    whole: tuple[Path, dict[int, float]],
    run_dir: Path,
    processes: int,
    parallel: tuple[str, ...],
    tolerance: float,
) -> None:
    checkpoints, expected = whole
    words = (f"checkpoint.load={checkpoints}", f"checkpoint.ckpt_step={HALF}", "checkpoint.save=null")
    losses = train(PRETRAIN, run_dir, *words, f"--gpus-per-node={processes}", *parallel, python=megatron_bridge_python)
    assert losses == pytest.approx(expected, abs=tolerance, rel=0)
    assert not (run_dir / "checkpoints").exists()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variable that tells the examples where their model and their tales are, both read-only."""
    folder = tmp_path_factory.mktemp("tiny")
    subprocess.run([sys.executable, ROOT / "examples/data/make_tiny_llama.py", folder], check=True)
    for path in folder.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    return {"PRIMUS_TINY_LLAMA": str(folder)}


@pytest.mark.parametrize(("example", "gain"), [(SFT, 2.0), (LORA, 0.2)], ids=["all weights", "LoRA"])
def test_bridge_fine_tunes_a_model_of_hugging_faces(
    megatron_bridge_python: Path, tiny: dict[str, str], run_dir: Path, example: Path, gain: float
) -> None:
    words = ("--gpus-per-node=2",)
    first = train(example, run_dir, *words, python=megatron_bridge_python, env=tiny)
    assert list(first) == list(range(1, WHOLE + 1))
    assert first[WHOLE] < first[1] - gain
    more = train(example, run_dir, *words, "train.train_iters=22", python=megatron_bridge_python, env=tiny)
    assert list(more) == [21, 22]
    assert max(more.values()) < first[1] - gain


REFUSED = {
    "hf_path: Qwen/Qwen3-8B": "Qwen/Qwen3-8B: the hub cannot be reached from here",
    "flavor: vanilla_gpt_pretrain_config": "recipe: llama.llama3 has no flavor vanilla_gpt_pretrain_config",
    "model: {kv_lora_rank: 8}": "model.kv_lora_rank: GPTModelProvider has no such argument",
    "checkpoint: {pretrained_checkpoint: null}": "checkpoint.pretrained_checkpoint: is missing",
}
REFUSE = """
import json, sys
from pathlib import Path
from primus.backends.megatron import stand_ins
stand_ins.install()
from primus.backends.megatron_bridge import recipe
for text in json.loads(sys.argv[1]):
    try:
        recipe.configuration(json.loads(text), Path("/run"))
    except ValueError as error:
        print("refused:", error)
"""


def test_what_bridge_cannot_do_it_says(megatron_bridge_python: Path, tiny: dict[str, str], tmp_path: Path) -> None:
    """As the worker says it, before it starts anything; one process asks for all, since it takes long to begin."""
    made = []
    for overrides in REFUSED:
        path = tmp_path / "exp.yaml"
        path.write_text(f"extends: base.yaml\nmodules: {{post_trainer: {{overrides: {{{overrides}}}}}}}\n")
        (tmp_path / "base.yaml").write_text(SFT.read_text(encoding="utf-8"), encoding="utf-8")
        found = load_experiment(path, environ=tiny)
        made.append(adapter.command(found, Node(), Path("/run")).files[Path("/run/megatron_bridge.json")])
    plain = adapter.command(load_experiment(SFT, environ=tiny), Node(), Path("/run"))
    off = '"enable_offline_packing": false'
    text = plain.files[Path("/run/megatron_bridge.json")]
    assert off in text
    made.append(text.replace(off, off.replace("false", "true")))  # as a recipe has it, of which no rule knows
    words: list[str | Path] = [megatron_bridge_python, "-W", "ignore", "-c", REFUSE, json.dumps(made)]
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    answers = [line for line in done.stdout.splitlines() if line.startswith("refused: ")]
    expectations = (*REFUSED.values(), "dataset.enable_offline_packing: packed sequences need")
    for answer, expected in zip(answers, expectations, strict=True):
        assert answer.startswith(f"refused: {expected}")


FIT = """
import json, sys
from pathlib import Path
from primus.backends.megatron import stand_ins
stand_ins.install()
from primus.backends.megatron_bridge import recipe
from transformers import LlamaConfig, Qwen3Config, Qwen3MoeConfig
kinds = {"llama.llama3": LlamaConfig, "qwen.qwen3": Qwen3Config, "qwen.qwen3_moe": Qwen3MoeConfig}
for name, text in json.loads(sys.argv[1]).items():
    settings = json.loads(text)
    kind = kinds[settings["recipe"]]
    model = kind(hidden_size=64, num_hidden_layers=2, architectures=[kind.__name__.replace("Config", "ForCausalLM")])
    model.save_pretrained(sys.argv[2])
    settings["hf_path"] = settings["values"]["checkpoint"]["pretrained_checkpoint"] = sys.argv[2]
    config = recipe.configuration(settings, Path("/run"))
    assert config.tokenizer.tokenizer_model == sys.argv[2]
    assert config.model.seq_length == config.dataset.seq_length
    assert bool(config.peft) == ("_peft_" in settings["flavor"])
    print("fits:", name)
"""


def test_the_examples_fit_their_recipes(megatron_bridge_python: Path, tmp_path: Path) -> None:
    """Each value of an example has a place in what its recipe makes of a model of the same kind."""
    examples = sorted(PRETRAIN.parent.parent.glob("MI*/*.yaml"))
    made = {}
    for path in examples:
        command = adapter.command(load_experiment(path, environ={}), Node(gpus=8), Path("/run"))
        made[f"{path.parent.name}/{path.stem}"] = command.files[Path("/run/megatron_bridge.json")]
    words: list[str | Path] = [megatron_bridge_python, "-W", "ignore", "-c", FIT, json.dumps(made), tmp_path]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("fits: ") == len(examples) == 12


MAKE_DATA = """
import json, sys, torch
from primus.backends.megatron import stand_ins
stand_ins.install()
from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder
builder = IndexedDatasetBuilder(sys.argv[1] + ".bin", dtype=DType.optimal_dtype(1024))
for line in open("examples/data/tales.jsonl", encoding="utf-8"):
    document = torch.tensor([*json.loads(line)["text"].encode(), 1023])
    builder.add_document(document, [len(document)])
builder.finalize(sys.argv[1] + ".idx")
"""


def test_bridge_reads_megatrons_data_files(megatron_bridge_python: Path, run_dir: Path) -> None:
    data = run_dir.parent / "tales"
    subprocess.run([megatron_bridge_python, "-W", "ignore", "-c", MAKE_DATA, str(data)], cwd=ROOT, check=True)
    data_files = sorted(path.name for path in run_dir.parent.iterdir())
    words = (f"dataset.data_path=[{data}]", "dataset.split='90,10,0'", "checkpoint.save=null")
    losses = train(PRETRAIN, run_dir, *words, python=megatron_bridge_python)
    assert losses[WHOLE] < losses[1] - 2
    assert sorted(path.name for path in run_dir.parent.iterdir() if path != run_dir) == data_files


def test_bridge_in_its_image(image: Callable[[str], str], run_dir: Path) -> None:
    image("megatron_bridge")
    words = ("--gpus-per-node=2",)
    first = train(PRETRAIN, run_dir, *words)
    assert list(first) == list(range(1, WHOLE + 1))
    assert first[WHOLE] < first[1] - 1.5
    more = train(PRETRAIN, run_dir, *words, "train.train_iters=23")
    assert list(more) == [21, 22, 23]
    assert max(more.values()) < first[1] - 1.5


def test_bridge_fine_tunes_in_its_image(image: Callable[[str], str], tiny: dict[str, str], run_dir: Path) -> None:
    image("megatron_bridge")
    losses = train(SFT, run_dir, env=tiny)
    assert losses[WHOLE] < losses[1] - 2
