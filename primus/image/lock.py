"""primus-images.lock.json: which image each framework runs in, by digest, whatever its tag names by now.

It belongs into a project's git, beside its primus.yaml: everyone who runs from there runs the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from primus.errors import ConfigError
from primus.image.names import DIGEST, repository
from primus.image.sign import Signature, check_image

NAME = "primus-images.lock.json"
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Locked:
    """One image: where it is, what it is, and what it was made from."""

    name: str  # [REGISTRY/]primus-<framework>
    tag: str  # that it had when it was locked
    id: str  # the digest of its configuration: the engine's Image ID, also after docker save and load
    digest: str = ""  # of its manifest, in a registry; empty for an image of one machine
    size: int = 0  # bytes to download; of an image of one machine, what it takes there
    revision: str = ""  # commit of this repository
    base_image: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)  # commits
    lock_sha256: str = ""  # of the files that pin its Python packages
    signature: Mapping[str, str] = field(default_factory=dict)  # payload and signature, if the registry had one

    @property
    def tagged(self) -> str:
        return f"{self.name}:{self.tag}"

    def reference(self, registry: str = "", framework: str = "") -> str:
        """NAME@DIGEST, in another registry if one is given; an image of this machine by its tag."""
        name = repository(framework, registry=registry) if registry and framework else self.name
        return f"{name}@{self.digest}" if self.digest else self.tagged


Lock = Mapping[tuple[str, str], Locked]  # by framework and accelerator


def find(start: Path) -> Path | None:
    """The nearest lock at or above a directory."""
    for folder in (start, *start.parents):
        if os.access(folder / NAME, os.F_OK):
            return folder / NAME
    return None


def read(path: Path) -> dict[tuple[str, str], Locked]:
    """Every image in the lock. Raises ConfigError, naming the place, for what is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError("there is no such lock", where=str(path), hint="primus image lock writes it") from None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot be read: {error}", where=str(path), hint="write it anew: primus image lock"
        ) from None
    try:
        if document["version"] != _FORMAT:
            raise ConfigError(
                f"version is {document['version']!r}, and this launcher reads {_FORMAT}",
                where=str(path),
                hint="use the launcher that wrote it, or write it anew: primus image lock",
            )
        found = {
            (framework, accelerator): Locked(**said)
            for framework, accelerators in document["images"].items()
            for accelerator, said in accelerators.items()
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise ConfigError(
            f"is no lock of images: {error}", where=str(path), hint="write it anew: primus image lock"
        ) from None
    for (framework, accelerator), one in found.items():
        for key, value, wanted in (("id", one.id, True), ("digest", one.digest, bool(one.digest))):
            if wanted and not (isinstance(value, str) and DIGEST.fullmatch(value)):
                raise ConfigError(
                    f"images.{framework}.{accelerator}.{key}: {value!r} is no digest",
                    where=str(path),
                    hint="a digest is sha256: and 64 hexadecimal digits; write it anew: primus image lock",
                )
    return found


def text(lock: Lock) -> str:
    """The lock as a file: sorted, a line for each fact, so that git shows what changed."""
    images: dict[str, dict[str, Any]] = {}
    for (framework, accelerator), one in sorted(lock.items()):
        said = {key: value for key, value in asdict(one).items() if value not in ("", {}, 0)}
        images.setdefault(framework, {})[accelerator] = said
    return json.dumps({"version": _FORMAT, "images": images}, indent=2) + "\n"


def of(
    name: str,
    tag: str,
    *,
    identifier: str,
    digest: str,
    size: int,
    labels: Mapping[str, str],
    inside: Mapping[str, Any],
    signature: Mapping[str, str] | None = None,
) -> Locked:
    """What is locked of an image: `inside` is its /etc/primus/image.json."""
    return Locked(
        name=name,
        tag=tag,
        id=identifier,
        digest=digest,
        size=size,
        revision=labels.get("org.opencontainers.image.revision", ""),
        base_image=str(inside.get("base_image", "")),
        sources=dict(inside.get("sources") or {}),
        lock_sha256=str(inside.get("lock_sha256", "")),
        signature=signature or {},
    )


def check_signed(public: bytes, one: Locked | None, name: str = "") -> str:
    """Raise ImageError unless the public key signed what is locked; `name` is what to call it if nothing is.

    Returns the ID that the signature vouches for, or "": what the lock says besides, nobody has signed.
    """
    return check_image(
        public,
        Signature(**one.signature) if one and one.signature else None,
        name=one.reference() if one else name,
        digest=one.digest if one else "",
        identifier=one.id if one else "",
    )


def identifiers(lock: Lock) -> set[str]:
    """All that an engine may call what is locked: the Image ID or, with containerd's store, the manifest's digest."""
    return {name for one in lock.values() for name in (one.id, one.digest) if name}


def removable(about: Mapping[str, Any], kept: set[str], frameworks: tuple[str, ...], *, tagged: bool) -> bool:
    """Whether `prune` removes the image that the engine describes: ours, not locked, and without a tag or `tagged`."""
    labels = (about.get("Config") or {}).get("Labels") or {}
    if labels.get("io.primus.framework") not in frameworks or about["Id"] in kept:
        return False
    return tagged or not (about.get("RepoTags") or about.get("RepoDigests"))
