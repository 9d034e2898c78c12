"""On a vendor's image nothing is replaced: what is installed there is noted, and only what is missing is added.

vendor.py LOCK... notes, and prints the requirements to install.  Runs inside, before anything is installed.
"""
# mypy: disable-error-code="import-not-found"

import json
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

NOTE = Path("/etc/primus/vendor.json")
LAUNCHERS_PYTHON = Path("/opt/venv/bin/python")  # the one that the `primus` command names


def installed() -> dict[str, str]:
    """Every Python package and its version."""
    return {
        re.sub(r"[-_.]+", "-", dist.metadata["Name"]).lower(): dist.version
        for dist in distributions()
        if dist.metadata["Name"]
    }


def complaints() -> list[str]:
    """What pip finds wrong with the packages that there are."""
    check = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    return check.stdout.splitlines() if check.returncode else []


def missing(lock: Path, there: dict[str, str]) -> Iterator[str]:
    """The lock's lines, hashes and all, for packages that are not there."""
    for line in lock.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if "==" in line and not line.startswith((" ", "#", "-")):
            requirement = Requirement(line.partition(" --hash")[0])
            wanted = requirement.marker is None or requirement.marker.evaluate()
            if wanted and re.sub(r"[-_.]+", "-", requirement.name).lower() not in there:
                yield line


def unchanged(*, known: tuple[str, ...] = ()) -> None:
    """Raises SystemExit if a package of the vendor's is another one now, or pip has a new complaint (but `known`)."""
    note = json.loads(NOTE.read_text(encoding="utf-8"))
    now = installed()
    changed = [
        f"{name} was {was}, is {now.get(name, 'gone')}"
        for name, was in note["packages"].items()
        if now.get(name) != was
    ]
    changed += [line for line in complaints() if line not in note["complaints"] and not line.startswith(known)]
    if changed:
        raise SystemExit("\n".join(changed))


def main() -> None:
    there = installed()
    for name in ("torch", "sglang", "transformers"):
        if name not in there:
            raise SystemExit(f"there is no {name} in {sys.prefix}: this is no image of SGLang")
    NOTE.parent.mkdir(parents=True, exist_ok=True)
    note = {"packages": there, "complaints": complaints()}
    NOTE.write_text(json.dumps(note, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    Path(sysconfig.get_path("purelib"), "primus.pth").write_text("/opt/primus\n", encoding="utf-8")
    if not LAUNCHERS_PYTHON.exists():
        LAUNCHERS_PYTHON.parent.mkdir(parents=True, exist_ok=True)
        LAUNCHERS_PYTHON.symlink_to(sys.executable)
    for lock in map(Path, sys.argv[1:]):
        for line in missing(lock, there):
            there[re.split(r"[=\s]", line)[0]] = ""  # a lower lock may name it too
            print(line)


if __name__ == "__main__":
    main()
