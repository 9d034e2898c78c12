"""What loading an experiment gives: plain values, and where each of them was said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from primus.experiment import paths

MODULE_PRESET, MODEL_PRESET, EXPERIMENT, COMMAND_LINE = "module preset", "model preset", "experiment", "command line"
LAYERS = (MODULE_PRESET, MODEL_PRESET, EXPERIMENT, COMMAND_LINE)  # from lowest to highest
ACCELERATORS = ("rocm", "cpu")
STAGES = {"pre_trainer": "pretrain", "post_trainer": "posttrain"}


class Template(str):
    """Text that still holds `${NAME}` references, to be filled in where the training runs.

    Everything that is not a reference is escaped in it (`$${` is a literal `${`); any other `str` is literal.
    """

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a value was said: the layer, the file as the user would name it, and the 1-based position."""

    layer: str
    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        if self.layer == COMMAND_LINE:
            return f"{COMMAND_LINE}, argument {self.line}"
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """A value's origin, and the values it replaced, the lowest layer first."""

    origin: Origin
    shadowed: tuple[tuple[Any, Origin], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment, resolved and checked; `args` are the backend's own, nested as it nests them."""

    work_group: str
    user_name: str
    exp_name: str
    workspace: str
    framework: str
    stage: str
    accelerator: str
    args: Mapping[str, Any]
    env: Mapping[str, str]
    origins: Mapping[str, Provenance] = field(repr=False)  # by dotted key
    source: Path
    unknown: tuple[str, ...] = ()  # keys the backend does not know, let through on request

    @property
    def run_dir(self) -> Path:
        """<workspace>/<work_group>/<user_name>/<exp_name>, absolute: always the same, so that a run resumes."""
        return paths.absolute(self.workspace) / self.work_group / self.user_name / self.exp_name
