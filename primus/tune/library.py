"""Where hipBLASLt and its tool are, inside an image."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

TOOL = "hipblaslt-bench"


def roots(environ: Mapping[str, str], packages: list[str]) -> Iterator[Path]:
    """Where a ROCm can be: what ROCM_PATH says, ROCm's Python wheels (_rocm_sdk_devel), /opt/rocm."""
    for name in ("ROCM_PATH", "ROCM_HOME"):
        if environ.get(name):
            yield Path(environ[name])
    for folder in packages:
        yield from sorted(Path(folder).glob("_rocm_sdk_*"), reverse=True)
    yield Path("/opt/rocm")


def bench(environ: Mapping[str, str], packages: list[str]) -> Path | None:
    """hipblaslt-bench of the first root that has it, else of PATH."""
    for root in roots(environ, packages):
        if os.access(root / "bin" / TOOL, os.X_OK):
            return root / "bin" / TOOL
    found = shutil.which(TOOL, path=environ.get("PATH"))
    return Path(found) if found else None


def library(environ: Mapping[str, str], packages: list[str]) -> Path | None:
    """The libhipblaslt that a training loads: PyTorch's wheels bring their own, else that of a ROCm."""
    places = [Path(folder) / "torch/lib" for folder in packages]
    places += [root / "lib" for root in roots(environ, packages)]
    for place in places:
        if found := sorted(place.glob("libhipblaslt.so*")):
            return found[0].resolve()
    return None


def version(path: Path | None) -> str:
    """The version in the library's file name, and its digest: builds of one version may number kernels differently."""
    if path is None:
        return "none"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    number = re.search(r"\.so\.([\d.]+)$", path.name)
    return f"{number[1] if number else 'so'}-{digest[:12]}"
