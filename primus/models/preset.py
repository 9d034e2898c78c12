"""A preset as text: keys, values, and behind each where it comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from primus.errors import Problem


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a preset."""

    key: str
    value: Any
    source: str


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What a backend is told of a model, and what it cannot be told."""

    rows: tuple[Row, ...]
    unsupported: tuple[Problem, ...] = ()


def text(head: Iterable[str], rows: Iterable[Row]) -> str:
    """The preset as YAML; dotted keys are nested."""
    lines = [f"# {' '.join(line.split())}" for line in head]
    section: tuple[str, ...] = ()
    for row in rows:
        *above, name = row.key.split(".")
        for depth, part in enumerate(above):
            if section[: depth + 1] != tuple(above[: depth + 1]):
                lines.append(f"{'  ' * depth}{part}:")
        section = tuple(above)
        lines.append(f"{'  ' * len(above)}{name}: {scalar(row.value)}" + (f"  # {row.source}" if row.source else ""))
    return "\n".join(lines) + "\n"


def scalar(value: Any) -> str:
    """The value as YAML 1.2 reads it back: a float with its point, text in quotes where it could be another type."""
    if value is None:
        return "null"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_(/.][\w.()/*+-]*", value):
        return value if value.lower() not in ("true", "false", "null", ".inf", ".nan") else json.dumps(value)
    if isinstance(value, float):
        short = repr(value)
        return short if "." in short else short.replace("e", ".0e")
    return json.dumps(value, ensure_ascii=False)
