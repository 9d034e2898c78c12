"""Does this image hold what its locks say, and does what each patch is for work?"""
# mypy: disable-error-code="import-not-found, import-untyped"

import os
import subprocess
import sys
from pathlib import Path

import checks

accelerator, patches, *locks = sys.argv[1:]
checks.installed_as_locked(map(Path, locks))
checks.nothing_missing()
checks.torch_is_for("cpu")  # on every accelerator
if accelerator == "rocm":
    for package in ("jax-rocm7-plugin", "jax-rocm7-pjrt", "transformer_engine"):
        checks.libraries_are_there(package)
    # As at launch: for JAX alone, and in the order that a patch of ours makes MaxDiffusion's.
    imports = "import tensorflow, transformer_engine.jax"
    subprocess.run([sys.executable, "-c", imports], env={**os.environ, "NVTE_FRAMEWORK": "jax"}, check=True)

# There is no GPU in a build: the checks run on the CPU, where the ROCm plugin is passed over.
applied = [str(path.relative_to(patches)) for path in sorted(Path(patches).glob("*/*.patch"))]
program = Path(__file__).with_name("postconditions.py")
done = subprocess.run([sys.executable, "-B", program, *applied], stdout=subprocess.PIPE, text=True, check=False)
print(done.stdout)
if done.returncode or done.stdout.count("ok ") != len(applied):
    raise SystemExit("a patch is not there, or does not do what it is for")
