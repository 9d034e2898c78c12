"""An experiment and all that it extends as the text of one file, which says the same, with the comments of each.

Variables stay variables. A value is written as it was, a list in brackets; where a file's value replaces one of a file
below, its comment does, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from primus.experiment import paths
from primus.experiment.tree import EMPTY, Key, extended, merge
from primus.experiment.types import EXPERIMENT, Origin
from primus.experiment.yaml import Map, Node, Scalar, Seq, dump, plain_value, read

Comment = tuple[tuple[str, ...], str]  # the lines above a key, and what stands behind it
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\"")


def one_file(path: Path) -> str:
    """The text. Raises ConfigError where a file cannot be read or extends what is not there."""
    comments: dict[Key, Comment] = {}
    merged = _merged(paths.real(path), comments)
    return "\n".join([*_head(_source(path)), *_lines(merged, (), comments)]) + "\n"


def _source(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8-sig").splitlines()


def _merged(path: Path, comments: dict[Key, Comment]) -> Map:
    """The file on top of what it extends; `comments` gets those of every key that stays."""
    own = read(path, EXPERIMENT)
    below = EMPTY
    for name, _ in extended(own):
        below = merge(below, _merged(paths.real(path.parent / name), comments), {})
    items = {key: value for key, value in own.items.items() if key != "extends"}
    own = Map(items=items, keys=own.keys, at=own.at)
    _collect(own, (), _source(path), comments)
    return merge(below, own, {})


def _collect(node: Map, at: Key, source: list[str], comments: dict[Key, Comment]) -> None:
    for key, value in node.items.items():
        here, found = (*at, key), _comment(node.keys[key], source)
        if isinstance(value, Map) and value.items:
            _collect(value, here, source, comments)
            if here in comments and not any(found):  # a section that is only named again
                continue
        comments[here] = found


def _comment(at: Origin, source: list[str]) -> Comment:
    """The comment lines above a key, and what stands behind it on its line; none for a key inside of braces."""
    line = source[at.line - 1]
    if line[: at.column - 1].strip():
        return (), ""
    start = at.line - 1
    while start > 0 and source[start - 1].lstrip().startswith("#"):
        start -= 1
    behind = re.search(r"\s+#.*$", _QUOTED.sub(lambda found: "_" * len(found[0]), line))
    above = tuple(one.strip() for one in source[start : at.line - 1])
    return above, line[behind.start() :].rstrip() if behind else ""


def _head(lines: list[str]) -> list[str]:
    """What stands above `extends` in the file itself: of other keys, the comment goes with the key."""
    first = next((index for index, line in enumerate(lines) if line.strip() and not line.startswith("#")), 0)
    return lines[:first] if lines and lines[first].startswith("extends") else []


def _lines(node: Map, at: Key, comments: Mapping[Key, Comment]) -> Iterator[str]:
    indent = "  " * len(at)
    for key, value in node.items.items():
        here = (*at, key)
        above, behind = comments[here]
        if here == ("modules",):
            yield ""
        yield from (indent + line for line in above)
        name = dump({key: 0}).rpartition(":")[0]
        if isinstance(value, Map) and value.items:
            yield f"{indent}{name}:{behind}"
            yield from _lines(value, here, comments)
        else:
            yield f"{indent}{name}: {_flow(value)}".rstrip() + behind


def _flow(node: Node) -> str:
    if isinstance(node, Map):
        return "{" + ", ".join(f"{_text(key)}: {_flow(value)}" for key, value in node.items.items()) + "}"
    if isinstance(node, Seq):
        return "[" + ", ".join(map(_inside, node.items)) + "]"
    return node.text if node.plain and "\n" not in node.text else _quoted(node.text)


def _inside(node: Node) -> str:
    """Of a list: a plain text that brackets would cut is quoted, which keeps it a text."""
    if isinstance(node, Scalar) and node.plain and re.search(r"[\[\]{},]|: |^$", node.text):
        return _quoted(node.text)
    return _flow(node)


def _text(key: str) -> str:
    return key if re.fullmatch(r"[\w.-]+", key) and isinstance(plain_value(key), str) else _quoted(key)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
