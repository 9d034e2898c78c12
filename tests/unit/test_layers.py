"""Which of several values wins, where each came from and what it shadowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from primus.experiment import flat, load_experiment
from primus.experiment.render import resolved_yaml
from primus.experiment.schema import schema

from .conftest import EXAMPLES, Experiment, Primus, Write

LAYERS = ("module preset", "model preset", "experiment", "command line")


@pytest.fixture
def layered(write: Write, experiment: Experiment) -> Path:
    """training.steps is 1 to 4 in the four layers; each file also extends one that says 10 times that."""
    for kind, number in (("modules", 1), ("models", 2)):
        write(f"p/{kind}/torchtitan/base.yaml", f"training:\n  steps: {number}0\n")
        write(f"p/{kind}/torchtitan/p.yaml", f"extends: base.yaml\ntraining:\n  steps: {number}\n")
    write("base.yaml", "modules:\n  pre_trainer:\n    overrides:\n      training: {steps: 30}\n")
    return experiment("training:\n  steps: 3", top="extends: base.yaml", module="config: p.yaml\nmodel: p.yaml")


def test_the_layers_have_an_order(layered: Path, experiment: Experiment) -> None:
    presets = [Path("p")]
    assert (
        load_experiment(layered, ["training.steps=4"], environ={}, preset_dirs=presets).args["training"]["steps"] == 4
    )
    assert load_experiment(layered, environ={}, preset_dirs=presets).args["training"]["steps"] == 3
    path = experiment(module="config: p.yaml\nmodel: p.yaml")
    assert load_experiment(path, environ={}, preset_dirs=presets).args["training"]["steps"] == 2
    path = experiment(module="config: p.yaml")
    assert load_experiment(path, environ={}, preset_dirs=presets).args["training"]["steps"] == 1


def test_layers_merge_deep_and_lists_replace(write: Write, experiment: Experiment) -> None:
    write("p/modules/torchtitan/p.yaml", "training: {steps: 1, seq_len: 1}\ncompile: {components: [a, b]}\n")
    write("p/models/torchtitan/p.yaml", "training: {seq_len: 2}\ncompile: {components: [c]}\n")
    path = experiment("training: {gc_freq: 3}", module="config: p.yaml\nmodel: p.yaml")
    found = load_experiment(path, ["model.name=qwen3"], environ={}, preset_dirs=[Path("p")])
    assert found.args == {
        "training": {"steps": 1, "seq_len": 2, "gc_freq": 3},
        "compile": {"components": ["c"]},
        "model": {"name": "qwen3"},
    }


def test_show_as_json_gives_origin_and_everything_shadowed(layered: Path, primus: Primus) -> None:
    done = primus("config", "show", layered, "--preset-dir=p", "--origin", "--format=json", "training.steps=4")
    document = json.loads(done.out)
    assert document["args"] == {"training": {"steps": 4}}
    assert document["image"].startswith("primus-torchtitan:")
    assert document["origins"]["training.steps"] == {
        "layer": "command line",
        "file": "command line",
        "line": 1,
        "shadowed": [
            {"value": 10, "layer": "module preset", "file": "p/modules/torchtitan/base.yaml", "line": 2},
            {"value": 1, "layer": "module preset", "file": "p/modules/torchtitan/p.yaml", "line": 3},
            {"value": 20, "layer": "model preset", "file": "p/models/torchtitan/base.yaml", "line": 2},
            {"value": 2, "layer": "model preset", "file": "p/models/torchtitan/p.yaml", "line": 3},
            {"value": 30, "layer": "experiment", "file": "base.yaml", "line": 4},
            {"value": 3, "layer": "experiment", "file": "exp.yaml", "line": 11},
        ],
    }
    assert document["origins"]["exp_name"] == {"layer": "experiment", "file": "exp.yaml", "line": 3, "shadowed": []}
    assert document["origins"]["framework"]["line"] == 8


def test_explain_prints_the_same_highest_first(layered: Path, primus: Primus) -> None:
    done = primus("config", "explain", layered, "training.steps", "--preset-dir=p")
    assert done.out.splitlines() == [
        "key      training.steps",
        "value    3",
        "type     int",
        "default  10000",
        "must be  at least 1",
        "from     experiment, exp.yaml:11:16",
        "shadows  30 from experiment, base.yaml:4:25",
        "shadows  2 from model preset, p/models/torchtitan/p.yaml:3:10",
        "shadows  20 from model preset, p/models/torchtitan/base.yaml:2:10",
        "shadows  1 from module preset, p/modules/torchtitan/p.yaml:3:10",
        "shadows  10 from module preset, p/modules/torchtitan/base.yaml:2:10",
    ]


def test_show_prints_the_same_on_one_line(layered: Path, primus: Primus) -> None:
    done = primus("config", "show", layered, "--preset-dir=p", "--origin", "training.steps=4")
    line = next(line for line in done.out.splitlines() if line.startswith("training.steps"))
    assert line.startswith("training.steps: 4  # command line, command line, argument 1; shadows 3 (experiment, exp.")
    assert line.endswith("; shadows 10 (module preset, p/modules/torchtitan/base.yaml:2:10)")


@pytest.mark.parametrize(
    ("below", "above", "key", "shadowed"),
    [
        ("training: {steps: 1}", "training: null", "training.steps", None),
        ("model: {converters: [a]}", "model: {converters: []}", "model.converters", [["a"]]),
        ("debug: {seed: 1}", "debug: {seed: null}", "debug.seed", [1]),
        ("debug: {seed: 1}", "training: {steps: 2}", "debug.seed", []),
    ],
    ids=["a section", "a list", "null", "nothing"],
)
def test_what_is_shadowed_is_kept(
    write: Write, experiment: Experiment, below: str, above: str, key: str, shadowed: Any
) -> None:
    write("p/models/torchtitan/p.yaml", below)
    found = load_experiment(experiment(above, module="model: p.yaml"), environ={}, preset_dirs=[Path("p")])
    if shadowed is None:
        assert key not in found.origins
    else:
        assert [value for value, _ in found.origins[key].shadowed] == shadowed


def test_the_last_of_equal_words_wins(experiment: Experiment) -> None:
    words = ["training.steps=1", "--training.steps", "2", "--training.steps=3"]
    found = load_experiment(experiment(), words, environ={})
    assert found.args["training"]["steps"] == 3
    assert str(found.origins["training.steps"].origin) == "command line, argument 4"


def test_top_level_keys_and_env_have_origins(write: Write, experiment: Experiment) -> None:
    experiment(top="env: {A: low}")
    text = "extends: exp.yaml\nworkspace: /w\nenv: {A: high}\n"
    found = load_experiment(write("top.yaml", text), environ={})
    assert str(found.origins["workspace"].origin) == "top.yaml:2:12"
    assert [(value, str(at)) for value, at in found.origins["workspace"].shadowed] == [("./output", "exp.yaml:4:12")]
    assert [value for value, _ in found.origins["env.A"].shadowed] == ["low"]


def test_every_leaf_of_a_shipped_example_has_an_origin(representative: Path) -> None:
    found = load_experiment(representative, environ={})
    keys = set(flat(found.args, schema(found.framework))) | {"work_group", "user_name", "exp_name", "workspace"}
    assert keys - {"accelerator"} <= set(found.origins)
    for key in keys:
        origin = found.origins[key].origin
        assert (origin.layer in LAYERS, origin.line > 0, Path(origin.file).name.endswith(".yaml")) == (True, True, True)


def test_the_resolved_file_of_a_shipped_example_is_final(example: Path, write: Write) -> None:
    found = load_experiment(example, environ={})
    text = resolved_yaml(found)
    again = load_experiment(write("resolved.yaml", text), environ={})
    assert resolved_yaml(again) == text
    assert (again.args, again.env, again.exp_name) == (found.args, found.env, found.exp_name)


def test_the_resolved_file_says_everything(experiment: Experiment, write: Write) -> None:
    path = experiment("training: {steps: 3}", framework="torchtitan", top="env: {A: '1', B: 'x${HF_TOKEN}', C: '$${'}")
    found = load_experiment(path, environ={"HF_TOKEN": "t"})
    assert resolved_yaml(found).splitlines() == [
        *("work_group: amd", "user_name: root", "exp_name: tiny", "workspace: ./output", "accelerator: cpu", "env:"),
        *("  A: '1'", "  B: x${HF_TOKEN}", "  C: $${", "modules:", "  pre_trainer:", "    framework: torchtitan"),
        *("    overrides:", "      training:", "        steps: 3"),
    ]
    again = load_experiment(write("resolved.yaml", resolved_yaml(found)), environ={"HF_TOKEN": "t"})
    assert again.env == found.env == {"A": "1", "B": "x${HF_TOKEN}", "C": "${"}


def test_no_two_examples_of_a_backend_and_gpu_share_a_run_directory() -> None:
    seen: dict[tuple[str, str, Path], Path] = {}
    for example in EXAMPLES:
        found = load_experiment(example, environ={})
        key = (found.framework, example.parent.name, found.run_dir)
        assert key not in seen, f"{example} and {seen.get(key)}"
        seen[key] = example
