"""Megatron Bridge's arguments: the dataclasses below ConfigContainer, and what chooses a recipe."""
# mypy: disable-error-code="import-not-found,import-untyped,no-any-unimported"

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterator
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import tables

from primus.backends.megatron import stand_ins as megatron

megatron.install()

import torch  # noqa: E402

from primus.backends.megatron_bridge import stand_ins  # noqa: E402

with stand_ins.importing():
    from megatron.bridge import recipes
    from megatron.bridge.data.builders import GPTSFTDatasetConfig
    from megatron.bridge.models.megatron_mimo.megatron_mimo_provider import MegatronMIMOProvider
    from megatron.bridge.models.t5_provider import T5ModelProvider
    from megatron.bridge.peft.dora import DoRA
    from megatron.bridge.peft.lora import LoRA
    from megatron.bridge.training.config import ConfigContainer, GPTDatasetConfig
    from megatron.core.transformer.spec_utils import ModuleSpec

HOME = "megatron.bridge.recipes."
DTYPES = ["float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "uint8", "int16"]  # of its str_to_dtype
LEFT_OUT = (
    *("env_vars", "logger.comet_api_key"),  # the experiment's environment has them; renamed.json says so
    *("model.timers", "model.transformer.timers", "optimizer.timers"),  # objects, whose annotation says Any
    *("dataset.context_parallel_size", "dataset.data_parallel_size"),  # the parallelism's, which the model says
)
# The names of recipes' modules for models that see, hear or paint.
NOT_TEXT = ("_vl", "_omni", "_audio", "flux", "wan", "exaone45", "minimax", "minimax_m3", "ministral3", "step37")
ACTIVATIONS = {
    "type": "str",  # a function, by its name
    "default": "gelu",
    "choices": ["fast_gelu", "gelu", "quick_gelu", "relu", "silu", "squared_relu"],
}
FACTS: dict[str, dict[str, Any]] = {
    "model.activation_func": ACTIVATIONS,
    "model.transformer.activation_func": ACTIVATIONS,
    # Text to a model of one kind, these to the layers that read it.
    "model.fp8_recipe": {"choices": ["tensorwise", "delayed", "mxfp8", "blockwise", "custom"]},
}
ORDER = ("bool", "int", "float", "str", "list", "dict", "any", "null")


def table(_known: dict[str, Any], _source: Path | None) -> dict[str, Any]:
    found: dict[str, tables.Row] = {}
    for row in (*walk(ConfigContainer, "", ()), *choice()):
        if row["name"] not in LEFT_OUT:
            found[row["name"]] = merged(found.get(row["name"], row), row)
    return {"version": version("megatron-bridge"), "arguments": tables.changed(found.values(), FACTS)}


def choice() -> Iterator[tables.Row]:
    """What the adapter makes a recipe of."""
    names = sorted(name for name in dir(recipes) if name.endswith("_config") and is_text(getattr(recipes, name)))
    homes = [module for name, module in sys.modules.items() if name.startswith(HOME)]
    having = [module for module in homes if not vars(module).keys().isdisjoint(names)]
    yield tables.row("recipe", ["str"], None, sorted(module.__name__.removeprefix(HOME) for module in having))
    yield tables.row("flavor", ["str"], None, names)
    yield tables.row("hf_path", ["str", "null"], None)
    yield tables.row("peft_scheme", ["str", "null"], None, ["lora", "dora"])


def is_text(recipe: Any) -> bool:
    """Whether it is a recipe, and of a language model."""
    return callable(recipe) and not any(part.endswith(NOT_TEXT) for part in recipe.__module__.split("."))


def walk(cls: type, prefix: str, above: tuple[type, ...]) -> Iterator[tables.Row]:
    annotations = tables.hints(cls)
    for field in dataclasses.fields(cls):
        if field.name.startswith("_") or not field.init:
            continue
        kind, name = annotations[field.name], f"{prefix}{field.name}"
        classes = [] if cls in above else list(parts(name, kind))
        for part in classes:
            yield from walk(part, f"{name}.", (*above, cls))
        kinds = tables.words(kind, others)
        allowed = DTYPES if torch.dtype in (kind, *get_args(kind)) else tables.choices(kind, lambda member: member.name)
        # What can be null only is an object that no file can say, unless it is a part.
        if kinds and (kinds != ["null"] or classes):
            yield tables.row(name, kinds, False if asks(field) else plain(tables.default_of(field)), allowed)


def asks(field: Any) -> bool:
    """Whether the default depends on what else is installed: the table has it as it is without."""
    return getattr(field.default_factory, "__module__", "") == "megatron.bridge.utils.fusions"


def parts(name: str, kind: Any) -> Iterator[type]:
    """The dataclasses that a field can hold, and that our worker can train with."""
    if name == "dataset":  # text alone
        yield from (GPTDatasetConfig, GPTSFTDatasetConfig)
        return
    if name == "peft":
        yield from (LoRA, DoRA)
        return
    for cls in (kind, *get_args(kind)):
        if isinstance(cls, type) and dataclasses.is_dataclass(cls) and cls is not ModuleSpec:
            yield from (text_models(cls) if name == "model" else [cls])


def text_models(cls: type) -> Iterator[type]:
    """The class and those that are made of it, but for encoders and models of more than text."""
    if not dataclasses.is_dataclass(cls) or cls in (MegatronMIMOProvider, T5ModelProvider):
        return
    if "freeze_language_model" not in {field.name for field in dataclasses.fields(cls)}:
        yield cls
    for below in cls.__subclasses__():
        yield from text_models(below)


def others(kind: Any) -> list[str]:
    return ["str"] if kind is torch.dtype or (isinstance(kind, type) and issubclass(kind, Enum)) else []


def merged(first: tables.Row, row: tables.Row) -> tables.Row:
    """One line for a field that several classes have: what any of them takes, and the first one's default."""
    kinds = dict.fromkeys([*first["type"].split(" | "), *row["type"].split(" | ")])
    allowed = dict.fromkeys([*first["choices"], *row["choices"]]) if "choices" in first and "choices" in row else ()
    ordered = sorted(kinds, key=lambda kind: ORDER.index(kind.partition("[")[0]))
    return tables.row(first["name"], ordered, first["default"], list(allowed))


def plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no infinity
    if isinstance(value, dict):
        return dict(value)
    return value if isinstance(value, (str, int, float)) else None
