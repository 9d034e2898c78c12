"""What a backend prints of its steps, as numbers with one set of names and units for all backends.

    {"step": 7, "steps": 20, "loss": 6.17, "learning_rate": 0.0029, "grad_norm": 2.2, "seconds": 0.054,
     "tokens_per_second": 9534.9, "tflops_per_device": 0.1, "memory_gib": 0.6, "world_size": 1}

`step` is the backend's own number (JAX's count from 0) and `steps` how many there will be; `tokens_per_second` is that
of the whole job. What a backend does not print is not there; null is a number that is not finite.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from math import isfinite
from typing import Any

from primus.experiment import Experiment
from primus.node import Node

Number = int | float | None
STAGES = ("pulling", "starting", "compiling", "training")

NUMBER = r"(-?(?:\d[\d,]*\.?\d*(?:[eE][+-]?\d+)?|nan|inf))"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# What is printed in another unit, or for one device: name -> (our name, factor). 0 stands for the number of devices.
_UNITS: Mapping[str, tuple[str, float]] = {
    "milliseconds": ("seconds", 1e-3),
    "memory_mb": ("memory_gib", 1 / 1024),
    "memory_gb": ("memory_gib", 1e9 / 2**30),
    "tokens_per_second_per_device": ("tokens_per_second", 0),
}
_WHOLE = ("step", "steps", "samples")


@dataclass(frozen=True, kw_only=True)
class Printed:
    """How a backend's output tells what it does: backends/<framework>/metrics.py has one, PRINTED.

    A pattern in `fields` is looked for in the line of a step; one in `before` in any other line, for the next step.
    Each has one group, NUMBER.
    """

    step: str
    fields: Mapping[str, str]
    before: Mapping[str, str] = field(default_factory=dict)
    compiling: str = ""  # a line that begins the compilation, for those that say so
    first: int = 1
    steps: str = ""  # the argument that says how many there will be
    sequence: str = ""  # the argument with the tokens in a sample, where the samples of a step are printed
    processes: str = ""  # the argument that may say fewer processes than the node has devices
    last_node: bool = False  # which node prints it: the last, or the first


class Reader:
    """Reads the output of one node, line by line; does nothing else.

    `stage` is one of STAGES, as far as the lines so far tell.
    """

    def __init__(self, printed: Printed, *, devices: int = 1, steps: int | None = None, sequence: int = 0) -> None:
        self.printed, self.devices, self.steps, self.sequence = printed, devices, steps, sequence
        self.stage = "starting"
        self._step = re.compile(printed.step)
        self._fields = {name: re.compile(pattern) for name, pattern in printed.fields.items()}
        self._before = {name: re.compile(pattern) for name, pattern in printed.before.items()}
        self._compiling = re.compile(printed.compiling) if printed.compiling else None
        self._kept: dict[str, Number] = {}

    def feed(self, line: str) -> dict[str, Number] | None:
        """The numbers of a step, if the line has them."""
        line = _COLOUR.sub("", line)
        match = self._step.search(line)
        if match is None:
            self._kept |= _found(self._before, line)
            if self.stage == "starting" and self._compiling and self._compiling.search(line):
                self.stage = "compiling"
            return None
        self.stage = "training"
        said = {"step": _number(match[1]), **self._kept, **_found(self._fields, line)}
        self._kept = {}
        return self._normal(said)

    def _normal(self, said: dict[str, Number]) -> dict[str, Number]:
        result: dict[str, Number] = {}
        for name, value in said.items():
            ours, factor = _UNITS.get(name, (name, 1))
            result[ours] = value if value is None or factor == 1 else _short(value * (factor or self.devices))
        samples, seconds = result.pop("samples", None), result.get("seconds")
        if samples and seconds and self.sequence:
            result["tokens_per_second"] = _short(samples * self.sequence / seconds)
        if self.steps and "steps" not in result:
            result["steps"] = self.steps
        return {**result, "world_size": self.devices}

    def done(self, step: Number) -> int:
        """How many steps are done after the one with this number."""
        return int(step or 0) + 1 - self.printed.first


def _short(value: float) -> float:
    """Without the digits that only the conversion made."""
    return float(f"{value:.9g}")


def _found(patterns: Mapping[str, re.Pattern[str]], line: str) -> dict[str, Number]:
    matches = {name: pattern.search(line) for name, pattern in patterns.items()}
    return {
        name: int(match[1]) if name in _WHOLE else _number(match[1])
        for name, match in matches.items()
        if match is not None
    }


def _number(text: str) -> Number:
    if text.isdecimal():
        return int(text)
    value = float(text.replace(",", ""))
    return value if isfinite(value) else None


def printed(framework: str) -> Printed:
    found: Printed = import_module(f"primus.backends.{framework}.metrics").PRINTED
    return found


def reader(experiment: Experiment, node: Node) -> Reader:
    """The reader of what the experiment's training prints on this node."""
    table = printed(experiment.framework)
    steps, sequence = _argument(experiment, table.steps), _argument(experiment, table.sequence)
    processes = min(_argument(experiment, table.processes) or node.gpus, node.gpus)
    return Reader(table, devices=node.nodes * processes, steps=steps, sequence=sequence or 0)


def tells(framework: str, node: Node) -> bool:
    """Whether this node is the one whose output has the steps: they are written down once."""
    return node.rank == (node.nodes - 1 if printed(framework).last_node else 0)


def _argument(experiment: Experiment, dotted: str) -> int | None:
    value: Any = experiment.args
    for key in dotted.split(".") if dotted else ():
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
