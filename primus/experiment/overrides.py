"""Overrides from the command line: KEY=VALUE, --KEY VALUE, --KEY=VALUE and --FLAG."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from primus.errors import ConfigError
from primus.experiment.tree import EMPTY, command_line, merge, nest
from primus.experiment.yaml import MAX_DEPTH, Map, Node, Scalar, parse

_KEY = r"[A-Za-z_][\w.\-]*"
_ASSIGNMENT = re.compile(rf"(--)?({_KEY})=(.*)", re.DOTALL)
_OPTION = re.compile(rf"--({_KEY})")


def parse_overrides(words: Iterable[str]) -> Map:
    """The words as one mapping. The last of two words for one key wins, as on any command line.

    Raises ConfigError for a word that is no override, or no key.
    """
    result = EMPTY
    for number, key, text in _pairs(list(words)):
        at = command_line(number)
        parts = key.split(".")
        if not all(parts) or len(parts) > MAX_DEPTH:
            raise ConfigError(f"{key[:60]!r} is no key", where=str(at))
        result = merge(result, nest(key, _value(text, number), at), {})
    return result


def _pairs(words: list[str]) -> Iterator[tuple[int, str, str]]:
    position = 0
    while position < len(words):
        word, number = words[position], position + 1
        position += 1
        if match := _ASSIGNMENT.fullmatch(word):
            yield number, match[2], match[3]
        elif match := _OPTION.fullmatch(word):
            if position < len(words) and not words[position].startswith("--") and not is_assignment(words[position]):
                yield number, match[1], words[position]
                position += 1
            else:
                yield number, match[1], "true"
        else:
            raise ConfigError(
                f"{word!r} is no override",
                where=f"command line, argument {number}",
                hint="write KEY=VALUE or --KEY VALUE",
            )


def is_assignment(word: str) -> bool:
    """Whether the word is KEY=VALUE or --KEY=VALUE."""
    return bool(_ASSIGNMENT.fullmatch(word))


def _value(text: str, number: int) -> Node:
    """Lists, mappings and quoted text are YAML; anything else is the text itself, as a plain scalar."""
    at = command_line(number)
    if text[:1] in ("[", "{", '"', "'") and not text.startswith("${"):
        return parse(text, file=at.file, layer=at.layer, line=number)
    return Scalar(text=text, plain=True, at=at)
