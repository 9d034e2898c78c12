"""From a file to an Experiment: module preset, model preset, overrides and command line, merged and checked.

Pure: reads files and the environment it is given; creates, writes and asks nothing.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from primus.errors import ConfigError, Problem
from primus.experiment import paths, schema
from primus.experiment.overrides import parse_overrides
from primus.experiment.substitute import expand, is_secret
from primus.experiment.tree import EMPTY, Key, Shadowed, append, leaves, load, merge
from primus.experiment.types import (
    ACCELERATORS,
    COMMAND_LINE,
    EXPERIMENT,
    MODEL_PRESET,
    MODULE_PRESET,
    STAGES,
    Experiment,
    Origin,
    Provenance,
    Template,
)
from primus.experiment.yaml import Map, Node, Scalar, scalar_value, untyped

_TOP = ("work_group", "user_name", "exp_name", "workspace", "accelerator", "env", "modules", "extends")
_REQUIRED = ("work_group", "user_name", "exp_name", "workspace")
_MODULE = ("framework", "config", "model", "overrides")


def load_experiment(
    path: Path | str,
    overrides: Iterable[str] = (),
    *,
    environ: Mapping[str, str] = os.environ,
    preset_dirs: Sequence[Path] = (),
    accelerator: str | None = None,
    allow_unknown: Iterable[str] = (),
    flags: tuple[str, ...] = (),
) -> Experiment:
    """The experiment in `path`, with command-line `overrides`, resolved and checked against its backend's arguments.

    `preset_dirs` hold `modules/<framework>/` and `models/<framework>/` and come before the package's own;
    `accelerator` beats the file's; `allow_unknown` names arguments to let through although the backend does not
    list them; `flags` are the caller's own option names, to recognise a misspelt one.
    Raises ConfigError with everything that is wrong, each with file, line and column.
    """
    path = Path(path)
    if not paths.is_file(path):
        message = "no such file" if not paths.exists(path) else f"is {'a directory' if path.is_dir() else 'no file'}"
        raise ConfigError(message, where=paths.shown(path), hint=_near_file(path))
    root = _root(path)
    shadowed: Shadowed = {}
    document = load(path, layer=EXPERIMENT, root=root, environ=environ, shadowed=shadowed)

    problems = [_unknown(key, document.keys[key], _TOP) for key in document.items if key not in _TOP]
    text = {key: _text(document, key, problems) for key in _REQUIRED}
    device = accelerator or _text(document, "accelerator", problems, default="rocm")
    if device not in ACCELERATORS:
        node = document.items.get("accelerator")
        problems.append(
            Problem(
                message=f"accelerator: {device!r} is none of {', '.join(ACCELERATORS)}",
                where=str(node.at) if node else "",
            )
        )
    env = _env(document, problems)
    module_name, module = _module(document, problems)
    if module is None or module_name is None:
        raise ConfigError(problems)

    framework = _text(module, "framework", problems, prefix=f"modules.{module_name}.")
    if framework not in schema.frameworks():
        at = module.items["framework"].at if "framework" in module.items else module.at
        if framework:
            problems.append(_unknown_name("framework", framework, schema.frameworks(), at))
        raise ConfigError(problems)
    table = schema.schema(framework)

    directories = (*preset_dirs, *_checkout(root))
    arg_shadowed: Shadowed = {}
    merged = EMPTY
    for kind, key, layer in (("modules", "config", MODULE_PRESET), ("models", "model", MODEL_PRESET)):
        if (node := module.items.get(key)) is not None and not _is_null(node):
            file, preset_root = _preset(kind, framework, node, f"modules.{module_name}.{key}", directories)
            inner: Shadowed = {}
            preset = load(file, layer=layer, root=preset_root, environ=environ, shadowed=inner)
            merged = merge(merged, preset, arg_shadowed)
            append(arg_shadowed, inner)
    own = module.items.get("overrides", EMPTY)
    if isinstance(own, Map):
        merged = merge(merged, own, arg_shadowed)
        place = ("modules", module_name, "overrides")
        append(arg_shadowed, {key[3:]: nodes for key, nodes in shadowed.items() if key[:3] == place})
    elif not _is_null(own):
        problems.append(Problem(message=f"modules.{module_name}.overrides: must be a mapping", where=str(own.at)))
    words = expand(parse_overrides(overrides), environ)
    assert isinstance(words, Map)
    merged = merge(merged, words, arg_shadowed)

    result = schema.typed(merged, table, allow=frozenset(allow_unknown), flags=flags)
    problems += result.problems
    if problems:
        raise ConfigError(sorted(problems, key=_place))
    return Experiment(
        **text,
        framework=framework,
        stage=STAGES[module_name],
        accelerator=device,
        args=result.args,
        env=env,
        origins=_origins(document, shadowed, merged, arg_shadowed, table),
        source=path,
        unknown=result.unknown,
    )


def _root(path: Path) -> Path:
    """The directory that `extends` may not leave: the nearest one above that marks a project, or the file's own."""
    start = paths.real(path).parent
    for directory in (start, *start.parents):
        if (directory / "primus.yaml").is_file() or (directory / ".git").exists():
            return directory
    return start


