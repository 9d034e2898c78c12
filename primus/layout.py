"""The arithmetic of a run: what must divide what, looked at before anything waits in a queue for it.

Each backend states what its pinned version demands, in primus/backends/<framework>/layout.py: a function
`requirements(said, size)`, and `precision(said)`, a word for what it computes in. Where its models can be estimated, it
has `architecture(said)` and `spread(said, model, gpus)`, which of its GPUs hold what; where its defaults are not the
same for every experiment, `below(values)`. What is not met becomes a problem here: its numbers, where they were said,
and the nearest that would do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from math import prod
from types import ModuleType
from typing import Any, Literal

from primus.errors import Problem
from primus.experiment import Experiment, Provenance, flat
from primus.experiment.schema import Schema, schema
from primus.experiment.types import LAYERS

# How far from a number the nearest that fits is looked for.
_FAR = 1024
_HUGE = 10**9  # near such a number nothing is looked for: a slip of the keyboard is no setting
_MOST_NODES = 1024  # of the smallest number of nodes
_WORDS = {
    "multiple": "is not a multiple of",
    "equal": "is not",
    "at least": "is less than",
    "multiple or divisor": "is neither a multiple nor a divisor of",
}


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number in a requirement: an argument's, by its dotted name, or one that is computed."""

    name: str
    value: int
    kind: Literal["setting", "model", "computed"] = "setting"  # what can be changed, what makes the model, neither
    note: str = ""  # what a computed one comes from
    unsaid: str = "the default"  # what an argument's is where nobody said it
    keys: tuple[str, ...] = ()  # the arguments it is computed from, to point at


def computed(name: str, value: int, note: str = "", *, keys: tuple[str, ...] = ()) -> Number:
    """A number that no argument says alone. The name holds nothing that changes with the value; the note may."""
    return Number(name=name, value=value, kind="computed", note=note, keys=keys)


@dataclass(frozen=True, kw_only=True)
class Size:
    """How many processes there are: one for each GPU, or on cpu what stands for one."""

    nodes: int
    gpus: int  # on each node

    @property
    def world(self) -> Number:
        return computed("world size", self.nodes * self.gpus, str(self))

    def __str__(self) -> str:
        return f"{self.nodes} node{'s' * (self.nodes > 1)} x {self.gpus}"


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """The product of `whole` must be in this relation to the product of `parts`, says the backend in `source`."""

    whole: tuple[Number, ...]
    parts: tuple[Number, ...]
    relation: Literal["multiple", "equal", "at least", "multiple or divisor"] = "multiple"
    source: str  # file and function of the backend

    @property
    def name(self) -> tuple[str, ...]:
        return (self.relation, *(number.name for number in (*self.whole, *self.parts)))

    @property
    def met(self) -> bool:
        whole, parts = prod(item.value for item in self.whole), prod(item.value for item in self.parts)
        if self.relation == "equal":
            return whole == parts
        if self.relation == "at least":
            return whole >= parts
        if any(item.value <= 0 for item in (*self.whole, *self.parts)):
            return False
        return whole % parts == 0 or (self.relation == "multiple or divisor" and parts % whole == 0)


