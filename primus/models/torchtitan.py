"""A model as one of TorchTitan's flavors, which are all it has: its configuration names no dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from primus.errors import Problem
from primus.layout import Said
from primus.models import flavors
from primus.models.architecture import Architecture, Mla, Moe, Rope
from primus.models.families import FAMILIES
from primus.models.huggingface import Reading
from primus.models.preset import Preset, Row


def preset(reading: Reading) -> Preset:
    """The flavor of the model. Raises ConfigError if there is none."""
    title = f"TorchTitan {flavors.table('torchtitan')['version']}"
    name, different = flavors.nearest(reading.architecture, known(), title=title)
    model, _, flavor = name.partition(" ")
    rows = (
        Row(key="model.name", value=model, source=f"model_type {reading.model_type}"),
        Row(key="model.flavor", value=flavor, source="all dimensions agree"),
    )
    problems = [
        Problem(message=f"{key}: {title}'s {name} has {its or 'none'}, not {meant or 'none'}")
        for key, (its, meant) in different.items()
    ]
    return Preset(rows=rows, unsupported=tuple(problems))


def known() -> Iterator[tuple[str, Architecture]]:
    """Every flavor ("llama3 8B") that an Architecture can describe."""
    for model, rows in flavors.table("torchtitan")["models"].items():
        for flavor, numbers in rows.items():
            if model in _READERS:
                yield f"{model} {flavor}", _READERS[model](numbers)


def architecture(said: Said) -> Architecture:
    """The model that TorchTitan builds from its arguments. Raises ValueError if it is not known."""
    name = f"{said['model.name']} {said['model.flavor']}"
    for title, model in known():
        if title == name:
            return model
    raise ValueError(f"the dimensions of {name} are not known")


def _llama3(numbers: Mapping[str, Any]) -> Architecture:
    hidden = numbers["dim"]
    ffn = int(int(2 * 4 * hidden / 3) * (numbers["ffn_dim_multiplier"] or 1))
    scaling = numbers["rope_scaling_args"]
    return Architecture(
        **_common(numbers),
        ffn=-(-ffn // numbers["multiple_of"]) * numbers["multiple_of"],
        kv_heads=numbers["n_kv_heads"] or numbers["n_heads"],
        head_dim=hidden // numbers["n_heads"],
        rope=Rope(
            theta=float(numbers["rope_theta"]),
            scaling="llama3",
            factor=scaling["scaling_factor"],
            original=scaling["original_max_position_embeddings"],
            low_freq=scaling["low_freq_factor"],
            high_freq=scaling["high_freq_factor"],
        ),
    )


def _qwen3(numbers: Mapping[str, Any]) -> Architecture:
    moe = _moe(numbers, dense=0) if numbers["moe_enabled"] else None
    return Architecture(
        **_common(numbers),
        ffn=numbers["hidden_dim"],
        kv_heads=numbers["n_kv_heads"],
        head_dim=numbers["head_dim"],
        rope=Rope(theta=float(numbers["rope_theta"])),
        tied=numbers["enable_weight_tying"],
        qk_norm=numbers["qk_norm"],
        moe=moe,
    )


def _deepseek_v3(numbers: Mapping[str, Any]) -> Architecture:
    mla = Mla(
        q_lora_rank=numbers["q_lora_rank"],
        kv_lora_rank=numbers["kv_lora_rank"],
        qk_head_dim=numbers["qk_nope_head_dim"],
        rope_head_dim=numbers["qk_rope_head_dim"],
        v_head_dim=numbers["v_head_dim"],
    )
    return Architecture(
        **_common(numbers),
        ffn=numbers["inter_dim"],
        kv_heads=numbers["n_heads"],
        head_dim=mla.qk_head_dim + mla.rope_head_dim,
        rope=_yarn(numbers, mscale=numbers["mscale"], mscale_all_dim=numbers["mscale"]),
        qk_norm=True,
        mla=mla,
        moe=_moe(numbers, dense=numbers["n_dense_layers"]),
    )


def _gpt_oss(numbers: Mapping[str, Any]) -> Architecture:
    return Architecture(
        **_common(numbers),
        ffn=numbers["moe_inter_dim"],
        kv_heads=numbers["n_kv_heads"],
        head_dim=numbers["head_dim"],
        rope=_yarn({**numbers, "beta_fast": numbers["ntk_beta"], "beta_slow": numbers["ntk_alpha"]}, truncate=False),
        qkv_bias=True,
        window=numbers["sliding_window_size"],
        window_layers=tuple(layer % 2 == 0 for layer in range(numbers["n_layers"])),
        moe=_moe(numbers, dense=0),
        special=FAMILIES["gpt_oss"].special,
    )


_READERS = {"llama3": _llama3, "qwen3": _qwen3, "deepseek_v3": _deepseek_v3, "gpt_oss": _gpt_oss}


def _common(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "layers": numbers["n_layers"],
        "hidden": numbers["dim"],
        "heads": numbers["n_heads"],
        "vocab": numbers["vocab_size"],
        "positions": numbers["max_seq_len"],
        "norm_eps": numbers["norm_eps"],
    }


def _yarn(numbers: Mapping[str, Any], **more: Any) -> Rope:
    return Rope(
        theta=float(numbers["rope_theta"]),
        scaling="yarn",
        factor=float(numbers["rope_factor"]),
        original=numbers["original_seq_len"],
        beta_fast=float(numbers["beta_fast"]),
        beta_slow=float(numbers["beta_slow"]),
        **more,
    )


def _moe(numbers: Mapping[str, Any], *, dense: int) -> Moe:
    args = numbers["moe_args"]
    return Moe(
        layers=tuple(layer >= dense for layer in range(numbers["n_layers"])),
        experts=args["num_experts"],
        topk=args["top_k"],
        ffn=numbers["moe_inter_dim"],
        shared_ffn=args["num_shared_experts"] * numbers["moe_inter_dim"],
        score=args["score_func"],
        renormalised=args["route_norm"],
        scaling=float(args["route_scale"]),
        groups=args["num_expert_groups"] or 0,
        group_topk=args["num_limited_groups"] or 0,
        # load_balance_coeff moves a bias of each expert as DeepSeek-V3 does, whatever the model; no weights are in it
        expert_bias=args["score_func"] == "sigmoid",
    )
