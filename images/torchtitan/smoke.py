"""Does this image hold what its locks say, and does TorchTitan import?"""
# mypy: disable-error-code="import-not-found"

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import MagicMock

import checks

accelerator, *locks = sys.argv[1:]
checks.installed_as_locked(map(Path, locks))
checks.nothing_missing()
checks.torch_is_for(accelerator)

if accelerator == "cpu":
    # TorchTitan imports triton and never uses it on a CPU, whose torch does without; torch must see that first.
    import_module("torch._inductor.runtime.triton_compat")
    assert find_spec("triton") is None
    sys.modules["triton"] = triton = MagicMock(__spec__=None, __version__="0")
    sys.modules["triton.language"] = triton.language

import torchtitan.train  # noqa: E402, F401
