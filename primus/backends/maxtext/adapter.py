"""MaxText 0.2.4: an experiment as a YAML file and one process per node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from primus.backends import jax
from primus.command import Command
from primus.experiment import Experiment
from primus.experiment.substitute import escaped
from primus.experiment.yaml import dump
from primus.node import Node

# name -> value; see docs/environment.md for the reasons. XLA_FLAGS merges flag by flag with the user's.
_ENV = {
    "cpu": {"JAX_PLATFORMS": "cpu", "DECOUPLE_GCLOUD": "TRUE", "TF_CPP_MIN_LOG_LEVEL": "3"},
    "rocm": {
        **jax.ROCM,
        "DECOUPLE_GCLOUD": "TRUE",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": ".97",
        "XLA_FLAGS": " ".join(
            (
                "--xla_gpu_memory_limit_slop_factor=95",
                "--xla_gpu_reduce_scatter_combine_threshold_bytes=8589934592",
                "--xla_gpu_all_gather_combine_threshold_bytes=8589934592",
                "--xla_gpu_enable_all_gather_combine_by_dim=false",
                "--xla_gpu_enable_command_buffer=",
                "--xla_gpu_enable_latency_hiding_scheduler=true",
                "--xla_gpu_enable_triton_gemm=false",
                "--xla_gpu_enable_cublaslt=true",
                "--xla_gpu_autotune_level=4",
            )
        ),
        "NVTE_USE_HIPBLASLT": "1",
    },
}
_ENV_GFX = {"gfx942": {"HSA_NO_SCRATCH_RECLAIM": "1"}}

# Inputs that may be a name on the Hugging Face hub; the others are paths.
HUB = frozenset({"tokenizer_path", "hf_path"})


def modules(experiment: Experiment) -> dict[str, str]:
    """The Python modules this run imports, each with what needs it."""
    needed = {"maxtext": "framework: maxtext"}
    if experiment.args.get("attention") == "cudnn_flash_te":
        needed["transformer_engine"] = "attention: cudnn_flash_te (attention=flash and attention=dot_product do not)"
    elif str(experiment.args.get("quantization", "")).startswith("te_"):
        needed["transformer_engine"] = f"quantization: {experiment.args['quantization']}"
    return needed


def inputs(experiment: Experiment) -> tuple[str, ...]:
    """The arguments that name files, directories or hub repositories this run reads."""
    data = {
        "synthetic": (),
        "hf": ("tokenizer_path", "hf_path", "hf_train_files", "hf_eval_files"),
        "grain": ("tokenizer_path", "grain_train_files", "grain_eval_files"),
    }
    kind = experiment.args.get("dataset_type", "tfds")
    return ("load_parameters_path", "load_full_state_path", *data.get(kind, ("tokenizer_path", "dataset_path")))


def fetched(experiment: Experiment) -> Iterator[tuple[str, str, str]]:
    """TensorFlow Datasets, which is what MaxText reads unless told otherwise, fetches what no directory holds."""
    kind = experiment.args.get("dataset_type", "tfds")
    if kind in ("tfds", "c4_mlperf") and not experiment.args.get("dataset_path"):
        yield "dataset_type", "", "write dataset_type: synthetic, hf or grain, or a dataset_path that holds the data"


def command(experiment: Experiment, node: Node, run_dir: Path) -> Command:
    """One process for all of the node's GPUs, reading <run_dir>/maxtext.yaml; JAX's coordinator is the first node."""
    config = run_dir / "maxtext.yaml"
    accelerator = experiment.accelerator
    env = _ENV[accelerator] | _ENV_GFX.get(node.gfx, {}) | jax.environment(accelerator, node)
    return Command(
        argv=("python", "-m", "primus.backends.maxtext.worker", str(config)),
        env=env,
        files={config: _yaml(experiment, run_dir)},
    )


def _yaml(experiment: Experiment, run_dir: Path) -> str:
    args: dict[str, Any] = dict(experiment.args)
    # <base_output_directory>/<run_name>/checkpoints: the same place each time, so that a run resumes.
    args["base_output_directory"] = str(run_dir / args.get("base_output_directory", ""))
    args.setdefault("run_name", experiment.exp_name)
    # MaxText's default is in $HOME, which a container loses: compiling again takes minutes.
    args.setdefault("jax_cache_dir", str(run_dir / "jax_cache"))
    return dump(escaped(args))
