"""Slurm's compact lists of hosts, as in SLURM_JOB_NODELIST."""

from __future__ import annotations

import re
from itertools import product
from math import prod

from primus.errors import LaunchError

_ITEM = re.compile(r"(?:[^\s,\[\]]|\[[0-9,-]+\])+")
_PART = re.compile(r"\[([0-9,-]+)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_MOST = 1_000_000  # more than any cluster has: a list of more is a mistake, and would fill the memory


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
        if prod(map(len, parts)) + len(found) > _MOST:
            raise LaunchError(f"{text[:80]!r} names more than {_MOST:,} hosts")
        found += ("".join(words) for words in product(*parts))
    return tuple(found)


def _numbers(ranges: str, text: str) -> list[str]:
    """The numbers of "08-10,12", padded like the first of each range."""
    numbers = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise LaunchError(f"{text!r} is no list of hosts of Slurm's: {part!r} is no range")
        if int(match[2] or match[1]) - int(match[1]) >= _MOST:
            raise LaunchError(f"{text[:80]!r} names more than {_MOST:,} hosts")
        numbers += [str(number).zfill(len(match[1])) for number in range(int(match[1]), int(match[2] or match[1]) + 1)]
    return numbers
