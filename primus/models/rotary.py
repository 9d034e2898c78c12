"""Rotary position embeddings of a config.json."""

from __future__ import annotations

from primus.models.architecture import Rope
from primus.models.reader import Reader

_NAMES = {
    "factor": "factor",
    "original_max_position_embeddings": "original",
    "low_freq_factor": "low_freq",
    "high_freq_factor": "high_freq",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "mscale": "mscale",
    "mscale_all_dim": "mscale_all_dim",
    "truncate": "truncate",
}


def rope(r: Reader, positions: int) -> Rope:
    """The rotary embeddings that the configuration says, in either of its two spellings."""
    said = r.optional("rope_scaling", {}) or r.optional("rope_parameters", {})
    key = "rope_parameters" if r.config.get("rope_parameters") else "rope_scaling"
    numbers = dict(said)
    theta = numbers.pop("rope_theta", None)
    if not isinstance(theta, (int, float)):
        theta = r.take("rope.theta", "rope_theta", "rotary_emb_base", kinds=(int, float))
    else:
        r.taken.add("rope_theta")
        r.sources["rope.theta"] = f"{key}.rope_theta"
    percent = min(r.optional("partial_rotary_factor", 1.0), r.optional("rotary_pct", 1.0))
    percents = [word for word in ("partial_rotary_factor", "rotary_pct") if word in r.config]
    r.sources["rope.percent"] = percents[0] if percents else "partial_rotary_factor is not said: all of a head"
    if interleaved := r.optional("rope_interleaved", False):
        r.odd("rope_interleaved", f"{interleaved} is not supported")
    r.optional("rope_interleave", None)  # how DeepSeek stores its weights
    kinds = {str(numbers.pop(word)) for word in ("rope_type", "type") if numbers.get(word)}
    kind = next(iter(kinds), "default")
    r.sources["rope.scaling"] = f"{key}.{'rope_type' if 'rope_type' in said else 'type'}" if said else key
    if kind == "default":
        return Rope(theta=float(theta), percent=percent)
    values = {_NAMES[word]: numbers.pop(word) for word in _NAMES if numbers.get(word) is not None}
    for field_name in values:
        word = next(word for word, ours in _NAMES.items() if ours == field_name)
        r.sources[f"rope.{field_name}"] = f"{key}.{word}"
    for name, value in values.items():
        if not isinstance(value, (int, float)) or isinstance(value, bool) is not (name == "truncate"):
            r.wrong(r.sources[f"rope.{name}"], f"must be {'true or false' if name == 'truncate' else 'a number'}")
    if kind != "longrope" and "factor" not in values:
        r.wrong(f"{key}.factor", "is missing")
    values.setdefault("original", r.optional("original_max_position_embeddings", 0) or positions)
    if kind not in ("linear", "llama3", "yarn"):
        r.odd(key, f"{kind} scaling is not supported")
    for word in numbers if kind in ("linear", "llama3", "yarn") else ():
        r.odd(f"{key}.{word}", "is not known here")
    return Rope(theta=float(theta), percent=percent, scaling=kind, **values)
