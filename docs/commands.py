"""The reference of the command line and of the settings, as pages: what click knows of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import click

from primus.cli import cli
from primus.cli.run import run
from primus.cli.settings import options_of


def pages() -> Iterator[tuple[str, str]]:
    """(name, text) of each page."""
    yield "commands", "# Commands\n\n" + "\n".join(_command(cli, "primus", None))
    yield "settings", "\n".join(_settings())


def cell(text: object) -> str:
    """Text for one cell of a table, as it stands: nothing in it is markup."""
    line = " ".join(str(text).split())
    for character in "\\|*_<>[]`#$":
        line = line.replace(character, f"\\{character}")
    return line


def code(text: object) -> str:
    """A code span for one cell of a table."""
    line = " ".join(str(text).split()).replace("|", "\\|")
    fence = "``" if "`" in line else "`"
    return f"{fence}{line}{fence}" if line else ""


def _command(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(command, info_name=name.rpartition(" ")[2], parent=parent)
    yield f"## {name}\n"
    yield f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```\n"
    yield from _prose(command.help or "")
    rows = [row for option in command.params if (row := _row(option, context))]
    if rows:
        yield "| option | variable | default | |\n|---|---|---|---|"
        yield from rows
        yield ""
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                yield from _command(found, f"{name} {child}", context)


def _prose(text: str) -> Iterator[str]:
    """Click's help: paragraphs; one that starts with \\b keeps its lines."""
    for paragraph in inspect.cleandoc(text).partition("\f")[0].split("\n\n"):
        if paragraph.startswith("\b"):
            yield "```text\n" + paragraph.removeprefix("\b").strip("\n") + "\n```\n"
        elif paragraph.strip():
            yield cell(paragraph) + "\n"


def _row(option: click.Parameter, context: click.Context) -> str | None:
    if not isinstance(option, click.Option) or option.hidden:
        return None
    names = ", ".join(code(name) for name in (*option.opts, *option.secondary_opts))
    takes = "" if option.is_flag or option.count else f" {code(option.make_metavar(context))}"
    default = code(_default(option, context))
    return f"| {names}{takes} | {code(_variable(option))} | {default} | {cell(option.help or '')} |"


def _variable(option: click.Option) -> str:
    variable = option.envvar
    return variable if isinstance(variable, str) else " ".join(variable or ())


def _default(option: click.Option, context: click.Context) -> str:
    extra: Any = option.get_help_extra(context)
    value = extra.get("default") or option.to_info_dict().get("default")
    return "" if value in (None, False, True, (), []) or callable(value) else str(value)


def _settings() -> Iterator[str]:
    yield "# Settings\n"
    yield "The keys of `primus.yaml` and `~/.config/primus/config.yaml`: each is the default of an option of"
    yield "`primus run`. Where the files are looked for, and what beats what:"
    yield "[configuration](../docs/configuration.md#defaults-for-the-options).\n"
    yield "| key | value | variable | |\n|---|---|---|---|"
    context = click.Context(run, info_name="primus run")
    for key, option in sorted(options_of(run).items()):
        one = "true or false" if option.is_flag else code(option.make_metavar(context))
        value = f"a list of {one}" if option.multiple else one
        yield f"| {code(key)} | {value} | {code(_variable(option))} | {cell(option.help or '')} |"
