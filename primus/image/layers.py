"""An image's layers as the engine saves them, each compressed once into a file of its own.

By the zstd program, which works on all cores and streams; Python's own library has none before 3.14. What it makes of
the same bytes is the same for any number of cores.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from primus.errors import ImageError, LaunchError
from primus.image.bundle import Image, Layer
from primus.image.engine import Client
from primus.image.transfer import counter, mb

LEVEL = 3  # zstd's: a higher one takes minutes for each GB, and saves a tenth
_PIECE = 1 << 20
_LAYER = re.compile(r"(?:blobs/sha256/)?([0-9a-f]{64})(?:\.tar)?|[0-9a-f]{64}/layer\.tar")

Say = Callable[[str], None]


def saved(
    client: Client, image: Image, left_out: set[str], packed: Mapping[str, Layer], work: Path, title: str, say: Say
) -> Iterator[tuple[Layer, Path]]:
    """The layers of an image that are not packed yet, each with its compressed file; the configuration beside them.

    One that is left out has a size and no blob.
    """
    wanted = [
        one for one in dict.fromkeys(image.diff_ids) if one not in packed or not (packed[one].blob or one in left_out)
    ]
    for diff_id in list(wanted):
        for path in work.glob(f"{diff_id.removeprefix('sha256:')}.*.zst"):
            if diff_id not in left_out and _unpacks_to(path) == diff_id:
                say(f"{title}: a layer of {mb(path.stat().st_size)} is packed already")
                wanted.remove(diff_id)
                yield Layer(diff_id=diff_id, size=int(path.suffixes[-2][1:]), blob=_digest(path)), path
    if not wanted and (work / image.id.removeprefix("sha256:")).exists():
        return
    say(f"{title}: {len(wanted)} of {len(image.layers)} layers to pack ...")
    kind = ("--format=docker-archive",) if client.engine == "podman" else ()
    with subprocess.Popen(
        (client.engine, "save", *kind, image.id), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
                for member in tar:
                    match = _LAYER.fullmatch(member.name.removesuffix(".json"))
                    stream = tar.extractfile(member) if match else None
                    if stream is None or match is None:
                        continue
                    digest = f"sha256:{match[1]}" if match[1] else ""
                    if digest == image.id:
                        _config(stream.read(), image, work)
                    elif digest in left_out and digest in wanted:
                        wanted.remove(digest)
                        yield Layer(diff_id=digest, size=member.size), work
                    elif digest in wanted or not digest:
                        layer, path = _pack(stream, member.size, wanted, work, f"{title}: {mb(member.size)}", say)
                        if layer is not None:
                            wanted.remove(layer.diff_id)
                            yield layer, path
        except tarfile.TarError as error:
            process.kill()
            said = process.stderr.read().decode(errors="replace").strip()
            raise ImageError(f"{client.engine} does not save {image.tagged}: {said or error}") from error
        except BaseException:
            process.kill()
            raise
        process.stdout.read()
        said = process.stderr.read().decode(errors="replace").strip()
    if process.returncode or wanted or not (work / image.id.removeprefix("sha256:")).exists():
        raise ImageError(
            f"{client.engine} does not save {image.tagged} whole: {said or ', '.join(wanted) or image.id}",
            hint="its image store counts IDs differently, if it is not the usual one of the engine",
        )


def _config(content: bytes, image: Image, work: Path) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest == image.id.removeprefix("sha256:"):
        (work / digest).write_bytes(content)


def _pack(
    stream: IO[bytes], size: int, wanted: Sequence[str], work: Path, title: str, say: Say
) -> tuple[Layer | None, Path]:
    """The layer, compressed into a file of its own; nothing if its content is none of the wanted."""
    count, digest, half = counter(title, size, say), hashlib.sha256(), work / "half"
    words = ("zstd", "--quiet", f"-{LEVEL}", "-T0", "-c")
    with half.open("wb") as file, subprocess.Popen(words, stdin=subprocess.PIPE, stdout=file) as process:
        assert process.stdin is not None
        try:
            while piece := stream.read(_PIECE):
                digest.update(piece)
                process.stdin.write(piece)
                count(len(piece))
        except BrokenPipeError:
            pass
        process.stdin.close()
    if process.returncode:
        raise LaunchError(f"{half.parent}: zstd failed (exit code {process.returncode})", hint="is the disk full?")
    diff_id = f"sha256:{digest.hexdigest()}"
    if diff_id not in wanted:
        return None, half
    path = half.replace(work / f"{digest.hexdigest()}.{size}.zst")
    return Layer(diff_id=diff_id, size=size, blob=_digest(path)), path


def _unpacks_to(path: Path) -> str:
    with subprocess.Popen(("zstd", "-dcq", str(path)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        return f"sha256:{hashed(process.stdout)[0]}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashed(file)[0]}"


def hashed(file: IO[bytes]) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    while piece := file.read(_PIECE):
        digest.update(piece)
        size += len(piece)
    return digest.hexdigest(), size
