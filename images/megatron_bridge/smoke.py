"""Does this image hold what its locks say, and do Bridge's trainer and its recipes import?"""
# mypy: disable-error-code="import-not-found,import-untyped"

import builtins
import sys
import typing
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import MagicMock

import setuptools  # noqa: F401  # before pip, which checks.py imports: it would bar setuptools' own distutils

# isort: split
import checks
import typing_extensions

accelerator, *locks = sys.argv[1:]
checks.installed_as_locked(map(Path, locks))
# What Bridge names and is not here; README.md says why of each.
ABSENT = (
    *("accelerate", "comet-ml", "fast-hadamard-transform", "flash-linear-attention", "flashinfer-cubin"),
    *("flashinfer-python", "mistral-common", "mlflow", "nvidia-resiliency-ext", "open-clip-torch", "peft"),
    *("qwen-vl-utils", "timm"),
)
checks.nothing_missing(known=[*(f"megatron-bridge 0.6.2 requires {name}, " for name in ABSENT), *checks.WANT_TRITON])
checks.torch_is_for(accelerator)

# As the worker does: what Python 3.11 lacks, kernels for which a CPU build of torch brings no Triton, and for Bridge
# alone, so that Megatron sees the truth, packages that it imports at once.
if not hasattr(typing, "override"):
    vars(typing)["override"] = typing_extensions.override
if accelerator == "cpu":
    assert find_spec("triton") is None
    sys.modules["megatron.core.transformer.moe.ops.paged_stash"] = MagicMock(__spec__=None)
missing = [name for name in ("transformer_engine", "nvidia_resiliency_ext") if find_spec(name) is None]
real = builtins.__import__


def importer(name: str, globals: typing.Any = None, *rest: typing.Any, **options: typing.Any) -> object:
    if name.partition(".")[0] in missing and str((globals or {}).get("__name__")).startswith("megatron.bridge."):
        return MagicMock()
    return real(name, globals, *rest, **options)


builtins.__import__ = importer  # type: ignore[assignment]

import megatron.bridge.recipes  # noqa: E402
import megatron.bridge.training.finetune  # noqa: E402

assert callable(megatron.bridge.recipes.vanilla_gpt_pretrain_config)
