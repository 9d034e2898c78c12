"""Combinations that a backend refuses at its pin are refused before anything runs, and the rules are about that pin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from primus.errors import ConfigError
from primus.experiment import load_experiment, rules
from primus.experiment.coerce import coerce
from primus.experiment.schema import frameworks, schema
from primus.experiment.types import ACCELERATORS, Origin
from primus.experiment.yaml import Scalar

from .conftest import Experiment

BACKENDS = Path(__file__).resolve().parents[2] / "primus/backends"
FILES = sorted(BACKENDS.glob("*/rules.json"))
RULES = [pytest.param(name, rule, id=f"{name}: {rule.why}") for name in frameworks() for rule in rules.rules(name)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_rules_are_of_the_pinned_version(file: Path) -> None:
    """Moving a pin means going through its rules: does each still hold?"""
    assert json.loads(file.read_text(encoding="utf-8"))["version"] == schema(file.parent.name).version


@pytest.mark.parametrize(("framework", "rule"), RULES)
def test_a_rule_is_about_arguments_that_there_are(framework: str, rule: rules.Rule) -> None:
    table = schema(framework)
    assert rule.when
    assert rule.accelerator in ("", *ACCELERATORS)
    assert rule.hint
    for name, values in rule.when.items():
        assert name in table.arguments, name
        for value in values:
            text = "null" if value is None else str(value)
            if isinstance(value, str) and (rules.MATCHES.fullmatch(value) or value.startswith(">")):
                continue
            at = Origin(layer="", file="", line=1)
            coerced = coerce(Scalar(text=text, plain=not isinstance(value, str), at=at), table.arguments[name])
            assert (coerced, type(coerced)) == (value, type(value))  # 1 is no rule about 1.0


def check(experiment: Experiment, *words: str, accelerator: str = "rocm") -> str:
    """What is wrong with a MaxText experiment, or nothing."""
    path = experiment(framework="maxtext")
    try:
        load_experiment(path, words, environ={}, accelerator=accelerator)
    except ConfigError as error:
        return str(error)
    return ""


FP8_MOE = ("quantization=fp8", "num_experts=8", "sparse_matmul=false")


@pytest.mark.parametrize("framework", ["maxtext", "maxdiffusion"])
def test_what_only_gpus_have_is_refused_on_a_cpu(experiment: Experiment, framework: str) -> None:
    path = experiment(framework=framework)
    load_experiment(path, ("attention=cudnn_flash_te",), environ={}, accelerator="rocm")
    with pytest.raises(ConfigError, match="Transformer Engine has kernels for GPUs alone"):
        load_experiment(path, ("attention=cudnn_flash_te",), environ={}, accelerator="cpu")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((*FP8_MOE,), "pure_nnx_decoder: true (the default): MaxText's experts"),
        ((*FP8_MOE, "pure_nnx_decoder=true"), "pure_nnx_decoder: true: MaxText's experts"),
        ((*FP8_MOE, "pure_nnx_decoder=false"), ""),
        ((*FP8_MOE, "use_qwix_quantization=true"), ""),
        ((*FP8_MOE, "num_experts=1"), ""),
        (("quantization=fp8",), ""),
        (("quantization=fp8", "num_experts=8"), "sparse_matmul: true (the default)"),
        (("quantization=te_mxfp8", "num_experts=8"), "sparse_matmul: true (the default)"),
        (("quantization=nanoo_fp8", "num_experts=8", "sparse_matmul=false"), "nanoo_fp8 only through Qwix"),
        (("quantization=int4",), "only through Qwix"),
        (("quantization=int4", "use_qwix_quantization=true"), ""),
        (("shardy=false",), "shardy: false: JAX 0.10 partitions with Shardy"),
        (("shardy=true",), ""),
    ],
)
def test_maxtext_rules(experiment: Experiment, words: tuple[str, ...], expected: str) -> None:
    found = check(experiment, *words)
    assert expected in found
    assert bool(found) == bool(expected)


def test_a_rule_may_be_for_one_accelerator(experiment: Experiment) -> None:
    assert check(experiment, "shardy=false", accelerator="cpu") == ""


def test_a_broken_rule_says_where_and_what_to_write(experiment: Experiment) -> None:
    path = experiment("quantization: fp8\nnum_experts: 8\nsparse_matmul: false", framework="maxtext")
    with pytest.raises(ConfigError) as error:
        load_experiment(path, environ={})
    assert str(error.value) == (
        "exp.yaml:10:21: quantization: fp8, num_experts: 8, sparse_matmul: false, use_qwix_quantization: false"
        " (the default), pure_nnx_decoder: true (the default): MaxText's experts with this quantization need the Linen"
        " decoder\nhint: write pure_nnx_decoder: false"
    )
