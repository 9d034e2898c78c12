"""YAML 1.2 (core schema) with positions: every value keeps its text, its quoting and its place in the file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from primus.errors import ConfigError
from primus.experiment import paths
from primus.experiment.types import Origin

# libyaml's parser where PyYAML was built with it, the same grammar in Python elsewhere.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_NODES = 10_000  # aliases count each time they are used: a few lines must not become gigabytes
MAX_DEPTH = 100  # far below Python's own limit

_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULL = {"", "~", "null", "Null", "NULL"}
_INT = re.compile(r"[-+]?[0-9]{1,4000}|0o[0-7]{1,4000}|0x[0-9a-fA-F]{1,3000}")  # Python prints no longer ones
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(frozen=True, kw_only=True)
class Scalar:
    """A leaf: its own text, and whether it was written plain (unquoted), as a value that has a type must be."""

    text: str
    plain: bool
    at: Origin


@dataclass(frozen=True, kw_only=True)
class Seq:
    items: tuple[Node, ...]
    at: Origin


@dataclass(frozen=True, kw_only=True)
class Map:
    items: Mapping[str, Node]
    keys: Mapping[str, Origin]  # where each key stands
    at: Origin


Node = Scalar | Seq | Map


def plain_value(text: str) -> Any:
    """The value of a plain scalar by YAML 1.2's core schema (https://yaml.org/spec/1.2.2/#103-core-schema)."""
    if text in _BOOL:
        return _BOOL[text]
    if text in _NULL:
        return None
    if _INT.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        return float(text)
    if special := _SPECIAL_FLOAT.fullmatch(text):
        return math.nan if special[3] else math.copysign(math.inf, -1 if special[1] == "-" else 1)
    return text


def scalar_value(scalar: Scalar) -> Any:
    return plain_value(scalar.text) if scalar.plain else scalar.text


def untyped(node: Node) -> Any:
    """The node as plain Python values, typed by YAML's own rules."""
    if isinstance(node, Map):
        return {key: untyped(value) for key, value in node.items.items()}
    if isinstance(node, Seq):
        return [untyped(item) for item in node.items]
    return scalar_value(node)


def read(path: Path, layer: str) -> Map:
    """The file's mapping. Raises ConfigError with the position of whatever is wrong in it."""
    name = paths.shown(path)
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        raise ConfigError("is a directory", where=name) from None
    except OSError as error:
        raise ConfigError(f"cannot read: {error.strerror}", where=name) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError("is not UTF-8", where=f"{name}:{line}", hint="save the file as UTF-8") from error
    node = parse(text, file=name, layer=layer)
    if isinstance(node, Scalar) and node.plain and node.text in _NULL:
        return Map(items={}, keys={}, at=node.at)
    if not isinstance(node, Map):
        raise ConfigError("the file must be a mapping of keys to values", where=str(node.at))
    return node


@lru_cache(maxsize=1024)  # presets and what many files extend are read again for each
def parse(text: str, *, file: str, layer: str, line: int | None = None) -> Node:
    """The one document in `text`. `line` replaces the positions of text that is no file (an override)."""
    text = text.replace("\r\n", "\n")

    def origin(mark: Any) -> Origin:
        if line is not None:
            return Origin(layer=layer, file=file, line=line)
        return Origin(layer=layer, file=file, line=mark.line + 1, column=mark.column + 1)

    loader = None
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = str(origin(mark)) if mark else file
        raise ConfigError(
            f"not YAML: {error.problem or error.context}", where=where, hint=_syntax_hint(text, mark)
        ) from error
    except yaml.reader.ReaderError as error:
        raise ConfigError(f"not YAML: {error.reason} (character {error.position + 1})", where=file) from error
    except RecursionError as error:
        raise ConfigError("nested too deeply", where=file) from error
    finally:
        if loader is not None:
            loader.dispose()
    if root is None:
        return Scalar(text="", plain=True, at=Origin(layer=layer, file=file, line=line or 1))
    built = _Builder(origin).build(root)
    if line is None:
        _refuse_tabs(text, root, origin)
    return built


class _Loader(_Base):  # type: ignore[misc]
    """Leaves the types to us: a node without a tag of its own has none, so that one with a tag can be refused."""

    def resolve(self, kind: type, value: Any, implicit: Any) -> str:
        return ""


