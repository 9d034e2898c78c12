"""Does this image hold what its locks say, and does Megatron import, with what is compiled in it?"""
# mypy: disable-error-code="import-not-found,import-untyped"

import ctypes
import sys
import typing
from importlib.metadata import files
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import MagicMock

import setuptools  # noqa: F401  # before pip, which checks.py imports: it would bar setuptools' own distutils

# isort: split
import checks
import typing_extensions

COMPILED = ("transformer_engine", "causal_conv1d", "mamba_ssm", "primus_turbo")

accelerator, *locks = sys.argv[1:]
checks.installed_as_locked(map(Path, locks))
checks.nothing_missing(known=checks.WANT_TRITON)
checks.torch_is_for(accelerator)


def load(package: str) -> None:
    """Every shared library of the package, with all that it links: the common ones, which others want, first."""
    found = [Path(str(file.locate())) for file in files(package) or () if ".so" in file.suffixes]
    assert found, package
    for path in sorted(found, key=lambda path: (not path.name.startswith("lib"), path.name)):
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


if accelerator == "rocm":
    import torch  # noqa: F401

    for compiled in COMPILED:
        load(compiled)
    # The wheel of torch brings a HIP runtime, and the stage that compiled these had another: two in one process would
    # not know of each other's memory.
    maps = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libamdhip64" in line}
    assert len(maps) == 1, maps

# As the worker does: what Python 3.11 lacks, and kernels for which a CPU build of torch brings no Triton.
if not hasattr(typing, "override"):
    vars(typing)["override"] = typing_extensions.override
if accelerator == "cpu":
    assert find_spec("triton") is None
    sys.modules["megatron.core.transformer.moe.ops.paged_stash"] = MagicMock(__spec__=None)

import megatron.core.datasets.helpers_cpp  # noqa: E402
import megatron.training  # noqa: E402, F401
import transformers  # noqa: E402, F401
