"""A run that fails says on which rank, with its own last words, why, and where the logs are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launch.support import EXAMPLES, primus

pytestmark = pytest.mark.timeout(240)


def test_what_only_torchtitan_can_refuse(image: Callable[[str], str], run_dir: Path) -> None:
    """With two processes; the second's output is not shown, and nothing of torchrun's own trace is."""
    image("torchtitan")
    words = ("run", f"--config={EXAMPLES['torchtitan']}", f"--run-dir={run_dir}", "--gpus-per-node=2")
    run = primus(*words, "--engine-arg=--network=none", "experimental.custom_import=nosuch.module")
    assert run.code == 1, run.output[-3000:]
    said = run.output[run.output.index("primus: failed with exit code 1, first rank ") :].splitlines()
    at = said.index("  | ModuleNotFoundError: No module named 'nosuch'")
    assert said[at + 1] == "cause: the image does not have a module"
    assert said[-1].startswith("log: ")
    assert Path(said[-1].removeprefix("log: ")).is_file()
    assert len(said) < 10
    logs = primus("logs", str(run_dir))
    assert logs.output.count("primus: failed with exit code 1, first rank ") == 1
    assert logs.output.splitlines()[-1] == said[-1]


def test_a_data_set_that_is_in_no_cache(image: Callable[[str], str], run_dir: Path) -> None:
    """MaxText has one process on each node, and no summary of torchrun's."""
    image("maxtext")
    words = ("run", f"--config={EXAMPLES['maxtext']}", f"--run-dir={run_dir}", "--engine-arg=--network=none")
    data = ("dataset_type=hf", "hf_path=nosuch/name", "tokenizer_path=nosuch/tokenizer")
    run = primus(*words, *data, env={"HF_HUB_OFFLINE": "1"})
    assert run.code == 1, run.output[-3000:]
    assert "primus: failed with exit code 1, first on node 0 (" in run.output
    assert "cause: a model, tokenizer or data set is not in the Hugging Face cache" in run.output
