"""A model as Megatron's arguments (megatron-core 0.19.2), and Megatron's arguments as a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from primus.errors import Problem
from primus.models import patterns
from primus.models.architecture import Architecture, Mla, Moe, Rope
from primus.models.huggingface import Reading
from primus.models.preset import Preset, Row

# Vocabularies of the tokenizers that presets name, as the models' own config.json (vocab_size) has them.
VOCABULARIES = {
    "Llama-2": 32000,
    "Llama-3": 128256,
    "Llama-4": 202048,
    "Mixtral": 32000,
    "DeepSeek-V2": 102400,
    "DeepSeek-V3": 129280,
    "Qwen2.5-3B": 151936,
    "Qwen2.5": 152064,
    "Qwen3.5": 248320,
    "Qwen3": 151936,
    "gpt-oss": 201088,
    "Kimi-K2": 163840,
}


class Arguments(Protocol):
    """All of Megatron's arguments, defaults included."""

    def __getitem__(self, name: str, /) -> Any: ...


def preset(reading: Reading) -> Preset:
    """The model as Megatron's arguments, each with what of the config.json it comes from."""
    model = reading.architecture
    problems = [Problem(message=message) for message in _unsupported(model)]
    return Preset(rows=tuple(_rows(reading)), unsupported=tuple(problems))


def _unsupported(model: Architecture) -> Iterator[str]:
    if model.special:
        yield f"Megatron's GPT has no {', no '.join(model.special)}"
    if model.activation.startswith("gelu") and model.gated:
        yield "a gated GELU: Megatron 0.19 has no argument for it"
    if model.activation == "gelu_tanh" and not model.bias:
        yield "a GELU by tanh without biases: Megatron 0.19 has it only where it fuses it with a bias"
    rope = model.rope
    if rope and rope.scaling == "llama3" and (rope.low_freq, rope.high_freq, rope.original) != (1.0, 4.0, 8192):
        yield "llama3 scaling with other numbers than 1, 4 and 8192, which Megatron 0.19 has fixed"
    if rope and rope.scaling == "linear" and rope.factor != int(rope.factor):
        yield f"linear scaling by {rope.factor}: Megatron's rotary_seq_len_interpolation_factor is an integer"
    if rope and rope.theta != int(rope.theta):
        yield f"a rope theta of {rope.theta}: Megatron's rotary_base is an integer"
    if rope and model.mla and rope.scaling not in ("", "yarn"):
        yield f"{rope.scaling} scaling with multi-head latent attention"
    if rope and model.mla and rope.scaling and (rope.original, rope.beta_fast, rope.beta_slow) != (4096, 32, 1):
        yield "yarn with other numbers than 4096, 32 and 1, which Megatron 0.19 has fixed for latent attention"
    if model.mla and model.window:
        yield "a sliding window with multi-head latent attention"
    if (moe := model.moe) and moe.score == "sigmoid" and not moe.renormalised:
        yield "norm_topk_prob: false with sigmoid scores: Megatron always divides them by their sum"
    if (moe := model.moe) and moe.groups and moe.topk % moe.group_topk:
        yield f"{moe.topk} experts from {moe.group_topk} groups: Megatron wants a multiple"


