"""What a report says of a run, from its record."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from primus.record import Attempt, Record

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
TAIL = 60  # lines of the node that failed


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run as the page shows it."""

    name: str
    path: Path
    state: str
    about: Mapping[str, Any]  # run.json
    end: Mapping[str, Any]  # end.json
    image: Mapping[str, Any]  # image.json
    config: Mapping[str, Any]  # config.json
    attempts: Sequence[Attempt]
    steps: Sequence[Mapping[str, Any]]  # the last attempt's word for each step
    failed: str = ""  # the node that failed first
    why: str = ""  # the known cause and what to do, if it is one
    tail: str = ""  # the last lines of what it printed

    def series(self, name: str) -> list[tuple[int, float | None]]:
        """(step, value) of each step that has the number; None is one that is not finite."""
        return [(one["step"], one[name]) for one in self.steps if name in one]

    def middle(self, name: str) -> float | None:
        """The median; the first step compiles, and does not count where there are more."""
        values = [value for _, value in self.series(name)[1:] or self.series(name) if value is not None]
        return median(values) if values else None

    def values(self) -> dict[str, tuple[Any, str]]:
        """Each value that the experiment says, by dotted key, with the place that says it."""
        origins = self.config.get("origins", {})
        top = {
            key: value
            for key, value in self.config.items()
            if key not in ("args", "env", "origins", "stage", "unknown")
        }
        flat = {**top, **_flat(self.config.get("args", {}), origins)}
        flat |= {f"env.{name}": value for name, value in self.config.get("env", {}).items()}
        return {key: (value, _place(origins.get(key))) for key, value in flat.items()}


def gather(record: Record, *, state: str, config: Mapping[str, Any] | None = None, why: str = "") -> Run:
    """Read a record; `config` stands in for a config.json that is not there, `why` says why it failed."""
    about, attempts = record.read("run.json"), record.attempts()
    failure = record.first_failure(attempts[-1].attempt) if attempts else None
    return Run(
        name=str(about.get("run_id", record.path.name)),
        path=record.path,
        state=state,
        about=about,
        end=record.read("end.json"),
        image=record.read("image.json"),
        config=record.read("config.json") or config or {},
        attempts=attempts,
        steps=record.steps(),
        failed=f"node {failure.rank}, {failure.host}" if failure else "",
        why="\n".join(line for line in why.splitlines() if line.startswith(("cause: ", "hint: "))),
        tail=_tail(record.log(failure.rank)) if failure else "",
    )


def _tail(file: Path) -> str:
    """The last lines, as a terminal would have left them."""
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - (1 << 17)))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in _COLOUR.sub("", text).rstrip().split("\n")]
    return "\n".join(lines[-TAIL:])


def _flat(args: Mapping[str, Any], origins: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in args.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, dict) and value and dotted not in origins:
            result |= _flat(value, origins, f"{dotted}.")
        else:
            result[dotted] = value
    return result


def _place(origin: object) -> str:
    if not isinstance(origin, Mapping):
        return ""
    where = f"{origin.get('file', '')}:{origin['line']}" if origin.get("line") else str(origin.get("file") or "")
    return ", ".join(word for word in (str(origin.get("layer", "")), where) if word)
