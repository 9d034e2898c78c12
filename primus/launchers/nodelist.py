"""Slurm's compact lists of hosts, as in SLURM_JOB_NODELIST."""

from __future__ import annotations

import re
from itertools import product

from primus.errors import LaunchError

_ITEM = re.compile(r"(?:[^\s,\[\]]|\[[0-9,-]+\])+")
_PART = re.compile(r"\[([0-9,-]+)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def hosts(text: str) -> tuple[str, ...]:
    """The hosts in their order, as `scontrol show hostnames` gives them: "n[08-10],x" is n08, n09, n10, x.

    https://slurm.schedmd.com/scontrol.html#OPT_hostnames. Raises LaunchError for a text that is no such list.
    """
    found: list[str] = []
    items = _ITEM.findall(text)
    if ",".join(items) != text or not items:
        raise LaunchError(f"{text!r} is no list of hosts of Slurm's")
    for item in items:
        parts = [[name] if name else _numbers(ranges, text) for ranges, name in _PART.findall(item)]
        found += ("".join(words) for words in product(*parts))
    return tuple(found)


def _numbers(ranges: str, text: str) -> list[str]:
    """The numbers of "08-10,12", padded like the first of each range."""
    numbers = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise LaunchError(f"{text!r} is no list of hosts of Slurm's: {part!r} is no range")
        numbers += [str(number).zfill(len(match[1])) for number in range(int(match[1]), int(match[2] or match[1]) + 1)]
    return numbers
