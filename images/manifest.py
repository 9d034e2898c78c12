"""Write /etc/primus/image.json: what is in this image.  Runs inside, at the end of its build."""

import argparse
import hashlib
import json
import platform
from importlib.metadata import distributions
from pathlib import Path


def sha256(*paths: Path) -> str:
    """The digest of the files' contents, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def packages() -> dict[str, str]:
    """Every installed Python package and its version."""
    return {dist.metadata["Name"]: dist.version for dist in sorted(distributions(), key=lambda d: d.metadata["Name"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("framework", "version", "accelerator", "gfx", "base-image"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--source", action="append", default=[], metavar="NAME=COMMIT")
    parser.add_argument(
        "--patches", type=Path, help="the folder of patches that were applied, one below it for each tree"
    )
    parser.add_argument("--output", type=Path, default=Path("/etc/primus/image.json"))
    parser.add_argument("lock", nargs="+", type=Path, help="the lock files of this image, lowest layer first")
    options = parser.parse_args()
    patches = sorted(options.patches.glob("*/*.patch")) if options.patches else []
    manifest = {
        "framework": options.framework,
        "version": options.version,
        "accelerator": options.accelerator,
        "gfx": options.gfx.split(",") if options.gfx else [],
        "python": platform.python_version(),
        "base_image": options.base_image,
        "sources": dict(source.split("=", 1) for source in options.source),
        "patches": [{"tree": patch.parent.name, "name": patch.name, "sha256": sha256(patch)} for patch in patches],
        "lock_sha256": sha256(*options.lock),
        "packages": packages(),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