def _rows(reading: Reading) -> Iterator[Row]:
    model, sources = reading.architecture, reading.sources

    def row(key: str, value: Any, source: str) -> Row:
        return Row(key=key, value=value, source=sources.get(source, source))

    yield row("num_layers", model.layers, "layers")
    yield row("hidden_size", model.hidden, "hidden")
    yield row("ffn_hidden_size", model.ffn, "ffn")
    yield row("num_attention_heads", model.heads, "heads")
    if mla := model.mla:
        yield row("multi_latent_attention", True, "kv_lora_rank")
        yield row("q_lora_rank", mla.q_lora_rank or None, "mla.q_lora_rank")
        yield row("kv_lora_rank", mla.kv_lora_rank, "mla.kv_lora_rank")
        yield row("qk_head_dim", mla.qk_head_dim, "mla.qk_head_dim")
        yield row("qk_pos_emb_head_dim", mla.rope_head_dim, "mla.rope_head_dim")
        yield row("v_head_dim", mla.v_head_dim, "mla.v_head_dim")
    else:
        grouped = model.kv_heads != model.heads
        yield row("group_query_attention", grouped, "kv_heads")
        if grouped:
            yield row("num_query_groups", model.kv_heads, "kv_heads")
        yield row("kv_channels", model.head_dim, "head_dim")
    yield row("qk_layernorm", model.qk_norm, f"{reading.model_type} {'has them' if model.qk_norm else 'has none'}")
    yield row("add_bias_linear", model.bias, "bias")
    if model.qkv_bias and not model.bias:
        yield row("add_qkv_bias", True, "qkv_bias")
    if model.window:
        yield row("window_size", f"{model.window - 1},0", f"{sources['window']}, which counts the token itself")
        if model.window_layers and not all(model.window_layers):
            yield row("window_attn_skip_freq", patterns.written(model.window_layers), "window_layers")
    yield from _activation(model, row)
    yield row("normalization", model.norm, f"{reading.model_type} has {model.norm}")
    yield row("layernorm_epsilon", model.norm_eps, "norm_eps")
    yield from _positions(model, row)
    yield row("untie_embeddings_and_output_weights", not model.tied, "tied")
    yield row("vocab_size", model.vocab, "vocab")
    if model.moe:
        yield from _experts(model.moe, reading, row)
    if model.mtp_layers:
        yield row("mtp_num_layers", model.mtp_layers, "num_nextn_predict_layers")
    yield row("init_method_std", reading.init_std, "init_std")
    yield row("attention_dropout", float(reading.attention_dropout), "attention_dropout")
    yield row("hidden_dropout", float(reading.dropout), "dropout")
    yield row("tokenizer_type", "NullTokenizer", "for real data: HuggingFaceTokenizer, and tokenizer_model")


def _activation(model: Architecture, row: Any) -> Iterator[Row]:
    yield row("swiglu", model.gated and model.activation == "silu", "activation")
    if model.activation == "relu2":
        yield row("squared_relu", True, "activation")
    if model.activation.startswith("gelu") and not model.gated:
        fused = model.activation == "gelu_tanh"  # Megatron's fused GELU is the one by tanh, its plain one is exact
        yield row("bias_gelu_fusion", fused, "activation")


def _positions(model: Architecture, row: Any) -> Iterator[Row]:
    rope = model.rope
    yield row("max_position_embeddings", model.positions, "positions")
    if rope is None:
        yield row("position_embedding_type", "learned_absolute", "n_positions")
        return
    yarn = rope.scaling == "yarn"
    kind = "yarn" if yarn and not model.mla else "rope"
    yield row("position_embedding_type", kind, "rope.scaling" if yarn and not model.mla else "rope_theta")
    yield row("rotary_base", int(rope.theta), "rope.theta")
    yield row(
        "rotary_percent", float(rope.percent), "rope.percent" if rope.percent != 1 else "all of a head is rotated"
    )
    if model.mla:
        yield row("rope_type", "yarn" if yarn else "rope", "rope.scaling")
        yield row("apply_rope_fusion", False, "kv_lora_rank: Megatron fuses only yarn there, and the CPU nothing")
    if rope.scaling == "llama3":
        yield row("use_rope_scaling", True, "rope.scaling")
        yield row("rope_scaling_factor", float(rope.factor), "rope.factor")
    if rope.scaling == "linear":
        yield row("rotary_seq_len_interpolation_factor", int(rope.factor), "rope.factor")
    if yarn:
        yield row("rotary_scaling_factor", float(rope.factor), "rope.factor")
        yield row("mscale", float(rope.mscale), "rope.mscale")
        yield row("mscale_all_dim", float(rope.mscale_all_dim), "rope.mscale_all_dim")
    if yarn and not model.mla:
        yield row("yarn_original_max_position_embeddings", rope.original, "rope.original")
        yield row("yarn_beta_fast", float(rope.beta_fast), "rope.beta_fast")
        yield row("yarn_beta_slow", float(rope.beta_slow), "rope.beta_slow")
        yield row("yarn_correction_range_round_to_int", rope.truncate, "rope.truncate")


