"""Runs inside the image, one per process: a recipe of Megatron Bridge, with the experiment's values, trained by Bridge.

torchrun ... -m primus.backends.megatron_bridge.worker rocm|cpu FILE
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

import torch

from primus.backends.megatron import stand_ins

# Bridge itself is imported in main(): the processes that saving a checkpoint spawns import this module, and need none.
ON_CPU = stand_ins.install()


def main() -> None:
    accelerator, file = sys.argv[1:]
    if accelerator == "rocm" and ON_CPU:  # never a large model on the CPU by mistake
        raise SystemExit(f"torch {torch.__version__} sees no GPU here")
    from primus.backends.megatron_bridge import recipe

    settings = json.loads(Path(file).read_text(encoding="utf-8"))
    try:
        config = recipe.configuration(settings, Path(file).parent)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from error
    with recipe.stand_ins.importing():
        import megatron.bridge.training.setup as setup
        from megatron.bridge.training.finetune import finetune
        from megatron.bridge.training.gpt_step import forward_step
        from megatron.bridge.training.pretrain import pretrain
    if ON_CPU:
        setup.initialize_megatron = functools.partial(setup.initialize_megatron, allow_no_cuda=True)
    train = finetune if settings["stage"] == "posttrain" else pretrain
    train(config, forward_step)


if __name__ == "__main__":
    main()
