"""Python's annotations and defaults in an argument table's words, for every images/<framework>/extract.py."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

Row = dict[str, Any]
_WORDS: Mapping[Any, str] = {
    **{bool: "bool", int: "int", float: "float", str: "str", Path: "str", Any: "any"},
    **{dict: "dict", Mapping: "dict", list: "list[any]", tuple: "list[any]", Sequence: "list[any]"},
    **{type(None): "null", None: "null"},
}
_UNIONS = (typing.Union, types.UnionType)
_LISTS = (list, tuple, set, Sequence)


def words(annotation: Any, others: Callable[[Any], list[str]] = lambda _kind: []) -> list[str]:
    """The annotation as the types of a table, null last; `others` says what a class of the backend's own is."""
    found = list(dict.fromkeys(_words(annotation, others)))
    return sorted(found, key=lambda word: word == "null")


def _words(annotation: Any, others: Callable[[Any], list[str]]) -> Iterable[str]:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        yield from _words(inner[0], others)
    elif origin is typing.Literal:
        yield from (_WORDS[type(value)] for value in inner)
    elif origin in _UNIONS:
        yield from (word for member in inner for word in _words(member, others))
    elif origin in _LISTS:
        kinds = {word for member in inner if member is not ... for word in _words(member, others)}
        if kinds:
            yield f"list[{kinds.pop() if len(kinds) == 1 else 'any'}]"
    elif (origin or annotation) in _WORDS:
        yield _WORDS[origin or annotation]
    elif own := others(annotation):
        yield from own
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        yield "int" if issubclass(annotation, int) else "str"


def choices(annotation: Any, member: Callable[[Enum], Any]) -> list[Any]:
    """What a value may be, if the annotation lists it; `member` is what a file writes for an enumeration's member."""
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return list(inner)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [member(item) for item in annotation]
    if typing.get_origin(annotation) is typing.Annotated:
        return choices(inner[0], member)
    if typing.get_origin(annotation) in _UNIONS:
        found = [choices(part, member) for part in inner if part is not type(None)]
        return [choice for part in found for choice in part] if all(found) else []
    return []


def row(name: str, kinds: Iterable[str], default: Any, allowed: Sequence[Any] = (), **more: Any) -> Row:
    """One line of a table."""
    said = {"name": name, "type": " | ".join(kinds), "default": default}
    return said | ({"choices": list(allowed)} if allowed else {}) | more


def changed(rows: Iterable[Row], facts: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """The rows with the facts laid over them that an extractor knows better. Raises SystemExit if one is of no use."""
    found = {item["name"]: item for item in rows}
    for name, more in facts.items():
        was = found.get(name)
        if was is not None and all(was.get(fact) == value for fact, value in more.items()):
            raise SystemExit(f"extract.py: {name}: the backend says {dict(more)} by itself; take it out")
        found[name] = _ordered({"name": name, **(was or {}), **more})
    return list(found.values())


def _ordered(said: Row) -> Row:
    order = ("name", "type", "default", "choices")
    return dict(sorted(said.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def default_of(field: Any) -> Any:
    """A dataclass field's default; None where it must be given."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return None if field.default_factory is dataclasses.MISSING else field.default_factory()


def hints(cls: type) -> Mapping[str, Any]:
    """The annotations of a class and its bases, each as far as it can be resolved."""
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError):  # imported for type checkers alone; an alias of another Python's
        pass
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, annotation in inspect.get_annotations(base).items():
            try:
                found[name] = (
                    eval(annotation, vars(inspect.getmodule(base))) if isinstance(annotation, str) else annotation
                )
            except (NameError, TypeError):
                found[name] = inspect.Parameter.empty
    return found