class _Builder:
    """Turns PyYAML's node graph into ours: a tree, bounded, without duplicate keys or tags."""

    def __init__(self, origin: Callable[[Any], Origin]) -> None:
        self.origin = origin
        self.count = 0
        self.open: list[int] = []  # ids of the collections being built, to see an alias inside its own anchor

    def build(self, node: Any) -> Node:
        at = self.origin(node.start_mark)
        self.count += 1
        if self.count > _MAX_NODES:
            raise ConfigError(f"more than {_MAX_NODES:,} values once its anchors are expanded", where=str(at))
        if id(node) in self.open:
            raise ConfigError("an anchor that contains itself", where=str(at))
        if len(self.open) > MAX_DEPTH:
            raise ConfigError("nested too deeply", where=str(at))
        if node.tag:
            raise ConfigError(
                f"unknown tag {node.tag}", where=str(at), hint="write the value itself; tags are not supported"
            )
        if isinstance(node, yaml.ScalarNode):
            _refuse_nul(node.value, at)
            return Scalar(text=node.value, plain=not node.style, at=at)
        self.open.append(id(node))
        built: Node
        if isinstance(node, yaml.SequenceNode):
            built = Seq(items=tuple(self.build(item) for item in node.value), at=at)
        else:
            built = self._mapping(node, at)
        self.open.pop()
        return built

    def _mapping(self, node: Any, at: Origin) -> Map:
        items: dict[str, Node] = {}
        keys: dict[str, Origin] = {}
        merged: list[Map] = []
        for key_node, value_node in node.value:
            where = self.origin(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError("a key must be plain text", where=str(where))
            key = key_node.value
            _refuse_nul(key, where)
            if key == "<<" and not key_node.style:
                merged += self._merge_key(value_node)
                continue
            if key in keys:
                raise ConfigError(
                    f"duplicate key {key!r}, first on line {keys[key].line}", where=str(where), hint="keep one of them"
                )
            items[key], keys[key] = self.build(value_node), where
        for other in merged:  # what the mapping says itself wins, then the earlier of several
            for key, value in other.items.items():
                if key not in items:
                    items[key], keys[key] = value, other.keys[key]
        return Map(items=items, keys=keys, at=at)

    def _merge_key(self, node: Any) -> list[Map]:
        value = self.build(node)
        maps = value.items if isinstance(value, Seq) else (value,)
        if not all(isinstance(item, Map) for item in maps):
            raise ConfigError("'<<' takes a mapping or a list of mappings", where=str(value.at))
        return [item for item in maps if isinstance(item, Map)]


def _refuse_nul(text: str, at: Origin) -> None:
    if "\0" in text:
        raise ConfigError("a NUL character, which no path, argument or variable can hold", where=str(at))


def _refuse_tabs(text: str, root: Any, origin: Callable[[Any], Origin]) -> None:
    """A tab that is white space of the syntax (not inside a value or a comment) is an error: tools disagree on it."""
    if "\t" not in text:
        return
    inside = [(node.start_mark.index, node.end_mark.index) for node in _scalars(root)]
    offset = 0
    for number, line in enumerate(text.split("\n"), start=1):
        comment = re.search(r"(^|\s)#", line)
        for tab in re.finditer("\t", line):
            index = offset + tab.start()
            if (
                comment
                and tab.start() > comment.start()
                and not any(a <= offset + comment.end() <= b for a, b in inside)
            ):
                break
            if line.strip() and not any(start <= index < end for start, end in inside):
                place = Origin(layer="", file=origin(root.start_mark).file, line=number, column=tab.start() + 1)
                raise ConfigError("a tab", where=str(place), hint="use spaces; YAML forbids tabs in indentation")
        offset += len(line) + 1


def _scalars(node: Any) -> Iterator[Any]:
    if isinstance(node, yaml.ScalarNode):
        yield node
        return
    for item in node.value:
        for part in item if isinstance(item, tuple) else (item,):
            yield from _scalars(part)


def _syntax_hint(text: str, mark: Any) -> str:
    line = text.split("\n")[mark.line] if mark and mark.line < len(text.split("\n")) else ""
    if "\t" in line:
        return "use spaces; YAML forbids tabs in indentation"
    if "${" in line and ("{" in line.replace("${", "") or "[" in line):
        return 'inside { } or [ ] a ${VARIABLE} must be quoted: "${VARIABLE}"'
    return ""


class _Dumper(yaml.SafeDumper):
    """Writes what `read` reads back: text that YAML 1.2 would take for another type is quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.yaml_implicit_resolvers = {}
_RESOLVERS = {
    "bool": "|".join(_BOOL),
    "null": "~|null|Null|NULL|",
    "int": _INT.pattern,
    "float": f"{_FLOAT.pattern}|{_SPECIAL_FLOAT.pattern}",
    "merge": "<<",
}
for _tag, _pattern in _RESOLVERS.items():
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), None)


def _represent_float(dumper: _Dumper, value: float) -> Any:
    text = ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf" if math.isinf(value) else repr(value)
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


def _represent_str(dumper: _Dumper, value: str) -> Any:
    # PyYAML folds these like line breaks, and what it reads back is a space.
    style = '"' if re.search("[\x85\u2028\u2029]", value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(value), style=style)


_Dumper.add_representer(float, _represent_float)
_Dumper.add_representer(str, _represent_str)
_Dumper.add_multi_representer(str, _represent_str)  # Template


def dump(value: Any) -> str:
    """`value` as YAML that `read` gives back unchanged."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=10_000)
