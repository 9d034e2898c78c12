"""Combinations of arguments that a backend at its pin refuses, crashes on or gets wrong, from its rules.json.

Each was seen or read at one version, which the file names; a unit test holds it against the argument table's, so that
whoever moves the pin goes through the rules once more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from primus.errors import Problem
from primus.experiment.schema import Schema
from primus.experiment.types import Provenance

MATCHES = re.compile(r"/(.*)/")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What may not be together.

    `when` has, by argument, the values of which one must hold: a value, "/a pattern for the whole text/", or ">N".
    """

    when: Mapping[str, tuple[Any, ...]]
    accelerator: str  # rocm or cpu; "" for both
    why: str
    hint: str


@cache
def rules(framework: str) -> tuple[Rule, ...]:
    """The framework's rules."""
    file = resources.files("primus") / "backends" / framework / "rules.json"
    if not file.is_file():
        return ()
    return tuple(
        Rule(
            when={key: tuple(value) if isinstance(value, list) else (value,) for key, value in row["when"].items()},
            accelerator=row.get("accelerator", ""),
            why=row["why"],
            hint=row["hint"],
        )
        for row in json.loads(file.read_text(encoding="utf-8"))["rules"]
    )


def broken(
    args: Mapping[str, Any], table: Schema, accelerator: str, origins: Mapping[str, Provenance]
) -> Iterator[Problem]:
    """The rules that the arguments (by dotted name) break, each at what the user wrote last of it."""

    def value(name: str) -> Any:
        return args[name] if name in args else table.arguments[name].default

    for rule in rules(table.framework):
        if rule.accelerator in ("", accelerator) and all(
            any(_holds(value(name), wanted) for wanted in choices) for name, choices in rule.when.items()
        ):
            said = [name for name in rule.when if name in origins]
            parts = (f"{name}: {_shown(value(name))}{'' if name in said else ' (the default)'}" for name in rule.when)
            yield Problem(
                message=f"{', '.join(parts)}: {rule.why}",
                where=str(origins[said[0]].origin) if said else "",
                hint=rule.hint,
            )


def _holds(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, str) and (pattern := MATCHES.fullmatch(wanted)):
        return isinstance(value, str) and re.fullmatch(pattern[1], value) is not None
    if isinstance(wanted, str) and wanted.startswith(">"):
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value > float(wanted[1:])
    return type(value) is type(wanted) and bool(value == wanted)


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
