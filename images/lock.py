"""Write the hashed lock files of all images from their .in files.

usage: uv run --no-project images/lock.py [--check | --upgrade] [PATH...]

Pins that still satisfy the .in files are kept; --upgrade takes the newest.  --check writes nothing and
fails if a lock does not satisfy its .in file.  Needs `uv` and a package index.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# torch and triton come with base/requirements-torch.<accelerator>.txt, builds that no lock of ours can hash.
EXCLUDES = "torch\ntriton\n"
# The ROCm images are always Ubuntu 24.04; the CPU locks also serve test images and virtual environments.
ROCM = ("--python-version=3.12", "--python-platform=x86_64-manylinux_2_39")
# ... but for those on a vendor's image, which has the Python it has.
ON_A_VENDORS_IMAGE = ("specforge",)


@dataclass(frozen=True, kw_only=True)
class Lock:
    """One lock file, what it is made from, and for which machines."""

    output: Path
    source: Path
    platform: tuple[str, ...]
    alone: bool = False  # only what the source names, without its dependencies
    extra: str = ""  # of pyproject.toml


def universal(python: str) -> tuple[str, ...]:
    """The options for one lock that serves every platform and every Python from the given one on."""
    return ("--universal", f"--python-version={python}", "--fork-strategy=fewest")


def lowest_python(source: Path) -> str:
    """The version in the first line of an image's .in file: `# Python 3.10 or newer`."""
    line = source.read_text(encoding="utf-8").partition("\n")[0]
    match = re.fullmatch(r"# Python (\d\.\d+) or newer", line)
    if match is None:
        raise SystemExit(f"{source}: the first line is not `# Python X.Y or newer`")
    return match[1]


def locks() -> Iterator[Lock]:
    """All lock files, each after those that constrain it."""
    base = ROOT / "base"
    pyproject = ROOT / "pyproject.toml"
    yield Lock(output=base / "requirements-launcher.txt", source=pyproject, platform=universal("3.10"))
    # What a bundle that is signed brings besides: an air-gapped host can check signatures.
    yield Lock(output=base / "requirements-sign.txt", source=pyproject, platform=universal("3.10"), extra="sign")
    for source in (base / "requirements-torch.in", base / "requirements-jax.cpu.in"):
        yield Lock(output=source.with_suffix(".txt"), source=source, platform=universal(lowest_python(source)))
    jax_rocm = base / "requirements-jax.rocm.in"
    yield Lock(output=jax_rocm.with_suffix(".txt"), source=jax_rocm, platform=ROCM)
    for source in sorted(ROOT.glob("images/*/requirements.in")):
        cpu, rocm = source.with_suffix(".cpu.txt"), source.with_suffix(".rocm.txt")
        everywhere = universal(lowest_python(source))
        yield Lock(output=cpu, source=source, platform=everywhere)
        yield Lock(
            output=rocm, source=source, platform=everywhere if source.parent.name in ON_A_VENDORS_IMAGE else ROCM
        )
    tools = base / "requirements-jax-tools.in"
    yield Lock(output=tools.with_suffix(".txt"), source=tools, platform=ROCM)
    for name, output in (("kernels.in", "kernels.rocm.txt"), ("tools.in", "tools.txt")):
        for source in sorted(ROOT.glob(f"images/*/{name}")):
            yield Lock(output=source.with_name(output), source=source, platform=ROCM)
    site = ROOT / "docs" / "requirements.in"
    yield Lock(output=site.with_suffix(".txt"), source=site, platform=universal(lowest_python(site)))
    for source in sorted(ROOT.glob("images/*/no-deps.in")):
        platform = universal(lowest_python(source))
        yield Lock(output=source.with_suffix(".txt"), source=source, platform=platform, alone=True)


def compile_lock(lock: Lock, output: Path, excludes: Path, *, upgrade: bool) -> None:
    """Run uv; `output` holds the pins to keep before, and the lock after."""
    command = [
        *("uv", "pip", "compile", "--quiet", "--generate-hashes", "--only-binary=:all:", *lock.platform),
        *(["--no-deps"] if lock.alone else []),
        *([f"--extra={lock.extra}"] if lock.extra else []),
        *(["--upgrade"] if upgrade else []),
        *("--excludes", str(excludes), "--custom-compile-command", "uv run --no-project images/lock.py"),
        *("--output-file", str(output), str(lock.source.relative_to(ROOT))),
    ]
    subprocess.run(command, cwd=ROOT, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="write nothing; fail if a lock is out of date")
    mode.add_argument("--upgrade", action="store_true", help="take the newest versions that the .in files allow")
    parser.add_argument("path", nargs="*", type=Path, help="lock files; default: all")
    options = parser.parse_args()
    wanted = {path.resolve() for path in options.path}
    stale = []
    with tempfile.TemporaryDirectory() as scratch:
        excludes = Path(scratch, "excludes.txt")
        excludes.write_text(EXCLUDES, encoding="utf-8")
        for lock in locks():
            if wanted and lock.output not in wanted:
                continue
            name = str(lock.output.relative_to(ROOT))
            print(name, file=sys.stderr)
            if not options.check:
                compile_lock(lock, lock.output, excludes, upgrade=options.upgrade)
                continue
            fresh = Path(scratch, "lock.txt")
            fresh.unlink(missing_ok=True)
            if lock.output.exists():
                shutil.copy(lock.output, fresh)
            compile_lock(lock, fresh, excludes, upgrade=False)
            if not lock.output.exists() or lock.output.read_bytes() != fresh.read_bytes():
                stale.append(name)
    if stale:
        print(f"error: out of date: {', '.join(stale)}", file=sys.stderr)
        print("hint: run `uv run --no-project images/lock.py` and commit the result", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
