"""Upstream Primus' command line taken apart: `primus-cli slurm srun -N 4 -- train pretrain --config X`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from primus.errors import ConfigError
from primus.launchers.jobscript import SHORT
from primus.upstream import table

MODES = ("direct", "container", "slurm")
_COMMON_FLAGS = frozenset({"debug", "dry-run"})


class Option(NamedTuple):
    """One option as it was written; in a file, where."""

    name: str
    value: str | None
    said: str
    where: str = ""

    def __str__(self) -> str:
        return self.said if self.value is None else f"{self.said} {self.value}"


@dataclass(frozen=True, kw_only=True)
class Call:
    """Upstream's command line, taken apart."""

    mode: str
    entry: str  # what runs the training on a machine: container or direct
    settings: str | None = None  # --config in front of the mode
    dry_run: bool = False
    debug: bool = False
    batch: bool = False  # slurm sbatch, not srun
    options: Mapping[str, tuple[Option, ...]]  # slurm, container, direct
    command: tuple[str, ...]


def parse(argv: Sequence[str]) -> Call:
    """Upstream's words, by the part that they belong to. Raises ConfigError where they are none of its grammar."""
    found, words, separated = _scan(argv, flags=_COMMON_FLAGS)
    for option in found:
        if option.name not in ("config", *_COMMON_FLAGS):
            raise _unknown(option.said, ("--config", "--debug", "--dry-run", "--version", "--help"), "the mode")
    if not words or separated:
        raise ConfigError("the mode is missing", hint="primus-cli direct|container|slurm ... -- train pretrain ...")
    mode, *words = words
    if mode in table.COMMANDS or mode == "train":
        if mode == "deps":
            raise refused_command(mode)
        raise ConfigError(
            f"{mode}: the mode is missing in front of it", hint=f"primus-cli direct|container|slurm ... -- {mode} ..."
        )
    if mode not in MODES:
        near = difflib.get_close_matches(mode, MODES, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else f"the modes are {', '.join(MODES)}"
        raise ConfigError(f"{mode}: there is no such mode", hint=hint)
    options: dict[str, list[Option]] = {"common": [*found], "slurm": [], "container": [], "direct": []}
    entry, batch = mode, False
    if mode == "slurm":
        words, batch = _slurm(words, options["slurm"])
        entry = words.pop(0) if words and words[0] in ("container", "direct") else "container"
    if entry == "container":
        taken, words, _ = _scan(
            words, flags=table.CONTAINER_FLAGS | _COMMON_FLAGS, shorts={}, never=table.CONTAINER_SHORT
        )
        options["container"] += taken
    taken, words, _ = _scan(words, flags=table.DIRECT_FLAGS | _COMMON_FLAGS)
    options["direct"] += taken
    common = [option for part in options.values() for option in part if option.name in ("config", *_COMMON_FLAGS)]
    files = [option for option in common if option.name == "config"]
    if any(option.value is None for option in files):
        raise ConfigError("--config: the file is missing", hint="write --config FILE")
    return Call(
        mode=mode,
        entry=entry,
        settings=files[-1].value if files else None,
        dry_run=any(option.name == "dry-run" for option in common),
        debug=any(option.name == "debug" for option in common),
        batch=batch,
        options={
            name: tuple(option for option in part if option not in common)
            for name, part in options.items()
            if name != "common"
        },
        command=tuple(words),
    )


def _slurm(words: list[str], options: list[Option]) -> tuple[list[str], bool]:
    """Slurm's options up to the --; what stands behind it, and whether sbatch was asked for."""
    batch, chosen = False, False
    while True:
        taken, words, separated = _scan(words, flags=table.SLURM_FLAGS | _COMMON_FLAGS, shorts=SHORT, value="-")
        options += taken
        if separated and words:
            return words, batch
        if not words:
            raise ConfigError("slurm: what to run is missing", hint="primus-cli slurm ... -- train pretrain ...")
        if words[0] not in ("srun", "sbatch") or chosen:
            raise ConfigError(
                f"{words[0]!r} stands among Slurm's options and is none", hint="write -- in front of what is to run"
            )
        batch, chosen, words = words[0] == "sbatch", True, words[1:]


def _scan(
    words: Sequence[str],
    *,
    flags: frozenset[str],
    shorts: Mapping[str, str] | None = None,
    never: Mapping[str, str] | None = None,
    value: str = "--",
) -> tuple[list[Option], list[str], bool]:
    """Options up to -- or the first word that is none; the rest, and whether there was a --.

    As upstream has it: the next word is an option's value unless it begins with `value`.
    """
    left, options = list(words), list[Option]()
    while left:
        word = left.pop(0)
        if word == "--":
            return options, left, True
        if not word.startswith("-") or word == "-":
            return options, [word, *left], False
        if word.startswith("--"):
            name, given, text = word[2:].partition("=")
            said = f"--{name}"
        else:
            said, text = word[:2], word[2:]
            name, given = (shorts or {}).get(said[1], ""), text
            if not name:
                long = (never or {}).get(said[1])
                raise ConfigError(
                    f"{said}: upstream knows no such option", hint=f"write --{long}" if long else "write its long name"
                )
            if name in flags and text:  # -vv
                left.insert(0, f"-{text}")
                given = text = ""
        if not given and name not in flags and left and left[0] != "--" and not left[0].startswith(value):
            given = text = left.pop(0)
            options.append(Option(name, text, said))
        else:
            options.append(Option(name, text if given else None, said))
    return options, [], False


def refused_command(command: str) -> ConfigError:
    why, hint = table.COMMANDS[command]
    return ConfigError(f"{command}: {why}", hint=hint)


def _unknown(said: str, known: Sequence[str], place: str) -> ConfigError:
    near = difflib.get_close_matches(said, known, 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else f"in front of {place} stand {', '.join(known)}"
    return ConfigError(f"{said}: upstream knows no such option there", hint=hint)
