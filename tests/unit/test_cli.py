"""The command line: exit codes, what is data and what is talk."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from primus._version import __version__
from primus.backends.torchtitan import adapter
from primus.errors import ConfigError, ImageError, LaunchError, PrimusError
from primus.experiment import load_experiment
from primus.image.manifest import COMPILED, Manifest, check, check_compiled, from_labels, inside
from primus.image.names import reference
from primus.launchers import container
from primus.models.gpus import SKUS

from .conftest import ROOT, Experiment, Outcome, Primus, Write


@pytest.mark.parametrize(("error", "code"), [(PrimusError, 1), (ConfigError, 2), (ImageError, 3), (LaunchError, 4)])
def test_each_error_has_its_exit_code(error: type[PrimusError], code: int) -> None:
    assert error.exit_code == code


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("-h",), ("run", "--help"), ("config", "-h")], ids=str)
def test_help_is_data(primus: Primus, words: tuple[str, ...]) -> None:
    done = primus(*words)
    assert (done.code, done.err) == (0, "")
    assert done.out


def test_the_version_is_the_packages(primus: Primus) -> None:
    assert primus("--version").out == f"primus {__version__}\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("runn",), "No such command 'runn'. Did you mean 'run'?"),
        (("zzz",), "No such command 'zzz'."),
        (("-x",), "No such option '-x'."),
        (("run",), "Missing option '--config'"),
        (("run", "--config"), "requires an argument"),
        (("run", "--config", "nope.yaml", "--dry-run"), "error: nope.yaml: does not exist\n"),
        (("run", "--config", ".", "--dry-run"), "error: .: is a directory\n"),
        (("run", "--config", "/dev/null", "--dry-run"), "error: /dev/null: is no file\n"),
        (("run", "--config", "", "--dry-run"), "is a directory"),
        (
            ("run", "--config", "loop.yaml", "--dry-run"),
            "error: loop.yaml: cannot be looked at: Too many levels of symbolic links\n",
        ),
        (("run", "--config", "x" * 5000, "--dry-run"), "cannot be looked at: File name too long"),
        (("run", "--config", "exp.yml", "--dry-run"), "hint: did you mean exp.yaml?"),
        (("run", "--config", "exp.yaml", "--nodes=0"), "0 is not in the range 1<=x<=999999"),
        (("run", "--config", "exp.yaml", "--gpus-per-node=x"), "'x' is not a valid integer"),
        (("run", "--config", "exp.yaml", "--launcher=slurmm"), "'slurmm' is not one of"),
        (("run", "--config", "exp.yaml", "--nodes=2", "--launcher=direct"), "2 nodes need NODE_RANK"),
        (("run", "--config", "exp.yaml", "--run-dir=~nosuchuser/x", "--dry-run"), "home directory"),
        (("run", "--config", "exp.yaml", "--mount=/nope", "--dry-run"), "/nope does not exist"),
        (("run", "--config", "exp.yaml", "--dev", "--dry-run"), "this directory is in no checkout of Primus"),
        (("run", "--config", "exp.yaml", "--nodess=2", "--dry-run"), "hint: did you mean the option --nodes?"),
        (("run", "--config", "exp.yaml", "--gpus_per_node=2", "--dry-run"), "the option --gpus-per-node?"),
        (("run", "--config", "exp.yaml", "steps=2", "--dry-run"), "hint: torchtitan calls it training.steps"),
        (("config", "show", "nope.yaml"), "error: nope.yaml: does not exist\n"),
        (("config", "show", "exp.yaml", "exp.yaml"), "'exp.yaml' is no override"),
        (("config", "explain", "nope.yaml", "x"), "error: nope.yaml: does not exist\n"),
        (("config", "explain", "exp.yaml", "training.step"), "hint: did you mean 'training.steps'?"),
        (("config", "check"), "Missing argument"),
        (("image", "build", "--file", "nope.hcl"), "nope.hcl: no such file"),
    ],
    ids=lambda item: " ".join(item)[:60] if isinstance(item, tuple) else "",
)
def test_what_is_wrong_with_the_command_line_is_talk_and_exit_code_2(
    primus: Primus, experiment: Experiment, words: tuple[str, ...], expected: str
) -> None:
    experiment()
    Path("loop.yaml").symlink_to("loop.yaml")
    done = primus(*words)
    assert (done.code, done.out) == (2, "")
    assert expected in done.err


def test_check_goes_on_after_a_wrong_file(primus: Primus, experiment: Experiment, write: Write) -> None:
    good, bad = experiment(), write("bad.yaml", "a: [")
    done = primus("config", "check", bad, good, "nope.yaml")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: bad.yaml:")
    assert "error: nope.yaml: does not exist" in done.err
    assert done.err.endswith("primus: 2 of 3 file(s) wrong\n")


def test_show_prints_a_file_that_loads_the_same(primus: Primus, experiment: Experiment, write: Write) -> None:
    done = primus("config", "show", experiment("training: {steps: 3}"), "training.seq_len=5")
    assert (done.code, done.err) == (0, "")
    assert load_experiment(write("again.yaml", done.out), environ={}).args == {"training": {"steps": 3, "seq_len": 5}}


def test_show_as_json_is_one_object(primus: Primus, experiment: Experiment) -> None:
    done = primus("config", "show", experiment("optimizer: {lr: 1e-5}"), "--format=json")
    assert json.loads(done.out) == {
        "work_group": "amd",
        "user_name": "root",
        "exp_name": "tiny",
        "workspace": "./output",
        "framework": "torchtitan",
        "stage": "pretrain",
        "accelerator": "cpu",
        "image": reference("torchtitan", "cpu"),
        "args": {"optimizer": {"lr": 1e-5}},
        "env": {},
    }


def test_explain_says_what_is_not_set(primus: Primus, experiment: Experiment) -> None:
    done = primus("config", "explain", experiment(), "activation_checkpoint.mode")
    assert done.out.splitlines() == [
        "key      activation_checkpoint.mode",
        "value    selective (not set: the backend's default)",
        "type     str",
        "default  selective",
        "choices  selective, full, memory_budget, none",
    ]


def test_a_dry_run_prints_every_layer_and_every_file(primus: Primus, experiment: Experiment) -> None:
    done = primus("run", "--config", experiment(), "--dry-run", "--launcher=container", "--run-dir=/r")
    titles = [line for line in done.out.splitlines() if line.startswith("# ")]
    assert titles == [
        *("# on this machine (docker)", "# in the container", "# which becomes"),
        *("# file: /r/RUN-ID/experiment.yaml", "# file: /r/torchtitan.toml"),
    ]


def test_the_accelerator_of_the_command_line_beats_the_file(primus: Primus, experiment: Experiment) -> None:
    done = primus("run", "--config", experiment(), "--dry-run", "--launcher=container", "--accelerator=rocm")
    assert "--device=/dev/kfd" in done.out
    assert "-rocm " in done.out


def test_without_an_engine_the_launch_is_refused(primus: Primus, experiment: Experiment) -> None:
    done = primus("run", "--config", experiment(), "--launcher=container")
    assert (done.code, done.out) == (4, "")
    assert "error: docker is not installed" in done.err
    assert not Path("output").exists()


def test_without_the_backend_the_direct_launch_is_refused(
    primus: Primus, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "modules", lambda _experiment: {"no_such_module": "this test"})
    done = primus("run", "--config", experiment(), "--launcher=direct")
    assert (done.code, done.out) == (4, "")
    assert "error: no_such_module is not installed" in done.err
    assert "needed by this test" in done.err
    assert not Path("output").exists()


@pytest.mark.parametrize(
    ("inspect", "code", "expected"),
    [
        ("exit 1", 3, "image:1 is not on this machine, and nothing"),
        ('echo \'[{"Config": {"Labels": null}}]\'', 3, "image:1 is not a Primus image"),
        ('echo \'[{"Config": {"Labels": {"io.primus.framework": "maxtext"}}}]\'', 3, "image:1 is for maxtext"),
    ],
    ids=["missing", "not ours", "another framework"],
)
def test_a_wrong_image_is_exit_code_3(
    primus: Primus, experiment: Experiment, inspect: str, code: int, expected: str
) -> None:
    engine = Path(os.environ["PATH"]) / "docker"
    engine.parent.mkdir()
    engine.write_text(f'#!/bin/sh\nif [ "$1" = image ]; then {inspect}; fi\n')
    engine.chmod(0o755)
    done = primus("run", "--config", experiment(), "--launcher=container", "--image=image:1", "--pull=never")
    assert (done.code, done.out) == (code, "")
    assert expected in done.err
    assert not Path("output").exists()


def test_an_image_that_lacks_what_is_compiled_is_refused_before_a_container_starts(
    primus: Primus, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "_check_devices", lambda _job: None)
    labels = {"io.primus.framework": "maxtext", "io.primus.accelerator": "rocm"}
    engine = Path(os.environ["PATH"]) / "docker"
    engine.parent.mkdir()

    def run(*words: str) -> Outcome:
        found = json.dumps([{"Config": {"Labels": labels}}])
        engine.write_text(f"#!/bin/sh\nif [ \"$1\" = image ]; then echo '{found}'; fi\n")
        engine.chmod(0o755)
        config = experiment(framework="maxtext")
        return primus("run", "--config", config, "--launcher=container", "--image=i:1", "--pull=never", *words)

    done = run("attention=cudnn_flash_te", "--accelerator=rocm")
    assert (done.code, done.out) == (3, ""), done.err
    assert "i:1 was built without transformer_engine; needed by attention: cudnn_flash_te (attention=flash" in done.err
    assert "hint: build it anew: docker buildx bake maxtext" in done.err
    assert not Path("output").exists()
    monkeypatch.setattr(container, "_supervised", lambda *_, **__: 0)
    assert run("attention=dot_product", "--accelerator=rocm", "--run-dir=other").code == 0
    labels["io.primus.compiled"] = "transformer_engine"
    assert run("attention=cudnn_flash_te", "--accelerator=rocm").code == 0
    done = run("attention=cudnn_flash_te")  # on a CPU
    assert done.code == 2
    assert "attention: cudnn_flash_te: Transformer Engine has kernels for GPUs alone\nhint: write" in done.err


def test_only_what_is_compiled_is_looked_for_from_outside() -> None:
    check_compiled(OURS, {"maxtext": "framework: maxtext", "fla": "this test"}, "i")
    for module in COMPILED:
        with pytest.raises(ImageError, match=f"i was built without {module}; needed by this test"):
            check_compiled(OURS, {module: "this test"}, "i")


OURS = Manifest(framework="maxtext", accelerator="rocm", gfx=("gfx942", "gfx950"))


@pytest.mark.parametrize(
    ("manifest", "gfx"),
    [(OURS, "gfx942"), (OURS, ""), (Manifest(framework="maxtext", accelerator="rocm"), "gfx1100")],
    ids=["its GPU", "no GPU here", "an image for any"],
)
def test_a_fitting_image_is_accepted(manifest: Manifest, gfx: str) -> None:
    check(manifest, framework="maxtext", accelerator="rocm", gfx=gfx, image="i")


@pytest.mark.parametrize(
    ("framework", "accelerator", "gfx", "expected"),
    [
        ("torchtitan", "rocm", "gfx942", "i is for maxtext, the experiment for torchtitan"),
        ("maxtext", "cpu", "", "i is for accelerator rocm, the experiment for cpu"),
        ("maxtext", "rocm", "gfx90a", "i is built for gfx942, gfx950; this machine's GPUs are gfx90a"),
    ],
)
def test_an_image_for_something_else_is_refused(framework: str, accelerator: str, gfx: str, expected: str) -> None:
    with pytest.raises(ImageError, match=expected):
        check(OURS, framework=framework, accelerator=accelerator, gfx=gfx, image="i")


def test_labels_and_the_file_inside_say_the_same(write: Write) -> None:
    labels = {"framework": "maxtext", "accelerator": "rocm", "gfx": "gfx942;gfx950"}
    assert from_labels({f"io.primus.{name}": value for name, value in labels.items()}) == OURS
    assert from_labels({"io.primus.framework": "x", "io.primus.compiled": "a b"}) == Manifest(
        framework="x", accelerator="", compiled=("a", "b")
    )
    assert from_labels({"other": "label"}) is None
    document = {"framework": "maxtext", "accelerator": "rocm", "gfx": ["gfx942", "gfx950"], "more": {}}
    assert inside(write("image.json", json.dumps(document))) == OURS
    assert inside(Path("nope.json")) is None
    with pytest.raises(ImageError, match="cannot be read"):
        inside(write("image.json", "{"))


@pytest.mark.parametrize(
    ("registry", "expected"),
    [
        ("", f"primus-maxtext:{__version__}-rocm"),
        ("reg.local:5000/team", f"reg.local:5000/team/primus-maxtext:{__version__}-rocm"),
        ("reg.local:5000/team/", f"reg.local:5000/team/primus-maxtext:{__version__}-rocm"),
    ],
)
def test_an_image_has_a_name(registry: str, expected: str) -> None:
    assert reference("maxtext", "rocm", registry=registry) == expected


def test_infinity_is_a_word_in_json(primus: Primus, experiment: Experiment) -> None:
    done = primus(
        "config",
        "show",
        experiment(),
        "--format=json",
        "training.max_norm=.inf",
        "comm.x=.nan",
        "--allow-unknown=comm.x",
    )
    found = json.loads(done.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (found["args"]["training"], found["args"]["comm"]) == ({"max_norm": ".inf"}, {"x": ".nan"})


def test_a_section_is_explained_by_its_keys(primus: Primus, experiment: Experiment) -> None:
    done = primus("config", "explain", experiment(), "checkpoint")
    assert done.code == 2
    assert "checkpoint: is a section" in done.err
    assert "checkpoint.interval" in done.err


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = "import pathlib; from primus.cli import main; pathlib.Path.cwd().rmdir(); main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "config", "check", "x.yaml"],
        cwd=gone,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: the current directory does not exist any more" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "exp.yaml"), "Missing option '--config'. Did you mean --config exp.yaml?"),
        (("run", "x=1"), "Missing option '--config'."),
        (("config", "show", "exp.yaml", "--orign"), "did you mean the option --origin?"),
        (("config", "explain", "exp.yaml", "env.X"), "env.X: is not set in this experiment"),
        (("config", "explain", "exp.yaml", "modules"), "hint: KEY is an argument of the backend"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(
    primus: Primus, experiment: Experiment, words: tuple[str, ...], said: str
) -> None:
    experiment()
    done = primus(*words)
    assert done.code == 2
    assert said in done.err


PATCH = """\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: Somebody <somebody@example.com>
Date: Mon, 30 Nov 2026 00:00:00 +0000
Subject: [PATCH] Turn the thing on, which takes a subject
 of two lines

