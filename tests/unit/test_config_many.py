"""primus config check of many files, list, diff and schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from primus.experiment import load_experiment
from primus.experiment.editor import json_schema
from primus.experiment.render import resolved_yaml
from primus.experiment.rules import rules, within
from primus.experiment.schema import frameworks, schema
from primus.experiment.types import EXPERIMENT
from primus.experiment.yaml import read, untyped

from .conftest import EXAMPLES, ROOT, Experiment, Primus, Write

MEGATRON = ROOT / "examples/megatron/configs/MI300X"


# check


def test_a_directory_is_checked_whole_and_ends_with_one_line(primus: Primus) -> None:
    assert primus("config", "check", ROOT / "examples") == (0, f"{len(EXAMPLES)} files: ok\n", "")


def test_every_problem_of_many_files_is_said_in_their_order(primus: Primus, experiment: Experiment) -> None:
    text = experiment().read_text(encoding="utf-8")
    for number in range(40):
        wrong = text.replace("overrides:", "overridez:") if number in (3, 17, 39) else text
        path = Path("many") / "deep" / f"{number:02}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wrong, encoding="utf-8")
    done = primus("config", "check", "many")
    assert (done.code, done.out) == (2, "")
    lines = [line.split(":")[1].strip() for line in done.err.splitlines() if line.startswith("error: ")]
    assert lines == ["many/deep/03.yaml", "many/deep/17.yaml", "many/deep/39.yaml"]
    assert done.err.endswith("primus: 3 of 40 file(s) wrong\n")


def test_presets_settings_and_hidden_files_of_a_directory_are_left_out(
    primus: Primus, experiment: Experiment, write: Write
) -> None:
    for name in ("d/primus.yaml", "d/modules/megatron/x.yaml", "d/models/megatron/x.yaml", "d/.x/a.yaml", "d/n.txt"):
        write(name, "no: experiment")
    assert "no *.yaml below this directory is an experiment" in primus("config", "check", "d").err
    experiment().rename("d/exp.yml")
    experiment().rename("d/exp.yaml")
    assert primus("config", "check", "d", "d/exp.yaml") == (0, "2 files: ok\n", "")


def test_a_problem_of_a_base_names_the_file_that_was_checked(
    primus: Primus, experiment: Experiment, write: Write
) -> None:
    base = experiment("training: {stepz: 1}")
    write("child.yaml", f"extends: {base}\nexp_name: child\n")
    done = primus("config", "check", base, "child.yaml")
    assert done.code == 2
    assert "primus: child.yaml, by what it extends or stands on:\nerror: exp.yaml:10:" in done.err


# list


def listed(primus: Primus, *words: Any) -> list[dict[str, Any]]:
    done = primus("config", "list", ROOT / "examples", "--format", "json", *words)
    assert done.code == 0
    rows: list[dict[str, Any]] = json.loads(done.out)
    return rows


def test_list_has_every_example(primus: Primus) -> None:
    rows = listed(primus)
    assert [row["file"] for row in rows] == [str(path) for path in EXAMPLES]
    grok = next(row for row in rows if row["file"].endswith("megatron/configs/MI300X/grok1-FP8-pretrain.yaml"))
    assert grok == {
        "file": grok["file"],
        "framework": "megatron",
        "sku": "MI300X",
        "model": "grok1",
        "precision": "fp8",
        "stage": "pretrain",
        "nodes": 4,
        "by_memory": 8,
    }


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("megatron/configs/MI300X/llama2_7B-BF16", 1),
        ("megatron/configs/MI300X/grok2-BF16", 4),  # where it starts
        ("torchtitan/configs/MI300X/llama3.1_405B-BF16", 8),  # FSDP shards it over all nodes
        ("megatron/configs/MI300X/deepseek_v3-BF16", 0),  # its experts are never spread further than over 8 GPUs
        ("maxdiffusion/configs/MI300X/flux_dev", None),
        ("megatron_bridge/configs/CPU/llama3_tiny-sft", None),
    ],
)
def test_list_says_how_many_nodes_the_memory_takes(primus: Primus, name: str, nodes: int | None) -> None:
    (path,) = (ROOT / "examples").glob(f"{name}*.yaml")
    row = json.loads(primus("config", "list", path, "--format", "json").out)[0]
    assert row["by_memory"] == nodes
    cell = primus("config", "list", path).out.splitlines()[1].split()[6]
    assert cell == {0: "none", None: "-"}.get(nodes, str(nodes))


def test_the_precision_is_the_one_in_the_name(example: Path, primus: Primus) -> None:
    """...where a name has one: what is listed comes from the arguments."""
    row = json.loads(primus("config", "list", example, "--format", "json").out)[0]
    said = [*example.stem.lower().split("-"), ""][1]
    if said in ("bf16", "fp8", "nanoo_fp8") and (ROOT / "primus/backends" / row["framework"] / "layout.py").is_file():
        assert said in row["precision"]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("llama3.1_8B-BF16-pretrain", "llama3.1_8B"),
        ("qwen3_0.6B-pretrain", "qwen3_0.6B"),
        ("qwen3_32b_lora_posttrain", "qwen3_32b"),
        ("llama3_8b_sft_posttrain_packed", "llama3_8b"),
        ("mine", "mine"),
    ],
)
def test_the_model_is_what_the_name_begins_with(primus: Primus, experiment: Experiment, name: str, model: str) -> None:
    path = experiment().rename(f"{name}.yaml")
    assert json.loads(primus("config", "list", path, "--format", "json").out)[0]["model"] == model


@pytest.mark.parametrize(
    ("words", "key", "expected"),
    [
        (("--framework", "maxtext"), "framework", {"maxtext"}),
        (("--sku", "cpu"), "sku", {"CPU"}),
        (("--model", "GROK"), "model", {"grok1", "grok2"}),
        (("--precision", "FP8", "--sku", "MI300X", "--framework", "maxtext"), "precision", {"nanoo_fp8"}),
        (("--model", "grok1", "--sku", "MI300X", "--framework", "megatron", "--gpus-per-node", 4), "nodes", {8}),
        (("--model", "grok1", "--sku", "MI300X", "--framework", "megatron", "--gpus-per-node", 3), "nodes", {None}),
        (("--model", "nothing-like-it"), "model", set()),
    ],
)
def test_list_filters(primus: Primus, words: tuple[Any, ...], key: str, expected: set[Any]) -> None:
    assert {row[key] for row in listed(primus, *words)} == expected


def test_list_is_a_table_of_the_checkout_that_one_stands_in(
    primus: Primus, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    assert str(ROOT / "examples") in primus("config", "list", "--sku", "CPU").out  # where there is none: the package's
    assert primus("config", "list", "nope") == (2, "", "error: nope: does not exist\n")
    monkeypatch.chdir(ROOT / "docs")
    done = primus("config", "list", "--sku", "CPU")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("framework  ")
    assert len(done.out.splitlines()) == 1 + len([path for path in EXAMPLES if path.parent.name == "CPU"])


def test_a_wrong_file_is_counted_and_not_listed(primus: Primus, experiment: Experiment, write: Write) -> None:
    done = primus("config", "list", experiment(), write("bad.yaml", "a: ["))
    assert done.code == 0
    assert len(done.out.splitlines()) == 2
    assert done.err == "primus: 1 file(s) wrong and not listed; primus config check says what is\n"


# diff


def test_diff_says_each_value_with_its_place(primus: Primus) -> None:
    one, two = MEGATRON / "llama3_8B-BF16-pretrain.yaml", MEGATRON / "llama3_8B-FP8-pretrain.yaml"
    done = primus("config", "diff", one, two)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"--- {one}\n+++ {two}\n")
    assert f"fp8\n- null  # the default\n+ hybrid  # experiment, {two}:7:12\n" in done.out


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("training: {steps: 5}", "training: {steps: 5}", []),
        ("training: {steps: 5}", "training: {steps: 6}", ["training.steps"]),
        ("training: {steps: 10000}", "{}", []),  # TorchTitan's default
        ("training: {steps: 10001}", "{}", ["training.steps"]),
        ("optimizer: {lr: 1e-3}", "optimizer: {lr: 0.001}", []),
        ("model: {hf_assets_path: ./a}", "model: {hf_assets_path: a}", []),  # a run's own file has paths in full
        ("model: {flavor: ./a}", "model: {flavor: a}", ["model.flavor"]),
    ],
)
def test_diff_is_by_value(primus: Primus, experiment: Experiment, first: str, second: str, expected: list[str]) -> None:
    experiment(first).rename("a.yaml")
    done = primus("config", "diff", "a.yaml", experiment(second), "--format", "json")
    assert done.code == 0
    assert [row["key"] for row in json.loads(done.out)] == expected


def test_diff_of_the_same_says_so(primus: Primus, experiment: Experiment) -> None:
    assert primus("config", "diff", experiment(), experiment()) == (0, "the same\n", "")


def test_diff_for_programs(primus: Primus, experiment: Experiment) -> None:
    experiment("training: {steps: 5}", top="env: {A: b}").rename("a.yaml")
    done = primus("config", "diff", "a.yaml", experiment("training:\n  steps: 6"), "--format", "json")
    assert json.loads(done.out) == [
        {"key": "env.A", "a": {"value": "b", "layer": "experiment", "file": "a.yaml", "line": 11}, "b": None},
        {
            "key": "training.steps",
            "a": {"value": 5, "layer": "experiment", "file": "a.yaml", "line": 10},
            "b": {"value": 6, "layer": "experiment", "file": "exp.yaml", "line": 11},
        },
    ]


def test_diff_with_a_past_run(primus: Primus, example: Path, write: Write) -> None:
    write("run/experiment.yaml", resolved_yaml(load_experiment(example, environ={})))
    assert primus("config", "diff", example, "run") == (0, "the same\n", "")
    assert primus("config", "diff", "run/experiment.yaml", example) == (0, "the same\n", "")


def test_diff_takes_a_run_by_its_names(primus: Primus, experiment: Experiment, write: Write) -> None:
    path = experiment("training: {steps: 5}")
    for name, steps in (("20261130-203300-1a2b", 6), ("20261201-203300-1a2b", 7)):
        write(f"output/a/b/e/{name}/run.json", json.dumps({"run_id": name, "exp_name": "e"}))
        resolved = resolved_yaml(load_experiment(path, [f"training.steps={steps}"]))
        write(f"output/a/b/e/{name}/experiment.yaml", resolved)
    for name, steps in (("20261130-203300-1a2b", 6), ("e", 7), ("output/a/b/e", 7)):
        assert f"\n+ {steps}  #" in primus("config", "diff", path, name).out


def test_diff_with_a_directory_that_holds_no_run(primus: Primus, experiment: Experiment) -> None:
    Path("run").mkdir()
    done = primus("config", "diff", experiment(), "run")
    assert done.code == 2
    assert "run: no run is recorded there" in done.err
    assert "no.yaml: does not exist" in primus("config", "diff", experiment(), "no.yaml").err
    assert "no-such-exp: no such run in" in primus("config", "diff", experiment(), "no-such-exp").err


def test_diff_of_two_backends(primus: Primus) -> None:
    one, two = (
        next(path for path in EXAMPLES if f"{name}/configs/CPU" in str(path)) for name in ("megatron", "maxtext")
    )
    done = primus("config", "diff", one, two)
    assert done.code == 0
    assert "(not there)" in done.out


# schema


def validator(framework: str) -> Any:
    made = json_schema(framework)
    jsonschema.Draft7Validator.check_schema(made)
    return jsonschema.Draft7Validator(made)


def written(path: Path) -> Any:
    return untyped(read(path, EXPERIMENT))


VALIDATORS = {name: validator(name) for name in frameworks()}


def test_every_example_is_what_the_schema_describes(example: Path) -> None:
    framework = example.relative_to(ROOT / "examples").parts[0]
    assert list(VALIDATORS[framework].iter_errors(written(example))) == []


@pytest.mark.parametrize("framework", frameworks())
def test_every_default_is_what_the_schema_describes(framework: str) -> None:
    for name, argument in schema(framework).arguments.items():
        if argument.choices and argument.default not in argument.choices:
            continue  # what a backend begins with and cannot do here
        if not within(argument.default, rules(framework).bounds.get(name, ())):
            continue  # Bridge's zero: a model that nobody described
        overrides: Any = argument.default
        for part in reversed(name.split(".")):
            overrides = {part: overrides}
        document = {"modules": {"pre_trainer": {"framework": framework, "overrides": overrides}}}
        assert list(VALIDATORS[framework].iter_errors(document)) == [], name


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("training: {steps: 5}", True),
        ("training: {steps: '5'}", True),
        ("training: {steps: '${STEPS:5}'}", True),
        ("training:\n  steps: ${STEPS:5}", True),
        ("optimizer: {lr: 1e-5}", True),
        ("compile: {enable: 'False'}", True),
        ("model: {flavor: 8}", True),
        ("training:", True),
        ("parallelism: {context_parallel_rotate_method: alltoall}", True),
        ("parallelism: {context_parallel_rotate_method: '${HOW:alltoall}'}", True),
        ("model: {converters: [quantize.linear.float8]}", True),
        ("training: {global_batch_size: -1}", True),
        ("training: {max_norm: .inf}", True),
        ("training: {steps: 0}", False),
        ("training: {global_batch_size: 0}", False),
        ("training: {max_norm: 0}", False),
        ("optimizer: {beta1: 1.0}", False),
        ("checkpoint: {keep_latest_k: 1}", False),
        ("training: {stepz: 5}", False),
        ("steps: 5", False),
        ("training: {steps: five}", False),
        ("training: {steps: 1.5}", False),
        ("training: {steps: [5]}", False),
        ("training: 5", False),
        ("optimizer: {lr: fast}", False),
        ("compile: {enable: maybe}", False),
        ("parallelism: {context_parallel_rotate_method: alltoal}", False),
        ("model: {converters: quantize.linear.float8}", False),
        ("model: {converters: {a: b}}", False),
    ],
)
def test_a_slip_is_not(experiment: Experiment, text: str, good: bool) -> None:
    found = list(VALIDATORS["torchtitan"].iter_errors(written(experiment(text))))
    assert (found == []) is good, found


@pytest.mark.parametrize(
    ("head", "module"),
    [("envv: {A: b}", ""), ("", "moddel: x.yaml"), ("env: [A]", ""), ("extends: {a: b}", "")],
    ids=["top", "module", "env", "extends"],
)
def test_a_slip_outside_of_the_arguments_is_not(experiment: Experiment, head: str, module: str) -> None:
    assert list(VALIDATORS["torchtitan"].iter_errors(written(experiment(top=head, module=module))))


def test_the_schema_is_of_one_backend(experiment: Experiment) -> None:
    assert list(VALIDATORS["maxtext"].iter_errors(written(experiment())))


def test_the_command_prints_it(primus: Primus) -> None:
    for framework in frameworks():
        done = primus("config", "schema", framework)
        assert (done.code, done.err) == (0, "")
        assert json.loads(done.out) == json.loads(json.dumps(json_schema(framework)))
    assert "'torchtian' is not one of" in primus("config", "schema", "torchtian").err
