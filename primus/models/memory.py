"""What training a model needs of each GPU's memory: an estimate to within some ten percent, not a measurement.

Parameters, gradients and optimizer: Rajbhandari et al. 2020, arXiv:1910.02054, section 3.1; Megatron's distributed
optimizer keeps 6 + 12/d bytes a parameter. Adapters: Hu et al. 2021, arXiv:2106.09685, section 4: what is frozen has
neither gradient nor optimizer. Activations: Korthikanti et al. 2022, arXiv:2205.05198, sections 4 and 5,
with each tensor counted by its own size, so that grouped queries, gated MLPs, latent attention and experts are told
apart; for a GPT it is their 34sbh. Not counted: the allocator's fragmentation, RCCL's buffers, kernels' workspaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from primus.models.architecture import Architecture, Layer, embedding, final_norm, layers, mtp_layer

GIB = 2**30
# Selective recomputation that keeps what matrix products give, and little else.
PRODUCTS = ("core_attn", "layernorm", "act")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a model is spread over GPUs, and what each of them computes at a time."""

    gpus: int = 1
    tensor: int = 1
    pipeline: int = 1
    virtual: int = 1  # pieces of the model in each stage
    first: int = 0  # layers of the first stage, if said
    last: int = 0
    context: int = 1
    expert: int = 1
    expert_tensor: int = 1
    routed: int = 2  # of the hidden states of routed tokens: the experts' input, and what the scores multiply
    sequence_parallel: bool = False
    batch: int = 1  # sequences at a time on each GPU
    length: int = 1
    microbatches: int = 1
    # selective: what is in `modules`; products: all but the input, attention's output and `products`; full: all but the
    # input of each layer
    recompute: str = "none"
    modules: tuple[str, ...] = ()
    products: tuple[str, ...] = ()  # query, value, gate, down: the linear layers whose output is kept
    recompute_layers: int = 0  # full: so many of a stage's layers; 0: all
    flash: bool = True  # the softmax is never kept
    dropout: bool = False
    fp8: bool = False  # linear layers keep their inputs in 8 bits
    shard_optimizer: bool = False
    shard_all: bool = False  # FSDP, ZeRO-3: parameters and gradients too
    adapter: int = 0  # LoRA's rank: what trains then; 0: the whole model does
    adapted: tuple[str, ...] = ()  # the layers with adapters, in Megatron's names
    shards: int = 0  # over how many GPUs; 0: all that hold the same part of the model
    parameter_bytes: float = 2
    gradient_bytes: float = 4
    optimizer_bytes: float = 12

    @property
    def data(self) -> int:
        """GPUs that hold the same dense part of the model, context parallelism's included."""
        return max(1, self.gpus // (self.tensor * self.pipeline))

    @property
    def expert_data(self) -> int:
        """GPUs that hold the same experts."""
        return max(1, self.gpus // (self.pipeline * self.expert * self.expert_tensor))


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on the GPU that needs most."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.parameters + self.gradients + self.optimizer + self.activations


def estimate(model: Architecture, layout: Layout) -> Memory:
    """The memory of a GPU of the stage that needs most."""
    return max(_stages(model, layout), key=lambda memory: memory.total)


def _stages(model: Architecture, layout: Layout) -> Iterator[Memory]:
    numbers, sparse = list(layers(model)), model.moe_layers
    begin = 0
    for stage, size in enumerate(split(model.layers, layout)):
        inside = slice(begin, begin + size)
        begin += size
        is_last = stage == layout.pipeline - 1
        dense, experts = _parameters(model, numbers[inside], layout, first=stage == 0, last=is_last)
        kept = [_layer(model, layout, has_experts) for has_experts in sparse[inside]]
        if is_last:
            kept += [_layer(model, layout, sparse[-1])] * model.mtp_layers
        flying = _in_flight(layout, stage)
        activations = flying * _recomputed(model, layout, kept)
        if is_last:
            activations += _head(model, layout) * (1 + model.mtp_layers)
        biggest = max((number.total for number in numbers[inside]), default=0)
        if layout.adapter:
            adapters = sum(_adapters(model, layout, has_experts) for has_experts in sparse[inside])
            yield _adapting(layout, dense + experts, adapters, activations)
        else:
            yield _memory(layout, dense, experts, activations, biggest)


def split(count: int, layout: Layout) -> list[int]:
    """The number of layers in each stage."""
    stages = layout.pipeline
    ends = [layout.first or 0, layout.last or 0]
    middle = stages - sum(1 for end in ends if end)
    if stages == 1:
        return [count]
    share = -(-(count - sum(ends)) // middle) if middle else 0
    sizes = [share] * stages
    if layout.first:
        sizes[0] = layout.first
    if layout.last:
        sizes[-1] = layout.last
    return sizes


def _parameters(
    model: Architecture, numbers: list[Layer], layout: Layout, *, first: bool, last: bool
) -> tuple[float, float]:
    """Parameters on one GPU of a stage before data parallelism shards them: dense ones, and experts."""
    numbers = numbers + ([mtp_layer(model)] * model.mtp_layers if last else [])
    split_up: float = sum(number.attention + number.mlp for number in numbers)
    split_up += embedding(model) * (first + (last and not (first and model.tied)))
    if last and model.mtp_layers and not first:
        split_up += embedding(model)  # multi-token prediction embeds its own input
    whole = sum(number.replicated for number in numbers) + (final_norm(model) if last else 0)
    whole += model.positions * model.hidden if first and not model.rope else 0
    experts = sum(number.experts for number in numbers) / (layout.expert * layout.expert_tensor)
    return split_up / layout.tensor + whole, experts


def _memory(layout: Layout, dense: float, experts: float, activations: float, biggest: float) -> Memory:
    # Expert parallelism takes its GPUs from those that shard: the fewer are left to shard experts.
    fewer = max(1, layout.shards * layout.tensor // (layout.expert * layout.expert_tensor))
    parts = (
        (dense, min(layout.data, layout.shards or layout.data)),
        (experts, min(layout.expert_data, fewer if layout.shards else layout.expert_data)),
    )
    optimizer = sum(size / (same if layout.shard_optimizer or layout.shard_all else 1) for size, same in parts)
    held = sum(size / (same if layout.shard_all else 1) for size, same in parts)
    # FSDP gathers a layer in BF16 while it computes it, and the next one meanwhile.
    gathered = 2 * 2 * biggest / (layout.tensor * layout.expert) if layout.shard_all else 0
    return Memory(
        parameters=held * layout.parameter_bytes + gathered,
        gradients=held * layout.gradient_bytes,
        optimizer=optimizer * layout.optimizer_bytes,
        activations=activations,
    )


def _adapters(model: Architecture, layout: Layout, has_experts: bool) -> float:
    """Parameters of one layer's adapters on one GPU: two matrices for each linear layer, into the rank and out of it.

    The experts of a GPU share theirs.
    """
    query, key, gate = model.heads * model.head_dim, model.kv_heads * model.head_dim, 2 if model.gated else 1
    ffns = [model.moe.ffn, model.moe.shared_ffn] if has_experts and model.moe else [model.ffn]
    sizes = {"linear_qkv": model.hidden + query + 2 * key, "linear_proj": query + model.hidden}
    sizes["linear_fc1"] = sum(model.hidden + gate * ffn for ffn in ffns if ffn)
    sizes["linear_fc2"] = sum(ffn + model.hidden for ffn in ffns if ffn)
    return layout.adapter * sum(size for name, size in sizes.items() if name in layout.adapted) / layout.tensor


def _adapting(layout: Layout, frozen: float, adapters: float, activations: float) -> Memory:
    return Memory(
        parameters=(frozen + adapters) * layout.parameter_bytes,
        gradients=adapters * layout.gradient_bytes,
        optimizer=adapters * layout.optimizer_bytes / (layout.data if layout.shard_optimizer else 1),
        activations=activations,
    )


def _in_flight(layout: Layout, stage: int) -> float:
    """Microbatches whose activations a stage keeps at once (Korthikanti et al., section 4.2.3)."""
    if layout.virtual > 1:
        return layout.pipeline * (1 + (layout.pipeline - 1) / (layout.pipeline * layout.virtual))
    return min(layout.microbatches, layout.pipeline - stage)


def _tokens(layout: Layout) -> float:
    return layout.batch * layout.length / layout.context


def _around(model: Architecture, layout: Layout) -> float:
    """One tensor of a token's hidden states, where only sequence parallelism splits it."""
    return 2 * _tokens(layout) * model.hidden / (layout.tensor if layout.sequence_parallel else 1)


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """Bytes that one layer keeps for its backward pass, of one microbatch."""

    norms: float
    attention: float
    scores: float  # of attention
    mlp: float
    act: float  # the part of `mlp` that follows the activation function
    inputs: float  # all that is kept if the layer is computed again
    products: float  # beside the inputs, where only some products are kept
    experts: bool

    @property
    def total(self) -> float:
        return self.norms + self.attention + self.scores + self.mlp


def _layer(model: Architecture, layout: Layout, has_experts: bool) -> _Kept:
    around, tokens = _around(model, layout), _tokens(layout)
    masks = around / 2 if layout.dropout else 0
    softmax = 0.0
    if not layout.flash:
        # scores after softmax, and with dropout its mask and what it leaves: Korthikanti's 5as²b
        softmax = (5 if layout.dropout else 2) * model.heads * tokens * layout.length / layout.tensor
    mlp, act = _mlp(model, layout, has_experts)
    return _Kept(
        norms=(3 if layout.fp8 else 4) * around,  # what goes into the two norms, and what comes out of them
        attention=2 * tokens * _attention(model) / layout.tensor + masks,
        scores=softmax,
        mlp=mlp + masks,
        act=act,
        inputs=around,
        products=_products(model, layout, has_experts),
        experts=has_experts,
    )


def _products(model: Architecture, layout: Layout, has_experts: bool) -> float:
    """Bytes of attention's output and of the products that are kept; those of experts are not."""
    value_dim = model.mla.v_head_dim if model.mla else model.head_dim
    sizes = {"query": model.heads * model.head_dim, "value": model.kv_heads * value_dim}
    if not has_experts:
        sizes |= {"gate": model.ffn, "down": model.hidden}
    kept = model.heads * value_dim + sum(size for name, size in sizes.items() if name in layout.products)
    return 2 * _tokens(layout) * kept / layout.tensor


def _attention(model: Architecture) -> int:
    """Elements of a token that attention keeps: queries, keys, values, and its output."""
    if mla := model.mla:
        rotated = mla.qk_head_dim + mla.rope_head_dim
        low = mla.q_lora_rank + mla.kv_lora_rank + mla.rope_head_dim
        return low + model.heads * (2 * rotated + 2 * mla.v_head_dim)
    return 2 * model.head_dim * (model.heads + model.kv_heads)


def _mlp(model: Architecture, layout: Layout, has_experts: bool) -> tuple[float, float]:
    """Bytes that the MLP or the experts keep, and how many of them follow the activation function."""
    tokens, gate, width = _tokens(layout), 2 if model.gated else 1, 1 if layout.fp8 else 2
    if not has_experts or model.moe is None:
        ffn = tokens * model.ffn / layout.tensor
        return ffn * (2 * gate + width), ffn * width
    moe = model.moe
    # With sequence parallelism each GPU of a tensor group sends its own tokens; balanced, as many come back.
    routed = tokens * moe.topk / (layout.tensor if layout.sequence_parallel and layout.expert_tensor == 1 else 1)
    ffn = routed * moe.ffn / layout.expert_tensor
    shared = tokens * moe.shared_ffn / layout.tensor * (2 * gate + width)
    scores = 4 * tokens * moe.experts / (layout.tensor if layout.sequence_parallel else 1)
    around = 2 * (layout.routed - 1) + width
    return around * routed * model.hidden + ffn * (2 * gate + width) + shared + scores, ffn * width


def _recomputed(model: Architecture, layout: Layout, kept: list[_Kept]) -> float:
    """Bytes of a stage's layers, of one microbatch, after what is computed again."""
    if layout.recompute == "full":
        again = layout.recompute_layers or len(kept)
        one = max((layer.total for layer in kept), default=0)  # lives while it is computed again
        return sum(layer.inputs if index < again else layer.total for index, layer in enumerate(kept)) + one
    if layout.recompute == "products":
        return sum(layer.inputs + layer.products for layer in kept) + max((layer.total for layer in kept), default=0)
    total = sum(layer.total for layer in kept)
    for layer in kept if layout.recompute == "selective" else ():
        total -= layer.scores if "core_attn" in layout.modules else 0
        total -= layer.norms / 2 if "layernorm" in layout.modules else 0
        if ("moe" if layer.experts else "mlp") in layout.modules:
            total -= layer.mlp
        elif "act" in layout.modules or (layer.experts and "moe_act" in layout.modules):
            total -= layer.act
    return total


def _head(model: Architecture, layout: Layout) -> float:
    """Bytes of the last norm, the output layer and the loss, which sees FP32: 4sbh(1 + v/h)."""
    return 2 * _around(model, layout) + 4 * _tokens(layout) * model.vocab / layout.tensor