It was off.

Upstream-Status: not submitted
---
 a.py | 2 +-

diff --git a/a.py b/a.py
--- a/a.py
+++ b/a.py
@@ -1 +1 @@
-off
+on
"""


def test_patches_are_listed_as_the_checkout_has_them(primus: Primus, write: Write) -> None:
    write("docker-bake.hcl", "")
    assert primus("image", "patches", "maxtext") == (0, "", "maxtext is not patched\n")
    write("images/maxtext/patches/flax/0001-on.patch", PATCH)
    done = primus("image", "patches", "maxtext", "--format=json")
    assert json.loads(done.out) == [
        {
            "tree": "flax",
            "name": "0001-on.patch",
            "subject": "Turn the thing on, which takes a subject of two lines",
            "upstream_status": "not submitted",
            "files": ["a.py"],
        }
    ]
    table = primus("image", "patches", "maxtext").out
    assert [line.split()[:3] for line in table.splitlines()] == [
        ["tree", "name", "subject"],
        ["flax", "0001-on.patch", "Turn"],
    ]


@pytest.mark.parametrize(
    ("old", "expected"),
    [("Upstream-Status:", "has no Upstream-Status line"), ("Subject:", "has no subject"), (PATCH, "has no subject")],
)
def test_a_patch_that_does_not_say_what_it_is(primus: Primus, write: Write, old: str, expected: str) -> None:
    write("docker-bake.hcl", "")
    write("images/maxtext/patches/flax/0001-on.patch", PATCH.replace(old, "X: "))
    done = primus("image", "patches", "maxtext")
    assert done.code == 3
    assert f"0001-on.patch: {expected}" in done.err


@pytest.mark.parametrize(
    ("framework", "expected"),
    [("maxtex", "did you mean maxtext?"), ("maxtext", "docker-bake.hcl: no such file")],
)
def test_patches_need_a_framework_and_a_checkout(primus: Primus, framework: str, expected: str) -> None:
    done = primus("image", "patches", framework)
    assert done.code == 2
    assert expected in done.err


@pytest.mark.parametrize(
    "word",
    ["--env=HF_TOKEN=x", "-e=WANDB_API_KEY=x", "--env=NAME=hf_abcdefghijklmnopqrstuvwxyz0123456789"],
)
def test_no_credential_among_the_engines_arguments(primus: Primus, experiment: Experiment, word: str) -> None:
    done = primus("run", "--config", experiment(), "--dry-run", f"--engine-arg={word}")
    assert done.code == 2
    assert "holds a credential" in done.err
    assert "abcdefghij" not in done.err + done.out
    assert primus("run", "--config", experiment(), "--dry-run", "--engine-arg=--env=HF_TOKEN").code == 0


def test_a_run_directory_is_not_the_root(primus: Primus, experiment: Experiment) -> None:
    done = primus("run", "--config", experiment(), "--run-dir=/", "--dry-run")
    assert (done.code, "the root of all files" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("http://host/runs", "is an address"),
        ("s3://bucket/runs", "is an address"),
        (" ", "has a name of nothing but blanks"),
        ("a/ /b", "has a name of nothing but blanks"),
        ("é" * 128, "has a name of 256 bytes, and 255 are possible"),
        ("a/" * 3000, "is too long"),
        ("a\nb", "cannot hold a control character"),
        ("/dev/null", "/dev/null is no directory"),
        ("exp.yaml/run", "exp.yaml is no directory"),
    ],
)
def test_what_can_be_no_directory_is_no_run_directory(
    primus: Primus, experiment: Experiment, name: str, wrong: str
) -> None:
    path = experiment()
    done = primus("run", "--config", path, "--dry-run", f"--run-dir={name}")
    assert (done.code, wrong in done.err) == (2, True), done.err
    path.write_text(re.sub("(?m)^workspace: .*$", lambda _: f"workspace: {json.dumps(name)}", path.read_text()))
    done = primus("run", "--config", path, "--dry-run")
    assert (done.code, wrong in done.err) == (2, True), done.err


def test_a_dry_run_of_several_nodes_is_that_of_the_first(primus: Primus, experiment: Experiment) -> None:
    done = primus("run", "--config", experiment(), "--launcher=direct", "--dry-run", "--nodes=2")
    assert done.code == 0
    assert "--nnodes=2 --node-rank=0 --master-addr=MASTER_ADDR" in done.out


def test_a_run_directory_is_one_backends(primus: Primus, experiment: Experiment) -> None:
    was = primus("config", "show", experiment(framework="maxtext")).out
    Path("there").mkdir()
    Path("there/experiment.yaml").write_text(was, encoding="utf-8")
    assert primus("run", "--config", experiment(framework="maxtext"), "--run-dir=there", "--dry-run").code == 0
    done = primus("run", "--config", experiment(), "--run-dir=there", "--dry-run")
    assert done.code == 2
    assert "there: holds a run of maxtext, and this is one of torchtitan" in done.err


MI300X = "examples/torchtitan/configs/MI300X/llama3.1_8B-BF16-pretrain.yaml"


@pytest.mark.parametrize("words", [("run", "--dry-run", "--config"), ("config", "check"), ("config", "explain")])
def test_a_gpus_example_on_a_cpu_is_noted_once(primus: Primus, words: tuple[str, ...]) -> None:
    note = "primus: --accelerator cpu: written for MI300X, and taken as it is"
    done = primus(*words, ROOT / MI300X, "--accelerator=cpu")
    assert (done.code, done.err.count(note)) == (0, 1)
    assert note not in primus(*words, ROOT / MI300X).err
    assert note not in primus(*words, ROOT / "examples/maxtext/configs/CPU", "--accelerator=cpu").err


def test_explain_takes_overrides(primus: Primus, experiment: Experiment) -> None:
    done = primus("config", "explain", experiment(), "training.steps", "training.steps=7", "optimizer.lr=1")
    assert done.out.startswith("key      training.steps\nvalue    7\n")
    done = primus("config", "explain", ROOT / MI300X, "training.seq_len=1024")
    assert "x 1024 tokens at a time" in done.out
    assert "One KEY at a time, not a, b." in primus("config", "explain", experiment(), "a", "b").err


def test_check_and_diff_take_overrides_for_all_of_their_files(primus: Primus, experiment: Experiment) -> None:
    path = experiment("training: {steps: 5}")
    other = path.with_name("b.yaml")
    other.write_text(path.read_text().replace("steps: 5", "steps: 6"))
    assert primus("config", "check", path, other, "training.steps=7").out == "2 files: ok\n"
    done = primus("config", "check", path, other, "training.steps=x")
    assert (done.code, done.err.count("error: command line, argument 1: training.steps: must be int")) == (2, 2)
    assert f"primus: {path}:\n" in done.err
    assert "training.steps" in primus("config", "diff", path, other).out
    assert primus("config", "diff", path, other, "training.steps=7").out == "the same\n"
    for command, words in (("check", (path,)), ("diff", (path, other))):
        assert "No such option '--nodess'" in primus("config", command, *words, "--nodess=2").err
    assert "Missing argument 'FILE|DIRECTORY...'" in primus("config", "check", "training.steps=7").err
    strange = path.with_name("a=b.yaml")
    strange.write_text(path.read_text())
    assert primus("config", "check", strange).out == "a=b.yaml: ok\n"


def test_list_names_every_gpu_there_is(primus: Primus) -> None:
    said = " ".join(primus("config", "list", "--help").out.split())
    assert f"Only for this GPU: {', '.join(SKUS)}, CPU." in said


@pytest.mark.parametrize(
    ("file", "words", "layout"),
    [
        ("maxtext/configs/CPU/llama2_tiny-pretrain.yaml", (), "1 process: alone"),
        ("maxtext/configs/CPU/llama2_tiny-pretrain.yaml", ("--nodes=2",), "2 processes: data 2"),
        ("torchtitan/configs/MI300X/llama3.1_8B-BF16-pretrain.yaml", (), "8 GPUs: data 8"),
    ],
)
def test_explain_counts_gpus_or_processes(primus: Primus, file: str, words: tuple[str, ...], layout: str) -> None:
    done = primus("config", "explain", ROOT / "examples" / file, *words)
    assert f"layout          {layout}\n" in done.out


def test_a_full_disk_below_the_output_is_an_error() -> None:
    for words in (("--help",), ("config", "list"), ("completion", "bash")):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                (sys.executable, "-m", "primus", *words),
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert (done.returncode, done.stderr) == (4, "error: cannot write what is printed: No space left on device\n")
