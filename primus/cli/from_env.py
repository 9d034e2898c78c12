"""primus run --from-env"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import click

from primus.cli import note

FLAG = "--from-env"


def with_from_env(command: click.Command) -> click.Command:
    """The command, with --from-env replaced by what the variables of upstream's packaged launchers say."""
    invoke = command.make_context

    def make_context(
        info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        mine = args[: args.index("--")] if "--" in args else args
        if FLAG in mine and not {"-h", "--help"} & {*mine} and not extra.get("resilient_parsing"):
            from primus.upstream.translation import shown
            from primus.upstream.variables import from_env

            made = from_env(os.environ, [word for word in args if word != FLAG], str(Path.cwd()))
            for name in made.unset:
                del os.environ[name]
            for text in made.notes:
                note(text)
            note(f"in the new form: {shlex.join(('primus', *shown(made.words)))}")
            args = list(made.words[1:])
        return invoke(info_name, args, parent, **extra)

    command.make_context = make_context  # type: ignore[method-assign]
    return command
