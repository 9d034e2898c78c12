"""The Python API: what it offers, that it costs nothing until it is used, that it says what the command line says."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import primus
from primus import Command, ConfigError, build_command, check_experiment, find_run, find_runs, load_experiment

from .conftest import Experiment, Outcome, Primus, Write

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/torchtitan/configs/MI300X/llama3.1_8B-BF16-pretrain.yaml"


def first(done: Outcome) -> str:
    """The first command of a dry run; a container's name ends in a word of chance."""
    assert done.code == 0, done.err
    return _same(done.out.splitlines()[1])


def _same(command: Command | str) -> str:
    return re.sub(r"(--name=\S+)-[0-9a-f]{8}", r"\1", str(command))


def test_the_names_are_the_whole_surface() -> None:
    assert dir(primus) == primus.__all__ == sorted(primus.__all__)
    lazily = {name for names in primus._MODULES.values() for name in names}
    assert lazily | {"__version__"} == {*primus.__all__}
    for name in primus.__all__:
        assert getattr(primus, name) is not None
        assert name == "__version__" or getattr(primus, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'no_such'"):
        _ = primus.no_such


def test_importing_primus_imports_nothing_else() -> None:
    program = "import sys; import primus; print(*(name for name in sys.modules if name.startswith(('primus', 'yaml'))))"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert {*done.stdout.split()} == {"primus", "primus._version"}


CASES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "container": ([], {}),
    "podman, two nodes": (
        ["--engine=podman", "--nodes=2", "--registry=reg.example/team"],
        {"engine": "podman", "nodes": 2, "registry": "reg.example/team"},
    ),
    "direct": (["--launcher=direct", "--gpus-per-node=4"], {"launcher": "direct", "gpus_per_node": 4}),
    "slurm": (
        ["--launcher=slurm", "--nodes=4", "--partition=gpu", "--time=60"],
        {"launcher": "slurm", "nodes": 4, "slurm_options": {"partition": "gpu", "time": "60"}},
    ),
    "srun": (
        ["--launcher=slurm", "--wait", "--engine-arg=--cpus=8", "--offline"],
        {"launcher": "slurm", "slurm_options": {"wait": True}, "engine_args": ["--cpus=8"], "offline": True},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_dry_run_and_the_api_give_one_command(case: str, primus: Primus) -> None:
    words, options = CASES[case]
    environ = {**os.environ, **({"NODE_RANK": "0", "MASTER_ADDR": "MASTER_ADDR"} if "--nodes=2" in words else {})}
    shown = primus("run", f"--config={EXAMPLE}", "--dry-run", *words, "training.steps=7")
    made = build_command(load_experiment(EXAMPLE, ["training.steps=7"]), environ=environ, **options)
    assert _same(made) == first(shown)
    files = dict.fromkeys(line.removeprefix("# file: ") for line in shown.out.splitlines() if line.startswith("# file"))
    assert {*map(str, made.files)} <= {*files}
    for text in made.files.values():
        assert text in shown.out
    assert not Path("output").exists()


def test_what_cannot_start_is_an_error(experiment: Experiment) -> None:
    with pytest.raises(ConfigError, match="world size"):
        build_command(load_experiment(experiment("{parallelism: {tensor_parallel_degree: 3}}")), gpus_per_node=2)
    with pytest.raises(ConfigError, match="there is no partitoin"):
        build_command(load_experiment(experiment()), launcher="slurm", slurm_options={"partitoin": "gpu"})
    with pytest.raises(ConfigError, match="does not exist"):
        build_command(load_experiment(experiment()), mounts=["/no/such/place"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"launcher": "k8s"}, "launcher='k8s': is none of container, direct, slurm"),
        ({"engine": "lxc"}, "engine='lxc': is none of docker, podman"),
        ({"nodes": 0}, "nodes=0: is no whole number from 1 to 999999"),
        ({"gpus_per_node": "8"}, "gpus_per_node='8': is no whole number from 1 to 999999"),
        ({"nodes": 10**6}, "nodes=1000000: is no whole number from 1 to 999999"),
        ({"nodes": True}, "nodes=True: is no whole number"),
        ({"mounts": "/data"}, "mounts='/data': is no list of strings"),
        ({"env": "HF_HOME"}, "env='HF_HOME': is no list of strings"),
        ({"env": ["A=1"]}, "env='A=1': is no name of a variable"),
        ({"engine_args": ["8"]}, "--engine-arg='8': is no option"),
        ({"engine_args": ["--env=HF_TOKEN=hf_abc"]}, "holds a credential"),
        ({"run_dir": ""}, "run_dir='': is empty"),
        ({"run_dir": "/"}, "is the root of all files"),
        ({"slurm_options": {"time": 60}}, "slurm_options: time=60: is no string"),
        ({"slurm_options": {"wait": "yes"}}, "slurm_options: wait='yes': is neither True nor False"),
        ({"slurm_options": {"cpus_per_task": 0}}, "slurm_options: cpus_per_task=0: is no whole number that can be"),
        ({"slurm_options": {"requeue": -1}}, "slurm_options: requeue=-1: is no whole number that can be"),
        ({"slurm_options": {"requeue": None}}, "slurm_options: requeue=None: is no whole number that can be"),
        ({"slurm_options": {"sbatch_args": "--nice"}}, "slurm_options: sbatch_args='--nice': is no list of strings"),
    ],
)
def test_what_the_command_line_would_refuse_is_an_error(
    options: dict[str, Any], said: str, experiment: Experiment
) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        build_command(load_experiment(experiment()), **options)
    build_command(load_experiment(experiment()), launcher="slurm", slurm_options={"partition": None, "exclusive": None})