def _experts(moe: Moe, reading: Reading, row: Any) -> Iterator[Row]:
    yield row("num_experts", moe.experts, "moe.experts")
    yield row("moe_layer_freq", 1 if all(moe.layers) else patterns.written(moe.layers), "moe.layers")
    yield row("moe_ffn_hidden_size", moe.ffn, "moe.ffn")
    if moe.shared_ffn:
        yield row("moe_shared_expert_intermediate_size", moe.shared_ffn, "moe.shared_ffn")
    if moe.shared_gate:
        yield row("moe_shared_expert_gate", True, f"{reading.model_type} has one")
    yield row("moe_router_topk", moe.topk, "moe.topk")
    yield row("moe_router_score_function", moe.score, "moe.score")
    if moe.score == "softmax":
        yield row("moe_router_pre_softmax", not moe.renormalised, "moe.renormalised")
    if moe.scaling != 1:
        yield row("moe_router_topk_scaling_factor", moe.scaling, "moe.scaling")
    if moe.groups:
        yield row("moe_router_num_groups", moe.groups, "moe.groups")
        yield row("moe_router_group_topk", moe.group_topk, "moe.group_topk")
    if moe.expert_bias:
        yield row("moe_router_enable_expert_bias", True, "moe.expert_bias")
        yield row("moe_router_load_balancing_type", "seq_aux_loss", "moe.expert_bias")
    if reading.aux_loss:
        yield row("moe_aux_loss_coeff", float(reading.aux_loss), "aux_loss")


