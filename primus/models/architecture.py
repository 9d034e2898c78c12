"""A decoder-only transformer, in no framework's words, and how many parameters it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary position embeddings; `scaling` is "", or the kind with its numbers (llama3, yarn, linear, ...)."""

    theta: float
    percent: float = 1.0
    scaling: str = ""
    factor: float = 1.0
    original: int = 0  # positions before the scaling
    low_freq: float = 1.0
    high_freq: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 1.0
    mscale_all_dim: float = 0.0
    truncate: bool = True


@dataclass(frozen=True, kw_only=True)
class Mla:
    """DeepSeek's multi-head latent attention."""

    q_lora_rank: int  # 0: queries have no low rank
    kv_lora_rank: int
    qk_head_dim: int
    rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True, kw_only=True)
class Moe:
    """Experts in place of the dense MLP, in the layers that have them."""

    layers: tuple[bool, ...]
    experts: int
    topk: int
    ffn: int
    shared_ffn: int = 0  # of all shared experts together
    shared_gate: bool = False
    score: str = "softmax"
    renormalised: bool = True  # the chosen experts' weights add up to 1
    scaling: float = 1.0
    groups: int = 0  # 0: experts are chosen among all
    group_topk: int = 0
    expert_bias: bool = False


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What a model is made of. Sizes are numbers of elements; layers are counted without MTP's."""

    layers: int
    hidden: int
    ffn: int  # of a dense MLP
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    positions: int
    norm: str = "RMSNorm"  # or LayerNorm
    norm_eps: float = 1e-5
    activation: str = "silu"  # gelu, gelu_tanh, relu2
    gated: bool = True
    rope: Rope | None = None  # None: learned positions
    tied: bool = False
    bias: bool = False  # in every linear layer
    qkv_bias: bool = False
    qk_norm: bool = False
    window: int = 0  # tokens that attention sees, itself included; 0: all
    window_layers: tuple[bool, ...] = ()  # the layers with the window; (): all
    mla: Mla | None = None
    moe: Moe | None = None
    mtp_layers: int = 0
    special: tuple[str, ...] = field(default=())  # what none of the fields above can say

    @property
    def moe_layers(self) -> tuple[bool, ...]:
        """For each layer whether it has experts."""
        return self.moe.layers if self.moe else (False,) * self.layers


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Parameters of one layer: `attention` and `mlp` are split by tensor parallelism, `experts` by expert parallelism
    too, `replicated` (norms, router) by neither."""

    attention: int
    mlp: int = 0
    experts: int = 0
    active: int = 0  # of the experts, those that one token meets
    replicated: int = 0

    @property
    def total(self) -> int:
        """All of the layer's parameters."""
        return self.attention + self.mlp + self.experts + self.replicated


def layers(model: Architecture) -> Iterator[Layer]:
    """Each layer's parameters, in order."""
    dense, sparse = _layer(model, False), _layer(model, True) if model.moe else None
    for has_experts in model.moe_layers:
        yield sparse if has_experts and sparse else dense


def mtp_layer(model: Architecture) -> Layer:
    """A multi-token-prediction layer: one more layer like the last, three norms and a projection from 2h to h.

    DeepSeek-V3, arXiv:2412.19437, section 2.2; embedding and output are the model's own.
    """
    last = _layer(model, model.moe_layers[-1])
    return Layer(
        attention=last.attention + 2 * model.hidden * model.hidden,
        mlp=last.mlp,
        experts=last.experts,
        active=last.active,
        replicated=last.replicated + 3 * _norm(model, model.hidden),
    )


def embedding(model: Architecture) -> int:
    """Parameters of the word embedding, and of as large an output layer where the two are not tied."""
    return model.vocab * model.hidden


def final_norm(model: Architecture) -> int:
    """Parameters of the norm before the output layer."""
    return _norm(model, model.hidden)


def parameters(model: Architecture) -> int:
    """All parameters, without MTP's layers: as published names count."""
    positions = 0 if model.rope else model.positions * model.hidden
    ends = embedding(model) * (1 if model.tied else 2) + positions + final_norm(model)
    return ends + sum(layer.total for layer in layers(model))


def active_parameters(model: Architecture) -> int:
    """The parameters that one token meets: all, but of the experts only the chosen ones."""
    return parameters(model) - sum(layer.experts - layer.active for layer in layers(model))


def _layer(model: Architecture, has_experts: bool) -> Layer:
    hidden = model.hidden
    norms = 2 * _norm(model, hidden)
    if not has_experts or model.moe is None:
        return Layer(attention=_attention(model), mlp=_mlp(model, model.ffn), replicated=norms + _qk_norms(model))
    expert = _mlp(model, model.moe.ffn)
    return Layer(
        attention=_attention(model),
        mlp=_mlp(model, model.moe.shared_ffn) if model.moe.shared_ffn else 0,
        experts=model.moe.experts * expert,
        active=model.moe.topk * expert,
        replicated=norms + _qk_norms(model) + hidden * model.moe.experts + (hidden if model.moe.shared_gate else 0),
    )


def _attention(model: Architecture) -> int:
    hidden, heads = model.hidden, model.heads
    if mla := model.mla:
        query = heads * (mla.qk_head_dim + mla.rope_head_dim)
        down = mla.q_lora_rank * (hidden + query) if mla.q_lora_rank else hidden * query
        keys = hidden * (mla.kv_lora_rank + mla.rope_head_dim)
        up = mla.kv_lora_rank * heads * (mla.qk_head_dim + mla.v_head_dim)
        return down + keys + up + heads * mla.v_head_dim * hidden
    query, key = heads * model.head_dim, model.kv_heads * model.head_dim
    biases = (query + 2 * key if model.qkv_bias or model.bias else 0) + (hidden if model.bias else 0)
    return 2 * hidden * query + 2 * hidden * key + biases


def _mlp(model: Architecture, ffn: int) -> int:
    inner = ffn * (2 if model.gated else 1)
    return model.hidden * (inner + ffn) + (inner + model.hidden if model.bias else 0)


def _qk_norms(model: Architecture) -> int:
    if not model.qk_norm:
        return 0
    if model.mla:
        return _norm(model, model.mla.q_lora_rank) + _norm(model, model.mla.kv_lora_rank)
    return 2 * _norm(model, model.head_dim)


def _norm(model: Architecture, size: int) -> int:
    return size * (2 if model.norm == "LayerNorm" else 1)
