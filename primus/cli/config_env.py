"""primus config env"""

from __future__ import annotations

import os

import click

from primus.errors import ConfigError
from primus.experiment.paths import absent, exists
from primus.launchers.container import path_in
from primus.launchers.environment import forwarded, secret, verdict


@click.command("env", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[NAME]...")
def env(names: tuple[str, ...]) -> None:
    """Say whether a variable of yours reaches the container, and why; without NAME, all that do.

    An experiment's own env: and --env NAME=VALUE always do.
    """
    for name in names:
        if not name.isidentifier():
            raise ConfigError(f"{name!r}: is no name of a variable", hint="name it alone: primus config env NCCL_DEBUG")
    shown = names or forwarded(os.environ)
    width = max(map(len, shown), default=0)
    for name in shown:
        click.echo(f"{name:<{width}}  {_line(name, os.environ.get(name))}")


def _line(name: str, value: str | None) -> str:
    passed, why = verdict(name, value)
    if not passed:
        return f"not forwarded: {why}"
    if secret(name, value or ""):
        return f"forwarded as a secret, on the container's standard input: {why}"
    path = path_in(name, value or "")
    if path is None:
        return f"forwarded: {why}"
    if not exists(path):
        return f"refused: {path} {absent(path)} here, so that the container cannot have it"
    return f"forwarded: {why}; {path} is mounted"