def test_the_help_of_a_function_does_not_show_the_environment() -> None:
    for name in primus.__all__:
        value = getattr(primus, name)
        assert not callable(value) or os.environ["PATH"] not in str(inspect.signature(value))
    for path in (ROOT / "primus").rglob("*.py"):
        assert not re.search(r"^(def|    ).*: .* = os\.environ[,)]", path.read_text(encoding="utf-8"), re.MULTILINE), (
            path
        )


def test_check_says_all_that_is_wrong(experiment: Experiment) -> None:
    assert check_experiment(experiment()) == ()
    problems = check_experiment(experiment("{training: {stepz: 3, seq_len: many}}"))
    assert [problem.message.split(":")[0] for problem in problems] == ["training.stepz", "training.seq_len"]
    problems = check_experiment(experiment("{parallelism: {tensor_parallel_degree: 3}}"), nodes=1, gpus_per_node=2)
    assert any("world size 2" in problem.message for problem in problems)
    (problem,) = check_experiment("no.yaml")
    assert problem.message == "does not exist"


def test_runs_and_their_numbers(write: Write) -> None:
    for number, name in enumerate(("20261130-203300-1a2b", "20261201-203300-1a2b")):
        write(f"output/a/b/exp/{name}/run.json", json.dumps({"run_id": name, "exp_name": "exp"}))
        write(f"output/a/b/exp/{name}/metrics.jsonl", f'{{"step": 1, "loss": {number}.5}}\n{{"step"\n')
    assert [one.path.name for one in find_runs()] == ["20261130-203300-1a2b", "20261201-203300-1a2b"]
    assert find_runs("nowhere") == ()
    newest = find_run("exp")
    assert newest.read("run.json")["run_id"] == "20261201-203300-1a2b"
    assert primus.read_metrics(newest) == primus.read_metrics("exp") == [{"step": 1, "loss": 1.5}]
    with pytest.raises(ConfigError, match="no such run"):
        find_run("other")


def test_the_document_s_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    (Path.cwd() / "examples").symlink_to(ROOT / "examples")
    exec(textwrap.dedent("\n".join(re.findall("^    .*$|^$", text, re.MULTILINE))), {})
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in out] == ["sbatch", "sbatch"]
    assert all(f"`{name}" in text or f"`{name}`" in text for name in primus.__all__ if not name.startswith("__"))
