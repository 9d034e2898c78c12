"""Upstream Primus' command line as ours: `primus-cli slurm srun -N 4 -- train pretrain --config X` as `primus run ...`.

Text to text: nothing is read or started here. The table says what each word becomes.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from primus.errors import ConfigError
from primus.experiment.substitute import looks_secret
from primus.launchers.environment import secret
from primus.upstream import hipblaslt, table
from primus.upstream.call import Call, Option, refused_command
from primus.upstream.options import Out, say_container, say_direct, say_slurm, say_variables

_SWITCHES = ("debug", "dry_run")  # of a file of settings
_DRY_RUN = "write it in front of the mode: primus-cli --dry-run ..."


@dataclass(frozen=True, kw_only=True)
class Translation:
    """The words of `primus`, what the user should know, and which half of training was asked for."""

    words: tuple[str, ...]
    notes: tuple[str, ...] = ()
    suite: str = ""
    config: str = ""


def translate(
    call: Call, *, file: Mapping[str, Sequence[Option]] | None = None, environ: Mapping[str, str], cwd: str
) -> Translation:
    """The call as words of `primus`. `file` is what upstream's file of settings says, section by section.

    Raises ConfigError with everything that has no counterpart.
    """
    below = file or {}
    given = {name: _merged(below.get(name, ()), said) for name, said in call.options.items()}
    switches = [option for name in ("main", call.mode) for option in below.get(name, ()) if option.name in _SWITCHES]
    out = Out(environ=environ)
    out.words += ["run", f"--launcher={call.mode}"]
    if call.mode == "slurm":
        say_slurm(out, given["slurm"], batch=call.batch)
        if call.entry == "direct":
            out.refuse("slurm ... -- direct", "on Slurm's nodes a training runs in its image", "leave out 'direct'")
    if call.entry == "container":
        say_container(out, given["container"])
    say_direct(out, given["direct"])
    say_variables(out, direct=call.entry == "direct")
    hipblaslt.say(out)
    if call.debug or _on_in(switches, "debug"):
        out.note(f"--debug is left out: {table.DEBUG.note}")
    if call.dry_run or _on_in(switches, "dry_run"):
        out.words.append("--dry-run")
    if not call.command:
        out.refuse(call.mode, "what to run is missing", f"primus-cli {call.mode} ... -- train pretrain --config FILE")
        raise ConfigError(out.problems)
    suite, config = _say_command(out, call, cwd)
    if out.left_out:
        out.note(f"left out, as it is so here or not needed: {', '.join(dict.fromkeys(out.left_out))}")
    if out.problems:
        raise ConfigError(out.problems)
    return Translation(words=tuple(out.words), notes=tuple(out.notes), suite=suite, config=config)


def _on_in(switches: Sequence[Option], name: str) -> bool:
    return any(option.name == name and option.value in ("true", "1") for option in switches)


def _merged(below: Sequence[Option], above: Sequence[Option]) -> list[Option]:
    """The file's options below the command line's: those that add up all count, of the others the last one."""
    result: list[Option] = []
    for option in (*(option for option in below if option.name not in _SWITCHES), *above):
        if option.name not in table.REPEATABLE:
            result = [other for other in result if other.name != option.name]
        result.append(option)
    return result


def _say_command(out: Out, call: Call, cwd: str) -> tuple[str, str]:
    """The training's own part: its file, and the overrides as KEY=VALUE, which no option of ours can be taken for."""
    words = list(call.command)
    while words and words[0] == "--debug":
        out.note(f"--debug is left out: {table.DEBUG.note}")
        words.pop(0)
    command = words.pop(0) if words else ""
    if command in table.COMMANDS:
        out.problems += refused_command(command).problems
        return "", ""
    if command == "--dry-run":
        out.refuse(command, "stands behind the --", _DRY_RUN)
        return "", ""
    if command != "train":
        near = difflib.get_close_matches(command, ("train", *table.COMMANDS), 1, 0.6)
        hint = f"did you mean {near[0]}?" if near else "write train pretrain --config FILE"
        out.refuse(command or "--", "there is no such command", hint)
        return "", ""
    suite = words.pop(0) if words and not words[0].startswith("-") else ""
    if suite not in ("pretrain", "posttrain"):
        why = "is neither pretrain nor posttrain" if suite else "pretrain or posttrain is missing"
        out.refuse(f"train {suite}".strip(), why, "write train pretrain --config FILE")
        return "", ""
    config, overrides = "", list[str]()
    while words:
        name, given, value = words.pop(0).strip().partition("=")
        if name in ("--config", "--exp", "--data_path", *(f"--{key}" for key in table.TRAIN)):
            if not given and words and not words[0].startswith("--"):
                given = value = words.pop(0)
            if name[2:] in table.TRAIN:
                out.apply(Option(name[2:], value or None, name), table.TRAIN)
            elif not value:
                out.refuse(name, "the value is missing", f"write {name} PATH")
            elif name == "--data_path":
                _say_data(out, value, call.entry, cwd)
            else:
                config = value
        elif name == "--dry-run":
            out.refuse(name, "stands behind the training's words", _DRY_RUN)
        elif name == "--debug" and not given:
            out.note(f"--debug is left out: {table.DEBUG.note}")
        elif given and name.lstrip("-"):
            overrides.append(f"{name.lstrip('-')}={literal(value.strip())}")
        elif name.startswith("--") and name != "--":
            value = words.pop(0) if words and not words[0].startswith("--") else "true"
            overrides.append(f"{name[2:]}={literal(value)}")
        elif name:
            out.refuse(repr(name), "is no override", "write KEY=VALUE or --KEY VALUE")
    if not config:
        file = next((word for word in call.command if word.endswith((".yaml", ".yml"))), "")
        hint = f"did you mean --config {file.rpartition('=')[2]}?" if file else "write --config FILE, the experiment"
        out.refuse(f"train {suite}", "--config is missing", hint)
    elif call.entry == "container" and (here := out.outside(config)) != config:
        out.note(f"--config {config} is read where you type: {here}")
        config = here
    out.words += ["--config", config, *overrides]
    return suite, config


def _say_data(out: Out, path: str, entry: str, cwd: str) -> None:
    """--data_path: a directory that the training sees, with Hugging Face's cache in it."""
    full = str(PurePosixPath(cwd) / path)
    if entry == "container" and not any(PurePosixPath(full).is_relative_to(target) for _, target in out.mounts):
        out.words.append(f"--mount={full}")
    if not out.environ.get("HF_HOME") and not any(word.startswith("--env=HF_HOME=") for word in out.words):
        out.words.append(f"--env=HF_HOME={full}/huggingface")


def literal(text: str) -> str:
    """A value that upstream reads as Python, as we read it: None, and lists with Python's quotes and constants."""
    if text == "None":
        return "null"
    if text[:1] in ("[", "(", "{"):
        try:
            return json.dumps(ast.literal_eval(text), ensure_ascii=False)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return text
    return text


def shown(words: Sequence[str]) -> tuple[str, ...]:
    """The words as they may be printed: credentials are names, without their values."""
    result = []
    for word in words:
        option, equals, rest = word.partition("=")
        name, assigned, value = rest.partition("=")
        if option == "--env" and assigned and (secret(name, value) or looks_secret(value)):
            result.append(f"--env={name}")
        elif looks_secret(word) or (equals and secret("_" + re.sub(r".*\.|^--", "", option).upper(), rest)):
            result.append(f"{option}=...")
        else:
            result.append(word)
    return tuple(result)
