"""Models that a backend has by name: which of them is the one that was asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from importlib import resources
from typing import Any

from primus.errors import ConfigError
from primus.models import patterns
from primus.models.architecture import Architecture

# Two models are not the same if they differ here: weights of one do not fit the other.
_SHAPE = (
    *("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "norm", "activation", "gated", "tied", "bias"),
    *("qkv_bias", "qk_norm", "special", "rope", "mla", "moe"),
    *("mla.q_lora_rank", "mla.kv_lora_rank", "mla.qk_head_dim", "mla.rope_head_dim", "mla.v_head_dim"),
    *("moe.layers", "moe.experts", "moe.ffn", "moe.shared_ffn", "moe.shared_gate"),
)
# Neither how long a sequence may be nor layers that only help in training make another model.
_FREE = ("positions", "mtp_layers")


@cache
def table(framework: str, name: str = "models") -> Mapping[str, Any]:
    """The backend's models.json, or `name`.json: its version, and each model's numbers, extracted from its source."""
    file = resources.files("primus") / "backends" / framework / f"{name}.json"
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return data


def nearest(
    meant: Architecture,
    known: Iterable[tuple[str, Architecture]],
    *,
    title: str,
    free: tuple[str, ...] = (),
    advice: str = "",
    none: str = "has no model of this shape: it must learn it first",
) -> tuple[str, dict[str, tuple[Any, Any]]]:
    """The name of the backend's model of this shape, and where it differs otherwise: field -> (its, the one meant).

    Raises ConfigError if the backend (`title`) has none; `free` are more fields that may differ, `advice` is what else
    to do, `none` what the backend lacks.
    """
    ranked = []
    for name, model in known:
        different = differences(model, meant)
        shape = [key for key in different if key in (*_SHAPE, "vocab") and key not in free]
        ranked.append((len(shape), len(different), name, different, shape))
    ranked.sort(key=lambda item: (*item[:2], len(item[2])))
    if not ranked:
        raise ConfigError(f"{title} has no model that could be this one: it must learn it first")
    _, _, name, different, shape = ranked[0]
    if shape:
        said = ", ".join(f"{key} {_shown(different[key][0])}, not {_shown(different[key][1])}" for key in shape[:4])
        raise ConfigError(
            f"{title} {none}",
            hint=f"nearest: {name}, but with {said}{' ...' if len(shape) > 4 else ''}{advice}",
        )
    return name, different


def differences(built: Architecture, meant: Architecture) -> dict[str, tuple[Any, Any]]:
    """Where two models differ: field ("rope.theta") -> (of the one, of the other)."""
    one, other = _leaves(asdict(built)), _leaves(asdict(meant))
    if not (built.rope and built.rope.scaling) and not (meant.rope and meant.rope.scaling):
        one = {key: value for key, value in one.items() if key in ("rope.theta", "rope.percent") or key[:5] != "rope."}
        other = {key: value for key, value in other.items() if key in one or key[:5] != "rope."}
    elif not (built.rope and built.rope.scaling and meant.rope and meant.rope.scaling):
        one = {key: value for key, value in one.items() if key[:5] != "rope." or key[5:] in ("theta", "scaling")}
        other = {key: value for key, value in other.items() if key[:5] != "rope." or key[5:] in ("theta", "scaling")}
    if meant.moe and all(meant.moe.layers) and built.moe and all(built.moe.layers):
        one["ffn"] = other["ffn"]  # no layer is dense
    return {
        key: (one.get(key), other.get(key))
        for key in {**one, **other}
        if one.get(key) != other.get(key) and key not in _FREE
    }


def _leaves(value: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            result[f"{above}{key}"] = True
            result |= _leaves(item, f"{above}{key}.")
        else:
            result[f"{above}{key}"] = False if item is None else item
    return result


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], bool):
            return patterns.written(tuple(value))
        return ", ".join(map(str, value)) or "none"
    return str(value)
