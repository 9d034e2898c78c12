"""Files on top of files, and where presets come from."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from primus.errors import ConfigError
from primus.experiment import load_experiment
from primus.experiment.presets import package_presets
from primus.experiment.tree import load
from primus.experiment.yaml import untyped

from .conftest import EXAMPLES, ROOT, Experiment, Write


def loaded(name: str = "top.yaml") -> Any:
    return untyped(load(Path(name), layer="experiment", root=Path.cwd(), environ={}, shadowed={}))


def error(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("extends", "expected"),
    [
        ("[a.yaml, b.yaml]", {"who": "b", "a": 1, "b": 1, "deep": {"a": 1, "b": 1, "who": "b"}, "list": [3]}),
        ("[b.yaml, a.yaml]", {"who": "a", "a": 1, "b": 1, "deep": {"a": 1, "b": 1, "who": "a"}, "list": [1, 2]}),
        ("a.yaml", {"who": "a", "a": 1, "deep": {"a": 1, "who": "a"}, "list": [1, 2]}),
        ("[./a.yaml]", {"who": "a", "a": 1, "deep": {"a": 1, "who": "a"}, "list": [1, 2]}),
        ("[]", {}),
    ],
)
def test_extends_come_left_to_right_and_merge_deep(write: Write, extends: str, expected: dict[str, Any]) -> None:
    write("a.yaml", "who: a\na: 1\ndeep: {a: 1, who: a}\nlist: [1, 2]\n")
    write("b.yaml", "who: b\nb: 1\ndeep: {b: 1, who: b}\nlist: [3]\n")
    write("top.yaml", f"extends: {extends}\n")
    assert loaded() == expected


def test_the_file_itself_comes_last(write: Write) -> None:
    write("a.yaml", "x: {y: 1, z: 1}\n")
    write("top.yaml", "x: {y: 2}\nextends: a.yaml\n")
    assert loaded() == {"x": {"y": 2, "z": 1}}


@pytest.mark.parametrize(
    ("below", "above", "expected"),
    [
        ("{a: 1}", "5", 5),
        ("5", "{a: 1}", {"a": 1}),
        ("[1, 2]", "[3]", [3]),
        ("[1, 2]", "[]", []),
        ("{a: 1}", "null", None),
        ("{a: 1}", "{}", {"a": 1}),
    ],
)
def test_only_mappings_merge(write: Write, below: str, above: str, expected: Any) -> None:
    write("a.yaml", f"x: {below}\n")
    write("top.yaml", f"extends: a.yaml\nx: {above}\n")
    assert loaded() == {"x": expected}


def test_a_path_is_relative_to_the_real_file(write: Write) -> None:
    write("real/a.yaml", "x: right\n")
    write("a.yaml", "x: wrong\n")
    write("real/top.yaml", "extends: a.yaml\n")
    Path("top.yaml").symlink_to("real/top.yaml")
    assert loaded() == {"x": "right"}


def test_a_file_extended_twice_is_no_cycle(write: Write) -> None:
    write("base.yaml", "x: 1\n")
    write("a.yaml", "extends: base.yaml\n")
    write("top.yaml", "extends: [base.yaml, a.yaml]\n")
    assert loaded() == {"x": 1}


def test_a_cycle_is_shown(write: Write) -> None:
    write("top.yaml", "extends: a.yaml\n")
    write("a.yaml", "extends: b.yaml\n")
    write("b.yaml", "extends: [a.yaml]\n")
    assert "extends makes a cycle: a.yaml -> b.yaml -> a.yaml" in error(loaded)


def test_a_file_that_extends_itself_is_a_cycle(write: Write) -> None:
    write("top.yaml", "extends: ./top.yaml\n")
    assert "top.yaml -> top.yaml" in error(loaded)


def test_a_missing_file_is_said_with_the_chain(write: Write) -> None:
    write("top.yaml", "a: 1\nextends:\n  - a.yaml\n")
    write("a.yaml", "extends: nope.yaml\n")
    expected = "a.yaml:1:10: extends top.yaml -> a.yaml -> nope.yaml, which does not exist"
    assert expected in error(loaded)


@pytest.mark.parametrize("name", ["../outside.yaml", "/etc/passwd", "link.yaml", "sub/../../outside.yaml"])
def test_a_path_may_not_leave_the_tree(write: Write, name: str) -> None:
    write("../outside.yaml", "x: 1\n")
    Path("link.yaml").symlink_to("../outside.yaml")
    write("top.yaml", f"extends: {name}\n")
    assert re.search(r"top\.yaml:1:10: extends leaves .*: top\.yaml -> /", error(loaded))


@pytest.mark.parametrize("value", ["5: x", "{a: b}", "[[a]]", "[{a: b}]", "''", "null", "", "[null]"])
def test_extends_takes_file_names(write: Write, value: str) -> None:
    write("top.yaml", f"extends: {value}\n" if value != "5: x" else "extends:\n  5: x\n")
    assert "extends takes a file name or a list of file names" in error(loaded)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("x" * 5000, "which cannot be looked at: File name too long"),
        ("loop.yaml", "which cannot be looked at: Too many levels of symbolic links"),
        (".", "which is no file"),
    ],
    ids=["too long", "a loop of links", "a directory"],
)
def test_what_no_file_can_be_is_missing(write: Write, name: str, why: str) -> None:
    Path("loop.yaml").symlink_to("loop.yaml")
    write("top.yaml", f"extends: {name}\n")
    assert why in error(loaded)


def test_an_experiment_is_extended_in_a_few_lines(write: Write, experiment: Experiment) -> None:
    experiment("training: {steps: 5, seq_len: 128}", top="env: {A: '1', B: '1'}")
    text = (
        "extends: exp.yaml\nexp_name: other\nenv: {B: '2'}\nmodules: {pre_trainer: {overrides: {training: {steps: 6}}}}"
    )
    found = load_experiment(write("top.yaml", text), environ={})
    assert (found.exp_name, found.work_group) == ("other", "amd")
    assert found.env == {"A": "1", "B": "2"}
    assert found.args == {"training": {"steps": 6, "seq_len": 128}}


@pytest.mark.parametrize("marker", ["primus.yaml", ".git/HEAD"])
def test_the_tree_of_an_experiment_begins_at_its_marker(write: Write, experiment: Experiment, marker: str) -> None:
    experiment()
    path = write("sub/top.yaml", "extends: ../exp.yaml\n")
    assert "extends leaves sub" in error(lambda: load_experiment(path, environ={}))
    write(marker, "")
    assert load_experiment(path, environ={}).exp_name == "tiny"


PRESET = "primus/configs/models/torchtitan"


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (["first", "second", "checkout"], "first"),
        (["second", "checkout"], "second"),
        (["checkout"], "checkout"),
        ([], "debugmodel"),
    ],
    ids=["the first directory", "the second", "the checkout", "the package"],
)
def test_presets_are_looked_up_in_order(
    write: Write, experiment: Experiment, present: list[str], expected: str
) -> None:
    write("primus.yaml", "")
    for name in present:
        folder = PRESET if name == "checkout" else f"{name}/models/torchtitan"
        write(f"{folder}/llama3_tiny.yaml", f"model: {{flavor: {name}}}\n")
    path = experiment(module="model: llama3_tiny.yaml")
    found = load_experiment(path, environ={}, preset_dirs=[Path("first"), Path("second")])
    assert found.args["model"]["flavor"] == expected


def test_a_preset_of_ones_own_extends_in_its_own_tree(write: Write, experiment: Experiment) -> None:
    write("p/models/torchtitan/base.yaml", "model: {name: llama3, flavor: 8B}\n")
    write("p/models/torchtitan/mine.yaml", "extends: base.yaml\nmodel: {flavor: 70B}\n")
    write("p/models/torchtitan/bad.yaml", "extends: ../../../exp.yaml\n")
    path = experiment(module="model: mine.yaml")
    found = load_experiment(path, environ={}, preset_dirs=[Path("p")])
    assert found.args["model"] == {"name": "llama3", "flavor": "70B"}
    path = experiment(module="model: bad.yaml")
    assert "extends leaves p" in error(lambda: load_experiment(path, environ={}, preset_dirs=[Path("p")]))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("model", "../../../../etc/passwd", "modules.pre_trainer.model: ../../../../etc/passwd leaves"),
        ("model", "/etc/passwd", "modules.pre_trainer.model: /etc/passwd leaves"),
        ("config", "../../models/torchtitan/../../../../x", "leaves"),
        ("model", "lama3_tiny.yaml", "nearest: llama3_tiny.yaml"),
        ("model", "llama3_tiny", "nearest: llama3_tiny.yaml"),
        ("config", "pretrainer.yaml", "nearest: pre_trainer.yaml"),
        ("config", "zzzzzz", "name your own with --preset-dir"),
        ("config", ".", "there is no modules/torchtitan/."),
        ("config", "[a]", "must be the name of a preset"),
        ("config", "''", "must be the name of a preset"),
        ("config", "x" * 5000, "there is no modules/torchtitan/xxx"),
    ],
    ids=lambda item: str(item)[:30],
)
def test_a_wrong_preset_is_said(experiment: Experiment, key: str, value: str, expected: str) -> None:
    path = experiment(module=f"{key}: {value}")
    said = error(lambda: load_experiment(path, environ={}))
    assert said.startswith("exp.yaml:11:")
    assert expected in said


def test_a_null_preset_is_none(experiment: Experiment) -> None:
    assert load_experiment(experiment(module="config: null\nmodel: ~"), environ={}).args == {}


def test_every_shipped_preset_can_be_used(experiment: Experiment) -> None:
    for file in sorted(package_presets().glob("models/*/*.yaml")):
        for config in package_presets().glob(f"modules/{file.parent.name}/*.yaml"):
            path = experiment(framework=file.parent.name, module=f"config: {config.name}\nmodel: {file.name}")
            load_experiment(path, environ={}, accelerator="rocm")


def test_every_shipped_example_loads(example: Path) -> None:
    assert load_experiment(example, environ={}).framework == example.relative_to(ROOT / "examples").parts[0]


def test_examples_are_found() -> None:
    assert len(EXAMPLES) > 30
