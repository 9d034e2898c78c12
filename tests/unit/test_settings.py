"""Defaults from files: user, then project, then PRIMUS_* variables, then flags."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from .conftest import Experiment, Outcome, Primus, Write


def run(primus: Primus, experiment: Experiment, *words: str) -> Outcome:
    return primus("run", "--config", experiment(), "--launcher=container", "--dry-run", *words)


def argv(primus: Primus, experiment: Experiment, *words: str) -> list[str]:
    done = run(primus, experiment, *words)
    assert (done.code, done.err) == (0, "")
    return shlex.split(done.out.splitlines()[1])


def test_a_flag_beats_a_variable_beats_the_project_beats_the_user(
    primus: Primus, experiment: Experiment, write: Write
) -> None:
    assert any(word.startswith("primus-torchtitan:") for word in argv(primus, experiment))
    write(f"{os.environ['HOME']}/.config/primus/config.yaml", "image: user\nengine_arg: [--cpus=1]\n")
    assert "user" in argv(primus, experiment)
    write("primus.yaml", "image: project\n")
    assert "project" in argv(primus, experiment)
    assert "--cpus=1" in argv(primus, experiment)  # the files are merged, key by key
    os.environ["PRIMUS_IMAGE"] = "variable"
    assert "variable" in argv(primus, experiment)
    assert "flag" in argv(primus, experiment, "--image=flag")


def test_the_user_file_is_where_xdg_says(primus: Primus, experiment: Experiment, write: Write) -> None:
    os.environ["XDG_CONFIG_HOME"] = str(Path.cwd() / "xdg")
    write("xdg/primus/config.yaml", "image: mine\n")
    assert "mine" in argv(primus, experiment)


def test_the_project_file_is_the_nearest_above(
    primus: Primus, experiment: Experiment, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("primus.yaml", "image: far\n")
    write("a/primus.yaml", "image: near\n")
    write("a/b/c", "")
    monkeypatch.chdir("a/b")
    assert "near" in argv(primus, experiment)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpus: 1\n", "primus.yaml:1:1: cpus: unknown setting"),
        ("nodes: 1\nmemory: 1\n", "primus.yaml:2:1: memory: unknown setting"),
        ("imge: x\n", "imge: unknown setting\nhint: did you mean 'image'?"),
        ("dry_run: true\n", "dry_run: unknown setting"),
        ("config: x\n", "config: unknown setting"),
        (
            "engine_arg: --cpus=1\n",
            "primus.yaml:1:13: engine_arg: must be a list\nhint: write engine_arg: [--cpus=1]",
        ),
        ("engine_arg: [[a]]\n", "engine_arg: must be a list"),
        ("launcher: direct\nnodes: two\n", "primus.yaml:2:8: nodes: 'two' is not a valid integer range"),
        ("pull: nver\n", "primus.yaml:1:7: pull: 'nver' is not one of 'missing', 'always', 'never'"),
        ("mount: /data\n", "mount: must be a list"),
        ("env: {A: b}\n", "env: must be a list"),
        ("image: [a]\n", "image: must be one value"),
        ("image: {a: b}\n", "image: must be one value"),
        ("offline: 1\n", "offline: must be true or false"),
        ("offline: yes\n", "offline: must be true or false"),
        ("nodes: two\n", "'two' is not a valid integer"),
        ("pull: nver\n", "'nver' is not one of 'missing', 'always', 'never'"),
        ("image: ${NOT_SET}\n", "primus.yaml:1:8: ${NOT_SET} is not set"),
        ("image: a\nimage: b\n", "primus.yaml:2:1: duplicate key 'image', first on line 1"),
        ("- a\n", "the file must be a mapping"),
        ("image:\tx\n", "primus.yaml:1:7: a tab"),
    ],
)
def test_a_wrong_setting_is_said_with_its_place(
    primus: Primus, experiment: Experiment, write: Write, text: str, expected: str
) -> None:
    write("primus.yaml", text)
    done = run(primus, experiment)
    assert (done.code, done.out) == (2, "")
    assert expected in done.err


def test_settings_that_are_there_and_are_no_file_are_no_silence(primus: Primus, experiment: Experiment) -> None:
    path = Path("primus.yaml")
    path.symlink_to("nowhere.yaml")
    done = run(primus, experiment)
    assert (done.code, "primus.yaml: cannot read: No such file or directory" in done.err) == (2, True)
    path.unlink()
    path.mkdir()
    done = run(primus, experiment)
    assert (done.code, "primus.yaml: is a directory" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("image: rocm/primus:v1  # pinned\n", "rocm/primus:v1"),
        ("image: rocm/primus:v1\r\n", "rocm/primus:v1"),
        ("\ufeffimage: rocm/primus:v1\n", "rocm/primus:v1"),
        ("image: ${NOT_SET:rocm/primus:v1}\n", "rocm/primus:v1"),
        ("engine_arg: [--cpus=1, '--memory=1g']  # small\r\n", "--memory=1g"),
        ("engine-arg: ['--device=/dev/null']\r\n", "--device=/dev/null"),
        ("gpus-per-node: 3\n", "--gpus-per-node=3"),
        ("gpus_per_node: 3\n", "--gpus-per-node=3"),
        ("image: null\nengine_arg: null\ngpus_per_node: 3\n", "--gpus-per-node=3"),
    ],
    ids=["comment", "CRLF", "BOM", "default", "list", "CRLF list", "dashes", "underscores", "null"],
)
def test_a_setting_is_its_value_and_no_more(
    primus: Primus, experiment: Experiment, write: Write, text: str, word: str
) -> None:
    write("primus.yaml", text)
    given = argv(primus, experiment)
    assert word in given
    assert "null" not in given


def test_null_takes_a_setting_of_the_user_back(primus: Primus, experiment: Experiment, write: Write) -> None:
    write(f"{os.environ['HOME']}/.config/primus/config.yaml", "image: user\n")
    write("primus.yaml", "image: null\n")
    assert "user" not in argv(primus, experiment)


def test_without_a_home_there_are_no_settings(primus: Primus, experiment: Experiment) -> None:
    del os.environ["HOME"]
    assert run(primus, experiment).code == 0


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PRIMUS_OFFLINE", "maybe", "'maybe' is not a valid boolean"),
        ("PRIMUS_ENGINE", "lxc", "'lxc' is not one of"),
        ("PRIMUS_PRESET_DIR", "nope", "does not exist"),
        ("PRIMUS_ACCELERATOR", "gpu", "'gpu' is not one of"),
    ],
)
def test_a_wrong_variable_is_refused(
    primus: Primus, experiment: Experiment, name: str, value: str, expected: str
) -> None:
    os.environ[name] = value
    done = run(primus, experiment)
    assert done.code == 2
    assert expected in done.err


def test_the_same_presets_are_checked_as_run(primus: Primus, experiment: Experiment, write: Write) -> None:
    write("primus.yaml", "preset_dir: [mine]\nregistry: reg.local\nengine: podman\n")
    write("mine/models/torchtitan/own.yaml", "training: {steps: 77}\n")
    path = experiment(module="model: own.yaml")
    assert primus("config", "check", path).code == 0
    assert "value    77" in primus("config", "explain", path, "training.steps").out
    assert '"image": "reg.local/primus-torchtitan' in primus("config", "show", path, "--format=json").out


def test_the_settings_are_shown_with_where_they_come_from(primus: Primus, write: Write) -> None:
    assert primus("config", "settings").out == "{}\n"
    write(f"{os.environ['HOME']}/.config/primus/config.yaml", "image: user\nengine_arg: [--cpus=1]\nengine: podman\n")
    write("primus.yaml", "image: project\n")
    os.environ |= {"PRIMUS_IMAGE": "variable", "PRIMUS_PULL": ""}
    lines = primus("config", "settings").out.replace(os.environ["HOME"], "~").splitlines()
    assert lines == [
        "engine: podman  # ~/.config/primus/config.yaml:3:9",
        'engine_arg: ["--cpus=1"]  # ~/.config/primus/config.yaml:2:13',
        "image: variable  # $PRIMUS_IMAGE; shadows project (primus.yaml:1:8); "
        "shadows user (~/.config/primus/config.yaml:1:8)",
    ]
    write("primus.yaml", "imge: x\n")
    assert "primus.yaml:1:1: imge: unknown setting" in primus("config", "settings").err


@pytest.mark.parametrize("command", [("run", "--dry-run", "--config"), ("config", "show"), ("config", "check")])
@pytest.mark.parametrize(
    ("registry", "message", "hint"),
    [
        ("me:hush@registry.example.com", "holds a user or a password", "write HOST[:PORT][/PATH]; docker login HOST"),
        ("Registry.example.com/Team", "has capital letters", "write registry.example.com/team"),
        ("https://registry.example.com", "is an address", "write registry.example.com"),
        ("a b", "'a b' is no registry", "write HOST[:PORT][/PATH], such as registry.example.com/team"),
        ("registry.example.com//x", "is no registry", "write HOST[:PORT][/PATH], such as"),
    ],
)
def test_a_registry_is_a_part_of_an_images_name(
    experiment: Experiment, primus: Primus, monkeypatch: pytest.MonkeyPatch, write: Write,
    command: tuple[str, ...], registry: str, message: str, hint: str,
) -> None:  # fmt: skip
    """Wherever it comes from; and a password is not shown."""
    path = experiment()
    said = {"--registry: ": primus(*command, path, f"--registry={registry}")}
    write("primus.yaml", f"registry: {registry!r}")
    said["primus.yaml:1:11: registry: "] = primus(*command, path)
    Path("primus.yaml").unlink()
    monkeypatch.setenv("PRIMUS_REGISTRY", registry)
    said["PRIMUS_REGISTRY: "] = primus(*command, path)
    for place, done in said.items():
        assert (done.code, done.out) == (2, "")
        assert f"error: {place}" in done.err
        assert message in done.err
        assert f"hint: {hint}" in done.err
        assert "hush" not in done.err


@pytest.mark.parametrize("registry", ["localhost:5000", "registry.example.com/a/b_c", "team", "10.0.0.1:5000/x/", ""])
def test_registries(experiment: Experiment, primus: Primus, registry: str) -> None:
    done = primus("config", "show", experiment(), "--format=json", f"--registry={registry}")
    prefix = f"{registry.rstrip('/')}/" if registry else ""
    assert f'"image": "{prefix}primus-torchtitan:' in done.out


@pytest.mark.parametrize("words", [("--run-dir", ""), ("--run-dir=",), ()])
def test_a_run_directory_has_a_name(
    experiment: Experiment, primus: Primus, write: Write, words: tuple[str, ...]
) -> None:
    if not words:
        write("primus.yaml", "run_dir: ''")
    done = primus("run", "--dry-run", "--config", experiment(), *words)
    assert (done.code, done.out) == (2, "")
    assert f"error: {'--run-dir: ' if words else 'primus.yaml:1:10: run_dir: '}is empty\nhint: name a dir" in done.err
