"""Defaults for the options, from files: ~/.config/primus/config.yaml, then primus.yaml of the project."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from primus.errors import ConfigError, Problem
from primus.experiment.substitute import expand
from primus.experiment.types import Template
from primus.experiment.yaml import Map, Node, Scalar, Seq, read, scalar_value


def files() -> tuple[Path, ...]:
    """The settings files that exist, lowest first: the user's, then the nearest primus.yaml above this directory."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path(os.environ.get("HOME") or "/") / ".config")
    here = Path.cwd()
    named = (folder / "primus.yaml" for folder in (here, *here.parents))
    project = next(filter(os.path.lexists, named), None)
    # One that is there and is no file, or cannot be read, is an error: it was meant to be read.
    return tuple(path for path in (home / "primus" / "config.yaml", project) if path and os.path.lexists(path))


def with_settings(command: click.Command, sources: Callable[[], tuple[Path, ...]] = files) -> click.Command:
    """The command, its options' defaults taken from the settings files. Flags and PRIMUS_* variables beat them."""
    invoke = command.make_context

    def make_context(
        info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        # Help and completion are there, however wrong the settings are; and a task of a job was told everything.
        if {"-h", "--help", "--slurm-task"} & {*args} or extra.get("resilient_parsing"):
            return invoke(info_name, args, parent, **extra)
        from primus.cli.run import run  # its options are what can be set; other commands share some of them

        shared = {option.name for option in command.params}
        said = load(run, sources(), profile_of(args))
        found = {name: value for name, value in said.items() if name in shared}
        extra["default_map"] = {**found, **(extra.get("default_map") or {})}
        return invoke(info_name, args, parent, **extra)

    command.make_context = make_context  # type: ignore[method-assign]
    return command


def options_of(command: click.Command) -> dict[str, click.Option]:
    """The options that can be set, by the key of their setting."""
    return {
        _key(option): option
        for option in command.params
        if isinstance(option, click.Option)
        and option.name not in ("config", "from_env", "dry_run", "help", "record", "slurm_task", "image_id")
    }


def profile_of(args: list[str]) -> str | None:
    """What --profile, or its variable, says: the defaults of all other options depend on it."""
    for word, value in zip(args, [*args[1:], ""], strict=False):
        if word == "--profile" or word.startswith("--profile="):
            return value if word == "--profile" else word.partition("=")[2]
    return os.environ.get("PRIMUS_PROFILE") or None


def load(command: click.Command, paths: tuple[Path, ...], profile: str | None = None) -> dict[str, Any]:
    """The settings in `paths` that are options of `command`; the later file wins. Raises ConfigError for other keys."""
    return {name: said[-1][0] for name, said in layers(command, paths, profile).items()}


def layers(
    command: click.Command, paths: tuple[Path, ...], profile: str | None = None
) -> dict[str, list[tuple[Any, str]]]:
    """The name of each option that a file sets -> its values, each with its place; the last one wins."""
    options = options_of(command)
    problems: list[Problem] = []
    result: dict[str, list[tuple[Any, str]]] = {}
    for block in _blocks(paths, profile):
        for key, value in block.items.items():
            if key == "profiles":
                continue
            option = options.get(key.replace("-", "_"))
            if option is None:
                near = difflib.get_close_matches(key, options, 1, 0.6)
                hint = (
                    f"did you mean {near[0]!r}?"
                    if near
                    else f"settings are the options of primus run: {', '.join(sorted(options))}"
                )
                problems.append(Problem(message=f"{key}: unknown setting", where=str(block.keys[key]), hint=hint))
                continue
            if isinstance(value, Scalar) and scalar_value(value) is None:
                result.pop(str(option.name), None)  # as if no file had said it
                continue
            try:
                result.setdefault(str(option.name), []).append((_value(value, option), str(value.at)))
            except ValueError as error:
                problems.append(Problem(message=f"{key}: {error.args[0]}", where=str(value.at), hint=error.args[1]))
    if problems:
        raise ConfigError(problems)
    return result


def _blocks(paths: tuple[Path, ...], profile: str | None) -> list[Map]:
    """The files' own settings, the lowest first, and on top of them those of the profile, which a file may choose."""
    own = [node for path in paths if isinstance(node := expand(read(path, layer="settings"), os.environ), Map)]
    for block in own:
        chosen = block.items.get("profile")
        if profile is None and isinstance(chosen, Scalar):
            profile = chosen.text
    named: dict[str, list[Map]] = {}
    for block in own:
        groups = block.items.get("profiles")
        if groups is None:
            continue
        places = groups.items if isinstance(groups, Map) else {}
        wrong = [name for name, group in places.items() if not isinstance(group, Map)]
        if not isinstance(groups, Map) or wrong:
            raise ConfigError(
                f"profiles{f'.{wrong[0]}' if wrong else ''}: must be a mapping",
                where=str(block.keys["profiles"]),
                hint="write profiles: {NAME: {partition: gpu}}",
            )
        for name, group in places.items():
            assert isinstance(group, Map)
            named.setdefault(name, []).append(group)
    if profile and profile not in named:
        near = difflib.get_close_matches(profile, named, 1, 0.6)
        raise ConfigError(
            f"--profile {profile}: no settings file has it",
            hint=f"did you mean {near[0]!r}?" if near else f"there is {', '.join(sorted(named)) or 'none'}",
        )
    return [*own, *(named[profile] if profile else [])]


def _key(option: click.Option) -> str:
    """The option's setting: its own long name, --engine-arg as engine_arg."""
    return max(option.opts, key=len).removeprefix("--").replace("-", "_")


def _value(node: Node, option: click.Option) -> Any:
    items = node.items if isinstance(node, Seq) else (node,)
    if any(isinstance(item, Scalar) and isinstance(item.text, Template) for item in items):
        raise ValueError("cannot hold a secret", "variables are passed on by name: env: [HF_TOKEN]")
    if option.multiple:
        if not isinstance(node, Seq) or not all(isinstance(item, Scalar) for item in node.items):
            example = "[--cpus=1]" if option.name == "engine_args" else "[...]"
            raise ValueError("must be a list", f"write {_key(option)}: {example}")
        return tuple(item.text for item in node.items if isinstance(item, Scalar))
    if isinstance(node, (Map, Seq)):
        raise ValueError("must be one value", f"write {_key(option)}: VALUE")
    if option.is_flag:
        value = scalar_value(node)
        if not isinstance(value, bool):
            raise ValueError("must be true or false", f"write {_key(option)}: true")
        return value
    try:
        option.type.convert(node.text, option, None)  # click converts it again, but would not know the place
    except ConfigError as error:
        raise ValueError(error.problems[0].message, error.problems[0].hint) from error
    except click.BadParameter as error:
        raise ValueError(error.message.rstrip("."), f"see primus run --help on {max(option.opts, key=len)}") from error
    return node.text
