"""The frame of an experiment: its own keys, and the one module with framework, presets and overrides."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from primus.errors import ConfigError, Problem
from primus.experiment import paths, schema
from primus.experiment.substitute import is_secret
from primus.experiment.tree import EMPTY
from primus.experiment.types import ACCELERATORS, STAGES, Origin, Template
from primus.experiment.yaml import Map, Node, Scalar, scalar_value

REQUIRED = ("work_group", "user_name", "exp_name", "workspace")
TOP = (*REQUIRED, "accelerator", "env", "modules", "extends")
MODULE = ("framework", "config", "model", "overrides")


@dataclass(frozen=True, kw_only=True)
class Document:
    """What the experiment's file says outside of the backend's arguments."""

    text: Mapping[str, str]  # by the names in REQUIRED
    accelerator: str
    env: Mapping[str, str]
    module: str  # pre_trainer or post_trainer
    framework: str
    config: Node | None
    model: Node | None
    overrides: Map


def read_document(node: Map, accelerator: str | None) -> tuple[Document, list[Problem]]:
    """The document, and what is wrong with it. Raises ConfigError if that is so much that nothing can follow."""
    problems = [unknown_key(key, node.keys[key], TOP) for key in node.items if key not in TOP]
    text = {key: _text(node, key, problems) for key in REQUIRED}
    device = accelerator or _text(node, "accelerator", problems, default="rocm")
    if device not in ACCELERATORS:
        where = str(node.items["accelerator"].at) if "accelerator" in node.items else ""
        problems.append(Problem(message=f"accelerator: {device!r} is none of {', '.join(ACCELERATORS)}", where=where))
    env = _env(node, problems)
    name, module = _module(node, problems)
    if module is None or name is None:
        raise ConfigError(problems)
    framework = _text(module, "framework", problems, prefix=f"modules.{name}.")
    if framework not in schema.frameworks():
        if framework:
            problems.append(_unknown_name("framework", framework, schema.frameworks(), module.items["framework"].at))
        raise ConfigError(problems)
    overrides = module.items.get("overrides", EMPTY)
    if not isinstance(overrides, Map):
        if not is_null(overrides):
            problems.append(Problem(message=f"modules.{name}.overrides: must be a mapping", where=str(overrides.at)))
        overrides = EMPTY
    presets = {
        key: None if (value := module.items.get(key)) is None or is_null(value) else value
        for key in ("config", "model")
    }
    document = Document(
        text=text, accelerator=device, env=env, module=name, framework=framework, overrides=overrides, **presets
    )
    return document, problems


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
            problems.append(
                unknown_key(f"modules.{key}", modules.keys[key], tuple(f"modules.{name}" for name in STAGES))
            )
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
        unknown_key(
            f"modules.{known[0]}.{key}", module.keys[key], tuple(f"modules.{known[0]}.{name}" for name in MODULE)
        )
        for key in module.items
        if key not in MODULE
    ]
    return known[0], module


def _env(document: Map, problems: list[Problem]) -> dict[str, str]:
    node = document.items.get("env")
    if node is None or is_null(node):
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
    if value is None or (default is not None and is_null(value)):
        if default is None:
            problems.append(Problem(message=f"{prefix}{key}: is missing", where=str(node.at)))
        return default or ""
    if not isinstance(value, Scalar) or not value.text or is_null(value):
        problems.append(Problem(message=f"{prefix}{key}: must be text", where=str(value.at)))
        return default or ""
    if key in ("work_group", "user_name", "exp_name") and ("/" in value.text or value.text in (".", "..")):
        problems.append(
            Problem(
                message=f"{key}: {value.text!r} names a directory of the run and cannot hold a '/'", where=str(value.at)
            )
        )
    elif key in REQUIRED and (wrong := paths.unfit(value.text)):
        problems.append(Problem(message=f"{key}: {value.text[:40]!r} {wrong}", where=str(value.at)))
    elif re.search("[\x00-\x1f\x7f]", value.text):
        problems.append(Problem(message=f"{prefix}{key}: cannot hold a control character", where=str(value.at)))
    if isinstance(value.text, Template):
        problems.append(Problem(message=f"{prefix}{key}: cannot hold a secret", where=str(value.at)))
    return value.text


def is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and scalar_value(node) is None


def unknown_key(dotted: str, at: Origin, known: Iterable[str]) -> Problem:
    near = difflib.get_close_matches(dotted, list(known), 1, 0.6)
    listed = ", ".join(name.rsplit(".", 1)[-1] for name in known)
    hint = f"did you mean {near[0].rsplit('.', 1)[-1]!r}?" if near else f"known here: {listed}"
    return Problem(message=f"{dotted}: unknown key", where=str(at), hint=hint)


def _unknown_name(key: str, value: str, known: Sequence[str], at: Origin) -> Problem:
    near = difflib.get_close_matches(value, known, 1, 0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return Problem(message=f"{key}: there is no {value!r}", where=str(at), hint=f"{hint}there are: {', '.join(known)}")
