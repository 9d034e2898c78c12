"""primus-images.lock.json: which image each framework runs in, by digest, whatever its tag names by now.

It belongs into a project's git, beside its primus.yaml: everyone who runs from there runs the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from primus.errors import ConfigError
from primus.image.names import DIGEST, repository
from primus.image.sign import Signature, check_image

NAME = "primus-images.lock.json"
_FORMAT = 1
_AGAIN = "take it from git as it was, or delete it and write it anew: primus image lock"


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
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise ConfigError("is no text", where=str(path), hint=_AGAIN) from None
    except ValueError as error:  # of json.loads: says what, line and column
        raise ConfigError(f"is no JSON: {error}", where=str(path), hint=_AGAIN) from None
    except RecursionError:
        raise ConfigError("is nested too deeply", where=str(path), hint=_AGAIN) from None
    try:
        return {
            (framework, accelerator): _locked(f"images.{framework}.{accelerator}", said)
            for framework, accelerators in _mapping("images", _document(document).get("images")).items()
            for accelerator, said in _mapping(f"images.{framework}", accelerators).items()
        }
    except ValueError as error:
        raise ConfigError(str(error), where=str(path), hint=_AGAIN) from None


def _document(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or "version" not in value:
        raise ValueError("is no lock of images: it has no version")
    if value["version"] != _FORMAT:
        raise ValueError(
            f"version is {value['version']!r}, and this launcher reads {_FORMAT}: use the one that wrote it"
        )
    return value


def _mapping(place: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{place}: must be a mapping")
    return value


def _locked(place: str, said: Any) -> Locked:
    """One image's facts. Raises ValueError, naming the key, for what is none."""
    known = {one.name: one for one in fields(Locked)}
    if unknown := {*_mapping(place, said)} - {*known}:
        raise ValueError(f"{place}.{min(unknown)}: is no fact of a locked image")
    for key, one in known.items():
        kind = {"str": str, "int": int}.get(str(one.type), dict)
        if key not in said and key in ("name", "tag", "id"):
            raise ValueError(f"{place}.{key}: is missing")
        if key in said and (not isinstance(said[key], kind) or isinstance(said[key], bool)):
            raise ValueError(f"{place}.{key}: {said[key]!r} is of no type that it can be")
        if kind is dict and not all(isinstance(text, str) for text in said.get(key, {}).values()):
            raise ValueError(f"{place}.{key}: must hold text")
    for key in ("id", "digest"):
        if (key == "id" or said.get(key)) and not DIGEST.fullmatch(said[key]):
            raise ValueError(f"{place}.{key}: {said[key]!r} is no digest, which is sha256: and 64 hexadecimal digits")
    return Locked(**said)


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
