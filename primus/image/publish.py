"""What may be published and under which names: decisions and command lines, nothing that acts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from primus.errors import ConfigError, ImageError, Problem
from primus.image.channels import CHANNELS
from primus.image.registry import Found

_CONTENT = "id-"


def content_tag(identifier: str) -> str:
    """A tag that names the content: the first 16 digits of the image's ID, which the engine and the registry share."""
    return f"{_CONTENT}{identifier.removeprefix('sha256:')[:16]}"


def check_version(version: str) -> None:
    """Raise ConfigError for what is no version, or would be taken for something else."""
    hint = "write a version of its own, e.g. 0.1.0 or 2026.11.30"
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", version):
        raise ConfigError(f"--version {version!r}: is no part of a tag: letters, digits, _ . and -", hint=hint)
    if version == "latest" or version in CHANNELS:
        what = "says nothing" if version == "latest" else "is a channel: primus image promote moves it"
        raise ConfigError(f"--version {version}: {what}", hint=hint)
    if version.startswith(_CONTENT):
        raise ConfigError(f"--version {version}: looks like a tag of an image's content", hint=hint)


def push(reference: str) -> tuple[str, ...]:
    return ("docker", "push", reference)


def clean(status: str, where: Path) -> None:
    """Raise ImageError unless `git status --porcelain` says nothing."""
    lines = status.splitlines()
    if lines:
        rest = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
        raise ImageError(
            f"{where}: has changes that are in no commit: {', '.join(line[3:] for line in lines[:5])}{rest}",
            hint="commit them, or put them aside with git stash --include-untracked",
        )


def same_commit(before: str, after: str, where: Path) -> None:
    """Raise ImageError unless a checkout is still at the commit that the build was told."""
    if before != after:
        raise ImageError(
            f"{where}: was at {before[:12]} when the build began, and is at {after[:12]}: nothing was pushed",
            hint="run the same command again, in a checkout that nobody works in: git worktree add",
        )


def mutable(plan: Mapping[str, Any], checkout: Path) -> tuple[str, ...]:
    """The inputs of a build (as `bake --print` has it) that may be another thing tomorrow, each once."""
    found: dict[str, None] = {}
    for target in plan["target"].values():
        found.update(dict.fromkeys(_of_arguments(target.get("args") or {})))
        found.update(dict.fromkeys(_of_secrets(target.get("secret") or (), checkout)))
        for name, source in (target.get("contexts") or {}).items():
            why = _of_context(str(source), checkout)
            if why:
                found[f"{name}: {source.rpartition('@')[2] if '://' in source else source} {why}"] = None
    return tuple(found)


def _of_arguments(arguments: Mapping[str, str | None]) -> Iterator[str]:
    for name, value in arguments.items():
        if name.endswith("_IMAGE") and not re.search(r"@sha256:[0-9a-f]{64}$", value or ""):
            yield f"{name}={value}: has no digest"
    if arguments.get("APT_SNAPSHOT", "dated") == "":
        yield "APT_SNAPSHOT: is empty, so that packages are those of the day"


# Files that say where packages come from. PyTorch's wheels have no hash in a lock, and an apt.conf can do anything.
_SAY_WHERE = {"pip_conf": "says which index is asked", "apt_conf": "says which archive is asked"}


def _of_secrets(secrets: Iterable[Any], checkout: Path) -> Iterator[str]:
    """Newer buildx prints a secret as an object, older ones as text."""
    for one in secrets:
        said = one if isinstance(one, Mapping) else dict(part.partition("=")[::2] for part in str(one).split(","))
        why = _SAY_WHERE.get(str(said.get("id")))
        path = str(said.get("src") or "")
        if why and not (checkout / path).resolve().is_relative_to(checkout.resolve()):
            yield f"{said['id']}: {path} {why}, and is in no commit"


def _of_context(source: str, checkout: Path) -> str:
    if source.startswith("target:"):
        return ""
    if source.startswith("docker-image://"):
        return "" if re.search(r"@sha256:[0-9a-f]{64}$", source) else "has no digest"
    if "://" in source or source.startswith("git@"):
        return "" if re.search(r"#[0-9a-f]{40}(:.*)?$", source) else "names no full commit"
    path = (checkout / source).resolve()
    return "" if path.is_relative_to(checkout.resolve()) else "is a folder outside of the commit"


def check_mutable(found: Iterable[str]) -> None:
    problems = [
        Problem(message=text, hint="pin it, or say that you know with --allow-mutable" if index == 0 else "")
        for index, text in enumerate(found)
    ]
    if problems:
        raise ImageError(problems)


def is_published(name: str, identifier: str, there: Found | None) -> bool:
    """Whether the image is there already. Raises ImageError if another one has its name."""
    if there is None:
        return False
    if not there.is_image(identifier):
        raise ImageError(
            f"{name}: is published with other content: {there.id} there, {identifier} here",
            hint="a version stays what it is: publish under another --version",
        )
    return True


def nearest(wanted: str, tags: Iterable[str]) -> str:
    """Which tags there are that look like the one wanted, for a hint."""
    known = [tag for tag in tags if not (tag.endswith(".history") or tag.startswith("sha256-"))]
    plain = [tag for tag in known if not tag.startswith(_CONTENT)] or known
    near = difflib.get_close_matches(wanted, plain, 3, 0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there is {', '.join(sorted(plain)[:8])}" if plain else "it has no tag at all"
