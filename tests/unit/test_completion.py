"""What a shell is told to complete, by click's own machinery."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from primus.cli.completion import SHELLS

from .conftest import ROOT, Experiment, Primus, Write
from .test_imports import HEAVY

EXAMPLE = "examples/torchtitan/configs/CPU/llama3_tiny-pretrain.yaml"


def told(primus: Primus, *words: str, shell: str = "bash") -> list[str]:
    """The values, without their types, for the last word."""
    place = str(len(words)) if shell != "fish" else words[-1]
    os.environ |= {"_PRIMUS_COMPLETE": f"{shell}_complete", "COMP_CWORD": place}
    os.environ["COMP_WORDS"] = " ".join(("primus", *words))
    done = primus()
    del os.environ["_PRIMUS_COMPLETE"]
    assert (done.code, done.err) == (0, "")
    return [line.removeprefix("plain,").removeprefix("file,").removeprefix("dir,") for line in done.out.splitlines()]


def test_keys_are_those_of_the_experiment_s_backend(primus: Primus, experiment: Experiment, write: Write) -> None:
    config = str(experiment())
    assert "training.steps=" in told(primus, "run", "--config", config, "training.s")
    assert "training." in told(primus, "run", "--config", config, "")  # sections, where all would be too many
    assert told(primus, "run", f"--config={config}", "compile.enable=") == ["true", "false"]
    assert told(primus, "run", f"--config={config}", "compile.enable=t") == ["true"]
    write("derived.yaml", "extends: exp.yaml\n")
    assert "training.steps=" in told(primus, "config", "show", "derived.yaml", "training.s")
    assert "train_iters=" in told(primus, "run", "--config", str(experiment(framework="megatron")), "train_i")


def test_examples_are_completed_where_there_are_none(primus: Primus, write: Write) -> None:
    assert EXAMPLE in told(primus, "run", "--config", "examples/torchtitan/configs/C")
    assert "training.steps=" in told(primus, "run", "--config", EXAMPLE, "training.s")
    write("examples/mine.yaml", "")
    assert told(primus, "run", "--config", "examples/t") == ["examples/t"]  # a file: the shell's own business


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--config", "nowhere.yaml", "tr"),
        ("run", "--config", "broken.yaml", "tr"),
        ("run", "tr"),
        ("logs", "--workspace", "nowhere", "x"),
        ("run", "--profile", "x"),
    ],
)
def test_what_is_wrong_completes_to_nothing(words: tuple[str, ...], primus: Primus, write: Write) -> None:
    write("broken.yaml", "modules: [\n")
    write("primus.yaml", "profiles: {gpu: {nonsense: true}}\n")
    assert told(primus, *words) in ([], [""], ["x"])


def test_profiles_and_runs(primus: Primus, write: Write) -> None:
    write("primus.yaml", "profiles: {gpu: {partition: a}, cpu: {partition: b}}\n")
    assert told(primus, "run", "--profile", "g") == ["gpu"]
    for number in (1, 2):
        name = f"2026113{number}-203300-1a2b"
        write(f"out/a/b/exp/{name}/run.json", json.dumps({"run_id": name, "exp_name": "exp"}))
    assert told(primus, "logs", "--workspace", "out", "e") == ["exp"]
    assert told(primus, "report", "--workspace", "out", "2026") == ["20261132-203300-1a2b", "20261131-203300-1a2b"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_asks_primus(shell: str, primus: Primus) -> None:
    done = primus("completion", shell)
    assert done.code == 0
    assert f"_PRIMUS_COMPLETE={shell}_complete" in done.out
    assert ("nospace" in done.out, "-S ''" in done.out) == (shell == "bash", shell == "zsh")
    assert any(line.partition("\t")[0] == "run" for line in told(primus, "ru", shell=shell))
    assert primus("completion", "tcsh").code == 2


def test_it_costs_little() -> None:
    program = (
        "import sys; sys.argv = ['primus']\nfrom primus.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    print(*sys.modules, file=sys.stderr)"
    )
    environ = {"PYTHONPATH": str(ROOT), "_PRIMUS_COMPLETE": "bash_complete", "COMP_CWORD": "1", "COMP_WORDS": "primus "}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    modules = {*done.stderr.split()}
    assert not HEAVY & modules
    assert "primus.cli.run" not in modules  # the list of commands imports none of them
    assert "yaml" not in modules
