"""Upstream's command line and its packaged launchers' variables, to the end of a training."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launch.support import EXAMPLES, ROOT, Run, primus

EXAMPLE = str(EXAMPLES["torchtitan"])


def primus_cli(*words: str, env: dict[str, str]) -> Run:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [ROOT / "runner" / "primus-cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PATH": path, **env},
        timeout=240,
        check=False,
    )
    return Run(code=done.returncode, output=done.stdout)


def test_a_command_of_upstreams_trains_in_a_container(image: Callable[[str], str], tmp_path: Path) -> None:
    image("torchtitan")
    (tmp_path / "data").mkdir()
    run = primus_cli(
        *("--debug", "container", "--clean", "--privileged", "--image", "rocm/primus:v26.5", "--log_file", "log"),
        *("--volume", f"{tmp_path / 'data'}:/data", "--env", "HF_TOKEN=not-to-be-seen", "--cpus", "2"),
        *("--", "train", "pretrain", "--config", EXAMPLE, "--training.steps", "2", "--data_path", "/data"),
        env={"PRIMUS_WORKSPACE": str(tmp_path)},
    )
    assert run.code == 0, run.output
    assert sorted(run.losses("torchtitan")) == [1, 2]
    assert run.output.count("in the new form: primus run --launcher=container ") == 1
    assert "not-to-be-seen" not in run.output


def test_the_packaged_launchers_variables_train(image: Callable[[str], str], tmp_path: Path) -> None:
    image("torchtitan")
    run = primus(
        *("run", "--from-env", "--launcher", "container", "training.steps=2"),
        env={"EXP": EXAMPLE, "NNODES": "1", "DATA_PATH": str(tmp_path), "PRIMUS_WORKSPACE": str(tmp_path)},
    )
    assert run.code == 0, run.output
    assert sorted(run.losses("torchtitan")) == [1, 2]


@pytest.mark.parametrize("words", [("--training.stepz", "2"), ("--backend_path", "/x")], ids=lambda words: words[0])
def test_what_is_wrong_starts_nothing(words: tuple[str, ...], tmp_path: Path) -> None:
    run = primus_cli(
        *("direct", "--", "train", "pretrain", "--config", EXAMPLE, *words), env={"PRIMUS_WORKSPACE": str(tmp_path)}
    )
    assert run.code == 2
    assert list(tmp_path.iterdir()) == []
