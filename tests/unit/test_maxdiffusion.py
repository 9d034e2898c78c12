"""What MaxDiffusion's adapter makes of an experiment, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primus.backends.maxdiffusion import adapter
from primus.errors import ConfigError
from primus.experiment import load_experiment
from primus.experiment.yaml import parse, untyped
from primus.node import Node

from .conftest import ROOT, Experiment

RUN = Path("/run")
WAN = ROOT / "examples/maxdiffusion/configs/CPU/wan2.1_tiny-pretrain.yaml"
FLUX = WAN.with_name("flux_tiny-pretrain.yaml")


def arguments(example: Path, *overrides: str, node: Node | None = None) -> dict[str, Any]:
    """The arguments that the worker gets."""
    experiment = load_experiment(example, overrides=overrides, environ={})
    (text,) = adapter.command(experiment, node or Node(), RUN).files.values()
    found: dict[str, Any] = untyped(parse(text, file="maxdiffusion.yaml", layer="resolved"))
    return found


@pytest.mark.parametrize(
    ("overrides", "name", "value"),
    [
        ((), "output_dir", "/run"),
        (("output_dir=sub",), "output_dir", "/run/sub"),
        ((), "run_name", "wan2.1_tiny-pretrain"),
        (("run_name=mine",), "run_name", "mine"),
        ((), "jax_cache_dir", "/run/jax_cache"),
        (("jax_cache_dir=/cache",), "jax_cache_dir", "/cache"),
        (("metrics_file=metrics.txt",), "metrics_file", "/run/metrics.txt"),
        (("metrics_file=",), "metrics_file", ""),
        (("per_device_batch_size=2",), "per_device_batch_size", 2),
        (("per_device_batch_size=0.5",), "per_device_batch_size", 0.5),
        (("learning_rate=1e-5",), "learning_rate", 1e-5),
        ((), "hardware", "gpu"),
    ],
)
def test_an_argument_reaches_the_worker(overrides: tuple[str, ...], name: str, value: object) -> None:
    found = arguments(WAN, *overrides)[name]
    assert (found, type(found)) == (value, type(value))


def test_jax_looks_for_no_cluster_unless_there_are_other_nodes() -> None:
    """On one node, what Slurm or a shell left in the environment is nobody to meet."""
    assert arguments(WAN)["skip_jax_distributed_system"] is True
    node = Node(rank=1, nodes=2, master_addr="first", master_port=1234)
    assert arguments(WAN, node=node)["skip_jax_distributed_system"] is False
    env = adapter.command(load_experiment(WAN, environ={}), node, RUN).env
    assert {name: env[name] for name in ("JAX_COORDINATOR_IP", "JAX_COORDINATOR_PORT", "NNODES", "NODE_RANK")} == {
        "JAX_COORDINATOR_IP": "first",
        "JAX_COORDINATOR_PORT": "1234",
        "NNODES": "2",
        "NODE_RANK": "1",
    }


@pytest.mark.parametrize(
    ("base", "overrides", "said"),
    [
        (FLUX, "height=64", "height: only WAN's trainer reads it, and this is FLUX.1"),
        (WAN, "max_sequence_length=64", "max_sequence_length: only FLUX.1's trainer reads it, and this is WAN"),
        (WAN, "flux_name=flux-dev", "model_name and flux_name are both set"),
        (WAN, "model_name=", "neither model_name nor flux_name is set"),
        (WAN, "steps=5", "maxdiffusion calls it max_train_steps"),
        (WAN, "max_grad_norm=1.0", "never read it"),
        (WAN, "hf_access_token=x", "set HF_TOKEN"),
        (WAN, "hardware=tpu", "choices: gpu"),
    ],
)
def test_what_maxdiffusion_would_pass_over_is_an_error(base: Path, overrides: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        arguments(base, overrides)
    assert said in str(error.value)


def test_a_secret_is_no_argument(experiment: Experiment) -> None:
    """MaxDiffusion prints all its arguments when it starts."""
    path = experiment(
        "{model_name: wan2.1, attention: dot_product, dataset_type: synthetic, prompt: '${MY_TOKEN}'}",
        framework="maxdiffusion",
    )
    found = load_experiment(path, environ={"MY_TOKEN": "hush"})
    with pytest.raises(ConfigError, match="is a secret, and MaxDiffusion prints its arguments"):
        adapter.command(found, Node(), RUN)


def test_a_tiny_model_is_no_path_and_no_repository() -> None:
    assert adapter.inputs(load_experiment(WAN, environ={})) == ()
    real = load_experiment(WAN, overrides=["pretrained_model_name_or_path=/models/wan"], environ={})
    assert adapter.inputs(real) == ("pretrained_model_name_or_path",)
