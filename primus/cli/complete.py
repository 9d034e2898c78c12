"""What a shell may complete: files and examples, override keys of the experiment's backend, runs, profiles."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from primus import shipped
from primus.cli import settings
from primus.experiment import paths
from primus.experiment.schema import Schema, frameworks, schema
from primus.experiment.tree import extended
from primus.experiment.types import EXPERIMENT
from primus.experiment.yaml import Map, Scalar, read
from primus.record import records

_MOST = 40  # runs


def _items(values: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(value) for value in values if value.startswith(incomplete)]


def config_file(_context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Files; and where there is no examples/ here, the package's by the same paths."""
    root = shipped.examples()
    if root is None or Path("examples").exists() or not (incomplete and "examples/".startswith(incomplete[:9])):
        return [CompletionItem(incomplete, type="file")]
    files = (f"examples/{path.relative_to(root)}" for path in shipped.names().values())
    return _items(files, incomplete)


def example_names(_context: click.Context, incomplete: str) -> list[CompletionItem]:
    return _items(shipped.names(), incomplete)


def overrides(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """KEY= of the backend that the experiment is for; behind KEY=, the values that it can have."""
    file = context.params.get("config") or context.params.get("file")
    framework = framework_of(Path(file)) if file else ""
    if framework not in frameworks():
        return []
    table = schema(framework)
    key, assigned, text = incomplete.partition("=")
    dashes = "--" if key.startswith("--") else ""
    key = key.removeprefix("--")
    if assigned:
        return _items((f"{dashes}{key}={value}" for value in _values(key, table)), f"{dashes}{key}={text}")
    return _items(_keys(key, table, dashes), f"{dashes}{key}")


def _keys(key: str, table: Schema, dashes: str) -> list[str]:
    """The next parts of keys only, as a shell does with directories, unless no more than a few are left."""
    all_ = [name for name in table.arguments if name.startswith(key)]
    if len(all_) <= _MOST:
        return [f"{dashes}{name}=" for name in all_]
    depth = key.count(".")
    parts = dict.fromkeys(".".join(name.split(".")[: depth + 1]) for name in all_)
    return [f"{dashes}{part}" + ("=" if part in table.arguments else ".") for part in parts]


def _values(key: str, table: Schema) -> list[str]:
    argument = table.arguments.get(key)
    if argument is None:
        return []
    if argument.choices:
        return [str(choice) for choice in argument.choices if choice is not None]
    return ["true", "false"] if "bool" in argument.type.split(" | ") else []


def framework_of(path: Path, depth: int = 8) -> str:
    """The framework that the file, or one that it extends, names; "" if none does."""
    path = shipped.instead(path) or path
    if not paths.is_file(path):
        return ""
    node = read(path, EXPERIMENT)
    modules: Any = node.items.get("modules")
    for module in modules.items.values() if isinstance(modules, Map) else ():
        said = module.items.get("framework") if isinstance(module, Map) else None
        if isinstance(said, Scalar):
            return said.text
    below = (framework_of(path.parent / name, depth - 1) for name, _ in reversed(extended(node)) if depth)
    return next((name for name in below if name), "")


def runs(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """The newest runs' identifiers and experiments' names below the workspace, and directories."""
    where = paths.absolute(context.params.get("workspace") or "output")
    newest = sorted(records(where), key=lambda one: one.path.name, reverse=True)[:_MOST]
    about = [one.read("run.json") for one in newest]
    words = dict.fromkeys(str(one[key]) for key in ("exp_name", "run_id") for one in about if one.get(key))
    return _items(words, incomplete) or [CompletionItem(incomplete, type="dir")]


def profiles(_context: click.Context, incomplete: str) -> list[CompletionItem]:
    """The names below `profiles` in the settings files."""
    groups = [read(path, "settings").items.get("profiles") for path in settings.files()]
    return _items(dict.fromkeys(name for one in groups if isinstance(one, Map) for name in one.items), incomplete)
