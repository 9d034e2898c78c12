"""A model as one of MaxText's by name, with what MaxText lets a configuration say otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from primus.errors import Problem
from primus.models import flavors
from primus.models.architecture import Architecture, Mla, Moe, Rope
from primus.models.families import FAMILIES
from primus.models.huggingface import Reading
from primus.models.preset import Preset, Row

# Fields that MaxText's configuration can set over the model's own, under these names.
_SET = {
    "vocab": "vocab_size",
    "norm_eps": "normalization_layer_epsilon",
    "rope.theta": "rope_max_timescale",
    "moe.groups": "n_routing_groups",
    "moe.group_topk": "topk_routing_group",
    "moe.scaling": "routed_scaling_factor",
}


def preset(reading: Reading) -> Preset:
    """The model's name, and what is to be said besides. Raises ConfigError if MaxText has none of its shape."""
    title = f"MaxText {flavors.table('maxtext')['version']}"
    advice = (
        "; dimensions can be set over those of a near model, as primus/configs/models/maxtext/llama2_tiny.yaml does"
    )
    name, different = flavors.nearest(reading.architecture, known(), title=title, free=("vocab",), advice=advice)
    rows = [Row(key="model_name", value=name, source="all dimensions agree")]
    problems = []
    for key, (its, meant) in different.items():
        if argument := _SET.get(key):
            value = int(meant) if key == "rope.theta" else meant
            rows.append(
                Row(key=argument, value=value, source=f"{reading.sources.get(key, key)}; {name} has {its or 'none'}")
            )
        elif key == "rope.scaling" and meant == "llama3" and _is_llama31(reading.architecture.rope):
            rows.append(Row(key="rope_type", value="llama3.1", source=f"rope_scaling; {name} has none"))
        else:
            problems.append(Problem(message=f"{key}: {title}'s {name} has {its or 'none'}, not {meant or 'none'}"))
    if len(rows) > 1:
        rows.append(
            Row(key="override_model_config", value=True, source="for the lines above to win over the model's own")
        )
    if reading.architecture.moe:
        number = reading.architecture.moe.experts
        rows.append(Row(key="num_experts", value=number, source="as the model has it, for what the launcher checks"))
    return Preset(rows=tuple(rows), unsupported=tuple(problems))


def known() -> Iterator[tuple[str, Architecture]]:
    """Every model of MaxText's that an Architecture can describe."""
    table = flavors.table("maxtext")
    for name, said in table["models"].items():
        yield name, _architecture(name, table["defaults"] | said)


def architecture(args: Mapping[str, Any]) -> Architecture:
    """The model that MaxText builds from the arguments that were said. Raises ValueError if it is not known."""
    table = flavors.table("maxtext")
    name = args.get("model_name", "default")
    if name != "default" and name not in table["models"]:
        raise ValueError(f"the dimensions of {name} are not known")
    wins = name == "default" or args.get("override_model_config")
    over = {key: value for key, value in args.items() if key in table["defaults"] and value is not None} if wins else {}
    return _architecture(name, table["defaults"] | table["models"].get(name, {}) | over)


def _is_llama31(rope: Rope | None) -> bool:
    return rope is not None and (rope.factor, rope.low_freq, rope.high_freq, rope.original) == (8.0, 1.0, 4.0, 8192)


def _architecture(name: str, said: Mapping[str, Any]) -> Architecture:
    block = said["decoder_block"]
    mla = None
    if said["attention_type"] == "mla":
        mla = Mla(
            q_lora_rank=said["q_lora_rank"],
            kv_lora_rank=said["kv_lora_rank"],
            qk_head_dim=said["qk_nope_head_dim"],
            rope_head_dim=said["qk_rope_head_dim"],
            v_head_dim=said["v_head_dim"],
        )
    layers = said["base_num_decoder_layers"] * (2 if block == "gemma2" else 1)  # MaxText counts pairs
    heads = said["base_num_query_heads"]
    silu = said["mlp_activations"][0] != "gelu"
    window = said["sliding_window_size"]
    alternating = tuple(layer % 2 == 0 for layer in range(layers))
    family = block if block in ("gemma", "gemma2", "gpt_oss") else "llama"
    return Architecture(
        layers=layers,
        hidden=said["base_emb_dim"],
        ffn=said["base_mlp_dim"],
        heads=heads,
        kv_heads=heads if mla else said["base_num_kv_heads"],
        head_dim=mla.qk_head_dim + mla.rope_head_dim if mla else said["head_dim"],
        vocab=said["vocab_size"],
        positions=said["max_position_embeddings"],
        norm_eps=said["normalization_layer_epsilon"],
        activation="silu" if silu else "gelu_tanh",
        rope=_rope(name, said),
        tied=said["logits_via_embedding"],
        qkv_bias=said["attention_bias"],
        qk_norm=said["use_qk_norm"] or mla is not None,
        window=window,
        window_layers=alternating if window else (),
        mla=mla,
        moe=_moe(block, said, layers) if said["num_experts"] > 1 else None,
        special=FAMILIES[family].special,
    )


def _rope(name: str, said: Mapping[str, Any]) -> Rope:
    theta = float(said["rope_max_timescale"])
    if said["rope_type"] == "yarn":
        return Rope(
            theta=theta,
            scaling="yarn",
            factor=float(said["rope_factor"]),
            original=said["original_max_position_embeddings"],
            beta_fast=float(said["beta_fast"]),
            beta_slow=float(said["beta_slow"]),
            mscale=said["mscale"],
            mscale_all_dim=0.0 if said["rope_attention_scaling"] else said["mscale"],
            truncate=said["rope_truncate"],
        )
    if name.startswith("llama3.1") or said["rope_type"] == "llama3.1":
        return Rope(theta=theta, scaling="llama3", factor=8.0, original=8192)
    return Rope(theta=theta)


def _moe(block: str, said: Mapping[str, Any], layers: int) -> Moe:
    ffn = said["base_moe_mlp_dim"] if said["base_moe_mlp_dim"] > 0 else said["base_mlp_dim"]
    score = said["routed_score_func"] or "softmax"
    groups = max(0, said["n_routing_groups"])
    renormalised = {"deepseek": score == "sigmoid", "qwen3_moe": said["norm_topk_prob"]}
    return Moe(
        layers=tuple(layer >= said["first_num_dense_layers"] for layer in range(layers)),
        experts=said["num_experts"],
        topk=said["num_experts_per_tok"],
        ffn=ffn,
        shared_ffn=said["shared_experts"] * ffn,
        score=score,
        renormalised=renormalised.get(block, True),
        scaling=float(said["routed_scaling_factor"]),
        groups=groups,
        group_topk=max(0, said["topk_routing_group"]) if groups else 0,
        expert_bias=said["routed_bias"] and block == "deepseek",
    )
