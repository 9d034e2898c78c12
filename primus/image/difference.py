"""What differs between two images, so that a build that is not the same again says where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from primus.image.content import Content, Entry


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One difference: a file's path, or a key of the image's configuration, and what it is."""

    where: str
    what: str


def difference(
    one: Mapping[str, Any], first: Content, other: Mapping[str, Any], second: Content, *, times: bool = False
) -> list[Difference]:
    """Every difference between two images, each as the engine describes it and by its content; none: the same.

    Without `times`, when a file was written is no difference.
    """
    found = list(_settings("", one.get("Config") or {}, other.get("Config") or {}))
    for path in sorted({*first.entries, *second.entries}):
        mine, its = first.entries.get(path), second.entries.get(path)
        if mine is None or its is None:
            found.append(Difference(where=f"/{path}", what=f"only in the {'second' if mine is None else 'first'}"))
        else:
            found += [Difference(where=f"/{path}", what=what) for what in _entry(mine, its, times=times)]
    return found


def _settings(where: str, one: Any, other: Any) -> Iterator[Difference]:
    """Labels, environment, command: what the engine keeps beside the files."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            yield from _settings(f"{where}.{key}" if where else key, one.get(key), other.get(key))
    elif (one or None) != (other or None):
        yield Difference(where=where, what=f"{one!r} and {other!r}")


def _entry(one: Entry, other: Entry, *, times: bool) -> Iterator[str]:
    if one.kind != other.kind:
        yield f"a {one.kind} and a {other.kind}"
        return
    for name in ("mode", "uid", "gid", "link"):
        mine, its = getattr(one, name), getattr(other, name)
        if mine != its:
            yield f"{name} {mine:o} and {its:o}" if name == "mode" else f"{name} {mine} and {its}"
    if one.sha256 != other.sha256:
        yield f"content ({one.size} and {other.size} bytes)" if one.size != other.size else "content, of the same size"
    if times and one.mtime != other.mtime:
        yield f"written at {one.mtime} and {other.mtime}"
