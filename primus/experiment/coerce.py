"""A value as the type that a backend's argument has, or what is wrong with it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from primus.experiment.types import Template
from primus.experiment.yaml import Map, Node, Scalar, Seq, plain_value, scalar_value, untyped


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of a backend: `type` is a union of bool, int, float, str, list[...], dict, any and null."""

    name: str
    type: str
    default: Any
    choices: tuple[Any, ...] = ()
    since: str = ""  # the backend's version that has it first, if it came with one of our updates
    own: str = ""  # the argument that imports code of the user's, which may bring further choices


def coerce(node: Node, argument: Argument) -> Any:
    """The node's value as the argument's type. Raises ValueError(message, hint) if it does not fit."""
    kinds = argument.type.split(" | ")
    if isinstance(node, Scalar) and node.plain and plain_value(node.text) is None:
        if "null" in kinds or "any" in kinds or argument.default is None:
            return None
        if node.text == "" and "str" in kinds:
            return ""  # `key:` and KEY= for a string that cannot be null
        raise ValueError(f"must be {argument.type}, not null", _quote_hint(node, kinds))
    for kind in kinds:
        value = _as(node, kind)
        if value is not _NO:
            return _chosen(value, argument, node)
    raise ValueError(f"must be {argument.type}, not {_shown(node)}", _hint(node, kinds))


_NO = object()


def _as(node: Node, kind: str) -> Any:
    if kind == "any":
        return untyped(node)
    if kind == "dict":
        return untyped(node) if isinstance(node, Map) else _NO
    if kind.startswith("list"):
        if not isinstance(node, Seq):
            return _NO
        inner = kind[5:-1] or "any"
        items = [_as(item, inner) for item in node.items]
        return _NO if any(item is _NO for item in items) else items
    return _SCALARS[kind](node) if isinstance(node, Scalar) and kind in _SCALARS else _NO


def _bool(node: Scalar) -> Any:
    value = plain_value(node.text)  # quoted too: "false" for a boolean can only mean false
    return value if isinstance(value, bool) else _NO


def _int(node: Scalar) -> Any:
    value = plain_value(node.text)
    if not isinstance(value, int) or isinstance(value, bool):
        return _NO
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{_shown(node)} does not fit into 64 bits", "no backend counts so far")
    return value


def _float(node: Scalar) -> Any:
    value = plain_value(node.text)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return _NO
    try:
        return float(value)
    except OverflowError:  # an integer of more than 308 digits
        return _NO


def _str(node: Scalar) -> Any:
    return _NO if scalar_value(node) is None else node.text


_SCALARS: Mapping[str, Callable[[Scalar], Any]] = {
    "bool": _bool,
    "int": _int,
    "float": _float,
    "str": _str,
}


def _chosen(value: Any, argument: Argument, node: Node) -> Any:
    """The value, of which each item of a list is a choice."""
    if not argument.choices or isinstance(value, (dict, Template)):
        return value
    if isinstance(value, list):
        assert isinstance(node, Seq)
        return [_chosen(item, argument, part) for item, part in zip(value, node.items, strict=True)]
    if value in argument.choices:
        return value
    near = difflib.get_close_matches(str(value), [str(choice) for choice in argument.choices], 1)
    listed = ", ".join(str(choice) or "''" for choice in argument.choices[:20])
    more = f" and {len(argument.choices) - 20} more" if len(argument.choices) > 20 else ""
    hint = f"did you mean {near[0]!r}?" if near else ""
    if not (near and more):
        hint = f"{hint} choices: {listed}{more}".lstrip()
    raise ValueError(f"{_shown(node)} is not a choice", hint)


def _shown(node: Node) -> str:
    if isinstance(node, Scalar):
        value = scalar_value(node)
        text = node.text if len(node.text) <= 60 else f"{node.text[:57]}..."
        return f"{text!r} ({'null' if value is None else type(value).__name__})"
    return "a list" if isinstance(node, Seq) else "a mapping"


def _quote_hint(node: Scalar, kinds: list[str]) -> str:
    return (
        f'write "{node.text}" in quotes for the text'
        if "str" in kinds and node.text
        else "leave the key out for its default"
    )


_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "dict": "keys with values: {key: value}",
    "null": "null",
}
# What other formats, and people, call true and false.
_TRUTH = dict.fromkeys(("yes", "on", "y", "1"), "true") | dict.fromkeys(("no", "off", "n", "0"), "false")


def _hint(node: Node, kinds: list[str]) -> str:
    """What to write instead of a value that does not fit."""
    if isinstance(node, Scalar):
        number = plain_value(node.text)
        if "bool" in kinds and node.text.lower() in _TRUTH:
            return f"write {_TRUTH[node.text.lower()]}"
        if "int" in kinds and isinstance(number, float) and number.is_integer() and abs(number) < 1e15:
            return f"write {int(number)}"
        if any(kind.startswith("list") and _as(node, kind[5:-1] or "any") is not _NO for kind in kinds):
            return f"write a list: [{node.text}]"
    if isinstance(node, Seq):
        for kind in kinds:
            for number, item in enumerate(node.items, start=1):
                if kind.startswith("list[") and _as(item, kind[5:-1]) is _NO:
                    return f"item {number} is {_shown(item)}; write {_worded(kind)}"
        if len(node.items) == 1 and any(_as(node.items[0], kind) is not _NO for kind in kinds):
            return f"write {node.items[0].text} without brackets" if isinstance(node.items[0], Scalar) else ""
    return f"write {' or '.join(map(_worded, kinds))}"


def _worded(kind: str) -> str:
    """A type as what one writes: list[int] as "a list of whole numbers: [1, 2]"."""
    inner = kind[5:-1]
    if not kind.startswith("list"):
        return _WORDS[kind]
    many = {"int": "whole numbers: [1, 2]", "float": "numbers: [0.1, 0.2]", "bool": "true and false: [true, false]"}
    return f"a list of {many[inner]}" if inner in many else "a list: [a, b]"
