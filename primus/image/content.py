"""What an image holds, read from outside: nothing of the image is run.

The engine writes the merged file system as one tar (`docker export`), which is read once.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any, cast

from primus.errors import ImageError

_CHUNK = 1 << 20
# What is read besides being hashed: our manifest, and what the package managers say they installed.
_KEPT = re.compile(
    r"etc/primus/image\.json|(etc|usr/lib)/os-release|var/lib/dpkg/status|var/lib/dpkg/info/[^/]+\.md5sums"
    r"|.*/(site|dist)-packages/[^/]+\.(dist|egg)-info/(METADATA|PKG-INFO|RECORD|installed-files\.txt)"
)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file, link or directory."""

    kind: str  # file, link, hardlink, directory, device
    mode: int
    uid: int
    gid: int
    mtime: int
    size: int = 0
    link: str = ""
    sha256: str = ""
    md5: str = ""


@dataclass(frozen=True, kw_only=True)
class Content:
    """Every entry by its path without the first slash, and the content of the few files that describe the rest."""

    entries: Mapping[str, Entry]
    kept: Mapping[str, bytes]


_KINDS = {tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "link", tarfile.LNKTYPE: "hardlink"}


def scan(stream: IO[bytes], tell: Callable[[int], None] = lambda count: None) -> Content:
    """The content of a tar, in one pass; `tell` hears how many bytes are read. Raises tarfile.TarError."""
    entries: dict[str, Entry] = {}
    kept: dict[str, bytes] = {}
    done = 0
    with tarfile.open(fileobj=stream, mode=cast("Any", "r|")) as tar:
        for member in tar:
            name = member.name.removeprefix("./").strip("/")
            about: dict[str, Any] = {
                **{"mode": member.mode, "uid": member.uid, "gid": member.gid, "mtime": int(member.mtime)},
                "link": member.linkname,
            }
            file = tar.extractfile(member) if member.isreg() else None
            if file is None:
                entries[name] = Entry(kind=_KINDS.get(member.type, "device"), **about)
                continue
            whole, short, parts = hashlib.sha256(), hashlib.md5(usedforsecurity=False), []
            keep = _KEPT.fullmatch(name)
            while chunk := file.read(_CHUNK):
                whole.update(chunk)
                short.update(chunk)
                done += len(chunk)
                if keep:
                    parts.append(chunk)
            entries[name] = Entry(
                kind="file", size=member.size, sha256=whole.hexdigest(), md5=short.hexdigest(), **about
            )
            if keep:
                kept[name] = b"".join(parts)
            tell(done)
    return Content(entries=entries, kept=kept)


def of_image(engine: str, image: str, tell: Callable[[int], None] = lambda count: None) -> Content:
    """The content of a local image. A container is made for it, never started, and removed."""
    made = subprocess.run(
        (engine, "create", "--network=none", image, "true"), capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise ImageError(f"{image}: {engine} makes no container of it: {made.stderr.strip()}")
    container = made.stdout.split()[-1]
    try:
        return of_container(engine, container, tell)
    finally:
        subprocess.run((engine, "rm", "--force", "--volumes", container), capture_output=True, check=False)


def of_container(engine: str, container: str, tell: Callable[[int], None] = lambda count: None) -> Content:
    """The content of a container as it is now."""
    with subprocess.Popen((engine, "export", container), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            return scan(process.stdout, tell)
        except tarfile.TarError as error:
            raise ImageError(f"{container}: {engine} export wrote no archive: {error}") from error
        finally:
            process.kill()
