"""The matrix products that hipBLASLt logged, each once, with how often it was asked for.

With HIPBLASLT_LOG_MASK=32 the library writes, for each product, the command line of hipblaslt-bench that repeats it:
https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/how-to/how-to-use-hipblaslt-offline-tuning.html
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from primus.errors import ConfigError

FILE = "shapes.txt"  # in the directory of the logs: a line is a number, a tab, and the command line
_TOOL = "hipblaslt-bench"
# What decides the kernel, and so must be there: the fields by which hipBLASLt finds a tuned product again
# (ProblemOverride in its UserDrivenTuningParser.hpp).
_NUMBERS = ("-m", "-n", "-k", "--batch_count")
_TYPES = ("--a_type", "--b_type", "--c_type", "--d_type", "--compute_type")
_TRANSPOSED = ("--transA", "--transB")
# The kernel that the library chose, and how long to measure: not the product.
_NOT_THE_PRODUCT = {"--algo_method", "--solution_index", "--requested_solution", "--iters", "--cold_iters"} | {
    "--rotating",
    "-i",
    "-j",
}
_TYPE = re.compile(r"(f|bf|i|u)\d+(_[a-z0-9]+)*")  # f16_r, bf8_fnuz_r, f32_xf32_r: a new one is the tool's to refuse


@dataclass(frozen=True)
class Shape:
    """One product, as the options of hipblaslt-bench that ask for it."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        said = dict(zip(self.words, self.words[1:], strict=False))
        size = "x".join(said[name] for name in ("-m", "-n", "-k"))
        batch = f" x{said['--batch_count']}" if said["--batch_count"] != "1" else ""
        return f"{size}{batch} {said['--transA']}{said['--transB']} {said['--a_type']}"

    @property
    def line(self) -> str:
        return " ".join((_TOOL, *self.words))


@dataclass(frozen=True)
class Shapes:
    """Products with their counts, those asked for most first, and what was left out: reason -> number of lines."""

    counts: dict[Shape, int]
    left_out: dict[str, int]

    def text(self) -> str:
        """The content of FILE."""
        return "".join(f"{count}\t{shape.line}\n" for shape, count in self.counts.items())


def read(files: Iterable[Path]) -> Shapes:
    """The products in logs and in files that `Shapes.text` wrote. Raises ConfigError if a file cannot be read."""
    counts: Counter[Shape] = Counter()
    left_out: Counter[str] = Counter()
    for file in files:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
        lines = text.split("\n")
        if lines.pop():  # a process that was killed while it wrote: a number may be cut, too
            left_out["cut off at the end of a file"] += 1
        for line in lines:
            found = parse(line)
            if isinstance(found, str):
                left_out[found] += bool(found)
            else:
                counts[found[0]] += found[1]
    most = sorted(counts.items(), key=lambda one: (-one[1], one[0].words))
    return Shapes(dict(most), {why: count for why, count in left_out.items() if count})


def parse(line: str) -> tuple[Shape, int] | str:
    """The product in a line and its count; or why there is none: empty for a line that is about something else."""
    number, tab, rest = line.strip().partition("\t")
    count = int(number) if tab and number.isascii() and number.isdigit() else 1
    words = (rest if tab else line).split()
    if not words or words[0].rpartition("/")[2] != _TOOL:
        return ""
    if "--grouped_gemm" in words:
        return "grouped: hipBLASLt's tuning file has no place for it"
    said: dict[str, str] = {}
    kept: list[str] = []
    position = 1
    while position < len(words):
        name = words[position]
        if not re.fullmatch(r"-[a-z]|--[A-Za-z]\w*", name):
            return "not a command line of hipblaslt-bench"
        value = words[position + 1 : position + 2]
        option = [name, *(value if value and not re.match(r"-[a-z-]", value[0]) else [])]
        if name not in _NOT_THE_PRODUCT:
            kept += option
            said[name] = option[-1]
        position += len(option)
    said.setdefault("--batch_count", "1")
    if "--batch_count" not in kept:
        kept += ["--batch_count", "1"]
    if missing := [name for name in (*_NUMBERS, *_TYPES, *_TRANSPOSED) if name not in said]:
        return f"lacks {missing[0]}"
    for name in _NUMBERS:
        if not re.fullmatch("[1-9][0-9]*", said[name]):
            return f"{name} is no number from 1"
    if any(said[name] not in ("N", "T", "C") for name in _TRANSPOSED):
        return "--transA or --transB is none of N, T, C"
    for name in _TYPES:
        if not _TYPE.fullmatch(said[name]):
            return f"{name} {said[name]} is no type"
    return Shape(tuple(kept)), count


def logs(directory: Path) -> list[Path]:
    """The processes' logs in a run's directory of them; without any, what was made of them before."""
    return sorted(directory.glob("*.log")) or sorted(directory.glob(FILE))