def architecture(args: Arguments) -> Architecture:
    """The model that Megatron builds from its arguments (all of them, defaults included).

    Raises ValueError where they are not enough, or describe what an Architecture cannot.
    """
    hidden, heads, layers = args["num_layers"] and args["hidden_size"], args["num_attention_heads"], args["num_layers"]
    if not (hidden and heads and layers):
        raise ValueError("num_layers, hidden_size and num_attention_heads are not all set")
    if args["experimental_attention_variant"]:
        raise ValueError(f"experimental_attention_variant: {args['experimental_attention_variant']}")
    mla = _mla(args) if args["multi_latent_attention"] else None
    head_dim = mla.qk_head_dim + mla.rope_head_dim if mla else args["kv_channels"] or hidden // heads
    grouped = args["group_query_attention"] and not mla
    swiglu = args["swiglu"]
    gated = bool(swiglu or args["quick_geglu"])
    ffn = args["ffn_hidden_size"] or (hidden * 8 // 3 // 64 * 64 if swiglu else 4 * hidden)
    gelu = "gelu_tanh" if args["bias_gelu_fusion"] and args["add_bias_linear"] else "gelu"
    window = args["window_size"]
    skip = args["window_attn_skip_freq"] if window else None
    learned = args["position_embedding_type"] == "learned_absolute"
    return Architecture(
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=args["num_query_groups"] if grouped else heads,
        head_dim=head_dim,
        vocab=vocabulary(args),
        positions=args["max_position_embeddings"] or args["seq_length"] or 0,
        norm=args["normalization"],
        norm_eps=args["layernorm_epsilon"],
        activation="silu" if swiglu else "relu2" if args["squared_relu"] else gelu,
        gated=gated,
        rope=None if learned else _rope(args, mla),
        tied=not args["untie_embeddings_and_output_weights"],
        bias=args["add_bias_linear"],
        qkv_bias=args["add_bias_linear"] or args["add_qkv_bias"],
        qk_norm=args["qk_layernorm"],
        window=int(str(window).strip("()").split(",")[0]) + 1 if window else 0,
        window_layers=() if skip is None else _window_layers(skip, layers),
        mla=mla,
        moe=_moe(args, ffn, layers) if args["num_experts"] else None,
        mtp_layers=args["mtp_num_layers"] or 0,
    )


def vocabulary(args: Arguments) -> int:
    """The size of the vocabulary, or 0 where only the tokenizer's files know it."""
    if size := args["padded_vocab_size"] or args["vocab_size"]:
        return int(size)
    name = str(args["tokenizer_model"] or "").rpartition("/")[2].removeprefix("Meta-")
    return next((size for start, size in VOCABULARIES.items() if name.startswith(start)), 0)


def _mla(args: Arguments) -> Mla:
    return Mla(
        q_lora_rank=args["q_lora_rank"] or 0,
        kv_lora_rank=args["kv_lora_rank"],
        qk_head_dim=args["qk_head_dim"],
        rope_head_dim=args["qk_pos_emb_head_dim"],
        v_head_dim=args["v_head_dim"],
    )


def _rope(args: Arguments, mla: Mla | None) -> Rope:
    theta, percent = float(args["rotary_base"]), float(args["rotary_percent"])
    if (mla and args["rope_type"] != "rope") or args["position_embedding_type"] == "yarn":
        return Rope(
            theta=theta,
            percent=percent,
            scaling="yarn",
            factor=float(args["rotary_scaling_factor"]),
            original=4096 if mla else args["yarn_original_max_position_embeddings"] or 4096,
            beta_fast=32.0 if mla or args["yarn_beta_fast"] is None else args["yarn_beta_fast"],
            beta_slow=1.0 if mla or args["yarn_beta_slow"] is None else args["yarn_beta_slow"],
            mscale=float(args["mscale"]),
            mscale_all_dim=float(args["mscale_all_dim"]),
            truncate=args["yarn_correction_range_round_to_int"] is not False,
        )
    if args["use_rope_scaling"]:
        return Rope(
            theta=theta, percent=percent, scaling="llama3", factor=float(args["rope_scaling_factor"]), original=8192
        )
    if (factor := args["rotary_seq_len_interpolation_factor"]) not in (None, 1):
        return Rope(theta=theta, percent=percent, scaling="linear", factor=float(factor))
    return Rope(theta=theta, percent=percent)


def _moe(args: Arguments, ffn: int, layers: int) -> Moe:
    freq = args["moe_layer_freq"]
    if isinstance(freq, int) or str(freq).isdigit():
        pattern = tuple(index % int(freq) == 0 for index in range(layers))
    else:
        pattern = patterns.read(str(freq))
    if len(pattern) < layers:
        raise ValueError(f"moe_layer_freq: {freq} names {len(pattern)} of {layers} layers")
    sigmoid = args["moe_router_score_function"] == "sigmoid"
    return Moe(
        layers=pattern[:layers],
        experts=args["num_experts"],
        topk=args["moe_router_topk"],
        ffn=args["moe_ffn_hidden_size"] or ffn,
        shared_ffn=args["moe_shared_expert_intermediate_size"] or 0,
        shared_gate=args["moe_shared_expert_gate"],
        score=args["moe_router_score_function"],
        renormalised=sigmoid or not args["moe_router_pre_softmax"],
        scaling=args["moe_router_topk_scaling_factor"] or 1.0,
        groups=args["moe_router_num_groups"] or 0,
        group_topk=args["moe_router_group_topk"] or 0,
        expert_bias=args["moe_router_enable_expert_bias"],
    )


def _window_layers(skip: int | str, layers: int) -> tuple[bool, ...]:
    if isinstance(skip, int) or str(skip).isdigit():
        return tuple((index + 1) % int(skip) != 0 for index in range(layers))
    return patterns.read(str(skip))[:layers]
