"""`${VAR}` in values: what becomes text where the user typed, and what stays a reference until the training starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from primus.errors import ConfigError
from primus.experiment.types import Origin, Template
from primus.experiment.yaml import Map, Node, Scalar, Seq

# $${ | ${NAME} | ${NAME:default} | ${NAME:-default}; a default may hold anything but braces.
_REFERENCE = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-?([^{}]*))?\})?")
_SECRET_NAME = re.compile(r".*(_TOKEN|_API_KEY|_SECRET|_SECRET_ACCESS_KEY|_PASSWORD)")
# Shapes of credentials that must never stand in a file: Hugging Face, GitHub, AWS.
_SECRET_VALUE = re.compile(
    r"\b(hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|AKIA[A-Z0-9]{16})\b"
)


def is_secret(name: str) -> bool:
    """Whether the variable's value may appear nowhere but in the training process."""
    return bool(_SECRET_NAME.fullmatch(name))


def looks_secret(text: str) -> bool:
    """Whether the text holds a credential, by its shape."""
    return bool(_SECRET_VALUE.search(text))


def expand(node: Node, environ: Mapping[str, str]) -> Node:
    """The tree with every reference of its values replaced, but those to secrets. Raises ConfigError."""
    if isinstance(node, Map):
        return Map(items={key: expand(value, environ) for key, value in node.items.items()}, keys=node.keys, at=node.at)
    if isinstance(node, Seq):
        return Seq(items=tuple(expand(item, environ) for item in node.items), at=node.at)
    return Scalar(text=expand_text(node.text, environ, node.at), plain=node.plain, at=node.at)


def expand_text(text: str, environ: Mapping[str, str], at: Origin) -> str:
    """`text` with its references replaced; a Template if one of them is a secret that has a value."""
    _check_utf8(text, "the value", at)
    if leaked := _SECRET_VALUE.search(text):
        raise ConfigError(
            f"a credential ({leaked[0][:4]}...) stands in the configuration",
            where=str(at),
            hint="put it in the environment and write ${HF_TOKEN} (or its own variable) here",
        )
    if "${" not in text:
        return text
    secret = False
    parts: list[tuple[str, bool]] = []  # text, and whether it is a reference to keep
    end = 0
    for match in _REFERENCE.finditer(text):
        parts.append((text[end : match.start()], False))
        end = match.end()
        name, default = match[1], match[2]
        if match[0] == "$${":
            parts.append(("${", False))
        elif name is None:
            raise ConfigError(
                f"{text[match.start() : match.start() + 20]!r} is no variable reference",
                where=str(at),
                hint="write ${NAME}, ${NAME:default} or ${NAME:-default}; $${ is a literal ${",
            )
        elif is_secret(name) and environ.get(name, "").strip():
            secret = True
            parts.append((f"${{{name}}}", True))
        else:
            parts.append((_value(name, default, environ, at), False))
    parts.append((text[end:], False))
    if secret:
        return Template("".join(part if kept else escape(part) for part, kept in parts))
    return "".join(part for part, _ in parts)


def _value(name: str, default: str | None, environ: Mapping[str, str], at: Origin) -> str:
    value = environ.get(name, "")
    if value and not is_secret(name):  # a secret comes here when it is white space, which is no value
        if _SECRET_VALUE.search(value):
            raise ConfigError(
                f"${{{name}}} holds a credential",
                where=str(at),
                hint="name the variable *_TOKEN, so that it stays secret",
            )
        _check_utf8(value, f"${{{name}}}", at)
        return value
    if default is None:
        state = "is empty" if name in environ else "is not set"
        raise ConfigError(f"${{{name}}} {state}", where=str(at), hint=f"set {name}, or write ${{{name}:DEFAULT}}")
    if len(default) >= 2 and default[0] == default[-1] and default[0] in "\"'":
        return default[1:-1]
    return default


def _check_utf8(text: str, what: str, at: Origin) -> None:
    """Bytes that were no text come from the command line or a variable as surrogates, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{what} is not UTF-8", where=str(at)) from None


def escape(text: str) -> str:
    """Literal text, written so that `fill` and `expand` give it back."""
    return text.replace("${", "$${")


def fill(value: Any, environ: Mapping[str, str]) -> Any:
    """Escaped text (or a tree of it) with its references replaced: what the process that trains reads.

    Raises ConfigError if a variable is not set there.
    """
    if isinstance(value, Mapping):
        return {key: fill(item, environ) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, environ) for item in value]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        if match[1] is None or match[1] not in environ:
            raise ConfigError(
                f"{match[0]}: the variable is not set where the training runs", hint=f"pass it on: --env {match[1]}"
            )
        return environ[match[1]].strip()

    return _REFERENCE.sub(replace, value)


def escaped(value: Any) -> Any:
    """A tree of values with literal text escaped and templates as they are: what generated files hold."""
    if isinstance(value, Mapping):
        return {key: escaped(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [escaped(item) for item in value]
    if isinstance(value, Template) or not isinstance(value, str):
        return value
    return escape(value)
