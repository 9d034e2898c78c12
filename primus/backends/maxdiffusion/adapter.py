"""MaxDiffusion at 68e06965: an experiment as a YAML file and one process per node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from primus.backends import jax
from primus.command import Command
from primus.errors import ConfigError, Problem
from primus.experiment import Experiment, Template
from primus.experiment.substitute import escaped
from primus.experiment.yaml import dump
from primus.node import Node

# Models that the worker finds beside the Python it runs in: they are on no hub and in no directory of the user's.
TINY = "primus-tiny/"

# name -> value; see docs/environment.md for the reasons. XLA_FLAGS merges flag by flag with the user's.
_ENV = {
    "cpu": {"JAX_PLATFORMS": "cpu", "NVTE_FRAMEWORK": "jax", "KERAS_BACKEND": "jax", "TF_CPP_MIN_LOG_LEVEL": "3"},
    "rocm": {
        **jax.ROCM,
        "NVTE_FRAMEWORK": "jax",
        "KERAS_BACKEND": "jax",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "JAX_TRACEBACK_FILTERING": "off",
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "all",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.95",
        "XLA_FLAGS": " ".join(
            (
                "--xla_gpu_enable_latency_hiding_scheduler=true",
                "--xla_gpu_enable_cublaslt=true",
                "--xla_gpu_autotune_level=5",
                "--xla_gpu_enable_reduce_scatter_combine_by_dim=false",
                "--xla_gpu_enable_all_gather_combine_by_dim=false",
                "--xla_gpu_all_gather_combine_threshold_bytes=134217728",
                "--xla_gpu_reduce_scatter_combine_threshold_bytes=134217728",
                "--xla_gpu_enable_command_buffer=",
                "--xla_gpu_first_collective_call_warn_stuck_timeout_seconds=300",
                "--xla_gpu_first_collective_call_terminate_timeout_seconds=2400",
            )
        ),
        "HSA_NO_SCRATCH_RECLAIM": "1",
        "RCCL_MSCCL_ENABLE": "0",
        "NCCL_MAX_NCHANNELS": "112",
        "NCCL_IB_TC": "41",
        "NCCL_IB_SL": "0",
        "NCCL_DEBUG": "WARN",
        "NCCL_PROTO": "Simple",
    },
}

# Inputs that may be a name on the Hugging Face hub; the others are paths.
HUB = frozenset(
    {
        *("pretrained_model_name_or_path", "clip_model_name_or_path", "t5xxl_model_name_or_path"),
        "dataset_name",
    }
)


def family(experiment: Experiment) -> str:
    """Which trainer the experiment is for: "wan" or "flux". Raises ConfigError if that is not clear."""
    named = [name for name in ("model_name", "flux_name") if experiment.args.get(name)]
    if len(named) != 1:
        raise ConfigError(
            "model_name and flux_name are both set" if named else "neither model_name nor flux_name is set",
            where=str(experiment.source),
            hint="model_name: wan2.1 is for WAN, flux_name: flux-dev for FLUX.1; the model presets have one of them",
        )
    return "wan" if named == ["model_name"] else "flux"


def modules(experiment: Experiment) -> dict[str, str]:
    """The Python modules this run imports, each with what needs it."""
    needed = {"maxdiffusion": "framework: maxdiffusion"}
    if experiment.args.get("attention") == "cudnn_flash_te":
        needed["transformer_engine"] = "attention: cudnn_flash_te (attention=dot_product does not)"
    return needed


def inputs(experiment: Experiment) -> tuple[str, ...]:
    """The arguments that name files, directories or hub repositories this run reads."""
    weights = {
        "wan": ("pretrained_model_name_or_path",),
        "flux": ("pretrained_model_name_or_path", "clip_model_name_or_path", "t5xxl_model_name_or_path"),
    }
    data = {
        "synthetic": (),
        "hf": ("dataset_name", "hf_train_files"),
        "tf": ("dataset_name", "dataset_save_location"),
    }
    kind = experiment.args.get("dataset_type", "tfrecord")
    named = (
        *weights[family(experiment)],
        *data.get(kind, ("train_data_dir", "eval_data_dir", "dataset_save_location")),
    )
    return tuple(name for name in named if not str(experiment.args.get(name, "")).startswith(TINY))


def command(experiment: Experiment, node: Node, run_dir: Path) -> Command:
    """One process for all of the node's GPUs, reading <run_dir>/maxdiffusion.yaml; JAX meets at the first node."""
    config = run_dir / "maxdiffusion.yaml"
    which = family(experiment)
    if wrong := tuple(problems(experiment)):
        raise ConfigError(wrong)
    env = _ENV[experiment.accelerator] | jax.environment(experiment.accelerator, node)
    if experiment.accelerator == "rocm":
        env["MIOPEN_CUSTOM_CACHE_DIR"] = str(run_dir / "miopen_cache")
    return Command(
        argv=("python", "-m", "primus.backends.maxdiffusion.worker", which, str(config)),
        env=env,
        files={config: _yaml(experiment, node, run_dir)},
    )


def problems(experiment: Experiment) -> Iterator[Problem]:
    """What MaxDiffusion would take without a word, and show to everybody or do nothing with."""
    which, other = family(experiment), {"wan": "WAN", "flux": "FLUX.1"}
    table = json.loads((resources.files("primus") / "backends/maxdiffusion/arguments.json").read_text(encoding="utf-8"))
    only = {row["name"]: row["family"] for row in table["arguments"] if "family" in row}
    batch = experiment.args.get("per_device_batch_size", 1)
    if which == "flux" and not float(batch).is_integer():
        name = "per_device_batch_size"
        yield Problem(
            message=f"{name}: {batch} is no whole number, and FLUX.1's trainer makes a shape of it",
            where=str(experiment.origins[name].origin) if name in experiment.origins else str(experiment.source),
        )
    for name, value in experiment.args.items():
        where = str(experiment.origins[name].origin) if name in experiment.origins else str(experiment.source)
        if any(isinstance(item, Template) for item in (value if isinstance(value, list) else [value])):
            yield Problem(
                message=f"{name}: is a secret, and MaxDiffusion prints its arguments",
                where=where,
                hint="the hub's client reads HF_TOKEN from the environment",
            )
        if only.get(name, which) != which:
            yield Problem(
                message=f"{name}: only {other[only[name]]}'s trainer reads it, and this is {other[which]}",
                where=where,
                hint="leave it out",
            )


def _yaml(experiment: Experiment, node: Node, run_dir: Path) -> str:
    args: dict[str, Any] = dict(experiment.args)
    # <output_dir>/<run_name>/checkpoints and /tensorboard: the same place each time, so that a run resumes.
    args["output_dir"] = args["base_output_directory"] = str(run_dir / args.get("output_dir", ""))
    args.setdefault("run_name", experiment.exp_name)
    batch = args.get("per_device_batch_size")
    if isinstance(batch, float) and batch.is_integer():
        args["per_device_batch_size"] = int(batch)  # WAN's default is 1.0, and FLUX.1's trainer makes a shape of it
    if args.get("metrics_file"):
        args["metrics_file"] = str(run_dir / args["metrics_file"])
    # Compiling again takes up to an hour for the large models; JAX's own default keeps nothing.
    args.setdefault("jax_cache_dir", str(run_dir / "jax_cache"))
    args.setdefault("hardware", "gpu")  # the CPU image runs the same code path
    # Alone, there is nobody to meet: JAX is not to look for a cluster in the environment of whoever started us.
    args.setdefault("skip_jax_distributed_system", node.nodes == 1)
    return dump(escaped(args))
