"""Secrets are names everywhere on the launcher's side; only the training process sees a value."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from primus.errors import ConfigError
from primus.experiment import Template, load_experiment
from primus.experiment.render import resolved_yaml
from primus.experiment.substitute import fill, is_secret
from primus.experiment.yaml import read, untyped
from primus.launchers.environment import clean_secrets

from .conftest import Experiment, Primus, Write

VALUE = "hf_" + "SuperSecretValue123" * 2
# A secret as an argument of each backend, and how the file it is in ends.
USES = {"maxtext": "hf_access_token: ${HF_TOKEN}", "torchtitan": 'job: {description: "as ${HF_TOKEN}"}'}


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("WANDB_API_KEY", True),
        ("MLFLOW_TRACKING_TOKEN", True),
        ("MY_SECRET", True),
        ("DB_PASSWORD", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("HF_HOME", False),
        ("HF_TOKEN_PATH", False),
        ("PRIMUS_TEAM", False),
    ],
)
def test_a_secret_is_known_by_its_name(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


@pytest.mark.parametrize("launcher", ["direct", "container"])
@pytest.mark.parametrize("framework", USES)
def test_the_dry_run_shows_names_only(
    experiment: Experiment, primus: Primus, launcher: str, framework: str, request: pytest.FixtureRequest
) -> None:
    os.environ["HF_TOKEN"] = VALUE
    path = experiment(USES[framework], framework=framework, top="env: {HF_TOKEN: '${HF_TOKEN}', B: 'x${HF_TOKEN}'}")
    done = primus("run", "--config", path, "--launcher", launcher, "--env", "HF_TOKEN", "--dry-run")
    assert done.code == 0
    assert VALUE not in done.out + done.err
    assert done.out.count("${HF_TOKEN}") >= 3


@pytest.mark.parametrize("flags", [(), ("--origin",), ("--format=json",), ("--format=json", "--origin")])
@pytest.mark.parametrize("framework", USES)
def test_show_prints_names_only(experiment: Experiment, primus: Primus, flags: tuple[str, ...], framework: str) -> None:
    os.environ["HF_TOKEN"] = VALUE
    done = primus("config", "show", experiment(USES[framework], framework=framework), *flags)
    assert done.code == 0
    assert VALUE not in done.out + done.err
    assert "${HF_TOKEN}" in done.out


def test_explain_prints_names_only(experiment: Experiment, primus: Primus) -> None:
    os.environ["HF_TOKEN"] = VALUE
    done = primus("config", "explain", experiment(USES["maxtext"], framework="maxtext"), "hf_access_token")
    assert "value    ${HF_TOKEN}\n" in done.out
    assert VALUE not in done.out


def test_an_error_does_not_print_the_value(experiment: Experiment, primus: Primus) -> None:
    os.environ["HF_TOKEN"] = VALUE
    done = primus("config", "check", experiment("training: {steps: '${HF_TOKEN}', stepz: '${HF_TOKEN}'}"))
    assert done.code == 2
    assert VALUE not in done.out + done.err


@pytest.mark.parametrize("word", ["HF_TOKEN", f"HF_TOKEN={VALUE}", "PLAIN=a b"])
def test_the_value_given_to_env_is_not_on_a_command_line(experiment: Experiment, primus: Primus, word: str) -> None:
    os.environ["HF_TOKEN"] = VALUE
    done = primus("run", "--config", experiment(), "--env", word, "--dry-run", "--launcher=container")
    assert done.code == 0
    assert VALUE not in done.out
    assert "a b" not in done.out


def test_the_resolved_file_gives_the_process_its_value_back(experiment: Experiment, write: Write) -> None:
    environ = {"HF_TOKEN": VALUE}
    path = experiment("hf_access_token: ${HF_TOKEN}\nrun_name: $${HF_TOKEN}", framework="maxtext")
    found = load_experiment(path, environ=environ)
    assert isinstance(found.args["hf_access_token"], Template)
    assert not isinstance(found.args["run_name"], Template)
    resolved = write("resolved.yaml", resolved_yaml(found))
    again = load_experiment(resolved, environ=environ)
    assert resolved_yaml(again) == resolved_yaml(found)
    raw = untyped(read(resolved, ""))["modules"]["pre_trainer"]["overrides"]
    assert fill(raw, environ) == {"hf_access_token": VALUE, "run_name": "${HF_TOKEN}"}


def test_filling_in_strips_white_space_and_wants_a_value() -> None:
    assert fill(["a ${HF_TOKEN}", 5, {"b": None}], {"HF_TOKEN": f" {VALUE}\n"}) == [f"a {VALUE}", 5, {"b": None}]
    with pytest.raises(ConfigError, match="--env HF_TOKEN"):
        fill("${HF_TOKEN}", {})


@pytest.mark.parametrize("token", [None, "", " ", "\n"], ids=["unset", "empty", "space", "newline"])
@pytest.mark.parametrize("default", ['${HF_TOKEN:""}', "${HF_TOKEN:}", "${HF_TOKEN:-}"])
def test_no_token_is_nothing_rather_than_two_quotes(experiment: Experiment, token: str | None, default: str) -> None:
    environ = {} if token is None else {"HF_TOKEN": token}
    path = experiment(f"hf_access_token: {default}", framework="maxtext")
    assert load_experiment(path, environ=environ).args["hf_access_token"] is None


def test_empty_secrets_are_dropped_and_white_space_is_stripped() -> None:
    environ = {"HF_TOKEN": "hf_x\n", "WANDB_API_KEY": " ", "A_TOKEN": "", "B_TOKEN": "ok", "PLAIN": " x "}
    cleaned, notes = clean_secrets(environ)
    assert cleaned == {"HF_TOKEN": "hf_x", "B_TOKEN": "ok", "PLAIN": " x "}
    assert notes == ("HF_TOKEN: white space around its value is removed",)


@pytest.mark.parametrize(
    "token",
    [VALUE, "ghp_" + "a" * 36, "github_pat_" + "a" * 30, "AKIA" + "ABCDEFGHIJKLMNOP"],
    ids=["Hugging Face", "GitHub", "GitHub fine-grained", "AWS"],
)
@pytest.mark.parametrize("place", ["overrides", "env", "default", "command line", "variable", "preset"])
def test_a_literal_credential_is_refused(experiment: Experiment, write: Write, token: str, place: str) -> None:
    environ, words = {}, []
    path = experiment("hf_access_token: x", framework="maxtext")
    if place == "overrides":
        path = experiment(f"hf_access_token: {token}", framework="maxtext")
    elif place == "env":
        path = experiment(top=f"env: {{A: 'x {token}'}}")
    elif place == "default":
        path = experiment(f"hf_access_token: ${{HF_TOKEN:{token}}}", framework="maxtext")
    elif place == "command line":
        words = [f"hf_access_token={token}"]
    elif place == "variable":
        path, environ = experiment("hf_access_token: ${MINE}", framework="maxtext"), {"MINE": token}
    else:
        write("presets/models/maxtext/m.yaml", f"hf_access_token: {token}\n")
        path = experiment(framework="maxtext", module="model: m.yaml")
    with pytest.raises(ConfigError, match="credential") as caught:
        load_experiment(path, words, environ=environ, preset_dirs=[Path("presets")] if place == "preset" else [])
    assert token not in str(caught.value)


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "MY_SECRET"])
def test_a_literal_under_a_secret_name_is_refused(experiment: Experiment, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"exp.yaml:12:[0-9]+: env\.{name}: a secret stands") as caught:
        load_experiment(experiment("{}", top=f"env:\n  {name}: abc"), environ={})
    assert "abc" not in str(caught.value)


@pytest.mark.parametrize("key", ["exp_name", "workspace", "work_group"])
def test_a_secret_names_no_directory(write: Write, experiment: Experiment, key: str) -> None:
    experiment()
    path = write("top.yaml", f"extends: exp.yaml\n{key}: x${{HF_TOKEN}}\n")
    with pytest.raises(ConfigError, match=f"top.yaml:2:.*{key}: cannot hold a secret"):
        load_experiment(path, environ={"HF_TOKEN": VALUE})


def test_settings_hold_no_secret(experiment: Experiment, primus: Primus, write: Write) -> None:
    os.environ["HF_TOKEN"] = VALUE
    path = experiment()
    for text, said in (("env: ['HF_TOKEN=${HF_TOKEN}']", "cannot hold a secret"), (f"image: {VALUE}", "credential")):
        write("primus.yaml", text)
        done = primus("run", "--config", path, "--dry-run")
        assert (done.code, said in done.err, VALUE in done.err) == (2, True, False)


def test_json_of_a_secret_is_valid(experiment: Experiment, primus: Primus) -> None:
    os.environ["HF_TOKEN"] = VALUE
    done = primus("config", "show", experiment(USES["maxtext"], framework="maxtext"), "--format=json")
    assert json.loads(done.out)["args"] == {"hf_access_token": "${HF_TOKEN}"}