def package_presets() -> Path:
    """The presets that come with the package."""
    return Path(str(resources.files("primus") / "configs"))


def _checkout(root: Path) -> tuple[Path, ...]:
    """The presets of the user's own checkout, if the experiment lies in one."""
    folder = root / "primus" / "configs"
    return (folder,) if folder.is_dir() else ()


def _preset(kind: str, framework: str, node: Node, dotted: str, directories: Sequence[Path]) -> tuple[Path, Path]:
    if not isinstance(node, Scalar) or not node.text:
        raise ConfigError(f"{dotted}: must be the name of a preset", where=str(node.at))
    available: set[str] = set()
    for directory in (*directories, package_presets()):
        folder = directory / kind / framework
        file = folder / node.text
        if not paths.real(file).is_relative_to(paths.real(directory)):
            raise ConfigError(f"{dotted}: {node.text} leaves {paths.shown(directory)}", where=str(node.at))
        if paths.is_file(file):
            return file, directory
        available |= {item.name for item in folder.glob("*.yaml")} if folder.is_dir() else set()
    near = difflib.get_close_matches(node.text, available, 3, 0.5)
    raise ConfigError(
        f"{dotted}: there is no {kind}/{framework}/{node.text}",
        where=str(node.at),
        hint=f"nearest: {', '.join(near)}"
        if near
        else f"look in {package_presets() / kind / framework}, or name your own with --preset-dir",
    )


def _module(document: Map, problems: list[Problem]) -> tuple[str | None, Map | None]:
    modules = document.items.get("modules")
    if not isinstance(modules, Map) or not modules.items:
        where = str(modules.at if modules is not None else document.at)
        problems.append(
            Problem(message="modules: is missing", where=where, hint="say modules: {pre_trainer: {framework: ...}}")
        )
        return None, None
    for key in modules.items:
        if key not in STAGES:
            problems.append(_unknown(f"modules.{key}", modules.keys[key], tuple(f"modules.{name}" for name in STAGES)))
    known = [key for key in modules.items if key in STAGES]
    if len(known) != 1:
        if len(known) > 1:
            problems.append(
                Problem(
                    message="modules: has two trainers",
                    where=str(modules.keys[known[1]]),
                    hint="one experiment trains once; write a second file",
                )
            )
        return None, None
    module = modules.items[known[0]]
    if not isinstance(module, Map):
        problems.append(Problem(message=f"modules.{known[0]}: must be a mapping", where=str(module.at)))
        return None, None
    problems += [
        _unknown(f"modules.{known[0]}.{key}", module.keys[key], tuple(f"modules.{known[0]}.{name}" for name in _MODULE))
        for key in module.items
        if key not in _MODULE
    ]
    return known[0], module


def _env(document: Map, problems: list[Problem]) -> dict[str, str]:
    node = document.items.get("env")
    if node is None or _is_null(node):
        return {}
    if not isinstance(node, Map):
        problems.append(Problem(message="env: must be a mapping of names to values", where=str(node.at)))
        return {}
    result = {}
    for name, value in node.items.items():
        if not name.replace("_", "").isalnum() or name[0].isdigit():
            problems.append(
                Problem(message=f"env.{name}: is no name of an environment variable", where=str(node.keys[name]))
            )
        elif not isinstance(value, Scalar) or (scalar_value(value) is None and value.text):
            problems.append(Problem(message=f"env.{name}: must be text", where=str(value.at)))
        elif is_secret(name) and value.text and not isinstance(value.text, Template):
            problems.append(
                Problem(
                    message=f"env.{name}: a secret stands in the configuration",
                    where=str(value.at),
                    hint=f"export {name}; it is passed on by name",
                )
            )
        else:
            result[name] = value.text
    return result


