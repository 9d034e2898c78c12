"""Which variables reach the training process, and which of several values wins."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping

import click
import pytest

from primus.cli import cli
from primus.cli.signing import PASSWORD
from primus.experiment import Template
from primus.launchers.environment import filled, forwarded, process_env, secret

from .conftest import Experiment, Primus


@pytest.mark.parametrize(
    ("name", "passed"),
    [
        ("NCCL_DEBUG", True),
        ("RCCL_MSCCL_ENABLE", True),
        ("IONIC_LOCKFREE", True),
        ("HIPBLASLT_TUNING_OVERRIDE_FILE", True),
        ("HIP_VISIBLE_DEVICES", True),
        ("HSA_NO_SCRATCH_RECLAIM", True),
        ("XLA_FLAGS", True),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", True),
        ("JAX_PLATFORMS", True),
        ("NVTE_FUSED_ATTN", True),
        ("PYTORCH_CUDA_ALLOC_CONF", True),
        ("HF_HOME", True),
        ("HF_TOKEN", True),
        ("WANDB_API_KEY", True),
        ("PRIMUS_TEAM", False),
        ("MASTER_ADDR", True),
        ("https_proxy", True),
        ("PATH", False),
        ("HOME", False),
        ("LD_LIBRARY_PATH", False),
        ("LD_PRELOAD", False),
        ("PYTHONPATH", False),
        ("VIRTUAL_ENV", False),
        ("AWS_SECRET_ACCESS_KEY", False),
        ("MY_TOKEN", False),
        ("FOO", False),
        ("SLURM_JOB_ID", False),
        ("ROCM_PATH", False),
        ("PRIMUS_IMAGE", False),
        ("PRIMUS_LAUNCHER", False),
        ("PRIMUS_OFFLINE", False),
        ("PRIMUS_PRESET_DIR", False),
    ],
)
def test_the_allow_list_decides_what_is_passed_on(name: str, passed: bool) -> None:
    assert forwarded({name: "1"}) == ((name,) if passed else ())


def variables(command: click.Command) -> Iterator[str]:
    """Those of the options of the command and all below it."""
    for option in command.params:
        if isinstance(option.envvar, str):
            yield option.envvar
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from variables(below)


def test_no_setting_of_the_launchers_is_passed_on() -> None:
    """Inside the container it would be read once more; and the password of the key that signs is for nobody there."""
    names = {*variables(cli), PASSWORD}
    assert len(names) > 15
    assert forwarded(dict.fromkeys(names, "1")) == ()


def test_the_signing_password_reaches_no_process_that_is_started(experiment: Experiment, primus: Primus) -> None:
    os.environ[PASSWORD] = "sesame"
    assert primus("run", "--config", experiment(), "--launcher=direct", "--dry-run").code == 0
    assert PASSWORD not in os.environ


def test_an_empty_variable_is_not_passed_on() -> None:
    assert forwarded({"HF_TOKEN": "", "NCCL_DEBUG": ""}) == ()


def test_what_the_user_names_is_passed_on_besides() -> None:
    assert forwarded({"FOO": "1", "NCCL_DEBUG": "1"}, ("FOO", "ROCM_PATH")) == ("FOO", "NCCL_DEBUG", "ROCM_PATH")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("HF_TOKEN", True), ("https_proxy", True), ("HTTP_PROXY", True), ("no_proxy", False), ("NCCL_DEBUG", False)],
)
def test_secrets_and_proxies_go_another_way(name: str, expected: bool) -> None:
    assert secret(name, "") is expected


@pytest.mark.parametrize(
    ("table", "env", "environ", "expected"),
    [
        ({"A": "table"}, {}, {}, {"A": "table"}),
        ({"A": "table"}, {}, {"A": "user"}, {}),
        ({"A": "table"}, {"A": "env"}, {"A": "user"}, {"A": "env"}),
        ({"A": "table"}, {"A": Template("${A}")}, {"A": "user"}, {}),
        ({}, {"B": Template("x${A}")}, {"A": "user"}, {"B": "x${A}"}),
        ({"A": "table"}, {"A": ""}, {}, {"A": ""}),
        ({}, {}, {"A": "user", "PATH": "/bin"}, {}),
    ],
    ids=["table", "user over table", "env: over user", "--env over env:", "a reference", "empty", "nothing"],
)
def test_the_higher_value_wins(
    table: Mapping[str, str], env: Mapping[str, str], environ: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    assert process_env(table, env, environ) == expected


@pytest.mark.parametrize(
    ("name", "table", "env", "environ", "expected"),
    [
        ("XLA_FLAGS", "--a=1 --b=2", None, None, "--a=1 --b=2"),
        ("XLA_FLAGS", "--a=1 --b=2", None, "--b=3 --c", "--a=1 --b=3 --c"),
        ("XLA_FLAGS", "--a=1 --b=2", "--a=9", "--b=3 --c", "--a=9 --b=3 --c"),
        ("XLA_FLAGS", None, "--a=9", "--b=3", "--b=3 --a=9"),
        ("XLA_FLAGS", None, "--a=9", None, "--a=9"),
        ("XLA_FLAGS", None, None, "--b=3", None),
        ("LD_LIBRARY_PATH", None, "/e", "/u:/v", "/e:/u:/v"),
        ("LD_LIBRARY_PATH", None, "/v", "/u:/v", "/v:/u"),
        ("LD_LIBRARY_PATH", "/t", None, "/u::", "/u:/t"),
        ("LD_LIBRARY_PATH", None, "/e", None, "/e"),
        ("LD_LIBRARY_PATH", None, None, "/u", None),
    ],
)
def test_flags_and_search_paths_are_merged(
    name: str, table: str | None, env: str | None, environ: str | None, expected: str | None
) -> None:
    layers = [{} if value is None else {name: value} for value in (table, env, environ)]
    assert process_env(*layers).get(name) == expected


def test_references_are_filled_in_last() -> None:
    env = {"A": Template("x${HF_TOKEN} $${B}"), "B": "${HF_TOKEN}"}
    assert filled(env, {"HF_TOKEN": "t"}) == {"A": "xt ${B}", "B": "${HF_TOKEN}"}


def direct(primus: Primus, *words: object) -> dict[str, str]:
    """The variables that the direct launcher's dry run sets."""
    done = primus("run", "--dry-run", "--launcher=direct", *words)
    line = shlex.split(done.out.splitlines()[1])
    assert line[0] == "env"
    return dict(word.split("=", 1) for word in line[1 : line.index("python")])


