"""A JSON Schema of experiment files, so that an editor completes keys and marks what `primus config check` would.

Draft 7, which editors know best. It is looser than the check where a schema cannot see what the check sees: what
`extends` and presets add, how a scalar was quoted, and what a variable holds.
"""

from __future__ import annotations

from typing import Any

from primus.experiment.coerce import Argument
from primus.experiment.document import MODULE, TOP
from primus.experiment.rules import COMPARES, rules
from primus.experiment.schema import Schema, schema
from primus.experiment.types import ACCELERATORS, STAGES

_VARIABLE = {"$ref": "#/definitions/variable"}
_NUMBER = "[-+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][-+]?[0-9]+)?"
_SPECIAL = "[-+]?[.](inf|Inf|INF)|[.](nan|NaN|NAN)"
_DEFINITIONS: dict[str, Any] = {
    "variable": {"type": "string", "pattern": "[$][{]"},  # ${VAR}, ${VAR:default}, anywhere in the text
    "text": {"type": ["string", "number", "boolean"]},  # a text argument keeps the scalar as it is written
    "bool": {"anyOf": [{"type": "boolean"}, {"enum": ["true", "false", "True", "False", "TRUE", "FALSE"]}, _VARIABLE]},
    "int": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"},
                      _VARIABLE]},
    "float": {"anyOf": [{"type": "number"}, {"type": "string", "pattern": f"^({_NUMBER}|{_SPECIAL})$"}, _VARIABLE]},
}  # fmt: skip
_KINDS = {"str": "text", "bool": "bool", "int": "int", "float": "float"}


def json_schema(framework: str) -> dict[str, Any]:
    """The schema of an experiment (or of a file that one extends) for this backend."""
    table = schema(framework)
    text = {"$ref": "#/definitions/text"}
    module = {
        "type": "object",
        "additionalProperties": False,
        "properties": dict.fromkeys(MODULE, text)
        | {"framework": {"enum": [framework]}, "overrides": _section(table, "")},
    }
    special = {
        "accelerator": {"anyOf": [{"enum": [*ACCELERATORS, None]}, _VARIABLE]},
        "env": {"type": ["object", "null"], "additionalProperties": text},
        "modules": {
            "type": "object",
            "additionalProperties": False,
            "properties": {stage: {"$ref": "#/definitions/module"} for stage in STAGES},
            "maxProperties": 1,
        },
        "extends": {"anyOf": [text, {"type": "array", "items": text}]},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"Primus experiment, {framework} {table.version}",
        "type": "object",
        "additionalProperties": False,
        "properties": dict.fromkeys(TOP, text) | special,
        "definitions": {**_DEFINITIONS, "module": module},
    }


def _section(table: Schema, prefix: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    keys = dict.fromkeys(name[len(prefix) :].split(".")[0] for name in table.arguments if name.startswith(prefix))
    for key in keys:
        own = table.arguments.get(f"{prefix}{key}")
        section = f"{prefix}{key}" in table.sections
        if own is None:
            properties[key] = _section(table, f"{prefix}{key}.")
        elif section:  # a part that can be left out, as a whole or by its keys
            properties[key] = {"anyOf": [_argument(own, table.framework), _section(table, f"{prefix}{key}.")]}
        else:
            properties[key] = _argument(own, table.framework)
    return {"type": ["object", "null"], "additionalProperties": False, "properties": properties}


def _bounds(name: str, framework: str) -> dict[str, Any]:
    """What a number of the argument must be, or each of its list: keywords that leave text and variables alone."""
    said = [_bound(bound) for bound in rules(framework).bounds.get(name, ())]
    if not said:
        return {}
    made = said[0] if len(said) == 1 and "anyOf" not in said[0] else {"allOf": said}
    return {**made, "items": made}


def _bound(text: str) -> dict[str, Any]:
    """-1 or >=1, >0 or inf: of a YAML file, infinity is more than any number."""
    parts = [_one(word) for word in text.split(" or ") if word != "inf"]
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def _one(word: str) -> dict[str, Any]:
    found = COMPARES.fullmatch(word)
    number = float(found[2] if found else word)
    value = int(number) if number.is_integer() else number
    return {_KEYWORDS[found[1]]: value} if found else {"const": value}


_KEYWORDS = {">=": "minimum", ">": "exclusiveMinimum", "<=": "maximum", "<": "exclusiveMaximum"}


def _argument(argument: Argument, framework: str) -> dict[str, Any]:
    kinds = argument.type.split(" | ")
    bounds = _bounds(argument.name, framework)
    if "any" in kinds:
        return {**bounds, "default": argument.default}
    allowed = [_kind(kind) for kind in kinds if kind != "null"]
    if argument.choices and not argument.own:
        one = {"enum": list(argument.choices)}
        allowed = [{"type": "array", "items": one} if kind.get("type") == "array" else one for kind in allowed]
    # `key:` alone is the empty text for a text argument.
    if "null" in kinds or argument.default is None or "str" in kinds:
        allowed.append({"type": "null"})
    return {"anyOf": [*allowed, _VARIABLE], **bounds, "default": argument.default}


def _kind(kind: str) -> dict[str, Any]:
    if kind == "dict":
        return {"type": "object"}
    if kind.startswith("list"):
        inner = kind[5:-1] or "any"
        return {"type": "array"} if inner == "any" else {"type": "array", "items": _item(inner)}
    return {"$ref": f"#/definitions/{_KINDS[kind]}"}


def _item(kind: str) -> dict[str, Any]:
    return {"anyOf": [_kind(kind), _VARIABLE]} if kind.startswith(("list", "dict")) else _kind(kind)