@dataclass(frozen=True, kw_only=True)
class Said:
    """An experiment's arguments by dotted name, and the backend's defaults for the rest."""

    values: Mapping[str, Any]
    table: Schema
    accelerator: str
    # Defaults of this experiment's own, such as those of its recipe: name -> value and what has it.
    below: Mapping[str, tuple[Any, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, experiment: Experiment) -> Said:
        table = schema(experiment.framework)
        values = flat(experiment.args, table)
        own: Mapping[str, tuple[Any, str]] = getattr(_module(experiment.framework), "below", lambda _values: {})(values)
        return cls(values=values, table=table, accelerator=experiment.accelerator, below=own)

    def __getitem__(self, name: str) -> Any:
        if name in self.values:
            return self.values[name]
        return self.below[name][0] if name in self.below else self.table.arguments[name].default

    def name(self, name: str) -> str:
        """What the user calls the argument."""
        return name

    def number(self, name: str, kind: Literal["setting", "model"] = "setting") -> Number:
        """The argument as a number; null is one, which is what a degree that nobody gave is."""
        value = self[name]
        unsaid = self.below[name][1] if name in self.below else "the default"
        return Number(name=name, value=1 if value is None else value, kind=kind, unsaid=unsaid)


def problems(experiment: Experiment, *, nodes: int | None, gpus: int) -> tuple[Problem, ...]:
    """What keeps the experiment from starting on `nodes` of `gpus`; without `nodes`, on any number of them."""
    said = Said.of(experiment)
    size = None if nodes is None else Size(nodes=nodes, gpus=gpus)
    broken = _broken(experiment.framework, said, size)
    found: dict[str, Problem] = {}
    for requirement in broken.values():
        message = _message(requirement, experiment.origins)
        if message not in found:  # two of a backend's demands may come to the same
            near = _hint(requirement, broken, experiment.framework, said, size)
            found[message] = Problem(
                message=message,
                where=_where(requirement, experiment.origins),
                hint=f"{near} [{requirement.source}]" if near else f"{requirement.source} demands it",
            )
    return tuple(found.values())


def smallest(experiment: Experiment, gpus: int) -> int | None:
    """The smallest number of nodes of `gpus` that the experiment can start on."""
    said = Said.of(experiment)
    stated = _stated(experiment.framework)
    sizes = (Size(nodes=nodes, gpus=gpus) for nodes in range(1, _MOST_NODES + 1))
    return next((size.nodes for size in sizes if all(item.met for item in stated(said, size))), None)


def starts(experiment: Experiment, *, nodes: int, gpus: int) -> bool:
    """Whether the experiment can start on so many nodes of `gpus`."""
    return not _broken(experiment.framework, Said.of(experiment), Size(nodes=nodes, gpus=gpus))


def precision(experiment: Experiment) -> str:
    """What the experiment computes in, in the backend's short word: bf16, fp8, ...; "" if the backend does not say."""
    function: Callable[[Said], str] = getattr(_module(experiment.framework), "precision", lambda _said: "")
    return function(Said.of(experiment))


def architecture(framework: str, said: Said) -> Any:
    """The model of the backend's arguments, as primus.models.architecture has it. Raises ValueError, saying why not."""
    function: Callable[[Said], Any] | None = getattr(_module(framework), "architecture", None)
    if function is None:
        raise ValueError(f"{framework}: there is no formula for its models here")
    return function(said)


def spread(framework: str, said: Said, model: Any, gpus: int) -> Any:
    """How the backend spreads a model (primus.models.architecture) over GPUs (primus.models.memory.Layout)."""
    return _module(framework).spread(said, model, gpus)


@cache
def _module(framework: str) -> ModuleType:
    """The backend's layout.py; a backend may have none."""
    name = f"primus.backends.{framework}.layout"
    return import_module(name) if find_spec(name) else ModuleType(name)


@cache
def _stated(framework: str) -> Callable[[Said, Size | None], Iterator[Requirement]]:
    """The backend's requirements; a backend may have none."""
    none: Callable[[Said, Size | None], Iterator[Requirement]] = lambda _said, _size: iter(())  # noqa: E731
    function: Callable[[Said, Size | None], Iterator[Requirement]] = getattr(_module(framework), "requirements", none)
    return function


def _broken(framework: str, said: Said, size: Size | None) -> dict[tuple[str, ...], Requirement]:
    return {item.name: item for item in _stated(framework)(said, size) if not item.met}


def _message(requirement: Requirement, origins: Mapping[str, Provenance]) -> str:
    below = [number for number in (*requirement.whole, *requirement.parts) if number.value < 1]
    if below and requirement.relation.startswith("multiple"):
        return f"{_product(tuple(below), origins)} must be at least 1"
    parts = _product(requirement.parts, origins)
    return f"{_product(requirement.whole, origins)} {_WORDS[requirement.relation]} {parts}"


def _product(numbers: tuple[Number, ...], origins: Mapping[str, Provenance]) -> str:
    """tensor_model_parallel_size: 3 (a.yaml:12) x pipeline_model_parallel_size: 2 (the default) = 6"""
    told = [number for number in numbers if number.value != 1] or list(numbers[:1])
    texts = []
    for number in told:
        if number.kind == "computed":
            said = [f"{key}: {origins[key].origin}" for key in number.keys if key in origins]
            note = "; ".join([*([number.note] if number.note else []), *said])
            texts.append(f"{number.name} {number.value}{f' ({note})' if note else ''}".lstrip())
        else:
            place = origins[number.name].origin if number.name in origins else number.unsaid
            texts.append(f"{number.name}: {number.value} ({place})")
    product = prod(number.value for number in told)
    # Python prints no endless numbers, and nobody reads them.
    return " x ".join(texts) + (f" = {product}" if len(told) > 1 and abs(product) < 10**18 else "")


def _where(requirement: Requirement, origins: Mapping[str, Provenance]) -> str:
    """Where the user said the most particular of the numbers, which is the likeliest to be wrong."""
    names = [name for number in (*requirement.parts, *requirement.whole) for name in (number.name, *number.keys)]
    said = [origins[name].origin for name in names if name in origins]
    return str(max(said, key=lambda origin: LAYERS.index(origin.layer))) if said else ""


_Good = Callable[[Said, "Size | None"], bool]


def _hint(
    requirement: Requirement,
    broken: Mapping[tuple[str, ...], Requirement],
    framework: str,
    said: Said,
    size: Size | None,
) -> str:
    """Numbers on either side that would do, each alone: all is met then, or if that cannot be, nothing is worse."""
    if any(number.value >= _HUGE for item in broken.values() for number in (*item.whole, *item.parts)):
        return ""
    for allowed in ({*()}, broken.keys() - {requirement.name}) if len(broken) > 1 else ({*()},):

        def good(changed: Said, place: Size | None, allowed: Set[tuple[str, ...]] = allowed) -> bool:
            return all(item.met or item.name in allowed for item in _stated(framework)(changed, place))

        found = []
        for name in _settings(requirement, said):

            def fits(value: int, name: str = name, good: _Good = good) -> bool:
                return good(replace(said, values={**said.values, name: value}), size)

            if near := _nearest(said[name] or 1, fits):
                found.append(f"{name}: {' or '.join(map(str, near))}")
        if size is not None and requirement.name not in _broken(framework, said, None):

            def holds(nodes: int, place: Size = size, good: _Good = good) -> bool:
                return good(said, replace(place, nodes=nodes))

            if near := _nearest(size.nodes, holds):
                found.append(f"{' or '.join(map(str, near))} node{'s' * (near[-1] > 1)}")
        if found:
            return f"nearest that fit: {'; '.join(found)}"
    return _by_itself(requirement)


def _by_itself(requirement: Requirement) -> str:
    """The nearest that this requirement alone allows, where more than one number has to change."""
    found = []
    for index, number in enumerate(requirement.parts):

        def fits(value: int, index: int = index, number: Number = number) -> bool:
            parts = list(requirement.parts)
            parts[index] = replace(number, value=value)
            return replace(requirement, parts=tuple(parts)).met

        if number.name and number.value != 1 and (near := _nearest(number.value, fits)):
            found.append(f"{number.name}: {' or '.join(map(str, near))}")
    return f"nearest that fit: {'; '.join(found)}; other numbers must change with it" if found else ""


def _settings(requirement: Requirement, said: Said) -> list[str]:
    """The arguments worth changing: those of the requirement itself or that it is computed from, and rather those that
    somebody gave than what nobody thought of."""
    numbers = (*requirement.parts, *requirement.whole)
    names = [number.name for number in numbers if number.kind == "setting"]
    names = names or [key for number in numbers for key in number.keys if isinstance(said[key], int)]
    given = [name for name in names if said[name] != said.table.arguments[name].default]
    return given or names


def _nearest(value: int, fits: Callable[[int], bool]) -> list[int]:
    """The nearest number below `value` that fits and the nearest above, as far as there are such."""
    below = (number for number in range(value - 1, max(0, value - _FAR), -1) if fits(number))
    above = (number for number in range(max(value, 0) + 1, max(value, 0) + _FAR) if fits(number))
    return [number for number in (next(below, None), next(above, None)) if number is not None]
