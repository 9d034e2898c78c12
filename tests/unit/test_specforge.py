"""An experiment as SpecForge's steps: their files, their defaults, and what keeps one from being launched."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus.backends.specforge import adapter
from primus.errors import ConfigError
from primus.experiment import Experiment as Loaded
from primus.experiment import load_experiment
from primus.experiment.yaml import parse, untyped
from primus.node import Node

from .conftest import Experiment, Primus

RUN = Path("/run")
DRAFT = "specforge_draft: {vocab_size: 8}"
CAPTURE = f"model: {{target_model_path: /target}}\nspecforge_capture: {{data_path: /talk.jsonl}}\n{DRAFT}"
TRAIN = "model: {target_model_path: /target}\ndata: {hidden_states_path: /features}"


def loaded(experiment: Experiment, overrides: str, *words: str) -> Loaded:
    return load_experiment(experiment(overrides, framework="specforge"), words, environ={}, accelerator="rocm")


def files(found: Loaded, node: Node | None = None) -> dict[str, Any]:
    """What the run's files hold, by name."""
    written = adapter.command(found, node or Node(), RUN).files
    return {path.name: untyped(parse(text, file="", layer="")) for path, text in written.items()}


@pytest.mark.parametrize(
    "overrides",
    [
        "specforge_overrides:\n  training.max_steps: 20\n  training: {seed: 1}",
        "specforge_overrides: {training: {max_steps: 20, seed: 1}}",
        "training: {max_steps: 20, seed: 1}",
        "training: {max_steps: 5, seed: 1}\nspecforge_overrides: {training.max_steps: 20}",
    ],
    ids=["dotted", "nested", "plain", "over the plain one"],
)
def test_overrides_are_specforges_own_arguments(experiment: Experiment, overrides: str) -> None:
    assert loaded(experiment, overrides).args == {"training": {"max_steps": 20, "seed": 1}}


