"""A Hugging Face config.json as an Architecture, with where each part of it was said."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from primus.errors import ConfigError, Problem
from primus.models.architecture import Architecture, Mla, Moe
from primus.models.families import FAMILIES
from primus.models.reader import Reader
from primus.models.rotary import rope


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a config.json says: the architecture, where each field of it comes from, and what was not understood."""

    model_type: str
    name: str  # the repository it was published as, or ""
    architecture: Architecture
    sources: Mapping[str, str]  # by the architecture's fields ("rope.theta"), and the two below
    init_std: float
    dropout: float
    attention_dropout: float
    aux_loss: float
    unsupported: tuple[Problem, ...]
    where: str  # the file


def load(path: Path) -> Reading:
    """The config.json at `path`, or in the directory `path`. Raises ConfigError if it cannot be one."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8-sig"), parse_constant=_no_number)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(file)) from None
    except (ValueError, RecursionError) as error:  # what cannot be decoded is a ValueError too
        raise ConfigError(f"is no JSON: {error}", where=str(file), hint="name a config.json") from None
    if not isinstance(config, dict):
        raise ConfigError("is no configuration of a model: it holds no mapping", where=str(file))
    return read(config, where=str(file))


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")


def read(config: Mapping[str, Any], *, where: str = "config.json") -> Reading:
    """The configuration as a Reading. Raises ConfigError for what is missing or malformed."""
    reader = Reader(config, where)
    model_type = reader.config.get("model_type")
    if not isinstance(model_type, str):
        raise ConfigError("model_type: is missing", where=where, hint="this is no config.json of transformers")
    if "text_config" in config and "hidden_size" not in config:
        raise ConfigError(
            f"model_type: {model_type!r} is more than a language model: its text_config alone cannot be trained as one",
            where=where,
            hint="for its language model alone, save the text_config as a config.json",
        )
    if model_type not in FAMILIES:
        reader.unsupported.append(
            Problem(
                message=f"model_type: {model_type!r} is none that is known here; read as llama",
                where=where,
                hint=f"known: {', '.join(FAMILIES)}",
            )
        )
    reader.family = FAMILIES.get(model_type, FAMILIES["llama"])
    architecture = _architecture(reader, model_type)
    name = str(config.get("_name_or_path") or config.get("name_or_path") or "")
    reading = Reading(
        model_type=model_type,
        name=name if re.fullmatch(r"[\w.-]+/[\w.-]+", name) else "",
        architecture=architecture,
        sources=reader.sources,
        init_std=float(reader.take("init_std", "initializer_range", kinds=(int, float), positive=False)),
        dropout=reader.largest("dropout", "resid_pdrop", "embd_pdrop", "residual_dropout", "embedding_dropout"),
        attention_dropout=reader.largest("attention_dropout", "attention_dropout", "attn_pdrop"),
        aux_loss=reader.largest("aux_loss", "router_aux_loss_coef", "aux_loss_alpha"),
        unsupported=tuple(reader.finish()),
        where=where,
    )
    if reader.problems:
        raise ConfigError(reader.problems)
    return reading


def _architecture(r: Reader, model_type: str) -> Architecture:
    """The whole, part by part."""
    hidden = r.take("hidden", "hidden_size", "n_embd")
    heads = r.take("heads", "num_attention_heads", "n_head")
    layers = r.take("layers", "num_hidden_layers", "n_layer")
    if layers > 10_000:
        r.wrong("num_hidden_layers", "is more than 10000")
        layers = 1
    positions = r.take("positions", "max_position_embeddings", "n_positions")
    mla = _mla(r)
    kv_heads = r.take("kv_heads", "num_key_value_heads", default=heads, why="as many as num_attention_heads")
    if kv_heads and heads % kv_heads:
        r.wrong("num_key_value_heads", f"{kv_heads} does not divide num_attention_heads, {heads}")
    if mla is None and "head_dim" not in r.family.defaults and not r.config.get("head_dim") and hidden % heads:
        r.wrong("hidden_size", f"{hidden} is no multiple of num_attention_heads, {heads}, and head_dim is not said")
    head_dim = r.take("head_dim", "head_dim", default=hidden // heads, why="hidden_size / num_attention_heads")
    if mla:
        kv_heads, head_dim = heads, mla.qk_head_dim + mla.rope_head_dim
    activation, gated = _activation(r, model_type)
    layer_norm = model_type in ("gpt2", "starcoder2", "gpt_neox")
    ffn = r.take("ffn", "intermediate_size", "n_inner", default=4 * hidden, why="4 x hidden_size")
    bias = _bias(r, model_type)
    window, window_layers = _window(r, model_type, layers, positions)
    if r.optional("use_parallel_residual", False):
        r.odd("use_parallel_residual", "attention and MLP side by side are not supported")
    return Architecture(
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=r.take("vocab", "vocab_size"),
        positions=positions,
        norm="LayerNorm" if layer_norm else "RMSNorm",
        norm_eps=r.take(
            "norm_eps", "rms_norm_eps", "norm_epsilon", "layer_norm_epsilon", "layer_norm_eps", kinds=(float,)
        ),
        activation=activation,
        gated=gated,
        rope=None if model_type == "gpt2" else rope(r, positions),
        tied=r.take("tied", "tie_word_embeddings", kinds=(bool,)),
        bias=bias,
        qkv_bias=bias or r.family.qkv_bias or bool(r.optional("attention_bias", False)),
        qk_norm=r.family.qk_norm,
        window=window,
        window_layers=window_layers,
        mla=mla,
        moe=_moe(r, layers),
        mtp_layers=min(r.optional("num_nextn_predict_layers", 0), 100),
        special=r.family.special,
    )


def _activation(r: Reader, model_type: str) -> tuple[str, bool]:
    keys: tuple[str, ...] = ("hidden_act", "activation_function")
    if model_type.startswith("gemma"):  # its first files say gelu, and transformers pays no heed
        r.taken.update(keys)
        keys = ("hidden_activation",)
    word = r.take("activation", *keys, kinds=(str,))
    known = {"silu": "silu", "swish": "silu", "gelu": "gelu", "relu2": "relu2"}
    known |= dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), "gelu_tanh")
    if word not in known:
        r.odd(r.sources.get("activation", "hidden_act"), f"{word!r} is no activation that is known here")
    if model_type == "starcoder2":
        for key, only in (("mlp_type", "default"), ("norm_type", "layer_norm"), ("scale_attn_weights", True)):
            if (said := r.optional(key, only)) != only:
                r.odd(key, f"{said!r} is not supported")
    return known.get(word, "silu"), model_type not in ("gpt2", "starcoder2", "gpt_neox")


def _bias(r: Reader, model_type: str) -> bool:
    """Whether all linear layers have biases; some alone are not supported, but for queries, keys and values."""
    r.sources["bias"] = f"{model_type} {'has biases' if model_type == 'gpt2' else 'has none'}"
    everywhere = model_type in ("gpt2", "gpt_neox") or bool(r.optional("use_bias", False))
    mlp, attention = bool(r.optional("mlp_bias", False)), bool(r.optional("attention_bias", False))
    if "use_bias" in r.config:
        r.sources["bias"] = "use_bias"
    elif "mlp_bias" in r.config:
        r.sources["bias"] = "mlp_bias, attention_bias"
    if mlp and attention:
        return True
    if mlp:
        r.odd("mlp_bias", "biases in the MLP without biases in attention are not supported")
    if attention and not everywhere and "attention_bias" not in r.family.knows:
        r.sources["qkv_bias"] = "attention_bias"
        r.odd("attention_bias", "biases in attention's output without biases in the MLP are not supported")
    elif r.family.qkv_bias:
        r.sources["qkv_bias"] = f"{model_type} has biases for queries, keys and values"
    if r.optional("lm_head_bias", False):
        r.odd("lm_head_bias", "a bias in the output layer is not supported")
    return everywhere


def _window(r: Reader, model_type: str, layers: int, positions: int) -> tuple[int, tuple[bool, ...]]:
    window = r.optional("sliding_window", 0)
    off = "use_sliding_window" in r.config or model_type.startswith("qwen")
    first = r.optional("max_window_layers", 0)  # those below it see everything
    types = r.optional("layer_types", [])
    if off and not r.optional("use_sliding_window", False):
        r.sources["window"] = "use_sliding_window is false"
        return 0, ()
    if not isinstance(window, int) or not 0 < window < positions:
        r.sources["window"] = "sliding_window is as long as the sequence" if window else "sliding_window is null"
        return 0, ()
    r.sources["window"] = "sliding_window"
    if types:
        r.sources["window_layers"] = "layer_types"
        if odd := sorted({str(item) for item in types} - {"sliding_attention", "full_attention"}):
            r.odd("layer_types", f"{', '.join(odd)} is not supported")
        if len(types) != layers:
            r.wrong("layer_types", f"names {len(types)} layers of {layers}")
        return window, tuple(item == "sliding_attention" for item in types)
    if model_type == "gemma2":
        return window, tuple(index % 2 == 0 for index in range(layers))
    if off:
        r.sources["window_layers"] = "max_window_layers"
        return window, tuple(index >= first for index in range(layers))
    return window, ()


def _q_lora_rank(r: Reader) -> int:
    if "q_lora_rank" in r.config and r.config["q_lora_rank"] is None:
        r.taken.add("q_lora_rank")
        r.sources["mla.q_lora_rank"] = "q_lora_rank is null: queries have no low rank"
        return 0
    return int(r.take("mla.q_lora_rank", "q_lora_rank", default=1536, why="the model type's default", positive=False))


def _mla(r: Reader) -> Mla | None:
    if "kv_lora_rank" not in r.config:
        return None
    return Mla(
        q_lora_rank=_q_lora_rank(r),
        kv_lora_rank=r.take("mla.kv_lora_rank", "kv_lora_rank"),
        qk_head_dim=r.take("mla.qk_head_dim", "qk_nope_head_dim"),
        rope_head_dim=r.take("mla.rope_head_dim", "qk_rope_head_dim"),
        v_head_dim=r.take("mla.v_head_dim", "v_head_dim"),
    )


def _moe(r: Reader, layers: int) -> Moe | None:
    keys = ("num_local_experts", "num_experts", "n_routed_experts")
    if not any(r.config.get(key) for key in keys):
        return None
    ffn = r.take("moe.ffn", "moe_intermediate_size", "intermediate_size")
    r.taken.add("experts_per_token")
    shared = r.take(
        "moe.shared_ffn", "shared_expert_intermediate_size", default=0, why="no shared experts", positive=False
    )
    if number := r.optional("n_shared_experts", 0):
        shared = number * ffn
        r.sources["moe.shared_ffn"] = "n_shared_experts x moe_intermediate_size"
    score = r.take("moe.score", "scoring_func", default="softmax", why="softmax", kinds=(str,))
    if score not in ("softmax", "sigmoid"):
        r.odd("scoring_func", f"{score!r} is not supported")
    method = r.optional("topk_method", "greedy")
    if method not in ("greedy", "group_limited_greedy", "noaux_tc"):
        r.odd("topk_method", f"{method!r} is not supported")
    groups, limit = r.optional("n_group", 0), r.optional("topk_group", 0)
    grouped = method != "greedy" and groups > 1 and limit > 0
    if grouped:
        r.sources |= {"moe.groups": "n_group", "moe.group_topk": "topk_group"}
    r.sources["moe.expert_bias"] = f"topk_method: {method}"
    return Moe(
        layers=_moe_layers(r, layers),
        experts=r.take("moe.experts", *keys),
        topk=r.take("moe.topk", "num_experts_per_tok"),
        ffn=ffn,
        shared_ffn=shared,
        shared_gate=bool(shared and r.family.defaults.get("shared_expert_gate")),
        score=score,
        renormalised=r.take(
            "moe.renormalised", "norm_topk_prob", default=True, why="the chosen add up to 1", kinds=(bool,)
        ),
        scaling=float(
            r.take("moe.scaling", "routed_scaling_factor", default=1.0, why="no scaling", kinds=(int, float))
        ),
        groups=groups if grouped else 0,
        group_topk=limit if grouped else 0,
        expert_bias=method == "noaux_tc",
    )


def _moe_layers(r: Reader, layers: int) -> tuple[bool, ...]:
    dense = r.optional("first_k_dense_replace", 0)
    step = max(1, r.optional("decoder_sparse_step", 1))
    every = max(1, r.optional("moe_layer_freq", 1))
    without = r.optional("mlp_only_layers", [])
    said = [key for key in ("first_k_dense_replace", "decoder_sparse_step", "mlp_only_layers") if key in r.config]
    r.sources["moe.layers"] = ", ".join(said) or "all layers"
    return tuple(
        index >= dense and (index + 1) % step == 0 and index % every == 0 and index not in without
        for index in range(layers)
    )
