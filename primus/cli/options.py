"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from primus import shipped
from primus.cli import note
from primus.cli.later import later
from primus.errors import ConfigError
from primus.experiment.overrides import is_assignment
from primus.experiment.paths import exists
from primus.image.runtimes import ENGINES, RUNTIMES
from primus.node import MOST

F = TypeVar("F", bound=Callable[..., Any])

COUNT = click.IntRange(1, MOST)
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
_NAME = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REGISTRY = re.compile(rf"(?:{_NAME}|\[[0-9a-f:]+\])(?::[0-9]+)?(?:/{_NAME})*/?")


class _Registry(click.types.StringParamType):
    """HOST[:PORT][/PATH], as a part of an image's name: no address, no user, no capital letter."""

    name = "HOST[:PORT][/PATH]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value or _REGISTRY.fullmatch(value):
            return str(value)
        if "@" in value:  # and is not shown
            wrong, hint = "holds a user or a password", "write HOST[:PORT][/PATH]; docker login HOST asks for the rest"
        elif "://" in value:
            wrong, hint = f"{value!r} is an address", f"write {value.partition('://')[2].lower()}"
        elif _REGISTRY.fullmatch(value.lower()):
            wrong, hint = f"{value!r} has capital letters, which no image's name has", f"write {value.lower()}"
        else:
            wrong, hint = f"{value!r} is no registry", "write HOST[:PORT][/PATH], such as registry.example.com/team"
        raise ConfigError(f"{_said_as(param, ctx)}{wrong}", hint=hint)


class ExperimentFile(click.Path):
    """An experiment's file; where there is no examples/ here, examples/... is one that came with the package."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(str(super().convert(value, param, ctx)))
        there = None if exists(path) else shipped.instead(path)
        if there is not None and not (ctx and ctx.resilient_parsing):
            note(f"{path} is the one that came with Primus: {there}")
        if there is None and not exists(path):
            if str(value) in shipped.names():
                hint = f"primus examples copy {value} makes one"
                raise ConfigError("is the name of an example, not a file", where=str(value), hint=hint)
            if path.parts[:1] == ("examples",) and not exists(Path("examples")) and shipped.examples():
                shipped.find(str(value))  # says what is near
        return there or path


class _RunDir(click.Path):
    """A directory that has a name: what is empty would be the current one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "":
            raise ConfigError(f"{_said_as(param, ctx)}is empty", hint="name a directory, or leave it out")
        return super().convert(value, param, ctx)


def _said_as(param: click.Parameter | None, ctx: click.Context | None) -> str:
    """The option as the user wrote it, before a message: its flag or its variable; "" where a file says it."""
    if param is None or ctx is None:
        return ""
    source = ctx.get_parameter_source(str(param.name))
    if source is click.core.ParameterSource.ENVIRONMENT:
        return f"{param.envvar}: "
    return f"{max(param.opts, key=len)}: "


class _Engine(click.Choice[str]):
    """What keeps images. Settings that have runs use another runtime are no error: docker or podman is asked then."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        said = ctx.get_parameter_source(str(param.name)) if ctx is not None and param is not None else None
        if value in RUNTIMES and value not in ENGINES:
            if said is not click.core.ParameterSource.COMMANDLINE:
                note(f"engine: {value} keeps no images; docker or podman is asked, as --engine says")
                return None
            raise ConfigError(
                f"--engine {value}: keeps no images, its runs take them from files or a registry",
                hint="pass --engine docker or --engine podman; docs/runtimes.md says how a file is made of an image",
            )
        return super().convert(value, param, ctx)


RUN_DIR = click.option(
    "--run-dir",
    type=_RunDir(path_type=Path),
    metavar="DIR",
    help="[default: <workspace>/<work_group>/<user_name>/<exp_name>]",
)
REGISTRY = click.option(
    "--registry",
    type=_Registry(),
    default="",
    envvar="PRIMUS_REGISTRY",
    show_envvar=True,
    help="Where the images are; empty: this machine's own.",
)
ENGINE = click.option(
    "--engine",
    type=_Engine(ENGINES),
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
WORKSPACE = click.option(
    "--workspace",
    type=click.Path(path_type=Path),
    default=Path("output"),
    envvar="PRIMUS_WORKSPACE",
    show_envvar=True,
    show_default=True,
    help="Where to look for runs.",
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
OVERRIDES = click.argument(
    "overrides",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[KEY=VALUE | --KEY VALUE]...",
    shell_complete=later("overrides"),
)
# Beside files, an override is KEY=VALUE and no option: a misspelt one of ours would pass for it.
ASSIGNMENTS = click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=later("overrides"))
# Words that are no option of ours are overrides of the experiment's arguments.
PASS_UNKNOWN = {"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}


def without_assignments(ctx: click.Context, _param: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    """The words up to the first KEY=VALUE that is no file; the rest become the command's `overrides`."""
    first = next((at for at, word in enumerate(words) if is_assignment(word) and not exists(Path(word))), len(words))
    ctx.params["overrides"] = words[first:]
    return words[:first]


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