def test_a_word_beats_a_dotted_key_of_the_file(experiment: Experiment) -> None:
    written = "specforge_overrides: {training.max_steps: 20}"
    for word in ("training.max_steps=30", "specforge_overrides.training.max_steps=30"):
        found = loaded(experiment, written, word)
        assert found.args == {"training": {"max_steps": 30}}
        assert [value for value, _ in found.origins["training.max_steps"].shadowed] == [20]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            "specforge_overrides: {training.max_stepz: 1}",
            "exp.yaml:10:29: training.max_stepz: unknown to specforge 0.2.0",
        ),
        ("specforge_overrides: {training.max_stepz: 1}", "did you mean 'training.max_steps'?"),
        ("specforge_overrides: {training.max_steps: x}", "exp.yaml:10:49: training.max_steps: must be int"),
        ("specforge_overrides: 5", "specforge_overrides: is a section of keys, not a value"),
        ("specforge_capture: {data_pth: x}", "did you mean 'specforge_capture.data_path'?"),
        ("specforge_mode: trian", "did you mean 'train'?"),
        ("training: {strategy: dflsh}", "did you mean 'dflash'?"),
        ("specforge_root: /x", "SpecForge is in the image"),
        ("tracking: {wandb_key: x}", "wandb reads WANDB_API_KEY from the environment"),
        ("train_iters: 5", "specforge calls it training.max_steps"),
    ],
)
def test_a_slip_is_answered(experiment: Experiment, overrides: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(experiment, overrides)
    assert expected in str(caught.value)


def test_what_a_training_writes_is_in_the_run_directory(experiment: Experiment) -> None:
    run = files(loaded(experiment, TRAIN))["specforge-train.yaml"]
    assert (run["run_id"], run["output_dir"], run["data"]["cache_dir"]) == ("tiny", "/run/checkpoints", "/run/cache")
    assert run["data"]["hidden_states_path"] == "/features"
    assert "resume_from" not in run.get("training", {})
    assert run["deployment"] == {"trainer": {"nnodes": 1, "nproc_per_node": 1}}
    there = files(loaded(experiment, f"{TRAIN}\noutput_dir: /there\nrun_id: mine"))["specforge-train.yaml"]
    assert (there["run_id"], there["output_dir"]) == ("mine", "/there")


def test_a_capture_is_as_the_training_says(experiment: Experiment) -> None:
    written = f"""
    specforge_mode: capture
    specforge_capture: {{data_path: /talk.jsonl, filter_output_path: kept, chat_template: lfm}}
    model: {{target_model_path: /target}}
    training: {{strategy: dflash}}
    data: {{max_length: 64, chat_template: qwen}}
    {DRAFT}
    """
    held = files(loaded(experiment, written))
    assert held["specforge-capture.yaml"] == {
        "strategy": "dflash",
        "target_model_path": "/target",
        "max_length": 64,
        "data_path": "/talk.jsonl",
        "filter_output_path": "/run/kept",
        "chat_template": "lfm",
        "draft_model_config": "/run/draft.json",
        "output_path": "/run/hidden_states_raw",
        "cache_dir": "/run/cache",
    }
    assert held["draft.json"] == {"vocab_size": 8}


@pytest.mark.parametrize("strategy", ["dflash", "eagle3"])
def test_steps_read_what_the_one_before_wrote(experiment: Experiment, strategy: str) -> None:
    written = f"specforge_mode: [capture, train, export]\n{CAPTURE}\ntraining: {{strategy: {strategy}}}"
    found = loaded(experiment, written)
    held = files(found)
    train, export = held["specforge-train.yaml"], held["specforge-export.yaml"]
    assert train["data"]["hidden_states_path"] == held["specforge-capture.yaml"]["output_path"]
    assert train["model"]["draft_model_config"] == export["draft_config"] == "/run/draft.json"
    assert (export["checkpoint"], export["output_dir"]) == (train["output_dir"], "/run/export")
    mapping = "/run/hidden_states_raw/vocab_mapping/vocab_mapping.pt"
    expected = mapping if strategy == "eagle3" else None
    assert (train["model"].get("vocab_mapping_path"), export.get("vocab_mapping")) == (expected, expected)
    argv = adapter.command(found, Node(), RUN).argv
    assert argv[:3] == ("python", "-m", "primus.backends.specforge.steps")
    assert [argv[at - 1] for at, word in enumerate(argv) if word.startswith("/run/specforge-")] == [
        *("capture", "train", "export")
    ]
    assert not list(adapter.problems(found))
    # The same experiment, step by step.
    alone = files(loaded(experiment, written, "specforge_mode=train"))["specforge-train.yaml"]
    assert alone == train


def test_only_hf_takes_an_embedding(experiment: Experiment) -> None:
    written = f"specforge_mode: export\n{CAPTURE}\nspecforge_export: {{to: sglang}}"
    options = files(loaded(experiment, written))["specforge-export.yaml"]
    assert (options["to"], "embedding_source" in options) == ("sglang", False)
    options = files(loaded(experiment, written, "specforge_export.to=hf"))["specforge-export.yaml"]
    assert (options["embedding_source"], options["embedding_key"]) == ("/target", "model.embed_tokens.weight")


def test_a_config_of_the_users_is_read_where_it_runs(experiment: Experiment) -> None:
    found = loaded(experiment, "specforge_config: /my.yaml")
    assert adapter.command(found, Node(), RUN).argv[-2:] == ("/run/specforge-train.yaml", "/my.yaml")
    assert "specforge_config" in adapter.inputs(found)
    assert not list(adapter.problems(found))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ("specforge_mode: [train, capture]", "exp.yaml:10:23: specforge_mode: train, capture is no order"),
        ("specforge_mode: [train, train]", "is no order"),
        ("specforge_mode: [trian]", "'trian' (str) is not a choice"),
        ("specforge_mode: []", "there are capture, train, export"),
        ("specforge_train_mode: online", "specforge_train_mode: online training is not built yet"),
        ("{}", "model.target_model_path: is missing; train needs it"),
        ("{}", "data.hidden_states_path: is missing; train needs it"),
        ("specforge_mode: capture", "specforge_capture.data_path: is missing"),
        ("specforge_mode: capture", "specforge_draft: is missing"),
        ("specforge_mode: export", "specforge_draft: is missing"),
        (
            "specforge_mode: export\ntraining: {strategy: dflash}\nspecforge_export: {to: sglang}",
            "specforge_export.to: sglang, training.strategy: dflash, specforge_mode: export: SGLang's layout",
        ),
    ],
)
def test_what_cannot_be_launched_is_said_before(
    experiment: Experiment, primus: Primus, overrides: str, expected: str
) -> None:
    path = experiment(overrides, framework="specforge")
    checked = primus("config", "check", path, "--accelerator", "rocm")
    if "not built yet" in expected:  # nothing is wrong with it
        assert checked.code == 0
    else:
        assert (checked.code, expected in checked.err) == (2, True)
    done = primus("run", "--config", path, "--accelerator", "rocm")
    assert done.code == 2
    assert expected in done.err


