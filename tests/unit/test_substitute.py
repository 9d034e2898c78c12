"""${VAR} in values: what replaces it, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from primus.errors import ConfigError
from primus.experiment import load_experiment
from primus.experiment.substitute import escape, expand_text, fill
from primus.experiment.types import Origin

from .conftest import Experiment, Write

AT = Origin(layer="experiment", file="f.yaml", line=3, column=5)


@pytest.mark.parametrize(
    ("text", "environ", "expected"),
    [
        ("${X}", {"X": "v"}, "v"),
        ("${X:d}", {"X": "v"}, "v"),
        ("${X:d}", {}, "d"),
        ("${X:-d}", {}, "d"),
        ("${X:-d}", {"X": "v"}, "v"),
        ("${X:d}", {"X": ""}, "d"),
        ("${X:}", {}, ""),
        ("${X:-}", {}, ""),
        ('${X:""}', {}, ""),
        ("${X:''}", {}, ""),
        ('${X:"a b"}', {}, "a b"),
        ("${X:it's}", {}, "it's"),
        ('${X:"}', {}, '"'),
        ("${X:a:b}", {}, "a:b"),
        ("${X:a-b}", {}, "a-b"),
        ("${X:--1}", {}, "-1"),
        ("${X: d }", {}, " d "),
        ("a${X}b${Y:c}d", {"X": "1"}, "a1bcd"),
        ("${X}", {"X": "${Y}"}, "${Y}"),
        ("$${X}", {}, "${X}"),
        ("$${", {}, "${"),
        ("$$${X}", {}, "$${X}"),
        ("$X $(x) $$ $", {}, "$X $(x) $$ $"),
        ("{X}", {}, "{X}"),
        ("${_x9:d}", {}, "d"),
    ],
    ids=lambda item: str(item),
)
def test_a_reference_is_replaced(text: str, environ: Mapping[str, str], expected: str) -> None:
    assert expand_text(text, environ, AT) == expected


@pytest.mark.parametrize(
    ("text", "environ", "expected"),
    [
        ("${X}", {}, r"f\.yaml:3:5: \$\{X\} is not set"),
        ("${X}", {"X": ""}, r"f\.yaml:3:5: \$\{X\} is empty"),
        ("${", {}, "is no variable reference"),
        ("${}", {}, "is no variable reference"),
        ("${X", {}, "is no variable reference"),
        ("${1X}", {}, "is no variable reference"),
        ("${X-d}", {}, "is no variable reference"),
        ("${X=d}", {}, "is no variable reference"),
        ("${ X }", {}, "is no variable reference"),
        ("${X:${Y:d}}", {}, "is no variable reference"),
        ("a ${X:b} ${", {}, "is no variable reference"),
        ("${X}", {"X": "\udcff"}, r"\$\{X\} is not UTF-8"),
        ("\udcff", {}, "is not UTF-8"),
    ],
    ids=ascii,
)
def test_what_is_no_reference_or_has_no_value_is_refused(text: str, environ: Mapping[str, str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        expand_text(text, environ, AT)


@pytest.mark.parametrize(
    ("written", "environ", "expected"),
    [
        ("${X:7}", {}, 7),
        ("${X:7}", {"X": "8"}, 8),
        ("${X}", {"X": "1"}, 1),
    ],
)
def test_a_plain_scalar_is_typed_after_substitution(
    experiment: Experiment, written: str, environ: Mapping[str, str], expected: int
) -> None:
    path = experiment(f"training: {{}}\nmodel:\n  flavor: x\ndebug:\n  seed: {written}")
    assert load_experiment(path, environ=environ).args["debug"]["seed"] == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [("${X:7}", 7), ("'${X:7}'", "7"), ('"${X:true}"', "true"), ("${X:true}", True), ("${X:null}", None)],
)
def test_only_a_plain_scalar_is_retyped(experiment: Experiment, written: str, expected: Any) -> None:
    path = experiment(f"free: {written}")
    found = load_experiment(path, environ={}, allow_unknown=["free"]).args["free"]
    assert (type(found), found) == (type(expected), expected)


def test_references_work_wherever_a_value_may_stand(write: Write) -> None:
    write("presets/models/torchtitan/m.yaml", "model: {flavor: '${FLAVOR}'}\n")
    write("below.yaml", "env: {FROM_BELOW: '${BELOW:below}'}\nworkspace: ${WORKSPACE:/w}\n")
    path = write(
        "exp.yaml",
        """\
        extends: ${BASE:below}.yaml
        work_group: ${TEAM:amd}
        user_name: root
        exp_name: ${NAME:n}-1
        accelerator: ${DEVICE:cpu}
        env:
          LEVEL: ${LEVEL:WARN}
        modules:
          pre_trainer:
            framework: ${FRAMEWORK:torchtitan}
            model: ${MODEL:m}.yaml
            overrides:
              compile: {components: ["${COMPONENT:a}"]}
        """,
    )
    environ = {"FLAVOR": "8B", "NAME": "run", "STEPS": "9"}
    found = load_experiment(path, ["training.steps=${STEPS}"], environ=environ, preset_dirs=[Path("presets")])
    assert (found.exp_name, found.work_group, found.workspace, found.accelerator) == ("run-1", "amd", "/w", "cpu")
    assert found.env == {"FROM_BELOW": "below", "LEVEL": "WARN"}
    assert found.args == {"model": {"flavor": "8B"}, "compile": {"components": ["a"]}, "training": {"steps": 9}}


def test_a_key_is_not_substituted(experiment: Experiment) -> None:
    with pytest.raises(ConfigError, match=r"exp\.yaml:10:7: \$\{X\}: unknown"):
        load_experiment(experiment("${X}: 1"), environ={"X": "training"})


@pytest.mark.parametrize(
    ("overrides", "where"),
    [("training:\n  steps: ${NOPE}", "exp.yaml:11:16"), ("debug: {seed: '${NOPE}'}", "exp.yaml:10:21")],
)
def test_an_unset_variable_is_named_with_its_place(experiment: Experiment, overrides: str, where: str) -> None:
    with pytest.raises(ConfigError, match=f"{where}: .*NOPE.* is not set"):
        load_experiment(experiment(overrides), environ={})


@pytest.mark.parametrize("text", ["${", "$${", "$$${X}", "${X}", "a${Y:z}b", "plain", "$", ""])
def test_escaped_text_is_filled_and_expanded_to_itself(text: str) -> None:
    assert fill(escape(text), {}) == text
    assert expand_text(escape(text), {}, AT) == text
