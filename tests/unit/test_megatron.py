"""An experiment's arguments as Megatron's flags, and what they say by themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from primus.backends.megatron import adapter
from primus.errors import ConfigError
from primus.experiment import load_experiment
from primus.node import Node

from .conftest import ROOT, Experiment

RUN = Path("/run")
LOCAL = "transformer_impl: local\nno_persist_layer_norm: true"
FSDP2 = "use_torch_fsdp2: true\ngradient_accumulation_fusion: false\nuntie_embeddings_and_output_weights: true"
ROWS = json.loads((ROOT / "primus/backends/megatron/arguments.json").read_text(encoding="utf-8"))["arguments"]


@pytest.mark.parametrize(
    ("overrides", "flags"),
    [
        ("lr: 1e-5", ["--lr=1e-05"]),
        ("lr: null", []),
        ("clip_grad: -1", ["--clip-grad=-1.0"]),
        ("wandb_project: -x y", ["--wandb-project=-x y"]),
        ("bf16: true", ["--bf16"]),
        ("bf16: false", []),
        ("add_bias_linear: false", ["--disable-bias-linear"]),
        ("add_bias_linear: true", []),
        ("apply_rope_fusion: false", ["--no-rope-fusion"]),
        ("yarn_correction_range_round_to_int: true", ["--yarn-correction-range-round-to-int"]),
        ("yarn_correction_range_round_to_int: false", ["--no-yarn-correction-range-round-to-int"]),
        ("no_load_optim: null", []),
        ("onnx_safe: true", ["--onnx-safe=True"]),
        ("fp8: hybrid", ["--fp8-format=hybrid"]),
        ("layernorm_epsilon: 1.0e-6", ["--norm-epsilon=1e-06"]),
        ("moe_layer_freq: 2", ["--moe-layer-freq=2"]),
        ("moe_layer_freq: ([0]*1+[1]*26)", ["--moe-layer-freq=([0]*1+[1]*26)"]),
        ("recompute_modules: [core_attn, mlp]", ["--recompute-modules", "core_attn", "mlp"]),
        ("profile_ranks: []", []),
        ("moe_aux_loss_coeff: 0.01", ["--moe-aux-loss-coeff=0.01"]),
        ("moe_aux_loss_coeff: [0.01, 0.02]", ["--moe-aux-loss-coeff", "0.01", "0.02"]),
        ("tokenizer_model: $${HOME}", ["--tokenizer-model=${HOME}"]),
        ("use_checkpoint_opt_param_scheduler: true", ["--use-checkpoint-opt-param-scheduler"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_argument_is_a_flag(experiment: Experiment, overrides: str, flags: list[str]) -> None:
    args = load_experiment(experiment(overrides, framework="megatron"), environ={}).args
    assert list(adapter.flags(args)) == flags


@pytest.mark.parametrize("overrides", ["wandb_entity: ${MY_TOKEN}", "data_path: ['${MY_TOKEN}']"])
def test_a_secret_is_no_argument(experiment: Experiment, overrides: str) -> None:
    """Megatron prints all its arguments when it starts."""
    path = experiment(overrides, framework="megatron")
    args = load_experiment(path, environ={"MY_TOKEN": "hush"}).args
    with pytest.raises(ConfigError, match="is a secret, and Megatron prints its arguments"):
        list(adapter.flags(args))


def test_what_was_let_through_is_a_flag_too(experiment: Experiment) -> None:
    path = experiment("new_switch: true\nold_switch: false\nnew_size: 5", framework="megatron")
    allowed = frozenset({"new_switch", "old_switch", "new_size"})
    args = load_experiment(path, environ={}, allow_unknown=allowed).args
    assert list(adapter.flags(args)) == ["--new-size=5", "--new-switch"]
    with pytest.raises(ConfigError, match="torch_compile: a flag cannot hold a mapping"):
        list(adapter.flags({"torch_compile": {"enable": True}}))


@pytest.mark.parametrize("row", [row for row in ROWS if row["type"] == "bool"], ids=lambda row: row["name"])
def test_every_boolean_can_be_turned(row: dict[str, object]) -> None:
    """A boolean has a flag for the value that is not its default; a null default is a false one."""
    assert str(not row["default"]).lower() in row


@pytest.mark.parametrize(
    ("overrides", "places"),
    [
        ("lr: 1.0", {}),
        ("save_interval: 5", {"save": "/run/checkpoints", "load": "/run/checkpoints"}),
        ("save_interval: 5\nsave: null", {}),
        ("save_interval: 5\nsave: here", {"save": "/run/here", "load": "/run/here"}),
        ("save_interval: 5\nsave: /there", {"save": "/there", "load": "/there"}),
        ("save_interval: 5\nload: null", {"save": "/run/checkpoints"}),
        ("save_interval: 5\nload: /old", {"save": "/run/checkpoints", "load": "/old"}),
    ],
)
def test_a_run_saves_where_it_resumes_from(experiment: Experiment, overrides: str, places: dict[str, str]) -> None:
    found = load_experiment(experiment(overrides, framework="megatron"), environ={})
    words = adapter.command(found, Node(), RUN).argv
    seen = dict(word[2:].split("=", 1) for word in words if word.startswith(("--save=", "--load=")))
    assert seen == places
    assert {"--data-cache-path=/run/data_cache", "--tensorboard-dir=/run/tensorboard"} <= set(words)


@pytest.mark.parametrize(
    ("overrides", "value"), [("bf16: true", "1"), (FSDP2, None), ("use_megatron_fsdp: true", None)]
)
def test_fsdp_wants_more_than_one_connection(experiment: Experiment, overrides: str, value: str | None) -> None:
    found = load_experiment(experiment(overrides, framework="megatron"), environ={})
    assert adapter.command(found, Node(), RUN).env.get("CUDA_DEVICE_MAX_CONNECTIONS") == value


@pytest.mark.parametrize(
    ("overrides", "needed"),
    [
        (LOCAL, set()),
        ("lr: 1.0", {"transformer_engine"}),
        (
            "transformer_impl: local\nno_persist_layer_norm: true\nhybrid_layer_pattern: M-*-",
            {"transformer_engine", "mamba_ssm", "causal_conv1d"},
        ),
        ("hybrid_layer_pattern: +-", {"transformer_engine"}),
        ("hybrid_layer_pattern: G-", {"transformer_engine", "fla", "causal_conv1d"}),
        (f"{LOCAL}\nhybrid_layer_pattern: '*-'\nspec: [a, b]", set()),
    ],
    ids=["local", "default", "mamba", "latent attention", "gated delta net", "own spec"],
)
def test_layers_want_their_kernels(experiment: Experiment, overrides: str, needed: set[str]) -> None:
    """Said by the launcher, before Megatron is imported, since on a CPU there are none."""
    found = load_experiment(experiment(overrides, framework="megatron"), environ={}, accelerator="rocm")
    assert set(adapter.modules(found)) == {"megatron", *needed}


@pytest.mark.parametrize(
    ("overrides", "needed"),
    [
        ("enable_primus_turbo: true\nuse_turbo_attention: true\nattention_dropout: 0.0", {"primus_turbo", "aiter"}),
        ("enable_primus_turbo: true\nuse_turbo_grouped_gemm: true\nadd_bias_linear: false", {"primus_turbo"}),
        ("enable_primus_turbo: true", set()),
        ("enable_primus_turbo: false\nuse_turbo_attention: false", set()),
    ],
)
def test_primus_turbo_is_wanted_where_it_is_used(experiment: Experiment, overrides: str, needed: set[str]) -> None:
    found = load_experiment(experiment(overrides, framework="megatron"), environ={}, accelerator="rocm")
    assert set(adapter.modules(found)) == {"megatron", "transformer_engine", *needed}
    flags = {word for word in adapter.command(found, Node(), RUN).argv if "turbo" in word}
    assert flags == {f"--{line.split(':')[0].replace('_', '-')}" for line in overrides.split("\n") if "true" in line}


REFUSED = {
    "norms": ("transformer_impl=local", "refuse a persistent kernel"),
    "sequence": ("transformer_impl=local no_persist_layer_norm=true sequence_parallel=true "
                 "tensor_model_parallel_size=2", "refuse sequence parallelism"),
    "context": ("transformer_impl=local no_persist_layer_norm=true context_parallel_size=2", "Transformer Engine's"),
    "fp8": ("transformer_impl=local no_persist_layer_norm=true fp8=hybrid", "full precision and not say so"),
    "experts": ("num_experts=8 tensor_model_parallel_size=2", "only with sequence parallelism"),
    "no experts": ("expert_model_parallel_size=2", "there are no experts"),
    "gather": ("overlap_param_gather=true use_distributed_optimizer=true", "only with the reduction"),
    "fsdp2": ("use_torch_fsdp2=true use_distributed_optimizer=true", "FSDP2 refuses it"),
    "batches": ("sft=true", "makes no such batches"),
    "turbo, off": ("use_turbo_attention=true", "does nothing by itself"),
    "turbo, fp8": ("enable_primus_turbo=true use_turbo_grouped_gemm=true fp8=hybrid", "not with Primus-Turbo's"),
}  # fmt: skip


@pytest.mark.parametrize(("words", "said"), REFUSED.values(), ids=REFUSED)
def test_what_megatron_does_not_do_is_refused(experiment: Experiment, words: str, said: str) -> None:
    """rules.json, for ROCm; each as Megatron or our worker has it at this pin."""
    pytest.importorskip("primus.experiment.rules")
    with pytest.raises(ConfigError, match=said):
        load_experiment(experiment("lr: 1.0", framework="megatron"), words.split(), environ={}, accelerator="rocm")


def test_a_distributed_optimizer_that_cannot_resume_is_refused_on_a_cpu(experiment: Experiment) -> None:
    pytest.importorskip("primus.experiment.rules")
    path = experiment("save_interval: 5\nuse_distributed_optimizer: true", framework="megatron")
    with pytest.raises(ConfigError, match="saves and cannot resume"):
        load_experiment(path, environ={})
    assert load_experiment(path, environ={}, accelerator="rocm")


def test_a_warm_up_that_does_not_end_is_refused() -> None:
    """Megatron asserts it, in the first seconds of a job that may have waited for days."""
    path = ROOT / "examples/megatron/configs/CPU/llama2_tiny-pretrain.yaml"
    for words, said in (
        (["train_iters=5", "lr_decay_iters=null", "lr_warmup_iters=5"], "lr_warmup_iters 5: is not less than train_i"),
        (["train_iters=50", "lr_decay_iters=3", "lr_warmup_iters=4"], "lr_warmup_iters 4: is not less than lr_decay"),
    ):
        (problem,) = adapter.problems(load_experiment(path, words))
        assert problem.message.startswith(said)
        assert problem.hint.startswith("write lr_warmup_iters=0")
    assert not [*adapter.problems(load_experiment(path, ["train_iters=5", "lr_warmup_iters=4"]))]
