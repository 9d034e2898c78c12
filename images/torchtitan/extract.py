"""TorchTitan's arguments: the dataclasses below JobConfig."""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tables

# The package imports Triton's kernels at once, which a CPU build of torch does not bring; its configuration needs none.
package = types.ModuleType("torchtitan")
spec = find_spec("torchtitan")
assert spec is not None
package.__path__ = spec.submodule_search_locations or []
sys.modules["torchtitan"] = package

from torchtitan.config.job_config import JobConfig  # noqa: E402


def table(_known: dict[str, Any], _source: Path | None) -> dict[str, Any]:
    return {"version": version("torchtitan"), "arguments": list(walk(JobConfig, ""))}


def walk(cls: Any, prefix: str) -> Iterator[tables.Row]:
    annotations = tables.hints(cls)
    for field in dataclasses.fields(cls):
        kind, name = annotations[field.name], f"{prefix}{field.name}"
        if dataclasses.is_dataclass(kind):
            yield from walk(kind, f"{name}.")
        else:
            allowed = tables.choices(kind, lambda member: member.name)
            yield tables.row(name, tables.words(kind), tables.default_of(field), allowed)
