"""Whatever a user types or writes, the answer is an exit code and a message, never a traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import Experiment, Primus, Write

COMMANDS = (
    ("config", "check", "{}"),
    ("config", "show", "{}"),
    ("config", "show", "{}", "--origin", "--format=json"),
    ("config", "show", "{}", "--origin"),
    ("run", "--dry-run", "--launcher=direct", "--config", "{}"),
    ("run", "--dry-run", "--launcher=container", "--config", "{}"),
)
OVERRIDES = {
    "maxtext": [
        f"steps: {'9' * 3999}",
        f"steps: 0x{'f' * 5000}",
        f"learning_rate: {'9' * 3999}",
        "learning_rate: 1e999999",
        "learning_rate: .nan",
        f"run_name: {'x' * 100_000}",
        "run_name: 'it''s \"q\"'",
        'run_name: "a\\0b"',
        'run_name: "\\uD800"',
        f"run_name: {'${A:' * 500}{'}' * 500}",
        f"load_parameters_path: /{'x' * 5000}",
        "load_parameters_path: ~nosuchuser/x",
        "data_sharding: {a: .nan, b: [0x1f, {c: null}]}",
        "__class__: 2\nitems: 3\nkeys: 4",
        "'': 2",
        "'.': 2",
        "1: 2",
        "null: 2",
        "? [a]\n: b",
        "".join(f"{' ' * depth}a:\n" for depth in range(150)) + " " * 150 + "b: 1",
        "a: " + "{a: " * 30 + "1" + "}" * 30,
    ],
    "torchtitan": [
        "training: {steps: 99999999999999999999999999}",
        "optimizer: {lr: .inf}",
        "training: null",
        "training: {training: {training: 5}}",
        "parallelism: {module_fqns_per_model_part: [[a], [null]]}",
        "model: {converters: [{a: b}]}",
        "checkpoint: {initial_load_path: '~nosuchuser/x'}",
        'job: {description: "\\x07\\u2028\\u0085"}',
    ],
}


@pytest.mark.parametrize(
    ("framework", "overrides"),
    [(framework, text) for framework, texts in OVERRIDES.items() for text in texts],
    ids=lambda text: ascii(text)[:40],
)
def test_any_overrides_end_with_a_message(
    experiment: Experiment, primus: Primus, framework: str, overrides: str
) -> None:
    path = experiment(overrides, framework=framework)
    for words in COMMANDS:
        done = primus(*(word.format(path) for word in words))
        assert done.code == 0 or (done.code == 2 and "error: " in done.err)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "a: " + "[" * 5000,
        "a: &a [*a]\n# \tx",
        f"extends: {'x' * 5000}",
        'extends: "a\\0"',
        "extends: loop.yaml",
        "extends: ~nosuchuser",
        "modules: {pre_trainer: {framework: maxtext, config: 'a\\0'}}",
        f"modules: {{pre_trainer: {{framework: maxtext, config: {'x' * 5000}}}}}",
        "modules: {pre_trainer: {framework: maxtext, config: ../../../../../x}}",
        "modules: {pre_trainer: {framework: ~}}",
        "workspace: ~nosuchuser/x",
        "work_group: 'a/../..'",
        "exp_name: " + "x" * 5000,
        "env: {A: [1]}",
        "env: {'': 1}",
        "env: {A: {b: c}}",
        "accelerator: [cpu]",
    ],
    ids=lambda text: ascii(text)[:40],
)
def test_any_file_ends_with_a_message(experiment: Experiment, primus: Primus, write: Write, text: str) -> None:
    experiment()
    Path("loop.yaml").symlink_to("loop.yaml")
    extends = "" if text.startswith(("extends", "x", "a:")) or not text else "extends: exp.yaml\n"
    path = write("hostile.yaml", extends + text)
    for words in COMMANDS:
        done = primus(*(word.format(path) for word in words))
        assert done.code == 0 or (done.code == 2 and "error: " in done.err)


@pytest.mark.parametrize(
    "words",
    [
        ("--",),
        ("--", "training.steps=3"),
        ("training.steps=3", "--"),
        ("",),
        ("=",),
        ("training={steps: 7",),
        ("training=[",),
        ("training={a: *x}",),
        ("a=" + "[" * 3000,),
        ("a=" + "[" * 300 + "]" * 300,),
        (".".join("a" * 3000) + "=1",),
        (".".join("a" * 3000) + "=1", ".".join("a" * 3000) + "=2"),
        ("training.steps=1", "training.steps.x=2"),
        ("training.steps.x=2", "training.steps=1"),
        ("job.description=\udcff",),
        ("job.description='\x07'",),
        ("job.description=\x07",),
        ("--allow-unknown=a", "a=null"),
        ("--allow-unknown=a", "a=5"),
        ("--allow-unknown=training.a", "training.a=[1, null]"),
        ("--allow-unknown=a.b", "a.b.c=5"),
        ("--allow-unknown=", "a=5"),
        ("--run-dir=~nosuchuser/x",),
        ("--run-dir=",),
        ("--mount=~nosuchuser",),
        ("--engine-arg=",),
        ("--engine-arg=foo",),
        ("--image=",),
        ("--nodes=99999999999999999999",),
        ("--env=\udcff=x",),
        ("--preset-dir=" + "x" * 5000,),
    ],
    ids=lambda words: ascii(" ".join(words))[:40],
)
def test_any_words_end_with_a_message(experiment: Experiment, primus: Primus, words: tuple[str, ...]) -> None:
    path = experiment()
    for launcher in ("direct", "container"):
        done = primus("run", "--dry-run", "--config", path, f"--launcher={launcher}", *words)
        assert done.code == 0 or (done.code == 2 and "rror: " in done.err)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GPUS_PER_NODE", "9" * 5000),
        ("NNODES", "x"),
        ("MASTER_PORT", "-1"),
        ("HIP_VISIBLE_DEVICES", "a,b"),
        ("NCCL_X", "/" + "x" * 5000),
        ("HF_HOME", "~nosuchuser"),
        ("XDG_CONFIG_HOME", "~nosuchuser"),
        ("XDG_CACHE_HOME", "~nosuchuser"),
        ("HOME", ""),
        ("HF_TOKEN", " \n"),
        ("XLA_FLAGS", "/not/a flag"),
        ("PRIMUS_OFFLINE", "maybe"),
        ("PRIMUS_REGISTRY", "a b"),
        ("COLUMNS", "x"),
    ],
    ids=lambda text: ascii(text)[:30],
)
def test_any_environment_ends_with_a_message(experiment: Experiment, primus: Primus, name: str, value: str) -> None:
    path = experiment("dataset_type: hf\nhf_path: a/b", framework="maxtext")
    for launcher in ("direct", "container"):
        for more in ((), ("--offline",)):
            os.environ[name] = value
            done = primus("run", "--dry-run", "--config", path, f"--launcher={launcher}", *more)
            assert done.code == 0 or (done.code == 2 and "rror: " in done.err)
