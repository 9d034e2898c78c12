"""What a run reads: paths that exist are mounted, paths that do not are said, names on a hub are left alone."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import pytest

from primus.errors import ConfigError
from primus.experiment import load_experiment
from primus.experiment.paths import absent
from primus.experiment.schema import frameworks, schema
from primus.job import Mount, default_engine, with_env, with_inputs, with_inputs_at

from .conftest import ROOT, Experiment, Primus, Write

TITAN = "training: {{dataset: text, dataset_path: '{}'}}"


@pytest.mark.parametrize(
    ("framework", "overrides", "key"),
    [
        ("torchtitan", TITAN.format("data"), "training.dataset_path"),
        ("torchtitan", "training: {dataset: text}\nmodel: {hf_assets_path: data}", "model.hf_assets_path"),
        ("torchtitan", "training: {dataset: synthetic}\ncheckpoint: {initial_load_path: ./data}", "checkpoint.initial"),
        ("maxtext", "dataset_type: hf\ntokenizer_path: data", "tokenizer_path"),
        ("maxtext", "dataset_type: grain\ngrain_train_files: data", "grain_train_files"),
        ("maxtext", "load_parameters_path: data", "load_parameters_path"),
    ],
)
def test_an_existing_path_is_made_absolute_and_mounted(
    experiment: Experiment, write: Write, framework: str, overrides: str, key: str
) -> None:
    write("data/x", "")
    before = load_experiment(experiment(overrides, framework=framework), environ={})
    found, mounts, missing = with_inputs(before, (), offline=False, environ={})
    here = Path("data").absolute()
    assert (mounts, missing) == ((Mount(source=here, target=here, read_only=True),), ())
    assert str(here) in str(found.args)
    assert str(here) not in str(before.args)


def test_a_list_of_paths_and_a_prefix_of_files_are_inputs_too(experiment: Experiment, write: Write) -> None:
    """Megatron names its data by what X.bin and X.idx have in common, after a weight."""
    for name in ("a.bin", "a.idx", "b.bin", "b.idx"):
        write(f"data/{name}", "")
    path = experiment("data_path: ['0.3', data/a, '0.7', data/b]\nlr: 1.0", framework="megatron")
    before = load_experiment(path, environ={})
    found, mounts, missing = with_inputs(before, (), offline=True, environ={})
    here = Path("data").absolute()
    assert found.args["data_path"] == ["0.3", f"{here}/a", "0.7", f"{here}/b"]
    assert [mount.source.name for mount in mounts] == ["a.bin", "a.idx", "b.bin", "b.idx"]
    assert missing == ()
    assert before.args["data_path"][1] == "data/a"
    path = experiment("data_path: [/nope]", framework="megatron")
    assert len(with_inputs(load_experiment(path, environ={}), (), offline=False, environ={})[2]) == 1
    path = experiment("data_path: [/nope]\nmock_data: true", framework="megatron")
    assert with_inputs(load_experiment(path, environ={}), (), offline=False, environ={})[2] == ()


PER_SPLIT = '{"train": ["0.3", "data/a", "0.7", "data/b"], "valid": "data/b", "test": ["data/a"]}'


@pytest.mark.parametrize("mounted", ["with_inputs", "with_inputs_at"])
def test_what_a_list_of_data_names_is_an_input(experiment: Experiment, write: Write, mounted: str) -> None:
    for name in ("a", "b"):
        write(f"data/{name}.bin", "")
        write(f"data/{name}.idx", "")
    write("list.txt", "0.3 data/a\n0.7 data/b\n")
    write("split.json", PER_SPLIT)
    here = Path.cwd()
    for overrides, given in (
        ("data_args_path: list.txt", {"data_path": ["0.3", "a", "0.7", "b"]}),
        (
            "per_split_data_args_path: split.json",
            {"train_data_path": ["0.3", "a", "0.7", "b"], "valid_data_path": ["b"], "test_data_path": ["a"]},
        ),
    ):
        before = load_experiment(experiment(f"{overrides}\nlr: 1.0", framework="megatron"))
        if mounted == "with_inputs":
            found, mounts, missing = with_inputs(before, (), offline=False, environ={})
            assert missing == ()
            assert sorted({str(mount.source.relative_to(here)) for mount in mounts}) == [
                *("data/a.bin", "data/a.idx", "data/b.bin", "data/b.idx")
            ]
            place = f"{here}/data/"
        else:
            found, _ = with_inputs_at(before, lambda path: f"there/{path.name}")
            place = "there/"
        for key, words in given.items():
            assert found.args[key] == [word if word[0].isdigit() else f"{place}{word}" for word in words]
        assert found.args[overrides.partition(":")[0]] is None


@pytest.mark.parametrize(
    ("overrides", "text", "said"),
    [
        ("data_args_path: list", "0.5 /nope", "data_path: /nope does not exist"),
        ("data_args_path: list", None, "data_args_path: {here}/list does not exist"),
        ("per_split_data_args_path: list", "{", "per_split_data_args_path: {here}/list cannot be read: Expecting"),
        ("per_split_data_args_path: list", '{"train": []}', "{here}/list cannot be read: it has no 'valid'"),
        ("per_split_data_args_path: list", "[]", "{here}/list cannot be read: list indices must be"),
    ],
)
def test_a_list_of_data_that_is_wrong(
    experiment: Experiment, write: Write, overrides: str, text: str | None, said: str
) -> None:
    if text is not None:
        write("list", text)
    loaded = load_experiment(experiment(overrides, framework="megatron"))
    try:
        _, _, problems = with_inputs(loaded, (), offline=False, environ={})
    except ConfigError as error:
        problems = error.problems
    assert said.format(here=Path.cwd()) in problems[0].message
    if "/nope" in said:
        assert problems[0].where.startswith("exp.yaml:10:")


def test_a_pattern_is_given_its_directory(experiment: Experiment, write: Write) -> None:
    write("data/1.jsonl", "")
    path = experiment("dataset_type: hf\nhf_train_files: data/*.jsonl", framework="maxtext")
    found, mounts, missing = with_inputs(load_experiment(path, environ={}), (), offline=False, environ={})
    here = Path("data").absolute()
    assert (mounts, missing) == ((Mount(source=here, target=here, read_only=True),), ())
    assert found.args["hf_train_files"] == f"{here}/*.jsonl"


def test_a_directory_of_links_is_given_what_they_lead_to(experiment: Experiment, write: Write) -> None:
    """As the Hugging Face cache has them."""
    write("hub/blobs/abc", "{}")
    Path("hub/snapshots/1").mkdir(parents=True)
    Path("hub/snapshots/1/tokenizer.json").symlink_to("../../blobs/abc")
    path = experiment("training: {dataset: text}\nmodel: {hf_assets_path: hub/snapshots/1}")
    _, mounts, _ = with_inputs(load_experiment(path, environ={}), (), offline=False, environ={})
    assert [str(mount.source.relative_to(Path.cwd())) for mount in mounts] == ["hub/snapshots/1", "hub/blobs"]


@pytest.mark.parametrize(
    "text",
    ["/nope", "./nope", "../nope", "/" + "x" * 5000, "data/no.jsonl", "a/b/c", "data/no*.jsonl"],
    ids=lambda text: text[:8],
)
def test_a_path_that_does_not_exist_is_missing(experiment: Experiment, text: str) -> None:
    found = load_experiment(experiment(TITAN.format(text)), environ={})
    _, mounts, (problem,) = with_inputs(found, (), offline=False, environ={})
    assert mounts == ()
    assert problem.where == "exp.yaml:10:47"
    assert problem.message.startswith("training.dataset_path: /")
    assert problem.message.endswith(f"{'does not exist' if len(text) < 99 else 'File name too long'} on this machine")


def test_what_may_not_be_seen_is_not_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root, who may see all, runs this too."""

    def stat(path: Path, **_more: bool) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", stat)
        assert absent(Path("/locked/file")) == "cannot be looked at: Permission denied"
    assert absent(Path("/nope")) == "does not exist"
    Path("link").symlink_to("nowhere")
    assert absent(Path("link")) == "is a link to nowhere, which does not exist"