def test_the_command_line_beats_the_file_beats_the_user_beats_the_backend(
    experiment: Experiment, primus: Primus
) -> None:
    path = experiment(top="env: {OMP_NUM_THREADS: '2', NCCL_DEBUG: INFO}")
    assert direct(primus, "--config", path)["OMP_NUM_THREADS"] == "2"
    assert direct(primus, "--config", path)["NCCL_DEBUG"] == "INFO"
    os.environ["OMP_NUM_THREADS"] = "3"
    assert direct(primus, "--config", path)["OMP_NUM_THREADS"] == "2"
    assert "OMP_NUM_THREADS" not in direct(primus, "--config", path, "--env", "OMP_NUM_THREADS=4")
    assert os.environ["OMP_NUM_THREADS"] == "4"
    assert "OMP_NUM_THREADS" not in direct(primus, "--config", experiment())


def test_offline_keeps_hugging_face_off_the_network(experiment: Experiment, primus: Primus) -> None:
    found = direct(primus, "--config", experiment(), "--offline")
    assert {found[name] for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")} == {"1"}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("", "is no name of a variable"),
        ("=x", "is no name of a variable"),
        ("A B=x", "--env 'A B': is no name of a variable"),
        ("NOT_SET", "--env NOT_SET: is not set here"),
    ],
)
def test_a_wrong_env_word_is_refused(experiment: Experiment, primus: Primus, word: str, expected: str) -> None:
    done = primus("run", "--config", experiment(), "--dry-run", f"--env={word}")
    assert (done.code, done.out) == (2, "")
    assert expected in done.err
