"""Does this image hold what its locks say, or what the vendor put there, and does SpecForge import?"""
# mypy: disable-error-code="import-not-found,import-untyped"

import sys
from pathlib import Path

import setuptools  # noqa: F401  # before pip, which checks.py imports: it would bar setuptools' own distutils

# isort: split
import checks
import vendor

# Its metadata names another torch, and what only online training and sequence parallelism import.
KNOWN = ("specforge 0.2.0 ",)
CAPTURE = Path("/opt/specforge/scripts/prepare_hidden_states.py")

accelerator, *locks = sys.argv[1:]
if accelerator == "rocm":
    vendor.unchanged(known=KNOWN)
    assert CAPTURE.is_file()
else:
    checks.installed_as_locked(map(Path, locks))
    checks.nothing_missing(known=KNOWN)
checks.torch_is_for(accelerator)

import specforge.cli  # noqa: E402
import specforge.data.preprocessing  # noqa: E402
import specforge.export.to_hf  # noqa: E402
import specforge.export.to_sglang  # noqa: E402, F401
from specforge.application import resolve_offline_capture  # noqa: E402, F401
