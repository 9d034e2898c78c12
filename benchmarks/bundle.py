"""What a bundle costs: its size, against the zstd of the layers in it, each once and at the same level.

usage: python benchmarks/bundle.py [FRAMEWORK...]    default: all whose CPU image is on this machine

At most 1.1 is wanted: more would be layers taken twice, or badly packed. Takes some minutes, and twice the bundle's
size of the disk that has TMPDIR.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from primus.experiment.schema import frameworks
from primus.image.layers import LEVEL
from primus.image.names import reference

WANTED = 1.1


def packed(image: str, seen: set[str]) -> int:
    """Bytes of the image's layers that were not seen yet, compressed one by one."""
    (about,) = json.loads(subprocess.run(["docker", "image", "inspect", image], check=True, capture_output=True).stdout)
    layers = {digest.partition(":")[2] for digest in about["RootFS"]["Layers"]} - seen
    seen |= layers
    total = 0
    with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as save:
        assert save.stdout is not None
        with tarfile.open(fileobj=save.stdout, mode="r|") as tar:
            for member in tar:
                stream = tar.extractfile(member) if Path(member.name).name in layers else None
                if stream is not None:
                    total += compressed(stream)
        save.stdout.read()
    return total


def compressed(stream: object) -> int:
    assert hasattr(stream, "read")
    with tempfile.TemporaryFile() as file:
        words = ["zstd", "--quiet", f"-{LEVEL}", "-T0", "-c"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=file) as zstd:
            assert zstd.stdin is not None
            while piece := stream.read(1 << 20):
                zstd.stdin.write(piece)
            zstd.stdin.close()
        return file.seek(0, 2)


def here(framework: str) -> bool:
    words = ["docker", "image", "inspect", reference(framework, "cpu")]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def main() -> None:
    names = sys.argv[1:] or [name for name in frameworks() if here(name)]
    seen: set[str] = set()
    layers = sum(packed(reference(name, "cpu"), seen) for name in names)
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "all.tar")
        words = ["image", "bundle", "--accelerator=cpu", f"--out={out}", *(f"--framework={name}" for name in names)]
        subprocess.run([sys.executable, "-m", "primus", *words], check=True, stdout=subprocess.DEVNULL)
        size = out.stat().st_size
    print(f"{len(names)} images: {', '.join(names)}")
    print(f"bundle {size / 1e6:.0f} MB, {len(seen)} layers {layers / 1e6:.0f} MB: ratio {size / layers:.3f}")
    if size > WANTED * layers:
        sys.exit(f"error: more than {WANTED}")


if __name__ == "__main__":
    main()
