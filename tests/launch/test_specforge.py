"""SpecForge captures, trains and exports, on the host and in its image."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launch.support import EXAMPLES, Run, primus

pytestmark = pytest.mark.timeout(1500)

DFLASH = EXAMPLES["specforge"]
EAGLE3 = DFLASH.with_name("llama_tiny-eagle3.yaml")
HALF, WHOLE = 20, 40
CONVERSATIONS = 64


def launch(*words: str, example: Path = DFLASH, python: Path | None = None) -> Run:
    """A run in the image, unless `python` is the one of a host that has SpecForge."""
    place = {"python": python} if python else {}
    how = "--launcher=direct" if python else "--engine-arg=--network=none"
    return primus("run", f"--config={example}", how, *words, timeout=600, **place)  # type: ignore[arg-type]


def done(run: Run) -> dict[int, float]:
    """The losses of a run that ended well."""
    assert run.code == 0, run.output[-3000:]
    return run.losses("specforge")


def exported(run_dir: Path) -> tuple[str, int]:
    """The architecture of the exported draft, and the number of its tensors."""
    config = json.loads((run_dir / "export/config.json").read_text())
    weights = (run_dir / "export/model.safetensors").read_bytes()
    header = json.loads(weights[8 : 8 + int.from_bytes(weights[:8], "little")])
    return config["architectures"][0], len(header.keys() - {"__metadata__"})


@pytest.fixture(scope="module")
def whole(specforge_python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, float]]:
    """The run directory of the whole example with one process, and its losses."""
    run_dir = tmp_path_factory.mktemp("specforge") / "run"
    return run_dir, done(launch(f"--run-dir={run_dir}", python=specforge_python))


def test_dflash_is_captured_trained_and_exported(whole: tuple[Path, dict[int, float]]) -> None:
    run_dir, losses = whole
    assert list(losses) == list(range(1, WHOLE + 1))
    assert losses[WHOLE] < losses[1] - 0.5
    assert len(list(run_dir.glob("hidden_states/rows_0-2000/data_*.ckpt"))) == CONVERSATIONS
    assert exported(run_dir) == ("DFlashDraftModel", 14)


@pytest.mark.parametrize("processes", [1, 2])
def test_dflash_goes_on_from_a_checkpoint(
    specforge_python: Path, whole: tuple[Path, dict[int, float]], run_dir: Path, processes: int
) -> None:
    """Exactly: each loss is the one that the uninterrupted run had."""
    features = f"data.hidden_states_path={whole[0] / 'hidden_states'}"
    words = (f"--run-dir={run_dir}", f"--gpus-per-node={processes}", "specforge_mode=train", features)
    losses = done(launch(*words, python=specforge_python))
    assert list(losses) == list(range(1, WHOLE + 1))
    assert losses[WHOLE] < losses[1] - 0.5
    if processes == 1:
        assert losses == whole[1]
    shutil.rmtree(run_dir / f"checkpoints/llama_tiny-dflash-step{WHOLE}")
    latest = run_dir / "checkpoints/llama_tiny-dflash-latest"
    latest.unlink()
    latest.symlink_to(f"llama_tiny-dflash-step{HALF}")
    assert done(launch(*words, python=specforge_python)) == {step: loss for step, loss in losses.items() if step > HALF}
    assert done(launch(*words, python=specforge_python)) == {}


def test_eagle3_learns_too(specforge_python: Path, run_dir: Path) -> None:
    losses = done(launch(f"--run-dir={run_dir}", "--gpus-per-node=2", example=EAGLE3, python=specforge_python))
    assert losses[WHOLE] < losses[1] - 1.5
    assert (run_dir / "hidden_states_raw/vocab_mapping/vocab_mapping.pt").is_file()
    assert exported(run_dir)[0] == "LlamaForCausalLMEagle3"
    shutil.rmtree(run_dir / "export")
    again = ("specforge_mode=export", "specforge_export.to=sglang")
    done(launch(f"--run-dir={run_dir}", *again, example=EAGLE3, python=specforge_python))
    assert exported(run_dir)[0] == "LlamaForCausalLMEagle3"


LOSS = """
import torch, sys
from primus.backends.specforge import worker
worker.without_triton()
from specforge.core.loss import LogSoftmaxLoss
torch.manual_seed(0)
logits = torch.randn(2, 3, 5, requires_grad=True)
target = torch.softmax(torch.randn(2, 3, 5), 2)
mask = torch.tensor([[1, 0, 1], [1, 1, 0]]).unsqueeze(2)
LogSoftmaxLoss.apply(logits, target, mask).backward()
# The gradient as the kernel computes it: softmax times the target's sum, less the target.
expected = mask * (torch.softmax(logits, 2) * target.sum(2, keepdim=True) - target) / 6
assert torch.allclose(logits.grad, expected, atol=1e-6)
assert "triton" not in sys.modules
"""


def test_the_loss_without_triton_has_the_kernels_gradient(specforge_python: Path) -> None:
    subprocess.run([specforge_python, "-W", "ignore", "-c", LOSS], check=True)


SELECT = """
import sys, torch
from pathlib import Path
from primus.backends.specforge import features
raw, kept = Path(sys.argv[1]) / "raw", Path(sys.argv[1]) / "kept"
masks = {"answer": [0, 1, 1, 0, 0, 0], "one token": [0, 1, 0, 0, 0, 0], "late": [0, 0, 0, 0, 1, 1], "none": [0, 0, 1]}
for name, mask in masks.items():
    features._save({"loss_mask": torch.tensor(mask)}, raw / f"{name}.ckpt")
