"""An image as a file: what docker save or podman save wrote, on storage that all nodes see.

Each node loads it once, and runs it by its ID, which is the digest of the image's configuration: the same file gives
the same ID on every node, in docker and in podman.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from primus.errors import ImageError
from primus.image.engine import Client


def identifier(archive: Path, framework: str, environ: Mapping[str, str]) -> str:
    """The ID of the framework's image in the archive, sha256:...

    A plain .tar is skipped through, a compressed one has to be read; that is done once for a file, and kept in the
    user's cache. Raises ImageError if the archive holds no such image, or more than one.
    """
    try:
        about = archive.stat()
    except OSError as error:
        raise ImageError(f"{archive}: {error.strerror}", hint="it must be on storage that every node sees") from error
    key = hashlib.sha256(f"{archive}\0{about.st_size}\0{about.st_mtime_ns}\0{framework}".encode()).hexdigest()
    home = environ.get("HOME")
    cache = environ.get("XDG_CACHE_HOME") or (Path(home) / ".cache" if home else None)
    if cache is None:  # root could make any folder
        return _choose(archive, _images(archive), framework)
    kept = Path(cache) / "primus" / "archives" / key
    with contextlib.suppress(OSError):
        return kept.read_text(encoding="ascii")
    found = _choose(archive, _images(archive), framework)
    with contextlib.suppress(OSError):  # the next one reads the archive again
        kept.parent.mkdir(parents=True, exist_ok=True)
        new = kept.with_suffix(f".{os.getpid()}")
        new.write_text(found, encoding="ascii")
        new.replace(kept)
    return found


def _images(archive: Path) -> list[tuple[str, list[str]]]:
    """ID and names of each image in the archive."""
    documents: dict[str, Any] = {}
    with _opened(archive) as (file, mode):
        try:
            with tarfile.open(fileobj=file, mode=cast("Any", mode)) as tar:
                for member in tar:
                    # podman writes the configuration's digest as its file's name, docker as one below blobs/sha256.
                    if member.name == "manifest.json" and (stream := tar.extractfile(member)):
                        documents["manifest"] = json.load(stream)
                        break
        except (tarfile.TarError, ValueError, EOFError, OSError) as error:
            raise ImageError(f"{archive} cannot be read as an archive: {error}", hint="save it again") from error
    if "manifest" not in documents:
        raise ImageError(
            f"{archive}: is no archive of images: it has no manifest.json",
            hint="write one with docker save NAME, or podman save --format docker-archive NAME",
        )
    return [
        (f"sha256:{Path(one['Config']).name.removesuffix('.json')}", one.get("RepoTags") or [])
        for one in documents["manifest"]
    ]


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[tuple[IO[bytes], str]]:
    """The archive's tar, and tarfile's mode for it: what is compressed is read, what is not is skipped through."""
    if archive.suffix == ".tar":
        with archive.open("rb") as file:
            yield file, "r:"
        return
    if archive.suffix in (".gz", ".tgz"):
        with gzip.open(archive) as unpacked:
            yield cast("IO[bytes]", unpacked), "r|"
        return
    if shutil.which("zstd") is None:
        raise ImageError(f"{archive}: zstd is not installed, and is needed to read it", hint="install zstd")
    words = ("zstd", "-dc", str(archive))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            yield process.stdout, "r|"
        finally:
            process.stdout.close()
            process.terminate()


def _choose(archive: Path, images: list[tuple[str, list[str]]], framework: str) -> str:
    named = [one for one in images if any(f"primus-{framework}:" in name for name in one[1])]
    found = {identity for identity, _ in (images if len(images) == 1 else named)}
    if len(found) != 1:
        names = ", ".join(sorted(name for _, names in images for name in names)) or "images without a name"
        raise ImageError(
            f"{archive}: holds {len(images)} images, and {len(found)} of them are for {framework}: {names}",
            hint=f"save one alone: docker save primus-{framework}:VERSION-ACCELERATOR",
        )
    return found.pop()


def load_argv(engine: str, archive: Path) -> tuple[str, ...]:
    return (engine, "load", f"--input={archive}")


def load(engine: str, archive: Path, identity: str) -> None:
    """Have the engine load the archive, unless it has the image; two launches on one machine load it once."""
    with alone(identity):
        client = Client(engine)
        if client.about(identity) is not None:
            return
        _check_space(engine, archive)
        done = subprocess.run(load_argv(engine, archive), stdout=2, check=False)  # progress is talk
        if done.returncode != 0 or client.about(identity) is None:
            raise ImageError(
                f"{engine} cannot load {archive}" if done.returncode else f"{engine} gave the image another ID",
                hint="its own message is above"
                if done.returncode
                else "its image store counts differently; load it by hand, and name it: --image NAME",
            )


@contextlib.contextmanager
def alone(identity: str) -> Iterator[None]:
    """Hold a lock of this machine's; without one, where no file can be made."""
    path = Path(tempfile.gettempdir()) / f"primus-{os.getuid()}-{identity[-12:]}.lock"
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _check_space(engine: str, archive: Path) -> None:
    """Raise ImageError if the engine's storage is too small: it would say so after minutes, and leave it full."""
    found = Client(engine).free()
    if found is None:
        return
    root, free = found
    factor = 1.0 if archive.suffix == ".tar" else 2.5  # measured on our images: a third to a half, compressed
    needed = archive.stat().st_size * factor
    if free < needed:
        raise ImageError(
            f"{root} has {free / 1e9:.0f} GB free, and {archive} needs about {needed / 1e9:.0f} GB there",
            hint=f"make room ({engine} image prune), or move the engine's storage to a larger disk",
        )