def _text(node: Map, key: str, problems: list[Problem], *, default: str | None = None, prefix: str = "") -> str:
    value = node.items.get(key)
    if value is None or (default is not None and _is_null(value)):
        if default is None:
            problems.append(Problem(message=f"{prefix}{key}: is missing", where=str(node.at)))
        return default or ""
    if not isinstance(value, Scalar) or not value.text or _is_null(value):
        problems.append(Problem(message=f"{prefix}{key}: must be text", where=str(value.at)))
        return default or ""
    if key in ("work_group", "user_name", "exp_name") and ("/" in value.text or value.text in (".", "..")):
        problems.append(
            Problem(
                message=f"{key}: {value.text!r} names a directory of the run and cannot hold a '/'", where=str(value.at)
            )
        )
    if re.search("[\x00-\x1f\x7f]", value.text):
        problems.append(Problem(message=f"{prefix}{key}: cannot hold a control character", where=str(value.at)))
    if isinstance(value.text, Template):
        problems.append(Problem(message=f"{prefix}{key}: cannot hold a secret", where=str(value.at)))
    return value.text


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and scalar_value(node) is None


def _unknown(dotted: str, at: Origin, known: Iterable[str]) -> Problem:
    near = difflib.get_close_matches(dotted, list(known), 1, 0.6)
    listed = ", ".join(name.rsplit(".", 1)[-1] for name in known)
    hint = f"did you mean {near[0].rsplit('.', 1)[-1]!r}?" if near else f"known here: {listed}"
    return Problem(message=f"{dotted}: unknown key", where=str(at), hint=hint)


def _unknown_name(key: str, value: str, known: Sequence[str], at: Origin) -> Problem:
    near = difflib.get_close_matches(value, known, 1, 0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return Problem(message=f"{key}: there is no {value!r}", where=str(at), hint=f"{hint}there are: {', '.join(known)}")


def _place(problem: Problem) -> list[str]:
    """Sorts problems by file, then by line and column as numbers."""
    return [part.zfill(9) if part.isdigit() else part for part in problem.where.split(":")]


def _near_file(path: Path) -> str:
    names = [item.name for item in path.parent.glob("*.yaml") if item != path] if paths.exists(path.parent) else []
    near = difflib.get_close_matches(path.name, names, 1, 0.6)
    return f"did you mean {paths.shown(path.parent / near[0])}?" if near else ""


def _origins(
    document: Map, shadowed: Shadowed, args: Map, arg_shadowed: Shadowed, table: schema.Schema
) -> dict[str, Provenance]:
    """Every leaf's provenance by dotted key: top-level keys, env.NAME, and the arguments by the backend's names."""
    result: dict[str, Provenance] = {}

    def add(key: Key, node: Node, below: list[Node]) -> None:
        result[".".join(key)] = Provenance(origin=node.at, shadowed=tuple((untyped(item), item.at) for item in below))

    for key, node in leaves(document):
        if key[0] == "modules":
            if key[-1] == "framework":
                add(("framework",), node, shadowed.get(key, []))
        elif key[0] != "extends":
            add(key, node, shadowed.get(key, []))
    for key, node in _arguments(args, table):
        add(key, node, arg_shadowed.get(key, []))
    return result


def _arguments(node: Map, table: schema.Schema, at: Key = ()) -> Iterable[tuple[Key, Node]]:
    for key, value in node.items.items():
        here = (*at, key)
        if isinstance(value, Map) and ".".join(here) not in table.arguments:
            yield from _arguments(value, table, here)
        else:
            yield here, value


def flat(args: Mapping[str, Any], table: schema.Schema, prefix: str = "") -> dict[str, Any]:
    """Nested arguments by dotted name."""
    result: dict[str, Any] = {}
    for key, value in args.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and dotted not in table.arguments:
            result.update(flat(value, table, f"{dotted}."))
        else:
            result[dotted] = value
    return result


__all__ = ["COMMAND_LINE", "flat", "load_experiment", "package_presets"]
