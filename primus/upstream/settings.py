"""Upstream Primus' file of settings (.primus.yaml, or --config in front of the mode) as options of its command line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from primus.errors import ConfigError, Problem
from primus.experiment.yaml import Map, Node, Scalar, Seq, read
from primus.launchers.environment import forwarded
from primus.launchers.jobscript import SHORT
from primus.upstream import table
from primus.upstream.call import Option
from primus.upstream.options import Out, say_container, say_direct, say_slurm
from primus.upstream.translation import shown

_SWITCHES = ("debug", "dry_run")
_LISTS = ("mount", "env", "engine_arg", "sbatch_arg")  # our options that are given several times
SECTIONS = ("main", "slurm", "container", "direct")
_KEYS = {"container": ("options",), "direct": ("env", *table.DIRECT)}


def options(path: Path) -> dict[str, list[Option]]:
    """What the file says, by section. Raises ConfigError with everything that upstream would not read either."""
    node = read(path, layer="settings")
    problems: list[Problem] = []
    result: dict[str, list[Option]] = {name: [] for name in SECTIONS}
    if "modules" in node.items:
        raise ConfigError(
            f"{path}: is an experiment, and no file of upstream's settings",
            hint=f"write train pretrain --config {path}",
        )
    for name, section in node.items.items():
        where = str(node.keys[name])
        if name not in SECTIONS:
            problems.append(_unknown(name, SECTIONS, where))
        elif isinstance(section, Map):
            result[name] = _section(name, section, problems)
        elif not (isinstance(section, Scalar) and section.text == ""):
            problems.append(Problem(message=f"{name}: must be a mapping", where=str(section.at)))
    if problems:
        raise ConfigError(problems)
    return result


def _section(name: str, section: Map, problems: list[Problem]) -> list[Option]:
    result: list[Option] = []
    for key, value in section.items.items():
        said, where = f"{name}.{key}", str(section.keys[key])
        known = (*_SWITCHES, *_KEYS.get(name, ()))
        if key in _SWITCHES:
            result += _option(key, value, said, problems)
        elif name == "slurm":  # all that srun and sbatch take
            result += _option(SHORT.get(key, key.replace("_", "-")), value, said, problems)
        elif key not in known or (key == "options" and not isinstance(value, Map)):
            problems.append(_unknown(said, [f"{name}.{word}" for word in known], where))
        elif isinstance(value, Map) and key == "options":  # all that docker run takes
            for option, inner in value.items.items():
                result += _option(option, inner, f"{said}.{option}", problems)
        else:
            result += _option(key, value, said, problems)
    return result


def _option(name: str, value: Node, said: str, problems: list[Problem]) -> Sequence[Option]:
    """One for each value: an empty list is none, an empty value or true is a flag."""
    items = value.items if isinstance(value, Seq) else (value,)
    if not all(isinstance(item, Scalar) for item in items):
        problems.append(Problem(message=f"{said}: must be a value or a list of values", where=str(value.at)))
        return ()
    flag = name in table.SLURM_FLAGS or name in table.CONTAINER_FLAGS
    result = []
    for item in items:
        assert isinstance(item, Scalar)
        empty = item.text == "" or (flag and item.text in ("true", "1"))
        if flag and item.text == "false":
            continue
        if item.text == "" and not flag and not said.startswith("slurm."):
            continue  # log_file: ""
        result.append(Option(name, None if empty else item.text, said, str(item.at)))
    return result


def _unknown(said: str, known: Sequence[str], where: str) -> Problem:
    near = difflib.get_close_matches(said, known, 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else f"upstream reads {', '.join(known)}"
    return Problem(message=f"{said}: upstream does not read it", where=where, hint=hint)


def found(settings: str | None, environ: Mapping[str, str]) -> Path | None:
    """The file that upstream would read: the one that is named, else ~/.primus.yaml."""
    if settings is not None:
        return Path(settings)
    home = environ.get("HOME")
    own = Path(home) / ".primus.yaml" if home else None
    return own if own is not None and own.is_file() else None


def as_ours(file: Mapping[str, Sequence[Option]]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The file as settings of `primus run`, and what the user should know.

    Raises ConfigError with everything that has no counterpart.
    """
    out = Out(environ={})
    sections = {name: [option for option in found if option.name not in _SWITCHES] for name, found in file.items()}
    say_slurm(out, sections["slurm"], batch=True)
    say_container(out, sections["container"])
    say_direct(out, sections["direct"])
    bare = [option for name in ("container", "direct") for option in sections[name] if option.name == "env"]
    names = [str(option.value) for option in bare if "=" not in str(option.value)]
    if asked := [
        name for name in names if name not in (*table.SWITCHES, "DOCKER_IMAGE") and not forwarded({name: "x"})
    ]:
        out.note(f"may be unset, so it is no setting: --env {', --env '.join(dict.fromkeys(asked))}")
    result: dict[str, Any] = {}
    for word in out.words:
        option, given, text = word.removeprefix("--").partition("=")
        key = option.replace("-", "_")
        value: Any = int(text) if text.isdecimal() else text if given else True
        if key in _LISTS:
            result.setdefault(key, []).append(text)
        else:
            result[key] = value
        if key == "env" and shown([word]) != (word,):
            out.refuse("env", f"{text.partition('=')[0]} is a credential", "export it; it is passed on by name")
    if out.problems:
        raise ConfigError(out.problems)
    return result, tuple(out.notes)
