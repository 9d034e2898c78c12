"""MaxText's arguments: the fields of its pydantic model, with base.yml's values as the defaults."""
# mypy: disable-error-code="import-not-found,import-untyped,no-any-unimported"

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import Enum
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

os.environ |= {"DECOUPLE_GCLOUD": "TRUE", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}

import tables
import yaml
from maxtext.configs import types
from pydantic import BaseModel


def table(_known: dict[str, Any], _source: Path | None) -> dict[str, Any]:
    computed = sorted(types.DerivedValues.model_fields)
    rows = [row for row in walk(types.MaxTextConfig, "", base()) if row["name"] not in computed]
    return {"version": version("maxtext"), "computed": computed, "arguments": rows}


def base() -> dict[str, Any]:
    text = (resources.files("maxtext") / "configs" / "base.yml").read_text(encoding="utf-8")
    # Its loader reads the word None as text, and takes it as null where null may be.
    return {key: None if value == "None" else value for key, value in yaml.safe_load(text).items()}


def walk(cls: type[BaseModel], prefix: str, said: dict[str, Any]) -> Iterator[tables.Row]:
    for key, field in cls.model_fields.items():
        parts = [kind for kind in (field.annotation, *get_args(field.annotation)) if is_model(kind)]
        if parts:
            yield from walk(parts[0], f"{prefix}{key}.", {})
            continue
        kinds = tables.words(field.annotation)
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        default = said.get(key, default)
        default = [] if default == "" and kinds[0].startswith("list") else default
        allowed = tables.choices(field.annotation, lambda member: member.value)
        yield tables.row(f"{prefix}{key}", kinds, default.value if isinstance(default, Enum) else default, allowed)


def is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
