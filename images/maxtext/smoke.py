"""Does this image hold what its locks say, and does MaxText's trainer import?"""
# mypy: disable-error-code="import-not-found"

import os
import sys
from pathlib import Path

import checks

accelerator, *locks = sys.argv[1:]
checks.installed_as_locked(map(Path, locks))
checks.nothing_missing()
if accelerator == "rocm":
    for package in ("jax-rocm7-plugin", "jax-rocm7-pjrt", "transformer_engine"):
        checks.libraries_are_there(package)

os.environ["DECOUPLE_GCLOUD"] = "TRUE"  # as at launch: no Google Cloud clients

import jax  # noqa: E402
import maxtext.trainers.pre_train.train  # noqa: E402, F401

if accelerator == "rocm":
    import transformer_engine.jax  # noqa: F401  # with all its libraries

# There is no GPU in a build: the ROCm plugin is there, and JAX goes on without it.
assert float(jax.jit(lambda x: x * 2)(21.0)) == 42.0