features._save({"loss_mask": torch.tensor(masks["answer"])}, raw / "packed.ckpt.gz")
features.select(raw, kept, block=2, least=2)
print(sorted(path.name for path in features.files(kept)))
(raw / "answer.ckpt").unlink()
features._save({"loss_mask": torch.tensor([0])}, raw / "answer.ckpt")
features.select(raw, kept, block=2, least=2)
"""


def test_only_what_can_be_trained_on_is_kept(specforge_python: Path, tmp_path: Path) -> None:
    done = subprocess.run([specforge_python, "-c", SELECT, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "\n['answer.ckpt', 'packed.ckpt.gz']\n" in done.stdout, done.stderr
    assert (done.returncode, done.stderr) == (1, "error: 1 of 5 captured conversations have an answer of 2 tokens\n")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["packed.ckpt.gz"]


def test_a_specforge_config_of_ones_own(
    specforge_python: Path, whole: tuple[Path, dict[int, float]], run_dir: Path
) -> None:
    """What the experiment says beats the file; both name the same run here."""
    run_dir.mkdir()
    experiment = run_dir.parent / "mine.yaml"
    overrides = {
        "specforge_config": str(whole[0] / "specforge-train.yaml"),
        "specforge_overrides": {"training.max_steps": 3},
    }
    head = {
        "work_group": "a",
        "user_name": "b",
        "exp_name": "llama_tiny-dflash",
        "workspace": "w",
        "accelerator": "cpu",
    }
    trainer = {"framework": "specforge", "overrides": overrides}
    experiment.write_text(json.dumps({**head, "modules": {"pre_trainer": trainer}}))
    losses = done(launch(f"--run-dir={run_dir}", example=experiment, python=specforge_python))
    assert list(losses) == [1, 2, 3]
    assert losses[1] == whole[1][1]


def test_features_of_something_else_are_not_gone_on_with(
    specforge_python: Path, whole: tuple[Path, dict[int, float]]
) -> None:
    words = (f"--run-dir={whole[0]}", "specforge_mode=capture", "specforge_capture.max_length=64")
    run = launch(*words, python=specforge_python)
    assert run.code == 1
    assert "holds features of another model, or of other conversations" in run.output


def test_what_specforge_refuses_is_said(specforge_python: Path, run_dir: Path) -> None:
    features = run_dir.parent / "features"
    features.mkdir()
    words = (f"--run-dir={run_dir}", "specforge_mode=train", f"data.hidden_states_path={features}")
    run = launch(*words, python=specforge_python)
    assert run.code == 1
    assert f"error: data.hidden_states_path: no *.ckpt below {features}" in run.output
    (features / "data_0.ckpt").touch()
    run = launch(*words, "runtime.in_flight_low_watermark=300", python=specforge_python)
    assert run.code == 1
    assert "runtime.in_flight_low_watermark must be <= runtime.in_flight_high_watermark" in run.output


def test_specforge_in_its_image(image: Callable[[str], str], run_dir: Path) -> None:
    image("specforge")
    words = (f"--run-dir={run_dir}", "--gpus-per-node=2")
    losses = done(launch(*words))
    assert list(losses) == list(range(1, WHOLE + 1))
    assert losses[WHOLE] < losses[1] - 0.5
    assert exported(run_dir) == ("DFlashDraftModel", 14)
    shutil.rmtree(run_dir / "export")
    done(launch(*words, "specforge_mode=export"))
    assert exported(run_dir) == ("DFlashDraftModel", 14)
