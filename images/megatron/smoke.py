"""Does this image hold what its locks say, and does Megatron import, with what is compiled in it?"""
# mypy: disable-error-code="import-not-found,import-untyped"

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
checks.nothing_missing()
checks.torch_is_for(accelerator)

# As the worker does: what Python 3.11 lacks, and kernels for which a CPU build of torch brings no Triton.
if not hasattr(typing, "override"):
    vars(typing)["override"] = typing_extensions.override
if accelerator == "cpu":
    assert find_spec("triton") is None
    sys.modules["megatron.core.transformer.moe.ops.paged_stash"] = MagicMock(__spec__=None)

import megatron.core.datasets.helpers_cpp  # noqa: E402
import megatron.training  # noqa: E402, F401
import transformers  # noqa: E402, F401