def test_processes_are_the_nodes_or_fewer(experiment: Experiment) -> None:
    node = Node(gpus=8)
    words = adapter.command(loaded(experiment, TRAIN), node, RUN).argv
    assert "--nproc-per-node=8" in words
    fewer = f"{TRAIN}\ndeployment: {{trainer: {{nproc_per_node: 2}}}}"
    assert "--nproc-per-node=2" in adapter.command(loaded(experiment, fewer), node, RUN).argv
    assert (
        files(loaded(experiment, fewer), node)["specforge-train.yaml"]["deployment"]["trainer"]["nproc_per_node"] == 2
    )
    with pytest.raises(ConfigError, match=r"deployment\.trainer\.nproc_per_node is 2, and this node has 1"):
        adapter.command(loaded(experiment, fewer), Node(), RUN)
    more = f"{TRAIN}\ndeployment: {{trainer: {{nnodes: 2}}}}"
    with pytest.raises(ConfigError, match=r"deployment\.trainer\.nnodes is 2, and the job has 1 node"):
        adapter.command(loaded(experiment, more), Node(), RUN)


def test_several_nodes_meet_as_the_launcher_says(experiment: Experiment) -> None:
    node = Node(rank=1, nodes=2, gpus=4, master_addr="first", master_port=1234)
    trainer = files(loaded(experiment, TRAIN), node)["specforge-train.yaml"]["deployment"]["trainer"]
    assert trainer == {
        **{"nnodes": 2, "nproc_per_node": 4, "node_rank": 1},
        **{"master_addr": "first", "master_port": 1234},
    }


def test_one_node_exports(experiment: Experiment) -> None:
    found = loaded(experiment, f"specforge_mode: [train, export]\n{TRAIN}\n{DRAFT}")
    first, second = (adapter.command(found, Node(rank=rank, nodes=2), RUN) for rank in (0, 1))
    assert ("export" in first.argv, "export" in second.argv) == (True, False)
    alone = loaded(experiment, f"specforge_mode: export\n{DRAFT}")
    with pytest.raises(ConfigError, match="an export is the work of one process"):
        adapter.command(alone, Node(nodes=2), RUN)


def test_modules_are_what_the_steps_import(experiment: Experiment) -> None:
    def needed(overrides: str, *words: str) -> set[str]:
        path = experiment(overrides, framework="specforge")
        return set(adapter.modules(load_experiment(path, words, environ={}, accelerator="rocm")))

    assert needed(TRAIN) == {"specforge"}
    assert needed(f"specforge_mode: capture\n{CAPTURE}") == {"specforge", "sglang"}
    dflash = ("training.strategy=dflash", "model.use_liger_kernel=true")
    assert needed(TRAIN, *dflash, "tracking.report_to=wandb") == {*("specforge", "liger_kernel", "wandb")}
    assert needed(TRAIN, "tracking.report_to=none") == {"specforge"}


STEPS = [sys.executable, "-m", "primus.backends.specforge.steps"]


@pytest.mark.parametrize(
    ("codes", "expected", "printed"), [((0, 0), 0, "01"), ((0, 3), 3, "01"), ((3, 0), 3, "0"), ((0,), 0, "0")]
)
def test_steps_end_with_the_first_that_fails(codes: tuple[int, ...], expected: int, printed: str) -> None:
    programs = [f"print({number}, end=''); raise SystemExit({code})" for number, code in enumerate(codes)]
    words = [word for program in programs for word in ("--", "python", "-c", program)]
    done = subprocess.run([*STEPS, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (expected, printed)


def test_a_signal_ends_the_steps() -> None:
    wait = "import time; print('ready', flush=True); time.sleep(60)"
    never = "print('next', flush=True)"
    command = [*STEPS, "--", "python", "-c", wait, "--", "python", "-c", never]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=20)[0] == ""
    assert process.returncode == 128 + signal.SIGTERM


def test_the_draft_is_the_users_mapping_as_it_is(experiment: Experiment) -> None:
    written = "specforge_draft: {rope_scaling: null, a: [1, x], b: {c: 1.0e-6}, d: true}"
    text = adapter.command(loaded(experiment, f"{TRAIN}\n{written}"), Node(), RUN).files[RUN / "draft.json"]
    assert json.loads(text) == {"rope_scaling": None, "a": [1, "x"], "b": {"c": 1e-6}, "d": True}
