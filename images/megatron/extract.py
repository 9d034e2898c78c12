"""Megatron's arguments: the flags of its own parser, and those that our worker adds."""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import argparse
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tables

from primus.backends.megatron import stand_ins, turbo

stand_ins.install()

from megatron.training.arguments import add_megatron_arguments  # noqa: E402

# Functions of Megatron's that read a word, and what they take.
READERS = {
    "enum_type_handler": "str",
    "la_freq_type": "int | str",
    "moe_freq_type": "int | str",
    "no_rope_freq_type": "int | str",
    "tuple_type": "str",
    "_parse_cuda_graph_modules_arg": "str",
}


def table(_known: dict[str, Any], _source: Path | None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    add_megatron_arguments(parser)
    turbo.add_arguments(parser)
    rows: dict[str, tables.Row] = {}
    for action in parser._actions:
        # Two flags for one argument: each says one value of a boolean; of others, the first is the one that we write.
        first = rows.setdefault(action.dest, {})
        first |= {fact: value for fact, value in row(action).items() if fact not in first}
    return {"version": version("megatron-core"), "arguments": list(rows.values())}


def row(action: argparse.Action) -> tables.Row:
    spelt = f"--{action.dest.replace('_', '-')}"
    flag = spelt if spelt in action.option_strings else action.option_strings[0]
    default = plain(action.default)
    if isinstance(action, argparse.BooleanOptionalAction):
        no = next(name for name in action.option_strings if name.startswith("--no-"))
        return tables.row(action.dest, ["bool"], default, true=flag, false=no)
    if isinstance(action, (argparse._StoreTrueAction, argparse._StoreFalseAction)):
        return tables.row(action.dest, ["bool"], default, **{str(action.const).lower(): flag})
    kind = getattr(action.type, "__name__", "str")
    if kind == "bool":  # bool("False") is true: the flag can say one thing only
        return tables.row(action.dest, ["bool"], default, true=f"{flag}=True")
    kind = READERS.get(kind, kind)
    if action.nargs is not None:  # one word, or several
        kind = f"list[{kind}]" if default is None or isinstance(default, list) else f"{kind} | list[{kind}]"
    more = {} if flag == spelt else {"flag": flag}
    return tables.row(action.dest, [kind], default, [plain(choice) for choice in action.choices or ()], **more)


def plain(value: Any) -> Any:
    return value.name if isinstance(value, Enum) else value
