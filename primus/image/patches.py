"""What a patch file says of itself: `git format-patch` files below images/<framework>/patches/<tree>/.

Patches of what several images share are below base/patches/<tree>/; an image's Dockerfile says whether it is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.header import decode_header, make_header
from email.parser import BytesParser
from pathlib import Path

from primus.errors import ImageError


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One patch: the source tree it is for, its file's name, and what its message says."""

    tree: str
    name: str
    subject: str
    upstream_status: str
    files: tuple[str, ...]


def patches(checkout: Path, framework: str) -> list[Patch]:
    """The patches of one framework, tree by tree in the order in which they are applied; the shared ones last.

    Raises ImageError where a patch lacks its subject or its Upstream-Status.
    """
    image, shared = checkout / "images" / framework, checkout / "base/patches"
    folders = [image / "patches"]
    if shared.is_dir() and "COPY base/patches " in (image / "Dockerfile").read_text(encoding="utf-8"):
        folders.append(shared)
    return [_read(path) for folder in folders for path in sorted(folder.glob("*/*.patch"))]


def _read(path: Path) -> Patch:
    message = BytesParser().parsebytes(path.read_bytes())
    payload = message.get_payload(decode=True)
    text = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else ""
    subject = " ".join(str(make_header(decode_header(message.get("Subject", "")))).split())
    status = re.search(r"^Upstream-Status: *(.+)$", text.partition("\n---\n")[0], re.MULTILINE)
    if not subject or status is None:
        raise ImageError(
            f"{path}: has no {'Upstream-Status line' if subject else 'subject'}",
            hint="write it with git format-patch; the message says why, and ends with Upstream-Status: ...",
        )
    return Patch(
        tree=path.parent.name,
        name=path.name,
        subject=re.sub(r"^\[PATCH[^\]]*\] *", "", subject),
        upstream_status=status[1].strip(),
        files=tuple(_files(text)),
    )


def _files(text: str) -> Iterator[str]:
    for match in re.finditer(r"^diff --git a/(.+) b/(.+)$", text, re.MULTILINE):
        yield match[2]
