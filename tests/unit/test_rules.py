"""Combinations that a backend refuses at its pin are refused before anything runs, and the rules are about that pin."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from primus.errors import ConfigError
from primus.experiment import load_experiment, rules
from primus.experiment.coerce import coerce
from primus.experiment.schema import frameworks, schema
from primus.experiment.types import ACCELERATORS, STAGES, Origin
from primus.experiment.yaml import Scalar

from .conftest import Experiment, Primus

BACKENDS = Path(__file__).resolve().parents[2] / "primus/backends"
RULES = [
    pytest.param(name, rule, id=f"{name}: {rule.why}") for name in frameworks() for rule in rules.rules(name).rules
]
BOUNDS = [
    pytest.param(name, argument, bound, id=f"{name}: {argument} {bound}")
    for name in frameworks()
    for argument, bounds in rules.rules(name).bounds.items()
    for bound in bounds
]


@pytest.mark.parametrize("framework", frameworks())
def test_rules_are_of_the_pinned_version(framework: str) -> None:
    """Every backend has some. Moving a pin means going through its rules: does each still hold?"""
    table = json.loads((BACKENDS / framework / "rules.json").read_text(encoding="utf-8"))
    assert (table["backend"], table["version"]) == (framework, schema(framework).version)
    assert table["rules"]
    assert table["bounds"]
    assert set(table) <= {"backend", "version", "elsewhere", "own", "choices", "bounds", "rules"}
    assert all(set(row) <= {"when", "accelerator", "stage", "why", "hint"} for row in table["rules"])
    assert not rules.rules(framework).elsewhere or rules.rules(framework).elsewhere in schema(framework).arguments


@pytest.mark.parametrize("framework", frameworks())
def test_choices_are_of_arguments_that_have_none_of_their_own(framework: str) -> None:
    table = json.loads((BACKENDS / framework / "rules.json").read_text(encoding="utf-8"))
    rows = json.loads((BACKENDS / framework / "arguments.json").read_text(encoding="utf-8"))["arguments"]
    own = {row["name"]: row for row in rows}
    for name, choices in table.get("choices", {}).items():
        assert "choices" not in own[name]
        assert len(choices) == len({*choices}) > 1
        default = own[name]["default"]
        assert {*(default if isinstance(default, list) else [default])} <= {*choices, None}
    assert "own" not in table or (table["own"] in own and table["choices"])


@pytest.mark.parametrize(
    ("framework", "override", "said"),
    [
        ("torchtitan", "model.name=lama3", "did you mean 'llama3'?"),
        ("torchtitan", "training.dataset=c4_tset", "did you mean 'c4_test'?"),
        ("torchtitan", "model.converters=[quantize.linear.mx, float8]", "'float8' (str) is not a choice"),
        ("torchtitan", "optimizer.name=SGD", "choices: Adam, AdamW"),
        ("maxtext", "attention=flesh", "did you mean 'flash'?"),
        ("maxtext", "remat_policy=fulll", "did you mean 'full'?"),
        ("maxtext", "mlp_activations=[sillu]", "did you mean 'silu'?"),
        ("megatron", "recompute_modules=[atn]", "'atn' (str) is not a choice"),
        ("megatron", "split=a,b", "is no share of training"),
        ("megatron", "split=1,2,3,4", "is no share of training"),
        ("megatron", "split=0,0", "is no share of training"),
        ("megatron_bridge", "mixed_precision=bf16_mix", "did you mean 'bf16_mixed'?"),
        ("megatron_bridge", "optimizer.optimizer=adamw", "did you mean 'adam'?"),
        ("specforge", "data.chat_template=llama2", "did you mean 'llama4'?"),
        ("torchtitan", "training.steps=99999999999999999999", "does not fit into 64 bits"),
        ("megatron", "num_layers=-99999999999999999999", "does not fit into 64 bits"),
    ],
)
def test_what_a_backend_has_no_such_of_is_refused(framework: str, override: str, said: str) -> None:
    path = next(iter(sorted((BACKENDS.parents[1] / "examples" / framework / "configs/CPU").glob("*.yaml"))))
    with pytest.raises(ConfigError, match=re.escape(said)):
        load_experiment(path, [override])


def test_code_of_the_users_own_brings_names() -> None:
    path = BACKENDS.parents[1] / "examples/torchtitan/configs/CPU/llama3_tiny-pretrain.yaml"
    own = ["model.name=mine", "model.converters=[also.mine]", "experimental.custom_import=my.code"]
    assert load_experiment(path, own).args["model"]["name"] == "mine"
    for last in ("experimental.custom_import=", "experimental.custom_import=null", ""):
        with pytest.raises(ConfigError, match=re.escape("model.name: 'mine'")):
            load_experiment(path, [*own[:2], *([last] if last else [])])


@pytest.mark.parametrize("split", ["99,1,0", "1", "969, 30, 1", "0.9,0.1", "0,1"])
def test_shares_that_megatron_takes(split: str) -> None:
    path = next(iter((BACKENDS.parents[1] / "examples/megatron/configs/CPU").glob("*.yaml")))
    load_experiment(path, [f"split='{split}'"])


@pytest.mark.parametrize(("framework", "rule"), RULES)
def test_a_rule_is_about_arguments_that_there_are(framework: str, rule: rules.Rule) -> None:
    table = schema(framework)
    assert rule.when
    assert rule.accelerator in ("", *ACCELERATORS)
    assert rule.stage in ("", *STAGES.values())
    assert rule.hint
    for pattern, values in rule.when.items():
        for part in pattern.split("|"):
            names = [name for name in table.arguments if name.startswith(part[:-1])] if part[-1] == "*" else [part]
            assert names, part
            assert set(names) <= set(table.arguments), part
            if part[-1] == "*":
                continue
            argument = table.arguments[part]
            for value in values:
                if value == rules.SAID:
                    continue
                if isinstance(value, str) and rules.COMPARES.fullmatch(value):
                    assert {"int", "float", "any"} & set(re.split(r"\W+", argument.type)), part
                elif isinstance(value, str) and rules.MATCHES.fullmatch(value):
                    assert {"str", "any"} & set(re.split(r"\W+", argument.type)), part
                else:
                    at = Origin(layer="", file="", line=1)
                    text = "null" if value is None else str(value)
                    coerced = coerce(Scalar(text=text, plain=not isinstance(value, str), at=at), argument)
                    assert (coerced, type(coerced)) == (value, type(value))  # 1 is no rule about 1.0


@pytest.mark.parametrize(("framework", "name", "bound"), BOUNDS)
def test_a_bound_is_of_a_number_and_holds_for_the_default(framework: str, name: str, bound: str) -> None:
    argument = schema(framework).arguments[name]
    assert {"int", "float"} & set(re.split(r"\W+", argument.type))
    assert rules.within(argument.default, (bound,)) or rules.rules(framework).elsewhere  # a recipe has another
    assert rules.worded(bound) != bound


@pytest.mark.parametrize(
    ("bound", "good", "bad"),
    [
        (">=1", [1, 5, None, "x", [1, 2], 2.5], [0, -1, [1, 0], float("inf"), float("nan")]),
        (">0", [0.1], [0, 0.0, -0.5]),
        ("<1", [0.999, -3], [1, 1.0]),
        ("<=1", [1], [1.5]),
        ("-1 or >=1", [-1, 1], [0, -2]),
        (">0 or inf", [1, float("inf")], [0, -float("inf"), float("nan")]),
    ],
)
def test_bounds(bound: str, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not rules.within(value, (bound,))] == []
    assert [value for value in bad if rules.within(value, (bound,))] == []


IMPOSSIBLE = {  # numbers that no backend can do anything with, by what they are
    "torchtitan": "training.steps=-1 training.steps=0 training.local_batch_size=0 training.global_batch_size=0 "
    "training.seq_len=0 optimizer.lr=-1 checkpoint.interval=0 metrics.log_freq=0 lr_scheduler.warmup_steps=-1",
    "megatron": "train_iters=-1 train_iters=0 micro_batch_size=0 global_batch_size=-4 seq_length=0 lr=-1 "
    "log_interval=0 save_interval=-1 eval_interval=-1 lr_warmup_iters=-1 adam_beta1=1 seed=0",
    "megatron_bridge": "train.train_iters=-1 train.micro_batch_size=0 train.global_batch_size=0 model.seq_length=0 "
    "optimizer.lr=-1 logger.log_interval=0 checkpoint.save_interval=-1 checkpoint.most_recent_k=0 peft.dim=0",
    "maxtext": "steps=-2 steps=0 per_device_batch_size=0 max_target_length=0 learning_rate=-1 log_period=0 "
    "checkpoint_period=0 eval_interval=0 warmup_steps_fraction=1.5 gradient_accumulation_steps=0",
    "maxdiffusion": "max_train_steps=-1 max_train_steps=0 per_device_batch_size=0 learning_rate=-1 log_period=0 "
    "checkpoint_every=0 num_frames=0 resolution=-1 warmup_steps_fraction=2",
    "specforge": "training.max_steps=0 training.batch_size=0 training.learning_rate=0 data.max_length=0 "
    "training.log_interval=0 training.save_interval=-1 training.warmup_ratio=2 specforge_capture.batch_size=0 "
    "deployment.trainer.nproc_per_node=0",
}
OFF = {  # numbers that stand for off, all or what another says
    "torchtitan": "training.global_batch_size=-1 validation.steps=-1 checkpoint.load_step=-1 "
    "checkpoint.keep_latest_k=0 optimizer.lr=0 training.max_norm=.inf",
    "megatron": "save_interval=0 eval_interval=0 eval_iters=0 clip_grad=-1 lr=0 manual_gc_interval=0",
    "megatron_bridge": "checkpoint.most_recent_k=-1 checkpoint.save_interval=0 validation.eval_iters=0",
    "maxtext": "steps=-1 eval_interval=-1 eval_steps=-1 learning_rate_schedule_steps=-1 per_device_batch_size=0.5 "
    "gradient_clipping_threshold=0",
    "maxdiffusion": "checkpoint_every=-1 eval_every=-1 learning_rate_schedule_steps=-1 learning_rate=0 dropout=0",
    "specforge": "training.save_interval=0 training.eval_interval=0 training.max_checkpoints=0 data.max_prompts=0",
}


def test_every_backend_has_its_impossible_numbers() -> None:
    assert set(IMPOSSIBLE) == set(OFF) == set(frameworks())


@pytest.mark.parametrize(
    ("framework", "word"), [(name, word) for name in IMPOSSIBLE for word in IMPOSSIBLE[name].split()]
)
def test_an_impossible_number_is_refused(experiment: Experiment, framework: str, word: str) -> None:
    key, _, value = word.partition("=")
    found = check(experiment, word, framework=framework)
    assert f"command line, argument 1: {key}: " in found
    assert f"{float(value):g}" in found
    assert " must be " in found


@pytest.mark.parametrize(("framework", "word"), [(name, word) for name in OFF for word in OFF[name].split()])
def test_a_number_that_means_off_is_fine(experiment: Experiment, framework: str, word: str) -> None:
    assert " must be " not in check(experiment, word, framework=framework)


def check(experiment: Experiment, *words: str, accelerator: str = "rocm", framework: str = "maxtext") -> str:
    """What is wrong with an experiment, or nothing."""
    path = experiment(framework=framework)
    try:
        load_experiment(path, words, environ={}, accelerator=accelerator)
    except ConfigError as error:
        return str(error)
    return ""


FP8_MOE = ("quantization=fp8", "num_experts=8", "sparse_matmul=false")


@pytest.mark.parametrize("framework", ["maxtext", "maxdiffusion"])
def test_what_only_gpus_have_is_refused_on_a_cpu(experiment: Experiment, framework: str) -> None:
    path = experiment(framework=framework)
    load_experiment(path, ("attention=cudnn_flash_te",), environ={}, accelerator="rocm")
    with pytest.raises(ConfigError, match="Transformer Engine has kernels for GPUs alone"):
        load_experiment(path, ("attention=cudnn_flash_te",), environ={}, accelerator="cpu")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((*FP8_MOE,), "pure_nnx_decoder: true (the default): MaxText's experts"),
        ((*FP8_MOE, "pure_nnx_decoder=true"), "pure_nnx_decoder: true: MaxText's experts"),
        ((*FP8_MOE, "pure_nnx_decoder=false"), ""),
        ((*FP8_MOE, "use_qwix_quantization=true"), ""),
        ((*FP8_MOE, "num_experts=1"), ""),
        (("quantization=fp8",), ""),
        (("quantization=fp8", "num_experts=8"), "sparse_matmul: true (the default)"),
        (("quantization=te_mxfp8", "num_experts=8"), "sparse_matmul: true (the default)"),
        (("quantization=nanoo_fp8", "num_experts=8", "sparse_matmul=false"), "nanoo_fp8 only through Qwix"),
        (("quantization=int4",), "only through Qwix"),
        (("quantization=int4", "use_qwix_quantization=true"), ""),
        (("shardy=false",), "shardy: false: JAX 0.10 partitions with Shardy"),
        (("shardy=true",), ""),
    ],
)
def test_maxtext_rules(experiment: Experiment, words: tuple[str, ...], expected: str) -> None:
    found = check(experiment, *words)
    assert expected in found
    assert bool(found) == bool(expected)


def test_a_rule_may_be_for_one_accelerator(experiment: Experiment) -> None:
    assert check(experiment, "shardy=false", accelerator="cpu") == ""


def test_a_broken_rule_says_where_and_what_to_write(experiment: Experiment) -> None:
    path = experiment("quantization: fp8\nnum_experts: 8\nsparse_matmul: false", framework="maxtext")
    with pytest.raises(ConfigError) as error:
        load_experiment(path, environ={})
    assert str(error.value) == (
        "exp.yaml:10:21: quantization: fp8, num_experts: 8, sparse_matmul: false, use_qwix_quantization: false"
        " (the default), pure_nnx_decoder: true (the default): MaxText's experts with this quantization need the Linen"
        " decoder\nhint: write pure_nnx_decoder: false"
    )


BRIDGE = ("recipe=llama.llama3", "flavor=llama32_1b_sft_config")
PEFT = ("recipe=llama.llama3", "flavor=llama32_1b_peft_config")
WAN = ("model_name=wan2.1", "attention=dot_product")
FLUX = ("flux_name=flux-dev", "attention=dot_product")
RECORDS = ("dataset_type=tfrecord", "train_data_dir=/r", "dataset_save_location=/r")
DFLASH = ("training.strategy=dflash", "training.attention_backend=sdpa", "training.fsdp_sharding=NO_SHARD")


@pytest.mark.parametrize(
    ("framework", "words", "expected"),
    [
        ("maxdiffusion", (*WAN, "dataset_type=synthetic"), ""),
        (
            "maxdiffusion",
            ("model_name=wan2.1", "dataset_type=synthetic"),
            "attention: flash (the default): a kernel for",
        ),
        ("maxdiffusion", (*FLUX, "dataset_type=hf"), ""),
        ("maxdiffusion", (*WAN, "dataset_type=hf"), "WAN trains on tfrecord or synthetic data only"),
        ("maxdiffusion", (*WAN, *RECORDS), ""),
        ("maxdiffusion", (*WAN, *RECORDS[:2]), 'dataset_save_location: "" (the default): records are then read as'),
        ("maxdiffusion", (*FLUX, *RECORDS), "MaxDiffusion reads no records for FLUX.1"),
        ("maxdiffusion", (*WAN, *RECORDS, "quantization=int8"), "nothing is quantized without Qwix"),
        ("maxdiffusion", (*WAN, *RECORDS, "quantization=int8", "use_qwix_quantization=true"), ""),
        ("maxdiffusion", (*WAN, *RECORDS, "quantization=int4", "use_qwix_quantization=true"), "Qwix has int8, fp8"),
        ("specforge", DFLASH, ""),
        ("specforge", (*DFLASH, "training.attention_backend=fa"), "only EAGLE3 has this attention"),
        ("specforge", DFLASH[:1], "training.attention_backend: flex_attention (the default)"),
        ("specforge", (*DFLASH[:1], "specforge_mode=capture"), ""),
        (
            "specforge",
            (*DFLASH[:1], "specforge_mode=[capture, train]"),
            "specforge_mode: [capture, train]: this attention",
        ),
        ("specforge", (*DFLASH, "training.num_anchors=4"), ""),
        (
            "specforge",
            (*DFLASH, "training.kl_scale=2"),
            "training.kl_scale: 2.0, training.strategy: dflash: only EAGLE3",
        ),
        ("specforge", (*DFLASH[1:], "training.num_anchors=4"), "training.strategy: eagle3 (the default): only DFlash"),
        ("specforge", ("training.num_anchors=4", "specforge_config=/my.yaml"), ""),  # which may say the strategy
        ("specforge", (*DFLASH[1:], "specforge_capture.strategy=dflash"), "the features would be another strategy's"),
        ("megatron_bridge", (*BRIDGE, "train.train_samples=8"), ""),
        (
            "megatron_bridge",
            (*BRIDGE, "train.train_samples=8", "train.train_iters=8"),
            "takes one length of the training",
        ),
        ("megatron_bridge", (*BRIDGE, "train.train_samples=8", "train.train_iters=null"), ""),
        ("megatron_bridge", (*BRIDGE, "peft.dim=16"), "peft.dim: 16: this flavor trains all weights"),
        ("megatron_bridge", (*BRIDGE, "peft=null"), ""),
        ("megatron_bridge", (*PEFT, "peft.dim=16"), "an adapter is trained on a model, and pretraining has none"),
        ("megatron_bridge", (*BRIDGE, "ddp.use_megatron_fsdp=true"), ""),  # the recipe may have the format for it
        (
            "megatron_bridge",
            (*BRIDGE, "ddp.use_megatron_fsdp=true", "checkpoint.ckpt_format=torch_dist"),
            "its own format",
        ),
        (
            "megatron_bridge",
            (*BRIDGE, "model.transformer_impl=local", "mixed_precision=bf16_with_mxfp8_mixed"),
            "say so",
        ),
    ],
)
def test_rules_of_the_others(experiment: Experiment, framework: str, words: tuple[str, ...], expected: str) -> None:
    found = check(experiment, *words, framework=framework, accelerator="cpu")
    assert expected in found
    assert bool(found) == bool(expected)


def test_a_broken_rule_points_at_the_highest_layer(experiment: Experiment) -> None:
    path = experiment("quantization: int8", framework="maxtext")
    with pytest.raises(ConfigError, match=r"^command line, argument 1: quantization: int8, num_experts: 8, "):
        load_experiment(path, ["num_experts=8", "sparse_matmul=false"], environ={})


def test_a_rule_may_be_for_one_stage(experiment: Experiment) -> None:
    path = experiment("{recipe: llama.llama3, flavor: llama32_1b_peft_config}", framework="megatron_bridge")
    path.write_text(path.read_text().replace("pre_trainer", "post_trainer"))
    assert load_experiment(path, ["peft.dim=16"], environ={}).stage == "posttrain"


def test_what_a_part_holds_has_its_own_place_though_the_part_can_be_null(experiment: Experiment) -> None:
    path = experiment("recipe: llama.llama3\nmixed_precision:\n  fp8: e4m3", framework="megatron_bridge")
    found = load_experiment(path, environ={})
    assert str(found.origins["mixed_precision.fp8"].origin) == "exp.yaml:12:14"


def test_explain_says_what_a_number_must_be(experiment: Experiment, primus: Primus) -> None:
    done = primus("config", "explain", experiment(), "training.global_batch_size")
    assert "must be  -1 or at least 1\n" in done.out