def test_a_path_inside_a_mount_is_not_looked_for_here(experiment: Experiment) -> None:
    given = (Mount(source=Path("/src"), target=Path("/data")),)
    found = load_experiment(experiment(TITAN.format("/data/set")), environ={})
    assert with_inputs(found, given, offline=False, environ={})[1:] == (given, ())


def test_a_name_on_a_hub_is_left_alone(experiment: Experiment) -> None:
    path = experiment("dataset_type: hf\nhf_path: allenai/c4\ntokenizer_path: meta/llama", framework="maxtext")
    before = load_experiment(path, environ={})
    assert with_inputs(before, (), offline=False, environ={}) == (before, (), ())


@pytest.mark.parametrize(
    ("variable", "folder"),
    [
        ("HF_HUB_CACHE", "x"),
        ("HF_HOME", "x/hub"),
        ("XDG_CACHE_HOME", "x/huggingface/hub"),
        ("", "{HOME}/.cache/huggingface/hub"),
    ],
)
def test_offline_a_name_on_a_hub_must_be_cached(
    experiment: Experiment, write: Write, variable: str, folder: str
) -> None:
    path = experiment("dataset_type: hf\nhf_path: allenai/c4\ntokenizer_path: meta/llama", framework="maxtext")
    folder = folder.format(**os.environ)
    environ = {variable: str(Path("x").absolute())} if variable else {}
    found = load_experiment(path, environ={})
    missing = with_inputs(found, (), offline=True, environ=environ)[2]
    assert [problem.where for problem in missing] == ["exp.yaml:12:23", "exp.yaml:11:16"]
    write(f"{folder}/models--meta--llama/snapshots/abc/config.json", "")
    write(f"{folder}/datasets--allenai--c4/snapshots/abc/data", "")
    assert with_inputs(found, (), offline=True, environ=environ)[2] == ()


