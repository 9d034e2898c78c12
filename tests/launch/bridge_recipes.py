"""Runs in Megatron Bridge's Python: what each recipe sets of the numbers of a run, as JSON.

The models themselves are the hub's, which stays out of it: a recipe gets a model without dimensions, and sets its own
values on that.
"""

from __future__ import annotations

import json
from importlib import import_module
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any
from unittest import mock

from primus.backends.megatron import stand_ins as megatron_stand_ins
from primus.backends.megatron_bridge import stand_ins
from primus.experiment.schema import schema

LAYOUT = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
    "context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size", "sequence_parallel",
    "seq_length", "pipeline_model_parallel_layout", "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split", "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage",
    "microbatch_group_size_per_vp_stage", "recompute_granularity", "recompute_method", "recompute_num_layers",
    "recompute_modules", "transformer_impl",
)  # fmt: skip
MODEL = (
    "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "kv_channels",
    "gated_linear_unit", "num_moe_experts", "moe_ffn_hidden_size", "moe_router_topk",
    "moe_shared_expert_intermediate_size", "hidden_dropout", "share_embeddings_and_output_weights",
    "add_bias_linear", "add_qkv_bias", "normalization", "position_embedding_type", "multi_latent_attention",
    "qk_layernorm", "vocab_size", "hybrid_layer_pattern", "mtp_num_layers",
)  # fmt: skip
SECTIONS = {
    "train": "global_batch_size micro_batch_size",
    "validation": "eval_global_batch_size eval_micro_batch_size",
    "optimizer": "optimizer use_distributed_optimizer use_precision_aware_optimizer main_grads_dtype main_params_dtype"
    " exp_avg_dtype exp_avg_sq_dtype optimizer_cpu_offload optimizer_offload_fraction",
    "ddp": "use_distributed_optimizer use_megatron_fsdp data_parallel_sharding_strategy",
    "dist": "use_torch_fsdp2 use_megatron_fsdp",
    "mixed_precision": "bf16 fp16 fp8 fp8_recipe fp4 grad_reduce_in_fp32",
    "peft": "dim target_modules",
}


def main() -> None:
    arguments = {row.name: row for row in schema("megatron_bridge").arguments.values()}
    flavors = [str(name) for name in arguments["flavor"].choices or ()]
    defaults = {name: row.default for name, row in arguments.items()}
    megatron_stand_ins.install()
    with stand_ins.importing():
        transformers = import_module("transformers")
        AutoBridge = import_module("megatron.bridge").AutoBridge
        GPTModelProvider = import_module("megatron.bridge.models.gpt_provider").GPTModelProvider
        precision = import_module("megatron.bridge.training.mixed_precision")
        recipes = import_module("megatron.bridge.recipes")
    plain = GPTModelProvider(vocab_size=0)  # a recipe may ask whether the tokenizer needs a larger one
    asked: list[tuple[str, Any]] = []

    def answer(source: Any, *_: Any, **__: Any) -> Any:
        asked.append((getattr(source, "name", source), GPTModelProvider(vocab_size=0)))
        return mock.Mock(to_megatron_provider=lambda **_: asked[-1][1])

    def facts(flavor: str) -> dict[str, Any] | None:
        asked.clear()
        try:
            config = getattr(recipes, flavor)()
        except NotImplementedError:  # there in name only
            return None
        hub = next((name for name, provider in asked if provider is config.model), None)
        values = {}
        for key in (*LAYOUT, *MODEL):
            value = getattr(config.model, key, None)
            if not (hub and key in MODEL and value == getattr(plain, key, None)):
                values[f"model.{key}"] = told(value)
        if isinstance(config.mixed_precision, str):
            config.mixed_precision = precision.get_mixed_precision_config(config.mixed_precision)
        for section in SECTIONS:
            values |= part(section, getattr(config, section))
        return {
            "hf_path": hub,
            "model": type(config.model).__name__,
            "peft": type(config.peft).__name__ if config.peft else None,
            "values": {key: value for key, value in values.items() if value != defaults[key]},
        }

    def no_hub(name: str, **_: Any) -> Any:
        return mock.MagicMock(text_config=SimpleNamespace(name=name))

    with (
        stand_ins.importing(),
        mock.patch.multiple(AutoBridge, from_hf_pretrained=answer, from_hf_config=answer),
        mock.patch.object(transformers.AutoConfig, "from_pretrained", no_hub),
        mock.patch.object(transformers.AutoTokenizer, "from_pretrained", mock.MagicMock()),
    ):
        names = {flavor: getattr(recipes, flavor).__name__ for flavor in flavors}
        found = {name: facts(name) for name in sorted(set(names.values()))}
        homes = [str(home) for home in arguments["recipe"].choices or ()]
        homes.sort(key=lambda home: (home.count(".") != 1, len(home)))  # llama.llama3, not llama
        modules = {home: import_module(f"megatron.bridge.recipes.{home}") for home in homes}
    precisions = {name: make() for name, make in precision.MIXED_PRECISION_RECIPES.items() if "-" not in name}
    print(
        json.dumps(
            {
                "version": version("megatron-bridge"),
                "precisions": {
                    name: {key: value for key, value in part("mixed_precision", it).items() if value != defaults[key]}
                    for name, it in precisions.items()
                },
                "flavors": {
                    flavor: [next(home for home in homes if hasattr(modules[home], flavor)), name]
                    for flavor, name in names.items()
                },
                "recipes": found,
            }
        )
    )


def part(section: str, value: Any) -> dict[str, Any]:
    """The values of one part of a configuration by dotted name; none where there is no such part."""
    keys = (key for key in SECTIONS[section].split() if hasattr(value, key))
    return {f"{section}.{key}": told(getattr(value, key)) for key in keys}


def told(value: Any) -> Any:
    """The value as JSON has it."""
    if isinstance(value, (list, tuple)):
        return [told(item) for item in value]
    plain = value is None or isinstance(value, (bool, int, float, str))
    return value if plain else str(value).removeprefix("torch.")


if __name__ == "__main__":
    main()
