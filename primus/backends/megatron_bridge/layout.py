"""What Megatron Bridge 0.6.2 demands of the numbers of a run, and how it spreads a model: as megatron-core does.

Its configuration is read under Megatron's names here: what the experiment says, else what its recipe sets, else what
the model of the hub is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from primus.backends import megatron_core
from primus.backends.megatron_bridge import recipes
from primus.experiment.schema import schema
from primus.layout import Number, Requirement, Said, Size
from primus.models import megatron, patterns
from primus.models.architecture import Architecture
from primus.models.memory import Layout

_VALIDATE = "megatron/bridge/training/config.py ConfigContainer.validate"
# Megatron's arguments that Bridge has elsewhere than in its model, or under another name.
_NAMES = {
    **{name: f"train.{name}" for name in ("global_batch_size", "micro_batch_size", "decrease_batch_size_if_needed")},
    **{name: f"validation.{name}" for name in ("eval_global_batch_size", "eval_micro_batch_size")},
    **{name: f"mixed_precision.{name}" for name in ("fp4", "fp8_recipe")},
    **{
        name: f"optimizer.{name}"
        for name in (
            *("optimizer", "use_precision_aware_optimizer", "optimizer_cpu_offload", "optimizer_offload_fraction"),
            *("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"),
        )
    },
    "num_experts": "model.num_moe_experts",
    "num_virtual_stages_per_pipeline_rank": "model.virtual_pipeline_model_parallel_size",
    "decoder_first_pipeline_num_layers": "model.num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "model.num_layers_in_last_pipeline_stage",
    "use_torch_fsdp2": "dist.use_torch_fsdp2",
    "data_parallel_sharding_strategy": "ddp.data_parallel_sharding_strategy",
}
_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "uint8": "fp8"}
# What Bridge does not look at, or has in another way that changes none of the numbers here.
_FIXED: Mapping[str, Any] = {
    "use_mp_args_from_checkpoint_args": False,
    "use_checkpoint_args": False,
    "heterogeneous_layers_config_path": None,
    "num_layers_per_virtual_pipeline_stage": None,
    "max_position_embeddings": None,  # it takes any length
    "overlap_p2p_comm": True,
    "window_size": None,
    "padded_vocab_size": None,
    "tokenizer_model": None,
}


@dataclass(frozen=True, kw_only=True)
class AsMegatron(Said):
    """Bridge's configuration under Megatron's names; numbers keep Bridge's."""

    hub: Mapping[str, Any] = field(default_factory=dict)  # what the model of the hub is, in Megatron's arguments
    model: str = ""  # and its name

    @classmethod
    def read(cls, said: Said) -> AsMegatron:
        name, reading = recipes.model(said.values)
        try:
            rows = megatron.preset(reading).rows if reading else ()
        except (ValueError, OverflowError):  # a number in its config.json that is none
            rows = ()
        return cls(
            values=said.values,
            table=said.table,
            accelerator=said.accelerator,
            below=said.below,
            hub={row.key: row.value for row in rows},
            model=name,
        )

    def name(self, name: str) -> str:
        key = _NAMES.get(name, f"model.{name}")
        return key if key in self.table.arguments else name

    def said(self, key: str) -> Any:
        """A value of Bridge's own."""
        return super().__getitem__(key)

    def __getitem__(self, name: str) -> Any:
        if name in _FIXED:
            return _FIXED[name]
        if name in _DERIVED:
            return _DERIVED[name](self)
        key = self.name(name)
        if key not in (*self.values, *self.below) and name in self.hub:
            return self.hub[name]
        if key not in self.table.arguments:
            return schema("megatron").arguments[name].default
        value = self.said(key)
        if name in ("num_layers", "hidden_size", "num_attention_heads"):
            return value or None  # Bridge's zero is a model that nobody described
        return _DTYPES.get(value, value) if name.endswith("_dtype") else value

    def number(self, name: str, kind: Literal["setting", "model"] = "setting") -> Number:
        key, value = self.name(name), self[name]
        found = super().number(key, kind)
        unsaid = f"of {self.model}" if name in self.hub and key not in self.below else found.unsaid
        return replace(found, value=1 if value is None else value, unsaid=unsaid)


