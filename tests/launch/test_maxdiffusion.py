"""MaxDiffusion learns, WAN and FLUX.1, on the host and in its image, and goes on from a checkpoint with equal losses.

Every step draws its own noise, so that a loss says little: means of many are compared, or the losses of two runs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.launch.support import EXAMPLES, Run, primus
from tests.launch.test_training import two_nodes

pytestmark = pytest.mark.timeout(600)

WAN = EXAMPLES["maxdiffusion"]
FLUX = WAN.with_name("flux_tiny-pretrain.yaml")
STEPS = 300
# Each saves once before its end: WAN counts steps, FLUX.1 samples.  Then the first step that is not in the checkpoint.
MODELS = [pytest.param(WAN, 250, 251, id="wan"), pytest.param(FLUX, 250, 250, id="flux")]


def mean(losses: Iterable[float]) -> float:
    values = list(losses)
    return sum(values) / len(values)


def losses_of(run: Run, *, first: int, last: int) -> dict[int, float]:
    """The losses of a run; MaxDiffusion never shows that of the last step."""
    assert run.code == 0, run.output[-3000:]
    losses = run.losses("maxdiffusion")
    assert list(losses) == list(range(first, last)), run.output[-3000:]
    return losses


@pytest.mark.parametrize(("config", "every", "again"), MODELS)
def test_maxdiffusion_learns_and_goes_on(
    maxdiffusion_python: Path, run_dir: Path, config: Path, every: int, again: int
) -> None:
    fixed = (f"max_train_steps={STEPS}", f"checkpoint_every={every}")
    words = ("run", "--launcher=direct", f"--config={config}", f"--run-dir={run_dir}", *fixed)
    whole = losses_of(primus(*words, python=maxdiffusion_python), first=0, last=STEPS - 1)
    assert mean(whole[step] for step in range(200, 299)) < mean(whole[step] for step in range(100)) - 0.5
    (checkpoints,) = run_dir.glob("*/checkpoints")
    assert sorted(path.name for path in checkpoints.iterdir()) == sorted([str(again - 1), str(STEPS - 1)])
    shutil.rmtree(checkpoints / str(STEPS - 1))
    resumed = losses_of(primus(*words, python=maxdiffusion_python), first=again, last=STEPS - 1)
    assert resumed == {step: whole[step] for step in resumed}

    # One that cannot be read is not passed over.
    for item in checkpoints.glob("*/*_state"):
        shutil.rmtree(item)
    broken = primus(*words, python=maxdiffusion_python)
    assert broken.code != 0
    assert "completed step" not in broken.output


def test_two_maxdiffusion_processes(maxdiffusion_python: Path, run_dir: Path) -> None:
    """Two nodes on one machine train one model on two devices; the first shows the losses."""
    fixed = (f"--config={WAN}", f"--run-dir={run_dir}", "max_train_steps=6", "save_final_checkpoint=false")
    command = [str(maxdiffusion_python), "-m", "primus", "run", "--launcher=direct", "--nodes=2", *fixed]
    runs = two_nodes(command, run_dir, 270) or two_nodes(command, run_dir, 270)
    assert runs is not None, "stalled twice"
    assert [run.code for run in runs] == [0, 0], runs[1].output[-3000:]
    assert all("(num_devices: 2)" in run.output for run in runs)
    losses_of(runs[0], first=0, last=5)
    assert runs[1].losses("maxdiffusion") == {}


@pytest.mark.parametrize("config", [WAN, FLUX], ids=["wan", "flux"])
def test_maxdiffusion_in_its_image(image: Callable[[str], str], run_dir: Path, config: Path) -> None:
    image("maxdiffusion")
    words = ("run", f"--config={config}", f"--run-dir={run_dir}", "--engine-arg=--network=none")
    losses = losses_of(primus(*words, f"max_train_steps={STEPS}"), first=0, last=STEPS - 1)
    assert mean(losses[step] for step in range(200, 299)) < mean(losses[step] for step in range(100)) - 0.5
    more = losses_of(primus(*words, "max_train_steps=310"), first=STEPS, last=309)
    assert mean(more.values()) < mean(losses[step] for step in range(100))
