"""Runs inside the image, one per node: MaxDiffusion's own trainer, given our resolved arguments.

python -m primus.backends.maxdiffusion.worker wan|flux FILE
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from primus.experiment.substitute import fill
from primus.experiment.yaml import read, untyped

# What each trainer starts from. The commented keys at the end of each are read, and are missing in the file itself.
_BASE = {"wan": "base_wan_1_3b.yml", "flux": "base_flux_dev.yml"}
_OPTIONAL: dict[str, Any] = {"synthetic_num_samples": None}
# FLUX.1's own weights, in the layout of whoever made the model; MaxDiffusion takes their path from the environment.
_FLUX_WEIGHTS = {
    "flux-dev": ("FLUX_DEV", "flux1-dev.safetensors"),
    "flux-schnell": ("FLUX_SCHNELL", "flux1-schnell.safetensors"),
}


def main() -> None:
    which, file = sys.argv[1:]
    arguments = fill(untyped(read(Path(file), layer="resolved")), os.environ)
    arguments |= dict(_tiny(arguments))
    # Asked to join a job, JAX would take its devices from Slurm's variables, one for each process there.
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        del os.environ[name]
    if which == "flux":
        variable, weights = _FLUX_WEIGHTS[arguments["flux_name"]]
        local = Path(arguments.get("pretrained_model_name_or_path", ""), weights)
        if variable not in os.environ and local.is_file():
            os.environ[variable] = str(local)
    _train(which, arguments)


def _tiny(arguments: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The arguments that name one of our own tiny models, with its directory."""
    from primus.backends.maxdiffusion.adapter import TINY

    for name, value in arguments.items():
        if isinstance(value, str) and value.startswith(TINY):
            folder = Path(sys.prefix, "share/primus/models", value)
            if not folder.is_dir():
                sys.exit(f"error: {name}: there is no {folder}: it is in the CPU image and in .venv-maxdiffusion only")
            yield name, str(folder)


def _train(which: str, arguments: dict[str, Any]) -> None:
    import yaml
    from maxdiffusion import pyconfig, train_utils

    base = yaml.safe_load((resources.files("maxdiffusion") / "configs" / _BASE[which]).read_text("utf-8-sig"))
    # Written by the library that reads it again: to it, 1e-08 is a string and 1.0e-08 a number.
    with tempfile.NamedTemporaryFile("w", suffix=".yml", encoding="utf-8") as merged:
        yaml.safe_dump(base | _OPTIONAL | arguments, merged)
        merged.flush()
        pyconfig.initialize([sys.argv[0], merged.name], validate_training=which == "wan")
    config = pyconfig.config
    train_utils.validate_train_config(config)
    # Transformer Engine's attention is sharded as this context says: the trainer is imported and runs in it.
    with train_utils.transformer_engine_context():
        if which == "wan":
            import flax
            from maxdiffusion.trainers.wan_trainer import WanTrainer as Trainer

            flax.config.update("flax_always_shard_variable", False)
        else:
            from maxdiffusion.trainers.flux_trainer import FluxTrainer as Trainer
        Trainer(config).start_training()


if __name__ == "__main__":
    main()
