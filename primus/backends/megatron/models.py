"""The model that Megatron's arguments describe: a GPT, or with `hybrid_layer_pattern` a stack of unlike layers."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import Any

from megatron.core.extensions.transformer_engine import TELayerNormColumnParallelLinear
from megatron.core.models.hybrid.hybrid_layer_specs import hybrid_stack_spec
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.training.argument_utils import gpt_config_from_args, hybrid_config_from_args

from primus.backends.megatron import turbo


def model_config(args: Namespace) -> Any:
    """Megatron's configuration of the model."""
    if args.hybrid_layer_pattern is None:
        config = gpt_config_from_args(args)
    else:
        config = hybrid_config_from_args(args)
        if args.qk_layernorm and config.hybrid_stack_spec is None:
            config.hybrid_stack_spec = with_latent_norms(hybrid_stack_spec)
    turbo.apply(config, args)
    return config


def with_latent_norms(stack: ModuleSpec) -> ModuleSpec:
    """The stack with `qk_layernorm` for its layers of multi-latent attention, as Megatron has it in a GPT.

    Megatron's own stack has no norm between the two projections of queries, and of keys and values.
    """
    layer = stack.submodules.mla_layer
    attention = layer.submodules.self_attention
    projections = dict.fromkeys(("linear_q_up_proj", "linear_kv_up_proj"), TELayerNormColumnParallelLinear)
    attention = replace(attention, submodules=replace(attention.submodules, **projections))
    layer = replace(layer, submodules=replace(layer.submodules, self_attention=attention))
    return replace(stack, submodules=replace(stack.submodules, mla_layer=layer))
