"""Hold the CPU images that are built here against images/inputs.cpu.json: what they are made of.

usage: python images/inputs.py [--write] [FRAMEWORK...]

For each image: the sha256 of its packages' locks, the version of every Python package, the commits of its sources, its
patches, and the names of its Debian packages.  Their versions are the archive's: Debian's has no snapshots, and a point
release is no change of ours.  Exits with 1 and says what differs; --write takes what is built as right.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "images" / "inputs.cpu.json"
_SHOW = "cat /etc/primus/image.json && dpkg-query --show --showformat='${Package}\\n'"


def inputs(image: str) -> dict[str, Any]:
    """What the image is made of, as it says itself."""
    words = ("docker", "run", "--rm", "--network=none", "--pull=never", image, "sh", "-c", _SHOW)
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    document, end = json.JSONDecoder().raw_decode(text)
    found = {key: document[key] for key in ("lock_sha256", "sources", "patches", "packages")}
    return {**found, "debian": sorted(text[end:].split())}


def differences(locked: Mapping[str, Any], built: Mapping[str, Any]) -> Iterator[str]:
    """What is not as locked, one line each."""
    for key in ("lock_sha256", "sources", "patches"):
        if locked.get(key) != built[key]:
            yield f"{key}: {built[key]!r}, and locked is {locked.get(key)!r}"
    packages = locked.get("packages", {})
    for name in sorted({*packages, *built["packages"]}):
        if packages.get(name) != built["packages"].get(name):
            yield f"{name}: {built['packages'].get(name, 'missing')}, and locked is {packages.get(name, 'none')}"
    was, now = set(locked.get("debian", ())), set(built["debian"])
    yield from (f"Debian's {name} is new" for name in sorted(now - was))
    yield from (f"Debian's {name} is missing" for name in sorted(was - now))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="take what is built as right")
    parser.add_argument("--tag", default="0.1.0-cpu", help="of the images; default: %(default)s")
    parser.add_argument("framework", nargs="*", help="default: all in the file")
    options = parser.parse_args()
    locked: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    wrong = 0
    for framework in options.framework or sorted(locked):
        built = inputs(f"primus-{framework}:{options.tag}")
        for line in differences(locked.get(framework, {}), built):
            print(f"{framework}: {line}")
            wrong += 1
        locked[framework] = built
    if options.write:
        FILE.write_text(json.dumps(locked, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
