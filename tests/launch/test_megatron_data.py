"""Text becomes Megatron's data files, on the host and in the image, and Megatron learns from them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.launch.support import EXAMPLES, ROOT, Run, primus

pytestmark = pytest.mark.timeout(420)

TALES = ROOT / "examples/data/tales.jsonl"
TOKENIZER = ("--tokenizer-type=HuggingFaceTokenizer", f"--tokenizer-model={ROOT / 'examples/data/tokenizer'}")
TRAIN = """
tokenizer_type=HuggingFaceTokenizer tokenizer_model=examples/data/tokenizer mock_data=false split='90,10,0' save=null
"""


def prepare(*words: object, python: Path | None = None, env: Mapping[str, str] | None = None) -> Run:
    """Run the command, in the image unless `python` has Megatron."""
    how = ["--launcher=direct"] if python else ["--accelerator=cpu", "--offline", "--engine-arg=--network=none"]
    place = python or sys.executable
    return primus("data", "prepare-megatron", *TOKENIZER, *how, *map(str, words), python=place, env=env)


def test_megatron_learns_from_prepared_text(megatron_python: Path, run_dir: Path, image: Callable[[str], str]) -> None:
    """One process on the host and two in the image make the same files, and the host's Megatron learns from them."""
    prefix = run_dir / "data, set/tales"
    done = prepare(TALES, f"--output={prefix}", "--append-eod", python=megatron_python)
    assert done.code == 0, done.output
    assert "primus: 1000 documents" in done.output
    image("megatron")
    done = prepare(TALES, f"--output={prefix}2", "--append-eod", "--workers=2")
    assert done.code == 0, done.output
    assert "tokenizing: 50 %" in done.output
    for suffix in ("bin", "idx"):
        path = Path(f"{prefix}2.{suffix}")
        assert path.read_bytes() == Path(f"{prefix}.{suffix}").read_bytes()
        assert path.stat().st_uid == os.getuid()
    words = (f"--config={EXAMPLES['megatron']}", f"--run-dir={run_dir}", f"data_path=['{prefix}']")
    run = primus("run", "--launcher=direct", *words, *TRAIN.split(), python=megatron_python)
    losses = run.losses("megatron")
    assert run.code == 0, run.output[-3000:]
    assert losses[20] < losses[1] - 2


def test_an_unknown_tokenizer_is_said_plainly(megatron_python: Path, tmp_path: Path) -> None:
    words = ("--tokenizer-model=some/where", f"--output={tmp_path / 'x'}", TALES)
    done = prepare(*words, python=megatron_python, env={"HF_HUB_OFFLINE": "1"})
    assert done.code == 2
    assert "error: --tokenizer-type HuggingFaceTokenizer" in done.output
    assert "Traceback" not in done.output


def test_a_bar_on_a_terminal(image: Callable[[str], str], run_dir: Path) -> None:
    """The container has no terminal, and the launcher's is drawn on all the same."""
    image("megatron")
    terminal, ours = pty.openpty()
    words = ("--accelerator=cpu", "--offline", f"--output={run_dir / 'x'}", str(TALES))
    command = [sys.executable, "-m", "primus", "data", "prepare-megatron", *TOKENIZER, *words]
    process = subprocess.Popen(command, cwd=ROOT, stderr=ours, stdout=subprocess.DEVNULL)
    os.close(ours)
    seen = b""
    while True:
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
    assert process.wait(60) == 0
    os.close(terminal)
    assert b"tokenizing  [" in seen
    assert b"100%" in seen