def test_synthetic_data_needs_no_path(experiment: Experiment) -> None:
    path = experiment("training: {dataset: synthetic, dataset_path: /nope}\nmodel: {hf_assets_path: ./nope}")
    assert with_inputs(load_experiment(path, environ={}), (), offline=True, environ={})[1:] == ((), ())


def test_a_missing_input_stops_a_run_and_is_talk_in_a_dry_run(experiment: Experiment, primus: Primus) -> None:
    words = ("run", "--config", experiment(TITAN.format("/nope")))
    done = primus(*words)
    assert (done.code, done.out) == (2, "")
    assert "exp.yaml:10:47: training.dataset_path: /nope does not exist" in done.err
    done = primus(*words, "--dry-run")
    assert done.code == 0
    assert "training.dataset_path: /nope does not exist" in done.err


def test_a_variable_given_by_name_stays_a_name(experiment: Experiment) -> None:
    found = with_env(load_experiment(experiment(), environ={}), ("FOO",))
    assert found.env == {"FOO": "${FOO}"}


@pytest.mark.parametrize(
    ("installed", "expected"),
    [((), "docker"), (("docker",), "docker"), (("podman",), "podman"), (("docker", "podman"), "docker")],
    ids=str,
)
def test_the_engine_is_docker_unless_only_podman_is_here(installed: tuple[str, ...], expected: str) -> None:
    Path(os.environ["PATH"]).mkdir()
    for name in installed:
        path = Path(os.environ["PATH"]) / name
        path.touch(mode=0o755)
    assert default_engine() == expected


@pytest.mark.parametrize("workspace", ["~/w", "w", "/w"])
def test_the_run_directory_is_absolute_and_always_the_same(experiment: Experiment, workspace: str) -> None:
    path = experiment()
    path.write_text(path.read_text().replace("./output", workspace))
    base = {"~/w": Path(os.environ["HOME"]) / "w", "w": Path.cwd() / "w", "/w": Path("/w")}[workspace]
    assert load_experiment(path, environ={}).run_dir == base / "amd" / "root" / "tiny"


