"""What a backend at its pin refuses, crashes on or gets wrong, from its rules.json: numbers and combinations.

Each was seen or read at one version, which the file names; a unit test holds it against the argument table's, so that
whoever moves the pin goes through the rules once more.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import isfinite
from typing import Any

from primus.errors import Problem
from primus.experiment.schema import Schema
from primus.experiment.types import LAYERS, Provenance

MATCHES = re.compile(r"/(.*)/")
SAID = "*"
COMPARES = re.compile(r"(>=|<=|>|<)(-?[\d.]+)")
_COMPARISONS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    ">=": (operator.ge, "at least"),
    ">": (operator.gt, "more than"),
    "<=": (operator.le, "at most"),
    "<": (operator.lt, "less than"),
}


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What may not be together.

    `when` has, by argument, the values of which one must hold: a value, "/a pattern for the whole text/", a comparison
    such as ">1" or "<=0", or "*" for whatever was said but null. Of a list, one item must. "a|b" is either argument,
    and "part.*" or "part_*" each that was said and begins like it.
    """

    when: Mapping[str, tuple[Any, ...]]
    accelerator: str  # rocm or cpu; "" for both
    stage: str  # pretrain or posttrain; "" for both
    why: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class Rules:
    """A backend's rules and bounds at its pin."""

    rules: tuple[Rule, ...]
    bounds: Mapping[str, tuple[str, ...]]  # by argument, what its number must be: ">=1", or one of several, "-1 or >0"
    elsewhere: str  # the argument that names what may say more, such as a recipe: then a default is no more known


@cache
def rules(framework: str) -> Rules:
    """The framework's rules.json."""
    file = resources.files("primus") / "backends" / framework / "rules.json"
    table = json.loads(file.read_text(encoding="utf-8"))
    bounds: dict[str, tuple[str, ...]] = {}
    for bound, names in table["bounds"].items():
        for name in names:
            bounds[name] = (*bounds.get(name, ()), bound)
    return Rules(
        rules=tuple(
            Rule(
                when={key: tuple(value) if isinstance(value, list) else (value,) for key, value in row["when"].items()},
                accelerator=row.get("accelerator", ""),
                stage=row.get("stage", ""),
                why=row["why"],
                hint=row["hint"],
            )
            for row in table["rules"]
        ),
        bounds=bounds,
        elsewhere=table.get("elsewhere", ""),
    )


def broken(
    args: Mapping[str, Any], table: Schema, accelerator: str, stage: str, origins: Mapping[str, Provenance]
) -> Iterator[Problem]:
    """What the arguments (by dotted name) break, each at what was said of it in the highest layer."""
    ours = rules(table.framework)
    defaults = {} if args.get(ours.elsewhere) else {name: row.default for name, row in table.arguments.items()}
    known = {**defaults, **args}
    outside = [name for name, value in args.items() if not within(value, ours.bounds.get(name, ()))]
    for name in outside:
        yield Problem(
            message=f"{name}: {_shown(args[name])}: must be {' and '.join(map(worded, ours.bounds[name]))}",
            where=str(origins[name].origin) if name in origins else "",
            hint=f"left out, it is {_shown(defaults[name])}" if defaults.get(name) is not None else "",
        )
    for rule in ours.rules:
        if rule.accelerator not in ("", accelerator) or rule.stage not in ("", stage):
            continue
        names = [_holding(pattern, choices, args, known) for pattern, choices in rule.when.items()]
        if not all(names) or {*outside} & {*names}:  # a wrong number is no part of a combination
            continue
        said = {name: origins[name].origin for name in names if name in origins}
        parts = (f"{name}: {_shown(known[name])}{'' if name in said else ' (the default)'}" for name in names)
        yield Problem(
            message=f"{', '.join(parts)}: {rule.why}",
            where=str(max(said.values(), key=lambda origin: LAYERS.index(origin.layer))) if said else "",
            hint=rule.hint,
        )


def _holding(pattern: str, choices: tuple[Any, ...], args: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """The argument that the rule means by `pattern` and of which one of the choices holds; "" if there is none."""
    for one in pattern.split("|"):
        for name in [name for name in args if name.startswith(one[:-1])] if one.endswith("*") else [one]:
            if name in known and any(
                name in args and known[name] is not None if wanted == SAID else _holds(known[name], wanted)
                for wanted in choices
            ):
                return name
    return ""


def _holds(value: Any, wanted: Any) -> bool:
    if isinstance(value, list) and not isinstance(wanted, list):
        return any(_holds(item, wanted) for item in value)
    if isinstance(wanted, str) and (pattern := MATCHES.fullmatch(wanted)):
        return isinstance(value, str) and re.fullmatch(pattern[1], value) is not None
    if isinstance(wanted, str) and (comparison := COMPARES.fullmatch(wanted)):
        return _is_number(value) and _COMPARISONS[comparison[1]][0](value, float(comparison[2]))
    return type(value) is type(wanted) and bool(value == wanted)


def within(value: Any, bounds: tuple[str, ...]) -> bool:
    """Whether each number in the value is within all the bounds. What is no number is the type's business."""
    numbers = [item for item in (value if isinstance(value, list) else [value]) if _is_number(item)]
    return all(any(_meets(number, one) for one in bound.split(" or ")) for number in numbers for bound in bounds)


def _meets(number: float, one: str) -> bool:
    if comparison := COMPARES.fullmatch(one):
        return (isinstance(number, int) or isfinite(number)) and _COMPARISONS[comparison[1]][0](
            number, float(comparison[2])
        )
    return number == float(one)


def worded(bound: str) -> str:
    """-1 or >=1: "-1 or at least 1"."""
    for symbol, (_, words) in _COMPARISONS.items():
        bound = bound.replace(symbol, f"{words} ")
    return bound


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value) or '""'
