"""What each model type of transformers means beyond its keys.

Biases, norms of queries and keys, and defaults of missing keys are from the configuration and model classes of
transformers 5.12.1, which the Megatron image pins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# What says nothing of the architecture: tokens, storage, the software that wrote the file, inference, dropout of heads
# that a language model does not have. Stored weights may be quantized; training starts from none.
NO_MATTER = re.compile(
    r"_name_or_path|architectures|auto_map|(bos|eos|pad|unk|decoder_start)_token_id|torch_dtype|dtype|use_cache"
    r"|transformers_version|transformers\.js_config|quantization_config|pretraining_tp|ep_size|output_router_logits"
    r"|model_type|is_llama_config|tokenizer_class|summary_\w+|task_specific_params|n_ctx|_attn_implementation"
    r"|attention_softmax_in_fp32|scale_attention_softmax_in_fp32|seq_aux|n_special|predict_special_tokens"
    r"|cache_implementation|gradient_checkpointing|name_or_path|output_attentions|output_hidden_states|use_return_dict"
)


@dataclass(frozen=True, kw_only=True)
class Family:
    """What a model type means beyond its keys."""

    defaults: Mapping[str, Any] = field(default_factory=dict)  # of keys that may be missing
    qkv_bias: bool = False
    qk_norm: bool = False
    special: tuple[str, ...] = ()  # what an Architecture has no field for
    knows: tuple[str, ...] = ()  # keys that speak of that


_LLAMA = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False, "initializer_range": 0.02}
_GPT = {**_LLAMA, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "tie_word_embeddings": True}
_GEMMA = {**_LLAMA, "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh"}
_SCALED = ("embeddings times sqrt(hidden_size)",)
FAMILIES = {
    "llama": Family(defaults=_LLAMA),
    "mistral": Family(defaults={**_LLAMA, "num_key_value_heads": 8, "sliding_window": 4096}),
    "mixtral": Family(
        defaults={**_LLAMA, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_key_value_heads": 8, "norm_topk_prob": True}
    ),
    "qwen2": Family(defaults=_LLAMA, qkv_bias=True),
    "qwen2_moe": Family(defaults={**_LLAMA, "norm_topk_prob": False, "shared_expert_gate": True}, qkv_bias=True),
    "qwen3": Family(defaults={**_LLAMA, "head_dim": 128}, qk_norm=True),
    "qwen3_moe": Family(defaults={**_LLAMA, "norm_topk_prob": False}, qk_norm=True),
    "deepseek_v2": Family(defaults={**_LLAMA, "norm_topk_prob": False, "scoring_func": "softmax"}, qk_norm=True),
    "deepseek_v3": Family(defaults={**_LLAMA, "norm_topk_prob": True, "scoring_func": "sigmoid"}, qk_norm=True),
    "kimi_k2": Family(defaults={**_LLAMA, "norm_topk_prob": True, "scoring_func": "sigmoid"}, qk_norm=True),
    "phi3": Family(defaults={**_LLAMA, "rms_norm_eps": 1e-5}),
    "gpt2": Family(defaults=_GPT),
    "starcoder2": Family(defaults={**_LLAMA, "norm_epsilon": 1e-5, "tie_word_embeddings": True, "use_bias": True}),
    "gpt_neox": Family(defaults={**_LLAMA, "attention_bias": True, "use_parallel_residual": True}),
    "gemma": Family(defaults=_GEMMA, special=_SCALED),
    "gemma2": Family(
        defaults=_GEMMA,
        special=(
            *_SCALED,
            "norms after attention and MLP",
            "every second layer with a window",
            "soft capping of logits",
        ),
        knows=("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"),
    ),
    "gpt_oss": Family(
        defaults={**_LLAMA, "rms_norm_eps": 1e-5, "rope_theta": 150000.0, "norm_topk_prob": True},
        special=("attention sinks", "a clamped SwiGLU with an offset", "biases in router and experts"),
        knows=("attention_bias", "swiglu_limit", "initial_context_length"),
    ),
    "olmo2": Family(
        defaults={**_LLAMA, "rms_norm_eps": 1e-5},
        special=("norms after attention and MLP, none before", "norms over all heads of queries and keys"),
    ),
}
