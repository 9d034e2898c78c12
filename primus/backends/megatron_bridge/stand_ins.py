"""What Megatron Bridge imports whether or not it is used: Transformer Engine, and NVIDIA's resiliency extension."""

from __future__ import annotations

import builtins
import contextlib
import logging
import types
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec

import torch

# Modules without which Bridge cannot be imported, with the names it takes from them.
_NEEDED = {
    "transformer_engine": {
        "pytorch": ("Linear", "LayerNormLinear", "TransformerLayer", "LayerNorm", "RMSNorm", "GroupedLinear"),
    },
    "nvidia_resiliency_ext": {"inprocess": ("CallWrapper",)},
}


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Inside, what is imported into megatron.bridge finds a stand-in for each of those packages that is missing.

    megatron.core must not see it: it asks what there is by importing it, and falls back to its own layers.
    """
    missing = {name: _package(name, parts) for name, parts in _NEEDED.items() if find_spec(name) is None}
    if "transformer_engine" in missing:
        _give_core_types()
    # It tells of each thing it looked for in vain, with a traceback, twice.
    noise = logging.getLogger("megatron.bridge.utils.import_utils")
    noise.disabled = True
    real = builtins.__import__

    def importer(
        name: str,
        globals: Mapping | None = None,
        locals: Mapping | None = None,
        fromlist: Sequence = (),
        level: int = 0,
    ) -> object:
        package, _, part = name.partition(".")
        if level == 0 and package in missing and str((globals or {}).get("__name__")).startswith("megatron.bridge."):
            found = missing[package]
            if part and part not in vars(found):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return getattr(found, part) if part and fromlist else found
        return real(name, globals, locals, fromlist, level)

    builtins.__import__ = importer
    try:
        yield
    finally:
        builtins.__import__ = real
        noise.disabled = False


def _package(name: str, parts: Mapping[str, tuple[str, ...]]) -> types.ModuleType:
    package = types.ModuleType(name)
    for part, classes in parts.items():
        module = types.ModuleType(f"{name}.{part}")
        vars(module).update({cls: type(cls, (torch.nn.Module,), {}) for cls in classes})
        module.ops = types.SimpleNamespace(Sequential=type("Sequential", (torch.nn.Module,), {}))
        setattr(package, part, module)
    return package


def _give_core_types() -> None:
    """Without Transformer Engine, megatron.core's layers of it are mocks, of which no object can be an instance."""
    import megatron.core.extensions.transformer_engine as layers

    for name, value in vars(layers).items():
        if name.startswith("TE") and not isinstance(value, type):
            setattr(layers, name, type(name, (torch.nn.Module,), {}))
