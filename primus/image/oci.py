"""Where `pull --from` finds images besides a registry: bundles, and OCI image layouts, in files and directories.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from primus.errors import ImageError
from primus.image import bundle
from primus.image.bundle import Bundle, Image, Layer, Manifest, Member, blob_name
from primus.image.names import DIGEST

_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_UNPACKED = 3  # times a compressed layer's size, where nothing says it


def sources(path: Path) -> tuple[Bundle, ...]:
    """The bundle in a file; or a directory that is an unpacked one or an OCI layout, or has such files and
    directories in it. Raises ImageError if there is none."""
    if not path.is_dir():
        return (bundle.read(path),)
    found = [one for one in (_directory(path), *map(_any, sorted(path.iterdir()))) if one is not None]
    if not found:
        hint = "primus image bundle makes a bundle, skopeo copy an OCI layout (index.json)"
        raise ImageError(f"{path}: holds no bundle, and is no OCI image layout", hint=hint)
    return tuple(found)


def _any(path: Path) -> Bundle | None:
    if path.is_dir():
        return _directory(path)
    if path.suffix != ".tar" or not path.is_file():
        return None
    with path.open("rb") as file:
        ours = file.read(100).rstrip(b"\0") == bundle.MANIFEST.encode()
    return bundle.read(path) if ours else None


def _directory(path: Path) -> Bundle | None:
    if (path / bundle.MANIFEST).is_file() and (path / "blobs").is_dir():
        return bundle.read(path)
    return layout(path) if (path / "oci-layout").is_file() and (path / "index.json").is_file() else None


def layout(path: Path) -> Bundle:
    """The images of an OCI layout that are for Linux and ours, as a bundle without anything else."""
    members: dict[str, Member] = {}
    images = []
    try:
        for descriptor in _manifests(path, json.loads((path / "index.json").read_bytes())):
            said = _blob(path, descriptor["digest"])
            config = _blob(path, said["config"]["digest"])
            labels = (config.get("config") or {}).get("Labels") or {}
            diff_ids = (config.get("rootfs") or {}).get("diff_ids") or []
            if "io.primus.framework" not in labels:
                continue
            for one in (said["config"], *said["layers"]):
                members[blob_name(one["digest"])] = Member(size=int(one["size"]), sha256=_hex(one["digest"]))
            name = str((descriptor.get("annotations") or {}).get("org.opencontainers.image.ref.name", ""))
            images.append(
                Image(
                    framework=labels["io.primus.framework"],
                    accelerator=labels.get("io.primus.accelerator", ""),
                    name=name.rpartition(":")[0] or f"primus-{labels['io.primus.framework']}",
                    tag=name.rpartition(":")[2],
                    id=said["config"]["digest"],
                    digest=descriptor["digest"],
                    layers=tuple(
                        Layer(diff_id=diff_id, size=_UNPACKED * int(one["size"]), blob=one["digest"])
                        for diff_id, one in zip(diff_ids, said["layers"], strict=True)
                    ),
                )
            )
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise ImageError(f"{path}: cannot be read as an OCI image layout: {error}") from None
    made = Manifest(time=0, images=tuple(images), members=members)
    return Bundle(path=path, manifest=made, text=b"")


def _manifests(path: Path, index: Any) -> list[Any]:
    found: list[Any] = []
    for one in index["manifests"]:
        found += _manifests(path, _blob(path, one["digest"])) if one.get("mediaType") in _INDEXES else [one]
    return found


def _blob(path: Path, digest: str) -> Any:
    """A document of the layout, which must be what its name says."""
    content = (path / "blobs" / "sha256" / _hex(digest)).read_bytes()
    if hashlib.sha256(content).hexdigest() != _hex(digest):
        raise ImageError(f"{path}: {blob_name(digest)}: is damaged", hint=bundle.AGAIN)
    return json.loads(content)


def _hex(digest: str) -> str:
    if not DIGEST.fullmatch(digest):
        raise ValueError(f"{digest!r} is no digest")
    return digest.removeprefix("sha256:")
