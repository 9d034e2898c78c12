"""Real trainings in containers on several nodes: the ranks form one job, and all of them see the same losses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from primus.image.names import reference
from primus.record import Record
from tests.conftest import ROOT
from tests.launch.conftest import image
from tests.launch.support import EXAMPLES, Run, in_podman
from tests.slurm.cluster import Cluster

__all__ = ["image"]
pytestmark = pytest.mark.timeout(720)

STEPS = {
    "torchtitan": ("training.steps=4", "checkpoint.interval=4"),
    "maxtext": ("steps=4", "checkpoint_period=4", "enable_checkpointing=false"),
}


def losses(record: Path, rank: int, framework: str) -> dict[int, float]:
    return Run(code=0, output=Record(record).log(rank).read_text()).losses(framework)


@pytest.mark.parametrize(
    ("framework", "engine", "nodes", "processes"),
    [
        *((framework, "docker", nodes, 4 // nodes) for framework in STEPS for nodes in (2, 4)),
        *((framework, "podman", 2, 2) for framework in STEPS),
    ],
)
def test_all_ranks_train_as_one(
    cluster: Cluster,
    image: Callable[[str], str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    framework: str,
    engine: str,
    nodes: int,
    processes: int,
) -> None:
    image(framework)
    request.getfixturevalue(engine)
    if engine == "podman":
        in_podman(reference(framework, "cpu"))
    run_dir = tmp_path / "run 1"
    words = (
        *(sys.executable, "-m", "primus", "run", "--launcher=slurm", "--wait", f"--nodes={nodes}"),
        *(f"--gpus-per-node={processes}", f"--config={EXAMPLES[framework]}", f"--engine={engine}"),
        *(f"--run-dir={run_dir}", f"--mount={ROOT}/primus:/opt/primus/primus:ro", *STEPS[framework]),
    )
    done = _ended(words) or _ended(words)
    assert done is not None
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    record = max(path.parent for path in run_dir.glob("*/run.json"))
    found = [losses(record, rank, framework) for rank in range(nodes)]
    assert len(found[0]) == 4, Record(record).log(0).read_text()[-3000:]
    assert len({*found[0].values()}) > 2  # it learns; MaxText's first step has a learning rate of 0
    assert found == [found[0]] * nodes
    assert [attempt.exit for attempt in Record(record).attempts()] == [0] * nodes
    read = [json.loads(line) for line in Record(record).metrics.read_text().splitlines()]
    assert {one["step"]: one["loss"] for one in read} == found[0]  # once, not for each node
    assert len(read) == 4
    assert {one["world_size"] for one in read} == {nodes * processes}


def _ended(words: tuple[str, ...]) -> subprocess.CompletedProcess[str] | None:
    """The finished launch; None if it stalls, as collectives of JAX between processes on CPUs do now and then."""
    try:
        return subprocess.run(
            words, capture_output=True, text=True, errors="replace", cwd=ROOT, timeout=330, check=False
        )
    except subprocess.TimeoutExpired:
        return None
