"""An experiment as a recipe's name and values, and how they get into a recipe's configuration."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from primus import layout
from primus.backends.megatron_bridge import adapter, overrides, recipes
from primus.errors import ConfigError
from primus.experiment import load_experiment
from primus.experiment.schema import schema
from primus.job import with_inputs
from primus.models.architecture import parameters as count
from primus.models.report import report
from primus.node import Node

from .conftest import Experiment, Primus, Write

RUN = Path("/run")
CHOSEN = "recipe: gpt.vanilla_gpt\nflavor: vanilla_gpt_pretrain_config\n"


def settings(path: Path, node: Node = Node()) -> Any:  # noqa: B008  # frozen
    command = adapter.command(load_experiment(path, environ={}), node, RUN)
    return json.loads(command.files[RUN / "megatron_bridge.json"])


def test_the_choice_of_a_recipe_is_apart_from_its_values(experiment: Experiment) -> None:
    found = settings(experiment(CHOSEN + "hf_path: a/b\ntrain: {train_iters: 5}", framework="megatron_bridge"))
    places = {"checkpoint": {"save": "/run/checkpoints", "load": "/run/checkpoints"}}
    assert found == {
        "recipe": "gpt.vanilla_gpt",
        "flavor": "vanilla_gpt_pretrain_config",
        "hf_path": "a/b",
        "stage": "pretrain",
        "values": {"train": {"train_iters": 5}, **places, "logger": {"tensorboard_dir": "/run/tensorboard"}},
    }


@pytest.mark.parametrize(
    ("checkpoint", "places"),
    [
        ("save: null", {"save": None, "load": None}),
        ("save: here", {"save": "/run/here", "load": "/run/here"}),
        ("save: /there", {"save": "/there", "load": "/there"}),
        ("load: null", {"save": "/run/checkpoints", "load": None}),
        ("load: /old", {"save": "/run/checkpoints", "load": "/old"}),
    ],
)
def test_a_run_saves_where_it_resumes_from(
    experiment: Experiment, checkpoint: str, places: dict[str, str | None]
) -> None:
    path = experiment(CHOSEN + f"checkpoint: {{{checkpoint}}}", framework="megatron_bridge")
    assert settings(path)["values"]["checkpoint"] == places


@pytest.mark.parametrize("missing", ["recipe", "flavor"])
def test_a_recipe_must_be_named(experiment: Experiment, missing: str) -> None:
    lines = [line for line in CHOSEN.splitlines() if not line.startswith(missing)]
    with pytest.raises(ConfigError, match=f"{missing}: is missing"):
        settings(experiment("\n".join(lines), framework="megatron_bridge"))


@pytest.mark.parametrize("value", ["logger: {wandb_entity: '${MY_TOKEN}'}", "dataset: {data_path: ['${MY_TOKEN}']}"])
def test_a_secret_is_no_argument(experiment: Experiment, value: str) -> None:
    """Bridge prints its arguments, and saves them in checkpoints."""
    found = load_experiment(experiment(CHOSEN + value, framework="megatron_bridge"), environ={"MY_TOKEN": "hush"})
    with pytest.raises(ConfigError, match="is a secret, and Megatron Bridge prints its arguments"):
        adapter.command(found, Node(), RUN)


def test_a_recipe_that_cannot_be_built_is_refused(experiment: Experiment, primus: Primus) -> None:
    said = "recipe: qwen.qwen3_next\nflavor: qwen3_next_80b_a3b_peft_config\n"
    path = experiment(said, framework="megatron_bridge", trainer="post_trainer")
    done = primus("config", "check", path)
    assert done.code == 2
    assert "qwen3_next_80b_a3b_peft_config in name only" in done.err


def test_a_null_undoes_what_the_recipe_says(experiment: Experiment) -> None:
    chosen = "recipe: llama.llama3\nflavor: llama31_70b_pretrain_config\n"
    whole = report(load_experiment(experiment(chosen, framework="megatron_bridge"), environ={})).layout
    assert (whole.virtual, whole.adapter) == (5, 0)
    path = experiment(chosen + "model: {virtual_pipeline_model_parallel_size: null}", framework="megatron_bridge")
    assert report(load_experiment(path, environ={})).layout.virtual == 1
    chosen = "recipe: llama.llama3\nflavor: llama31_70b_peft_config\n"
    path = experiment(chosen, framework="megatron_bridge", trainer="post_trainer")
    assert report(load_experiment(path, environ={})).layout.adapter == 16
    path = experiment(chosen + "peft: null", framework="megatron_bridge", trainer="post_trainer")
    assert report(load_experiment(path, environ={})).layout.adapter == 0


def test_explain_knows_what_the_recipe_says(experiment: Experiment, primus: Primus) -> None:
    path = experiment("recipe: llama.llama3\nflavor: llama31_70b_sft_config\n", framework="megatron_bridge")
    found = primus("config", "explain", path, "model.tensor_model_parallel_size").out
    assert "value    8 (not set: of llama31_70b_sft_config)" in found
    assert "default  1" in found


@pytest.mark.parametrize(
    "text", ["", "[]", "[" * 100_000, '{"model_type": 1}', '{"model_type": "llama", "hidden_size": 0}', "TINY"]
)
def test_a_config_json_that_is_none_is_left_to_bridge(
    experiment: Experiment, write: Write, primus: Primus, text: str
) -> None:
    published = Path(__file__).parent / "huggingface/TinyLlama--TinyLlama-1.1B-Chat-v1.0.json"
    endless = json.dumps(json.loads(published.read_text(encoding="utf-8")) | {"rope_theta": "T"}).replace(
        '"T"', "1e999"
    )
    write("here/config.json", endless if text == "TINY" else text)
    path = experiment("recipe: qwen.qwen3\nflavor: qwen3_8b_sft_config\nhf_path: here\n", framework="megatron_bridge")
    assert primus("config", "check", path, "--nodes", 1, "--gpus-per-node", 8).code == 0
    assert primus("config", "explain", path).code == 2


def test_every_flavor_has_its_facts() -> None:
    table = recipes.table()
    assert table["version"] == schema("megatron_bridge").version
    assert {*table["flavors"]} == {*(schema("megatron_bridge").arguments["flavor"].choices or ())}
    assert {name for _, name in table["flavors"].values()} == {*table["recipes"]}
    known = schema("megatron_bridge").arguments
    for found in table["recipes"].values():
        assert found is None or {*found["values"]} <= {*known}


@pytest.mark.parametrize(
    ("values", "precision"),
    [
        ("", "bf16"),
        ("mixed_precision: null", "fp32"),
        ("mixed_precision: bf16_with_mxfp8_mixed", "mxfp8"),
        ("mixed_precision: bf16-with-fp8-current-scaling-mixed", "fp8"),
        ("mixed_precision: {fp8: hybrid}", "fp8"),
        ("mixed_precision: fp16_mixed", "fp16"),
    ],
)
def test_the_precision_is_the_recipes_unless_another_is_said(
    experiment: Experiment, values: str, precision: str
) -> None:
    path = experiment(CHOSEN + values, framework="megatron_bridge")
    assert layout.precision(load_experiment(path, environ={}, accelerator="rocm")) == precision


@pytest.mark.parametrize(
    ("values", "parameters"),
    [
        ("", 8_190_735_360),
        ("hf_path: someone/Qwen3-14B-Base", 14_768_307_200),
        ("hf_path: Qwen/Qwen3-8B\nmodel: {num_layers: 2}", 1_630_556_672),
        ("hf_path: here", 1_100_048_384),  # TinyLlama's config.json
    ],
)
def test_the_model_is_the_one_that_hf_path_names(
    experiment: Experiment, write: Write, values: str, parameters: int
) -> None:
    published = Path(__file__).parent / "huggingface/TinyLlama--TinyLlama-1.1B-Chat-v1.0.json"
    write("here/config.json", published.read_text(encoding="utf-8"))
    chosen = "recipe: qwen.qwen3\nflavor: qwen3_8b_sft_config\n"
    path = experiment(chosen + values, framework="megatron_bridge")
    assert count(report(load_experiment(path, environ={})).model) == parameters


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ("hf_path: nobody/knows", "the dimensions of nobody/knows are not known here; hf_path may name a directory"),
        ("flavor: nemotronh_8b_pretrain_config\nrecipe: nemotronh.nemotronh", "no formula for Mamba's layers"),
    ],
)
def test_what_is_not_known_of_a_model_is_said(experiment: Experiment, values: str, why: str) -> None:
    chosen = {"recipe": "qwen.qwen3", "flavor": "qwen3_8b_sft_config"}
    lines = [f"{key}: {value}" for key, value in chosen.items() if f"{key}:" not in values]
    path = experiment("\n".join([*lines, values]), framework="megatron_bridge")
    with pytest.raises(ValueError, match=why):
        report(load_experiment(path, environ={}))


@pytest.mark.parametrize(
    ("values", "module"),
    [
        ("model: {num_layers: 2}", "transformer_engine"),
        ("logger: {mlflow_experiment: x}", "mlflow"),
        ("inprocess_restart: {enabled: true}", "nvidia_resiliency_ext"),
    ],
)
def test_what_a_run_imports(experiment: Experiment, values: str, module: str) -> None:
    found = load_experiment(experiment(CHOSEN + values, framework="megatron_bridge"), environ={})
    assert {"megatron", "megatron.bridge", module} <= set(adapter.modules(found))
    local = load_experiment(
        experiment(CHOSEN + "model: {transformer_impl: local}", framework="megatron_bridge"), environ={}
    )
    assert set(adapter.modules(local)) == {"megatron", "megatron.bridge"}


@pytest.mark.parametrize(
    ("values", "value"),
    [
        ("train: {train_iters: 1}", "1"),
        ("dist: {use_torch_fsdp2: true}", None),
        ("ddp: {use_megatron_fsdp: true}", None),
    ],
)
def test_fsdp_wants_more_than_one_connection(experiment: Experiment, values: str, value: str | None) -> None:
    found = load_experiment(experiment(CHOSEN + values, framework="megatron_bridge"), environ={})
    assert adapter.command(found, Node(), RUN).env.get("CUDA_DEVICE_MAX_CONNECTIONS") == value


def test_a_part_can_be_null(experiment: Experiment) -> None:
    """And then it names no input, and an override can fill it."""
    path = experiment(CHOSEN + "dataset: {hf_dataset: null, offline_packing_specs: null}", framework="megatron_bridge")
    found = load_experiment(path, environ={})
    assert found.args["dataset"] == {"hf_dataset": None, "offline_packing_specs": None}
    assert with_inputs(found, (), offline=True, environ={})[1:] == ((), ())
    filled = load_experiment(path, ["dataset.offline_packing_specs.packed_sequence_size=8"], environ={})
    assert filled.args["dataset"]["offline_packing_specs"] == {"packed_sequence_size": 8}


@pytest.mark.parametrize(
    ("word", "message", "hint"),
    [
        ("train_iters=3", "unknown to megatron_bridge 0.6.2", "megatron_bridge calls it train.train_iters"),
        ("peft=lora", "must be null", "flavor: ..._peft_config for LoRA"),
        ("flavor=llama3_8b_finetune_config", "not a choice", "llama3_8b_sft_config, or llama3_8b_peft_config for LoRA"),
        ("flavor=qwen3_8b_sft_confg", "not a choice", "did you mean 'qwen3_8b_sft_config'?"),
        ("flavor=mamba2_370m_finetune_config", "not a choice", "no recipes of plain Mamba models"),
        ("model.params_dtype=bf16", "not a choice", "float32, bfloat16"),
        ("enable_primus_turbo=true", "unknown", "Primus-Turbo's kernels are not in this backend's image"),
    ],
)
def test_upstreams_names_are_answered_with_bridges(experiment: Experiment, word: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_experiment(experiment(CHOSEN, framework="megatron_bridge"), [word], environ={})
    problem = caught.value.problems[0]
    assert message in problem.message
    assert hint in problem.hint


def test_every_flavor_that_a_hint_names_exists() -> None:
    table = schema("megatron_bridge")
    flavors = set(table.arguments["flavor"].choices)
    hints = [hint for name, hint in table.renamed.items() if name.endswith("_finetune_config") and "write" in hint]
    assert len(hints) > 20
    for hint in hints:
        assert {word.strip(",") for word in hint.split() if word.strip(",").endswith("_config")} <= flavors


class Color(Enum):
    red = 1
    blue = 2


class Number:
    """Stands for a type that no file can hold, such as torch's."""

    def __init__(self, text: str) -> None:
        if not text.isdigit():
            raise ValueError(f"no number: {text}")
        self.value = int(text)


