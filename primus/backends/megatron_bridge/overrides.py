"""Values from an experiment, set on a recipe's configuration: strictly, whatever class each part of it has."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

# What turns text into a value of this type, for types that a file cannot hold.
Readers = Mapping[object, Callable[[str], Any]]


def apply(target: Any, values: Mapping[str, Any], readers: Readers, *, path: str = "") -> None:
    """Set each of the (nested) values on the dataclass instance `target`. Raises ValueError that names the key.

    A part that is null is made if only one class can be meant. `readers` are looked up by the type a field has.
    """
    names = [field.name for field in dataclasses.fields(target)]
    for name, value in values.items():
        if name not in names:
            raise ValueError(f"{path}{name}: {type(target).__name__} has no such argument{_hint(name, names)}")
        kinds = _kinds(type(target), name)
        current = getattr(target, name)
        if isinstance(value, Mapping) and dict not in map(_plain, kinds):
            if not dataclasses.is_dataclass(current):
                # Text stands for a part that its reader makes, such as the name of a mixed-precision recipe.
                reader = next((readers[kind] for kind in kinds if kind in readers), None)
                current = reader(current) if reader and isinstance(current, str) else _made(kinds, value, path + name)
                setattr(target, name, current)
            apply(current, value, readers, path=f"{path}{name}.")
        else:
            setattr(target, name, _read(value, current, kinds, readers, path + name))


def _hint(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {near[0]}?" if near else ""


def _kinds(cls: type, name: str) -> tuple[Any, ...]:
    """The types that the field is annotated with; none where the annotation cannot be resolved."""
    for base in cls.__mro__:
        annotation = inspect.get_annotations(base).get(name)
        if annotation is not None:
            if isinstance(annotation, str):
                try:
                    annotation = eval(annotation, vars(sys.modules[base.__module__]))  # as typing does it
                except NameError:  # imported for type checkers alone
                    return ()
            return tuple(_members(annotation))
    return ()


def _members(annotation: Any) -> list[Any]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [member for part in typing.get_args(annotation) for member in _members(part)]
    return [annotation]


def _plain(kind: Any) -> Any:
    return typing.get_origin(kind) or kind


def _made(kinds: tuple[Any, ...], values: Mapping[str, Any], path: str) -> Any:
    """A new instance of the one dataclass among `kinds` that has all the names in `values`."""
    classes = [kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
    able = [cls for cls in classes if set(values) <= {field.name for field in dataclasses.fields(cls)}]
    if len(able) != 1:
        which = " or ".join(cls.__name__ for cls in able or classes) or "a class that it does not name"
        raise ValueError(f"{path}: this recipe has none, and it could be {which}: take a recipe that has one")
    try:
        return able[0]()
    except TypeError as error:  # fields without a default
        raise ValueError(f"{path}: this recipe has none: {error}") from error


def _read(value: Any, current: Any, kinds: tuple[Any, ...], readers: Readers, path: str) -> Any:
    """The value as the field has it: a number type, a member of an enumeration, a function, a tuple."""
    if isinstance(value, str):
        enumerations = [kind for kind in (*kinds, type(current)) if isinstance(kind, type) and issubclass(kind, Enum)]
        for enumeration in enumerations:
            if value in enumeration.__members__:
                return enumeration[value]
        for kind in (*kinds, type(current)):
            if _plain(kind) in readers and str not in kinds:
                try:
                    return readers[_plain(kind)](value)
                except ValueError as error:
                    raise ValueError(f"{path}: {error}") from error
        if enumerations and str not in kinds:
            raise ValueError(f"{path}: {value!r} is none of {', '.join(enumerations[0].__members__)}")
    if isinstance(value, list) and (isinstance(current, tuple) or tuple in map(_plain, kinds)):
        return tuple(value)
    return value
