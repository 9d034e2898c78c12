"""What sharing layers saves: the bytes of some images taken one by one, and those that an engine really stores.

usage: python benchmarks/layers.py [IMAGE...]    default: the images of the PyTorch backends that share base-torch

Sizes are uncompressed layers, as `docker history` has them, matched to the digests of `docker image inspect`.
"""

from __future__ import annotations

import json
import subprocess
import sys

from primus.image.names import reference

DEFAULT = ("torchtitan", "megatron", "megatron_bridge")


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], check=True, capture_output=True, text=True).stdout


def layers(image: str) -> dict[str, int]:
    """The image's layers by digest, each with its size in bytes."""
    digests = json.loads(docker("image", "inspect", image))[0]["RootFS"]["Layers"]
    lines = docker("history", "--human=false", "--format", "{{json .}}", image).splitlines()
    # Every step has a row, and those that touch files a layer, be it an empty one.
    rows = [json.loads(line) for line in reversed(lines)]
    sizes = [
        int(row["Size"]) for row in rows if int(row["Size"]) or row["CreatedBy"].startswith(("RUN", "COPY", "ADD"))
    ]
    return dict(zip(digests, sizes, strict=True))


def main() -> None:
    images = sys.argv[1:] or [reference(name, "cpu") for name in DEFAULT]
    found = {image: layers(image) for image in images}
    for image, own in found.items():
        others = {digest for name, theirs in found.items() if name != image for digest in theirs}
        alone = sum(size for digest, size in own.items() if digest not in others)
        print(f"{image:<40} {sum(own.values()) / 1e6:7.0f} MB, its own {alone / 1e6:6.0f} MB")
    total = sum(sum(own.values()) for own in found.values())
    unique = sum({digest: size for own in found.values() for digest, size in own.items()}.values())
    print(f"one by one {total / 1e6:.0f} MB, stored {unique / 1e6:.0f} MB: {1 - unique / total:.0%} less")


if __name__ == "__main__":
    main()
