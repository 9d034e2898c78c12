"""What every image's smoke.py checks.  Runs inside, at the end of the build: the first error fails it."""
# mypy: disable-error-code="import-not-found"

import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import files, version
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

# On ROCm triton comes as triton-rocm: what these miss is there.
WANT_TRITON = ("mamba-ssm 2.3.1 requires triton", "primus-turbo 0.4.0 requires triton")


def pins(lock: Path) -> dict[str, str]:
    """The packages that a lock file has for this machine, and their versions."""
    found = {}
    for line in lock.read_text(encoding="utf-8").splitlines():
        if "==" in line and not line.startswith((" ", "#", "-")):
            requirement = Requirement(line.removesuffix("\\").strip())
            if requirement.marker is None or requirement.marker.evaluate():
                found[requirement.name] = str(requirement.specifier).removeprefix("==")
    return found


def installed_as_locked(locks: Iterable[Path]) -> None:
    """Nothing that a lower layer pinned was replaced by a higher one."""
    for lock in locks:
        for name, wanted in pins(lock).items():
            # A local part tells builds of one version apart: 2.13.0+cpu is what 2.13.0 asked for.
            seen = version(name) if "+" in wanted else version(name).partition("+")[0]
            if seen != wanted:
                raise SystemExit(f"{lock}: {name} is {seen}, not {wanted}")


def nothing_missing(*, known: Iterable[str] = ()) -> None:
    """`pip check`, but for complaints that start with one of `known`."""
    check = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    complaints = [line for line in check.stdout.splitlines() if not line.startswith(tuple(known))]
    if check.returncode and complaints:
        raise SystemExit("\n".join(complaints))


def libraries_are_there(package: str) -> None:
    """Every shared library that the package's own ones link can be found."""
    for path in (Path(str(file.locate())) for file in files(package) or () if ".so" in file.suffixes):
        ldd = subprocess.run(["ldd", path], capture_output=True, text=True, check=True)
        missing = [line.split()[0] for line in ldd.stdout.splitlines() if line.endswith("not found")]
        if missing:
            raise SystemExit(f"{path}: not found: {', '.join(missing)}")


def torch_is_for(accelerator: str) -> None:
    """torch was built for this accelerator and no other."""
    import torch

    if (torch.version.hip is not None) != (accelerator == "rocm") or torch.version.cuda is not None:
        raise SystemExit(f"torch {torch.__version__} is not a build for {accelerator}")