PATHS = [  # an input, and whether a bare name may be one of a hub's
    ("torchtitan", "model: {{hf_assets_path: {}}}", False),
    ("torchtitan", "checkpoint: {{initial_load_path: {}}}", False),
    ("torchtitan", "training: {{dataset: c4, dataset_path: {}}}", True),
    ("megatron", "load: {}", False),
    ("megatron", "vocab_file: {}", False),
    ("megatron", "data_path: ['0.5', {}]", False),
    ("megatron", "tokenizer_model: {}", True),
    ("megatron_bridge", "recipe: llama.llama3\nhf_path: {}", True),
    ("megatron_bridge", "recipe: llama.llama3\ndataset: {{dataset_root: {}}}", False),
    ("maxtext", "dataset_type: hf\nhf_path: json\nhf_train_files: {}", False),
    ("maxtext", "dataset_type: hf\nhf_path: {}", True),
    ("maxtext", "dataset_type: grain\ngrain_train_files: {}", False),
    ("maxdiffusion", "{{model_name: wan2.1, attention: dot_product, dataset_type: synthetic, "
     "pretrained_model_name_or_path: {}}}", True),
    ("maxdiffusion", "{{model_name: wan2.1, attention: dot_product, dataset_type: tfrecord, "
     "dataset_save_location: '.', train_data_dir: {}}}", False),
    ("specforge", "specforge_mode: capture\nspecforge_capture: {{data_path: {}}}", False),
    ("specforge", "specforge_mode: capture\nmodel: {{target_model_path: {}}}", True),
]  # fmt: skip


@pytest.mark.parametrize(("framework", "overrides", "on_a_hub"), PATHS)
def test_a_bare_name_is_a_path_where_it_can_only_be_one(
    experiment: Experiment, framework: str, overrides: str, on_a_hub: bool
) -> None:
    def missing(name: str, *, offline: bool = False) -> list[str]:
        written = overrides.format(f"'{name}'")
        found = load_experiment(experiment(written, framework=framework), environ={})
        problems = with_inputs(found, (), offline=offline, environ={})[2]
        return [problem.message for problem in problems if name in problem.message]

    here = Path("nofile").absolute()
    assert [text.partition(": ")[2] for text in missing("nofile")] == (
        [] if on_a_hub else [f"{here} does not exist on this machine"]
    )
    assert len(missing("nofile", offline=True)) == 1
    for text in ("hf://datasets/nofile/b.json", "./nofile/a*,0.3;./nofile/b*,0.7"):  # the backend knows more of it
        assert missing(text) == []


def test_every_backend_says_which_of_its_inputs_are_on_a_hub() -> None:
    for name in frameworks():
        adapter = import_module(f"primus.backends.{name}.adapter")
        assert {*adapter.HUB, *getattr(adapter, "MAKERS", ())} <= set(schema(name).arguments)


@pytest.mark.parametrize(
    ("framework", "overrides", "hint"),
    [
        ("megatron_bridge", "recipe: llama.llama3\nhf_path: ./my/tiny_llama/model",
         "python3 examples/data/make_tiny_llama.py my/tiny_llama makes it"),
        ("megatron", "data_path: [nofile]", "primus data prepare-megatron makes data of text"),
        ("specforge", "data: {hidden_states_path: nofile}\nspecforge_mode: train\n"
         "training: {attention_backend: sdpa, fsdp_sharding: NO_SHARD}", "specforge_mode: capture makes it"),
        ("torchtitan", "checkpoint: {initial_load_path: nofile}", "--mount SRC:DST shows"),
    ],
)  # fmt: skip
def test_what_makes_a_missing_input_is_said(experiment: Experiment, framework: str, overrides: str, hint: str) -> None:
    found = load_experiment(experiment(overrides, framework=framework), environ={})
    hints = [problem.hint for problem in with_inputs(found, (), offline=False, environ={})[2]]
    assert any(one.startswith(hint) for one in hints), hints


def test_the_maker_of_the_examples_model_is_there() -> None:
    assert (ROOT / "examples/data/make_tiny_llama.py").is_file()