@dataclass
class Part:
    size: int = 1
    color: Color = Color.red


@dataclass
class Other:
    weight: int = 1


@dataclass
class Config:
    name: str = ""
    number: Number | None = None
    function: Callable[[int], int] | None = None
    pair: tuple[int, int] = (1, 2)
    options: dict[str, Any] | None = None
    part: Part = field(default_factory=Part)
    maybe: Part | None = None
    either: Part | Other | None = None
    named: Part | str | None = "large"


READERS: dict[object, Callable[[str], Any]] = {
    Number: Number,
    Callable: lambda text: {"abs": abs}[text],
    Part: lambda text: Part(size={"large": 9}[text]),
}


def applied(values: dict[str, Any]) -> Config:
    config = Config()
    overrides.apply(config, values, READERS)
    return config


def test_values_get_the_types_that_fields_have() -> None:
    config = applied({"name": "x", "number": "7", "function": "abs", "pair": [3, 4], "options": {"a": {"b": 1}}})
    assert (config.name, config.function, config.pair, config.options) == ("x", abs, (3, 4), {"a": {"b": 1}})
    assert config.number is not None
    assert config.number.value == 7
    assert applied({"number": None}).number is None


def test_parts_are_filled_and_made() -> None:
    assert applied({"part": {"color": "blue"}}).part == Part(color=Color.blue)
    assert applied({"maybe": {"size": 2}}).maybe == Part(size=2)
    assert applied({"maybe": {}}).maybe == Part()
    assert applied({"either": {"weight": 3}}).either == Other(weight=3)
    assert applied({"named": {"color": "blue"}}).named == Part(size=9, color=Color.blue)
    assert applied({"named": "small"}).named == "small"
    assert applied({"part": {}}).part == Part()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nome": 1}, "nome: Config has no such argument; did you mean name"),
        ({"part": {"sice": 1}}, r"part\.sice: Part has no such argument; did you mean size"),
        ({"number": "x"}, "number: no number: x"),
        ({"part": {"color": "green"}}, r"part\.color: 'green' is none of red, blue"),
        ({"either": {"nothing": 3}}, "either: this recipe has none, and it could be Part or Other"),
    ],
)
def test_what_does_not_fit_is_an_error_with_its_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        applied(values)
