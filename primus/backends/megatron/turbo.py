"""Primus-Turbo's kernels in Megatron's models: parts of a layer's specification are replaced by ones that call them.

What is replaced is a class of Megatron's for Transformer Engine, by a subclass that differs in its forward pass alone:
parameters and checkpoints stay Megatron's.  What the kernels do not cover, rules.json refuses.  None of this has run on
a GPU yet.
"""

from __future__ import annotations

import dataclasses
import functools
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Any

import torch

SWITCHES = ("enable_primus_turbo", "use_turbo_attention", "use_turbo_grouped_gemm")


def add_arguments(parser: ArgumentParser) -> ArgumentParser:
    """The switches, as flags beside Megatron's own."""
    group = parser.add_argument_group("primus-turbo")
    for name in SWITCHES:
        group.add_argument(f"--{name.replace('_', '-')}", action="store_true")
    return parser


def apply(config: Any, args: Namespace) -> None:
    """Make the model's configuration (Megatron's GPTModelConfig or HybridModelConfig) use what is switched on."""
    if not args.enable_primus_turbo:
        return
    table = substitutes(args)
    if args.hybrid_layer_pattern is not None:
        from megatron.core.models.hybrid.hybrid_layer_specs import hybrid_stack_spec

        config.hybrid_stack_spec = replaced(config.hybrid_stack_spec or hybrid_stack_spec, table)
    elif config.transformer_layer_spec is not None:
        config.transformer_layer_spec = replaced(config.transformer_layer_spec, table)
    else:
        from megatron.training.models.gpt import default_layer_spec

        def layer_spec(config: Any, vp_stage: int | None = None) -> Any:
            return replaced(default_layer_spec(config, vp_stage), table)

        config.transformer_layer_spec = layer_spec


def substitutes(args: Namespace) -> dict[type, type]:
    """Megatron's classes, each with the one that takes its place."""
    from megatron.core.extensions import transformer_engine as te

    table = {}
    if args.use_turbo_attention:
        table[te.TEDotProductAttention] = attention(te.TEDotProductAttention)
    if args.use_turbo_grouped_gemm:
        for linear in (te.TEColumnParallelGroupedLinear, te.TERowParallelGroupedLinear):
            table[linear] = grouped_linear(linear)
    return table


def replaced(spec: Any, table: Mapping[type, type]) -> Any:
    """The specification with the table's classes replaced, however deep they are in it; the given one is left alone."""
    if isinstance(spec, type):
        return table.get(spec, spec)
    if isinstance(spec, functools.partial):
        words = [replaced(word, table) for word in spec.args]
        return functools.partial(replaced(spec.func, table), *words, **replaced(spec.keywords, table))
    if isinstance(spec, dict):
        return {name: replaced(part, table) for name, part in spec.items()}
    if isinstance(spec, (list, tuple)):
        return type(spec)(replaced(part, table) for part in spec)
    if dataclasses.is_dataclass(spec):
        parts = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec) if field.init}
        return dataclasses.replace(spec, **replaced(parts, table))
    return spec


def attention(base: type) -> type:
    """`base`, Megatron's TEDotProductAttention, with Primus-Turbo's kernel for whole causal or full attention."""
    from megatron.core.transformer.enums import AttnMaskType
    from primus_turbo.pytorch.ops import flash_attn_func

    class TurboAttention(base):
        def __init__(self, *args: Any, softmax_scale: float | None = None, **options: Any) -> None:
            super().__init__(*args, softmax_scale=softmax_scale, **options)
            self.turbo_scale = softmax_scale

        def forward(
            self,
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            attention_mask: torch.Tensor | None,
            attn_mask_type: Any,
            attention_bias: torch.Tensor | None = None,
            packed_seq_params: Any = None,
            **options: Any,
        ) -> torch.Tensor:
            plain = attention_bias is None and packed_seq_params is None
            if not plain or attn_mask_type not in (AttnMaskType.causal, AttnMaskType.no_mask):
                return super().forward(
                    query, key, value, attention_mask, attn_mask_type, attention_bias, packed_seq_params, **options
                )
            # Megatron has sequence, batch, head, size; the kernel batch first, seen through the same memory.
            out = flash_attn_func(
                *(tensor.contiguous().transpose(0, 1) for tensor in (query, key, value)),
                softmax_scale=self.turbo_scale,
                causal=attn_mask_type == AttnMaskType.causal,
                deterministic=self.config.deterministic_mode,
            )
            return out.transpose(0, 1).reshape(query.shape[0], query.shape[1], -1)

    return TurboAttention


def grouped_linear(base: type) -> type:
    """`base`, one of Megatron's two grouped linear layers for experts, with Primus-Turbo's grouped GEMM."""
    from primus_turbo.pytorch.ops import grouped_gemm

    class TurboGroupedLinear(base):
        def forward(self, x: torch.Tensor, m_splits: Any) -> tuple[torch.Tensor, None]:
            # The kernel wants the experts' weights in one piece; as parameters they stay apart, as Megatron saves them.
            weights = torch.stack([getattr(self, f"weight{expert}") for expert in range(self.num_gemms)])
            rows = torch.as_tensor(m_splits, dtype=torch.int64, device=x.device)
            return grouped_gemm(x, weights.to(x.dtype), rows, trans_b=True), None

    return TurboGroupedLinear
