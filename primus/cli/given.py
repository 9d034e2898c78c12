"""What a command line gives, cleaned and checked before anything is made of it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from primus.cli import note
from primus.cli.signing import PASSWORD
from primus.command import Command
from primus.errors import ConfigError
from primus.experiment import Experiment
from primus.experiment.substitute import looks_secret
from primus.launchers.environment import clean_secrets, secret
from primus.node import gfx_targets


def warn_of_memory(experiment: Experiment, gpus: int) -> None:
    """Say so if the GPUs' memory looks too small; nothing where the model or the GPU is not known."""
    from primus.models.memory import GIB
    from primus.models.report import report

    if experiment.accelerator != "rocm":
        return
    here = gfx_targets()
    try:
        found = report(experiment, gpus=gpus, gfx=here[0] if here else "")
    except ValueError:
        return
    if found.exceeds:
        note(
            f"needs about {found.memory.total / GIB:.0f} GiB on each of {found.layout.gpus} GPUs, "
            f"and an {found.sku} has {found.has}; primus config explain {experiment.source} says for what"
        )


def take_env(words: tuple[str, ...]) -> tuple[str, ...]:
    """The names in --env NAME[=VALUE]; a value goes into our own environment, from where it is passed on by name."""
    names = []
    for word in words:
        name, assigned, value = word.partition("=")
        if not name.isidentifier():
            raise ConfigError(f"--env {word.split('=')[0]!r}: is no name of a variable")
        if assigned:
            os.environ[name] = value
        elif name not in os.environ:
            raise ConfigError(f"--env {name}: is not set here", hint=f"export {name}, or write --env {name}=VALUE")
        if not secret(name, "") and looks_secret(os.environ[name]):
            raise ConfigError(f"--env {name}: holds a credential", hint=f"name it {name}_TOKEN: then it stays secret")
        names.append(name)
    return tuple(dict.fromkeys(names))


def clean_environment() -> tuple[str, ...]:
    """Clean our own environment of what no training may get, and say what else was changed."""
    os.environ.pop(PASSWORD, None)  # of the key that signs: it is for those commands alone
    cleaned, notes = clean_secrets(os.environ)
    for name in set(os.environ) - set(cleaned):
        del os.environ[name]
    os.environ.update(cleaned)
    return notes


def checkout() -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "primus" / "_version.py").is_file():
            return folder / "primus"
    raise ConfigError("--dev: this directory is in no checkout of Primus", hint="run it from inside one")


def print_commands(commands: list[tuple[str, Command]]) -> None:
    """Every command as one shell-quoted line, then every file it would write."""
    files: dict[Path, str] = {}
    for title, command in commands:
        click.echo(f"# {title}\n{command}")
        files |= command.files
    for path, text in files.items():
        click.echo(f"\n# file: {path}\n{text}", nl=False)
