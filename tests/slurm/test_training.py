"""Real trainings in containers on two nodes: the ranks form one job, and all of them see the same losses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from primus.image.names import reference
from primus.record import Record
from tests.conftest import ROOT
from tests.launch.conftest import image
from tests.launch.support import EXAMPLES, Run
from tests.slurm.cluster import Cluster

__all__ = ["image"]
pytestmark = pytest.mark.timeout(600)

STEPS = {
    "torchtitan": ("training.steps=4", "checkpoint.interval=4"),
    "maxtext": ("steps=4", "checkpoint_period=4", "enable_checkpointing=false"),
}


def losses(record: Path, rank: int, framework: str) -> dict[int, float]:
    return Run(code=0, output=Record(record).log(rank).read_text()).losses(framework)


@pytest.mark.parametrize(
    ("framework", "engine"), [("torchtitan", "docker"), ("maxtext", "docker"), ("torchtitan", "podman")]
)
def test_two_nodes_with_two_processes_each(
    cluster: Cluster,
    image: Callable[[str], str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    framework: str,
    engine: str,
) -> None:
    image(framework)
    request.getfixturevalue(engine)
    if engine == "podman":
        _load(reference(framework, "cpu"))
    run_dir = tmp_path / "run 1"
    words = (
        *(sys.executable, "-m", "primus", "run", "--launcher=slurm", "--wait", "--nodes=2", "--gpus-per-node=2"),
        *(f"--config={EXAMPLES[framework]}", f"--engine={engine}", f"--run-dir={run_dir}"),
        *(f"--mount={ROOT}/primus:/opt/primus/primus:ro", *STEPS[framework]),
    )
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", cwd=ROOT, timeout=580, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    (record,) = [path.parent for path in run_dir.glob("*/run.json")]
    found = [losses(record, rank, framework) for rank in range(2)]
    assert len({*found[0].values()}) == 4, Record(record).log(0).read_text()[-3000:]  # of four steps, and it learns
    assert found[0] == found[1]
    assert [attempt.exit for attempt in Record(record).attempts()] == [0, 0]


def _load(name: str) -> None:
    if subprocess.run(["podman", "image", "exists", name], check=False).returncode != 0:
        with subprocess.Popen(["docker", "save", name], stdout=subprocess.PIPE) as save:
            subprocess.run(["podman", "load"], stdin=save.stdout, capture_output=True, check=True)
