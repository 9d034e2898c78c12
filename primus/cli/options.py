"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

ACCELERATOR = click.option(
    "--accelerator",
    type=click.Choice(["rocm", "cpu"]),
    envvar="PRIMUS_ACCELERATOR",
    show_envvar=True,
    help="Beats the experiment's own.  [default: rocm]",
)
TARGET = click.option(
    "--accelerator",
    type=click.Choice(["rocm", "cpu"]),
    default="rocm",
    show_default=True,
    envvar="PRIMUS_ACCELERATOR",
    show_envvar=True,
    help="What the image is for.",
)
REGISTRY = click.option(
    "--registry",
    default="",
    envvar="PRIMUS_REGISTRY",
    show_envvar=True,
    help="Where the images are; empty: this machine's own.",
)
ENGINE = click.option(
    "--engine",
    type=click.Choice(["docker", "podman"]),
    envvar="PRIMUS_ENGINE",
    show_envvar=True,
    help="[default: docker, or podman where only that is]",
)
RUNTIME = click.option(
    "--engine",
    type=click.Choice(["docker", "podman", "apptainer", "singularity", "pyxis"]),
    envvar="PRIMUS_ENGINE",
    show_envvar=True,
    help="What runs the container; pyxis under Slurm only.  [default: docker, or podman where only that is]",
)
PRESET_DIR = click.option(
    "--preset-dir",
    "preset_dirs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    envvar="PRIMUS_PRESET_DIR",
    show_envvar=True,
    help="Your presets: DIR/modules/<framework>/ and DIR/models/<framework>/ come before the package's.",
)
ALLOW_UNKNOWN = click.option(
    "--allow-unknown",
    multiple=True,
    metavar="KEY",
    help="Let an argument through that the backend is not known to take.",
)
OVERRIDES = click.argument("overrides", nargs=-1, type=click.UNPROCESSED, metavar="[KEY=VALUE | --KEY VALUE]...")
# Words that are no option of ours are overrides of the experiment's arguments.
PASS_UNKNOWN = {"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}


def option_names(command: click.Command) -> tuple[str, ...]:
    """The command's long options without their dashes, to recognise a misspelt one among the overrides."""
    words = (word for parameter in command.params for word in parameter.opts)
    return tuple(word.removeprefix("--") for word in words if word.startswith("--"))


def stack(*options: Callable[[F], F]) -> Callable[[F], F]:
    """The options as one decorator, shown in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


EXPERIMENT = stack(ACCELERATOR, REGISTRY, PRESET_DIR, ALLOW_UNKNOWN)
