"""--offline: what is switched off, and what is missing, said at once and before anything starts."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from primus import offline
from primus.experiment import Template, load_experiment

from .conftest import Experiment, Outcome, Primus, Write

SWITCHES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY")
LOCAL = "training: {dataset: synthetic}"


def engine(write: Write, *images: str) -> None:
    """A docker that has these images, by reference or ID, and writes down what it is asked."""
    here = Path("bin").absolute()
    known = "|".join(images) or "none"
    script = f"""\
        #!/bin/sh
        echo "$*" >> {here}/asked
        case "$1 $2" in
        "version --format") echo 26.1 ;;
        "image inspect") case "$3" in {known}) echo '[{{"Id": "sha256:1"}}]' ;; *) exit 1 ;; esac ;;
        *) exit 9 ;;
        esac
        """
    write("bin/docker", script).chmod(0o755)
    os.environ["PATH"] = f"{here}:/usr/bin:/bin"


def run(primus: Primus, path: Path, *words: str) -> Outcome:
    return primus("run", "--config", path, "--offline", "--launcher=container", *words)


def problems(path: Path, **environ: str) -> list[str]:
    return [str(one) for one in offline.problems(load_experiment(path, environ={}), environ)]


@pytest.mark.parametrize("framework", ["torchtitan", "maxtext", "megatron", "megatron_bridge", "specforge"])
@pytest.mark.parametrize("launcher", ["direct", "container", "slurm"])
def test_every_backend_is_told_by_every_launcher(
    primus: Primus, framework: str, launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).resolve().parents[2]
    (example,) = sorted(root.glob(f"examples/{framework}/configs/CPU/*.yaml"))[:1]
    monkeypatch.chdir(root)
    done = primus("run", "--config", example, "--offline", f"--launcher={launcher}", "--dry-run")
    assert done.code == 0, done.err
    for name in SWITCHES:
        assert re.search(rf"^ *{name}: ['\"]?1", done.out, re.MULTILINE) or f"{name}=1" in done.out
    assert "WANDB_MODE" in done.out
    if launcher == "slurm":
        assert "--pull=never" in done.out


@pytest.mark.parametrize("engine", ["docker", "podman", "apptainer", "pyxis"])
def test_a_job_of_every_engine_reads_them(primus: Primus, experiment: Experiment, write: Write, engine: str) -> None:
    file = {"apptainer": "x.sif", "pyxis": "x.sqsh"}.get(engine, "x.tar")
    words = ("--launcher=slurm", f"--engine={engine}", f"--image={write(file, '')}", "--dry-run")
    done = primus("run", "--config", experiment(LOCAL), "--offline", *words)
    assert done.code == 0, done.err
    assert re.search(r"^  HF_HUB_OFFLINE: ['\"]1", done.out, re.MULTILINE)


def test_the_settings_and_a_variable_say_it_too(primus: Primus, experiment: Experiment, write: Write) -> None:
    words = ("run", "--config", experiment(LOCAL), "--launcher=direct", "--dry-run")
    assert "HF_HUB_OFFLINE" not in primus(*words).out
    os.environ["PRIMUS_OFFLINE"] = "1"
    assert "HF_HUB_OFFLINE=1" in primus(*words).out
    del os.environ["PRIMUS_OFFLINE"]
    write("primus.yaml", "offline: true\n")
    assert "HF_HUB_OFFLINE=1" in primus(*words).out


def test_what_the_user_says_stays_and_is_said(experiment: Experiment, primus: Primus) -> None:
    path = experiment(LOCAL, top="env: {WANDB_MODE: online}")
    found, notes = offline.switched(
        load_experiment(path, environ={}), {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "yes"}
    )
    assert found.env["WANDB_MODE"] == "online"
    assert not {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} & found.env.keys()
    assert [note.partition(" ")[0] for note in notes] == ["HF_HUB_OFFLINE=0", "WANDB_MODE=online"]
    done = run(primus, path, "--dry-run", "--env=HF_DATASETS_OFFLINE=0")
    assert "WANDB_MODE=online is in the experiment's env and stays" in done.err
    assert "HF_DATASETS_OFFLINE=0 is in your environment and stays" in done.err


def test_all_that_is_missing_is_said_at_once(experiment: Experiment, primus: Primus, write: Write) -> None:
    engine(write)
    path = experiment(
        "dataset_type: hf\nhf_path: allenai/c4\ntokenizer_path: /nope/tokenizer\nload_parameters_path: gs://bucket/x",
        framework="maxtext",
    )
    done = run(primus, path)
    assert (done.code, done.out) == (2, "")
    for text in (
        "exp.yaml:11:16: hf_path: allenai/c4 is no path here",
        "exp.yaml:12:23: tokenizer_path: /nope/tokenizer does not exist",
        "exp.yaml:13:29: load_parameters_path: gs://bucket/x is on a network",
        "primus-maxtext:0.1.0-cpu is not on this machine",
    ):
        assert text in done.err
    assert not Path("output").exists()


def test_the_image_alone_is_missing(experiment: Experiment, primus: Primus, write: Write) -> None:
    engine(write)
    done = run(primus, experiment(LOCAL), "--registry=registry.example.com", "--pull=always")
    assert (done.code, done.out) == (3, "")
    assert "registry.example.com/primus-torchtitan:0.1.0-cpu is not on this machine, and nothing is pulled" in done.err
    assert "primus image load FILE" in done.err
    assert {line.split()[0] for line in Path("bin/asked").read_text().splitlines()} == {"version", "image"}


def test_no_engine_is_said_with_the_rest(experiment: Experiment, primus: Primus) -> None:
    done = run(primus, experiment("training: {dataset: text, dataset_path: /nope}"))
    assert done.code == 2
    assert "/nope does not exist" in done.err
    assert "docker is not installed" in done.err


def test_an_image_that_was_loaded_is_found_by_its_id(write: Write) -> None:
    engine(write, "sha256:1")
    assert offline.no_image("r/x@sha256:2", "sha256:1", "docker", "container", {}) == ()
    assert offline.no_image("r/x@sha256:2", "", "docker", "container", {}) != ()


@pytest.mark.parametrize(
    ("host", "other"),
    [
        ("tcp://10.0.0.1:2375", True),
        ("ssh://me@host", True),
        ("tcp://127.0.0.1:2375", False),
        ("unix:///run/docker.sock", False),
    ],
)
def test_the_engine_of_another_machine_is_refused(write: Write, host: str, other: bool) -> None:
    engine(write, "x")
    assert bool(offline.no_image("x", "", "docker", "container", {"DOCKER_HOST": host})) is other


@pytest.mark.parametrize("name", ["apptainer", "pyxis"])
def test_what_is_no_file_would_be_fetched(name: str) -> None:
    (problem,) = offline.no_image("registry.example.com/x:1", "", name, "slurm", {})
    assert f"{name} fetches an image that is no file" in str(problem)
    assert offline.no_image("/shared/x.sif", "", name, "slurm", {}) == ()
    assert offline.no_image("dockerd://x", "", name, "slurm", {}) == ()


def test_of_nodes_it_is_said_what_can_be_known() -> None:
    assert "only the nodes know whether they have x:1, by a tag" in offline.of_nodes("x:1", "", "docker")
    assert "by a tag" not in offline.of_nodes("x@sha256:1", "", "docker")
    assert offline.of_nodes("/shared/x.tar", "", "docker") == ""


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("https://example.com/x", True),
        ("S3://bucket/x", True),
        ("0.5,gs://bucket/x*", True),
        ("http://localhost:30000", False),
        ("http://127.0.0.1/x", False),
        ("https://localhost.example.com", True),
        ("file:///data/x", False),
        ("/data/x", False),
    ],
)
def test_an_address_is_on_a_network(experiment: Experiment, text: str, refused: bool) -> None:
    path = experiment(f"dataset_type: grain\ngrain_train_files: '{text}'", framework="maxtext")
    assert bool(problems(path)) is refused


def test_an_addresss_password_is_not_shown(experiment: Experiment) -> None:
    path = experiment("load_parameters_path: https://me:secret@example.com/x", framework="maxtext")
    assert "secret" not in "".join(problems(path))


def test_trackers_that_need_a_server(experiment: Experiment) -> None:
    tracker = "tracking: {{report_to: {}}}\ntraining: {{attention_backend: sdpa, fsdp_sharding: NO_SHARD}}"
    mlflow = experiment(tracker.format("mlflow"), framework="specforge")
    assert problems(mlflow) == []
    assert "MLFLOW_TRACKING_URI" in problems(mlflow, MLFLOW_TRACKING_URI="https://tracker")[0]
    assert problems(mlflow, MLFLOW_TRACKING_URI="file:///mlruns") == []
    assert problems(experiment(tracker.format("wandb"), framework="specforge")) == []  # it writes files
    assert "swanlab sends" in problems(experiment(tracker.format("swanlab"), framework="specforge"))[0]
    assert (
        "Google"
        in problems(experiment("dataset_type: synthetic\nuse_vertex_tensorboard: true", framework="maxtext"))[0]
    )


def test_a_tracker_that_env_passes_on_is_looked_at(experiment: Experiment) -> None:
    tracker = "tracking: {{report_to: {}}}\ntraining: {{attention_backend: sdpa, fsdp_sharding: NO_SHARD}}"

    def passed(tracked: str, name: str, text: str, **environ: str) -> list[str]:
        loaded = load_experiment(experiment(tracker.format(tracked), framework="specforge"), environ={})
        given = replace(loaded, env={**loaded.env, name: Template(text)})
        return [one.message for one in offline.problems(given, environ)]

    name = "MLFLOW_TRACKING_URI"
    assert name in passed("mlflow", name, f"${{{name}}}", MLFLOW_TRACKING_URI="https://tracker")[0]
    assert name in passed("mlflow", name, "https://u:${MLFLOW_TOKEN}@tracker", MLFLOW_TOKEN="x")[0]
    assert name in passed("mlflow", name, "https://u:${MLFLOW_TOKEN}@tracker")[0]
    assert passed("mlflow", name, f"${{{name}}}", MLFLOW_TRACKING_URI="file:///mlruns") == []
    assert passed("mlflow", name, f"${{{name}}}") == []
    assert "swanlab sends" in passed("swanlab", "SWANLAB_MODE", "${SWANLAB_MODE}")[0]
    assert passed("swanlab", "SWANLAB_MODE", "${SWANLAB_MODE}", SWANLAB_MODE="offline") == []


def test_what_a_backend_fetches_for_a_word(experiment: Experiment, write: Write) -> None:
    path = experiment("training: {dataset: c4}")
    assert "training.dataset: stands for allenai/c4" in problems(path)[0]
    write("hub/datasets--allenai--c4/snapshots/abc/data", "")
    assert problems(path, HF_HUB_CACHE=str(Path("hub").absolute())) == []
    assert problems(experiment("training: {dataset: c4, dataset_path: /data}")) == []
    assert "validation.dataset" in problems(experiment("validation: {enable: true}"))[0]
    assert "dataset_type: the backend would fetch" in problems(experiment(framework="maxtext"))[0]
    path = experiment("recipe: llama.llama3\nflavor: llama3_8b_pretrain_config", framework="megatron_bridge")
    assert "flavor: stands for meta-llama/" in problems(path)[0]


def test_a_cache_in_the_home_is_shown_to_the_container(experiment: Experiment, write: Write, primus: Primus) -> None:
    cache = f"{os.environ['HOME']}/.cache/huggingface/hub"
    write(f"{cache}/models--meta--llama/snapshots/abc/tokenizer.json", "")
    write(f"{cache}/datasets--allenai--c4/snapshots/abc/data", "")
    path = experiment("dataset_type: hf\nhf_path: allenai/c4\ntokenizer_path: meta/llama", framework="maxtext")
    done = run(primus, path, "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert f"source={cache}," in done.out
    assert f"HF_HUB_CACHE: {cache}" in done.out


def test_an_empty_snapshot_is_none(experiment: Experiment) -> None:
    Path("hub/datasets--allenai--c4/snapshots/abc").mkdir(parents=True)
    assert problems(experiment("training: {dataset: c4}"), HF_HUB_CACHE=str(Path("hub").absolute()))