def _own(said: AsMegatron, name: str, key: str) -> Any:
    """Bridge's value of that key if somebody set it, else the hub's or Megatron's under the name."""
    if key in (*said.values, *said.below):
        return said.said(key)
    return said.hub.get(name, schema("megatron").arguments[name].default)


def _freq(said: AsMegatron) -> Any:
    value = _own(said, "moe_layer_freq", "model.moe_layer_freq")
    return patterns.written(tuple(bool(one) for one in value)) if isinstance(value, list) else value


def _activation(said: AsMegatron, name: str) -> bool:
    words = {"squared_relu": "squared_relu", "quick_geglu": "quick_gelu"}
    given = said.said("model.activation_func") if "model.activation_func" in (*said.values, *said.below) else None
    return bool(said.hub.get(name)) if given is None else given == words[name]


_DERIVED: Mapping[str, Callable[[AsMegatron], Any]] = {
    "group_query_attention": lambda said: bool(said["num_query_groups"]),
    "bf16": lambda said: said.said("mixed_precision.bf16") or said.said("model.bf16"),
    "fp16": lambda said: said.said("mixed_precision.fp16") or said.said("model.fp16"),
    "fp8": lambda said: said.said("mixed_precision.fp8") or said.said("model.fp8"),
    "grad_reduce_in_bf16": lambda said: (
        said.said("mixed_precision.bf16") and not said.said("mixed_precision.grad_reduce_in_fp32")
    ),
    "use_distributed_optimizer": lambda said: (
        said.said("optimizer.use_distributed_optimizer") or said.said("ddp.use_distributed_optimizer")
    ),
    "use_megatron_fsdp": lambda said: said.said("ddp.use_megatron_fsdp") or said.said("dist.use_megatron_fsdp"),
    "moe_layer_freq": _freq,
    "swiglu": lambda said: _own(said, "swiglu", "model.gated_linear_unit"),
    "squared_relu": lambda said: _activation(said, "squared_relu"),
    "quick_geglu": lambda said: _activation(said, "quick_geglu") and said.said("model.gated_linear_unit"),
    "untie_embeddings_and_output_weights": lambda said: (
        not said.said("model.share_embeddings_and_output_weights")
        if "model.share_embeddings_and_output_weights" in (*said.values, *said.below)
        else said.hub.get("untie_embeddings_and_output_weights", False)
    ),
    "vocab_size": lambda said: (
        said.said("model.vocab_size") or said.hub.get("vocab_size") or said.said("tokenizer.vocab_size")
    ),
}


below = recipes.below


def requirements(said: Said, size: Size | None) -> Iterator[Requirement]:
    """All of them; those about the number of processes where that is known."""
    for item in megatron_core.requirements(AsMegatron.read(said), size):
        yield replace(item, source=_VALIDATE) if item.source == megatron_core.ARGUMENTS else item


def spread(said: Said, model: Architecture, gpus: int) -> Layout:
    """How the model is spread over so many GPUs, or over more if its parallelism takes more."""
    return replace(megatron_core.spread(AsMegatron.read(said), model, gpus), **_adapters(said))


def architecture(said: Said) -> Architecture:
    """The experiment's model. Raises ValueError if it is not known."""
    read = AsMegatron.read(said)
    if read["hybrid_layer_pattern"]:
        raise ValueError("model.hybrid_layer_pattern: there is no formula for Mamba's layers here")
    if read.model and not read.hub and not said.values.get("model.num_layers"):
        raise ValueError(
            f"the dimensions of {read.model} are not known here; hf_path may name a directory with its config.json"
        )
    return megatron.architecture(read)


def _adapters(said: Said) -> dict[str, Any]:
    """LoRA and DoRA: the rank of the adapters, and the layers that have them."""
    found = recipes.recipe(said.values.get("flavor"))
    if not found or not found["peft"] or said.values.get("peft", "") is None:
        return {}
    return {"adapter": said["peft.dim"], "adapted": tuple(said["peft.target_modules"])}


def precision(said: Said) -> str:
    return megatron_core.precision(AsMegatron.read(said))
