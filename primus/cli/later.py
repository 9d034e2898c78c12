"""Completion of values: what is completed by a function of primus.cli.complete, imported when a shell asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def later(name: str) -> Complete:
    """`shell_complete` of an option or argument. Whatever is wrong with what was typed so far, a shell gets nothing."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from primus.cli import complete as functions
        from primus.errors import PrimusError

        try:
            found: list[CompletionItem] = getattr(functions, name)(context, incomplete)
        except (PrimusError, OSError):
            return []
        return found

    return complete
