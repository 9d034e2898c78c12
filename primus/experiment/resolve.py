"""From a file to an Experiment: module preset, model preset, overrides and command line, merged and checked.

Pure: reads files and the environment it is given; creates, writes and asks nothing.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from primus.errors import ConfigError, Problem
from primus.experiment import paths, rules, schema
from primus.experiment.document import read_document
from primus.experiment.overrides import parse_overrides
from primus.experiment.presets import find_preset
from primus.experiment.substitute import expand
from primus.experiment.tree import EMPTY, Key, Shadowed, append, leaves, load, merge, unfold
from primus.experiment.types import EXPERIMENT, MODEL_PRESET, MODULE_PRESET, STAGES, Experiment, Provenance
from primus.experiment.yaml import Map, Node, untyped


def load_experiment(
    path: Path | str,
    overrides: Iterable[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
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
    environ = os.environ if environ is None else environ  # no default: help() would show everybody what it holds
    path = Path(path)
    if not paths.is_file(path):
        message = f"is {'a directory' if path.is_dir() else 'no file'}" if paths.exists(path) else paths.absent(path)
        raise ConfigError(message, where=paths.shown(path), hint=_near_file(path))
    root = _root(path)
    shadowed: Shadowed = {}
    document = load(path, layer=EXPERIMENT, root=root, environ=environ, shadowed=shadowed)

    said, problems = read_document(document, accelerator)
    table = schema.schema(said.framework)

    directories = (*preset_dirs, *_checkout(root))
    merged = EMPTY
    arg_shadowed: Shadowed = {}
    for kind, key, node, layer in (
        ("modules", "config", said.config, MODULE_PRESET),
        ("models", "model", said.model, MODEL_PRESET),
    ):
        if node is not None:
            file, tree = find_preset(kind, said.framework, node, f"modules.{said.module}.{key}", directories)
            inner: Shadowed = {}
            preset = load(file, layer=layer, root=tree, environ=environ, shadowed=inner)
            merged = merge(merged, unfold(preset, table.unfold), arg_shadowed)
            append(arg_shadowed, inner)
    merged = merge(merged, unfold(said.overrides, table.unfold), arg_shadowed)
    place = ("modules", said.module, "overrides")  # what the files this experiment extends said there
    append(arg_shadowed, {key[3:]: nodes for key, nodes in shadowed.items() if key[:3] == place})
    words = expand(parse_overrides(overrides), environ)
    assert isinstance(words, Map)
    merged = merge(merged, unfold(words, table.unfold), arg_shadowed)

    result = schema.typed(merged, table, allow=frozenset(allow_unknown), flags=flags)
    problems += result.problems
    origins = _origins(document, shadowed, merged, arg_shadowed, table)
    if not result.problems:
        problems += rules.broken(flat(result.args, table), table, said.accelerator, STAGES[said.module], origins)
    if problems:
        raise ConfigError(sorted(problems, key=_place))
    return Experiment(
        **said.text,
        framework=said.framework,
        stage=STAGES[said.module],
        accelerator=said.accelerator,
        args=result.args,
        env=said.env,
        origins=origins,
        source=path,
        unknown=result.unknown,
    )


def _root(path: Path) -> Path:
    """The directory that `extends` may not leave: the nearest one above that marks a project, or the file's own."""
    start = paths.real(path).parent
    for directory in (start, *start.parents):
        if paths.is_file(directory / "primus.yaml") or paths.exists(directory / ".git"):
            return directory
    return start


def _checkout(root: Path) -> tuple[Path, ...]:
    """The presets of the user's own checkout, if the experiment lies in one."""
    folder = root / "primus" / "configs"
    return (folder,) if folder.is_dir() else ()


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
        if isinstance(value, Map) and _is_section(".".join(here), table):
            yield from _arguments(value, table, here)
        else:
            yield here, value


def _is_section(dotted: str, table: schema.Schema) -> bool:
    """Whether a mapping there holds arguments, and is not the value of one; a section may be an argument besides."""
    return dotted in table.sections or dotted not in table.arguments


def flat(args: Mapping[str, Any], table: schema.Schema, prefix: str = "") -> dict[str, Any]:
    """Nested arguments by dotted name."""
    result: dict[str, Any] = {}
    for key, value in args.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and _is_section(dotted, table):
            result.update(flat(value, table, f"{dotted}."))
        else:
            result[dotted] = value
    return result
