"""Upstream's command line, variables and file of settings as ours: text against text."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from primus.cli import primus_cli
from primus.cli.options import option_names
from primus.cli.run import run
from primus.errors import ConfigError
from primus.upstream.call import parse
from primus.upstream.settings import options
from primus.upstream.translation import Translation, literal, shown, translate
from primus.upstream.variables import from_env

from .conftest import Experiment, Outcome, Primus, Write

ROOT = Path(__file__).resolve().parents[2]
TRAIN = "train pretrain --config X"
CLUSTER = "-N 4 -p gpu -t 8:00:00"


def of(text: str, environ: Mapping[str, str] | None = None, file: str | None = None) -> Translation:
    below = options(Path(file)) if file else None
    return translate(parse(shlex.split(text)), file=below, environ=environ or {}, cwd="/here")


def words(text: str, environ: Mapping[str, str] | None = None, file: str | None = None) -> str:
    return shlex.join(of(text, environ, file).words)


def refusal(text: str, environ: Mapping[str, str] | None = None, file: str | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        of(text, environ, file)
    assert caught.value.exit_code == 2
    return str(caught.value)


# Every mode and option of upstream's tables, and the forms that its documents use.
TRANSLATED = [
    # modes
    (f"direct -- {TRAIN}", "run --launcher=direct --config X"),
    (f"container -- {TRAIN}", "run --launcher=container --config X"),
    (f"direct {TRAIN}", "run --launcher=direct --config X"),
    (f"container --image I {TRAIN}", "run --launcher=container --image=I --config X"),
    (f"slurm -- {TRAIN}", "run --launcher=slurm --wait --config X"),
    (f"slurm srun -- {TRAIN}", "run --launcher=slurm --wait --config X"),
    (f"slurm sbatch -- {TRAIN}", "run --launcher=slurm --config X"),
    (f"slurm srun -N 4 -- container -- {TRAIN}", "run --launcher=slurm --wait --nodes=4 --config X"),
    (f"slurm srun -N 2 -- --image I {TRAIN}", "run --launcher=slurm --wait --nodes=2 --image=I --config X"),
    (
        f"slurm -N 4 --nodelist 'node[01-04]' -- --image I -- --env NCCL_DEBUG=INFO -- {TRAIN}",
        "run --launcher=slurm --wait --nodes=4 '--nodelist=node[01-04]' --image=I --env=NCCL_DEBUG=INFO --config X",
    ),
    ("direct -- train posttrain --config X", "run --launcher=direct --config X"),
    # global options, at every level
    (f"--dry-run direct -- {TRAIN}", "run --launcher=direct --dry-run --config X"),
    (f"direct --dry-run -- {TRAIN}", "run --launcher=direct --dry-run --config X"),
    (f"container --dry-run -- {TRAIN}", "run --launcher=container --dry-run --config X"),
    (f"slurm --dry-run srun -N 4 -- {TRAIN}", "run --launcher=slurm --wait --nodes=4 --dry-run --config X"),
    (f"slurm -N 2 --dry-run -- {TRAIN}", "run --launcher=slurm --wait --nodes=2 --dry-run --config X"),
    (f"--debug direct -- {TRAIN}", "run --launcher=direct --config X"),
    (
        f"--debug --dry-run slurm sbatch -- container --debug -- {TRAIN} --debug",
        "run --launcher=slurm --dry-run --config X",
    ),
    (f"direct -- --debug {TRAIN}", "run --launcher=direct --config X"),
    # Slurm's options, long and short, apart and together
    *(
        (f"slurm sbatch {spelt} -- {TRAIN}", f"run --launcher=slurm {ours} --config X")
        for spelt, ours in [
            *((text, "--nodes=8") for text in ("-N 8", "-N8", "--nodes 8", "--nodes=8", "-N 2 --nodes=8")),
            *((text, "--partition=gpu") for text in ("-p gpu", "-pgpu", "--partition gpu", "--partition=gpu")),
            *((text, "--time=8:00:00") for text in ("-t 8:00:00", "--time 8:00:00", "--time=8:00:00")),
            ("-A me --qos q", "--account=me --qos=q"),
            ("--reservation r -w n[1-2]", "--reservation=r '--nodelist=n[1-2]'"),
            ("-d afterok:1 -a 0-3", "--dependency=afterok:1 --array=0-3"),
            ("--job-name=j -J k", "--job-name=k"),
            ("--signal=USR1@60", "--signal=USR1@60"),
            ("--exclusive", "--exclusive"),
            ("--gpus-per-node=8 -c 128", "--gpus-per-node=8 --cpus-per-task=128"),
            ("-N 2 -n 2 --ntasks-per-node=1 --export=ALL --no-requeue", "--nodes=2"),
            ("-W", "--wait"),
            ("--gpus-per-task 4", "--gpus-per-node=4"),
            ("-C mi300x -x bad1,bad2", "--sbatch-arg=--constraint=mi300x --sbatch-arg=--exclude=bad1,bad2"),
            ("--gres=gpu:8 --mem 0", "--sbatch-arg=--gres=gpu:8 --sbatch-arg=--mem=0"),
            ("-vv", "--sbatch-arg=--verbose"),
            ("-N 4 -o logs/%j.log --error e", "--nodes=4"),
        ]
    ),
    # docker's
    *(
        (f"container {spelt} -- {TRAIN}", f"run --launcher=container {ours} --config X".replace("  ", " "))
        for spelt, ours in [
            ("--image mine:1", "--image=mine:1"),
            ("--image=mine:1", "--image=mine:1"),
            ("--image a --image b", "--image=b"),
            ("--image rocm/primus:v26.5", ""),
            ("--image docker.io/rocm/jax-training:maxtext-v26.5", ""),
            ("--volume /data", "--mount=/data"),
            ("--volume /data:/data", "--mount=/data"),
            ("--volume /data:/d:ro --volume ./a:/a:rw", "--mount=/data:/d:ro --mount=./a:/a"),
            ("--volume /data:/data:ro", "--mount=/data:/data:ro"),
            ("--mount /data:/data", "--mount=/data"),
            ("--mount type=bind,source=/a,target=/b,readonly", "--mount=/a:/b:ro"),
            ("--mount type=bind,src=/a,dst=/b", "--mount=/a:/b"),
            ("--env A=b --env C=d=e", "--env=A=b --env=C=d=e"),
            ("--env NNODES=2 --env GPUS_PER_NODE=4", "--nodes=2 --gpus-per-node=4"),
            ("--env NOT_SET", ""),
            ("--env USING_UEP=0", ""),
            (
                "--device /dev/kfd --device /dev/dri --device /dev/infiniband --device /dev/x",
                "--engine-arg=--device=/dev/x",
            ),
            ("--cap-add SYS_PTRACE --cap-add NET_ADMIN", "--engine-arg=--cap-add=NET_ADMIN"),
            ("--privileged --network host --ipc host --shm-size 64G --group-add video", ""),
            ("--security-opt seccomp=unconfined --ulimit nofile=1048576:1048576 --rm --name primus-training", ""),
            (
                "--cpus 16 --memory 128G --user 1000:1000",
                "--engine-arg=--cpus=16 --engine-arg=--memory=128G --engine-arg=--user=1000:1000",
            ),
            ("--network bridge --read-only", "--engine-arg=--network=bridge --engine-arg=--read-only"),
            ("--ipc private --shm-size 64G", "--engine-arg=--ipc=private --engine-arg=--shm-size=64G"),
            ("--pull always", "--pull=always"),
            ("--clean", ""),
            ("--log_file /tmp/log", ""),
        ]
    ),
    (
        f"container --volume /mnt/data:/data -- {TRAIN[:-1]}/data/exp.yaml",
        "run --launcher=container --mount=/mnt/data:/data --config /mnt/data/exp.yaml",
    ),
    (
        f"container --volume /data:/data -- {TRAIN[:-1]}/data/exp.yaml",
        "run --launcher=container --mount=/data --config /data/exp.yaml",
    ),
    (f"container -- --log_file /data/run.log -- {TRAIN}", "run --launcher=container --config X"),
    # direct mode's
    (
        f"direct --env NNODES=2 --env NODE_RANK=1 --env MASTER_ADDR=h --env MASTER_PORT=1234 -- {TRAIN}",
        "run --launcher=direct --nodes=2 --env=NODE_RANK=1 --env=MASTER_ADDR=h --env=MASTER_PORT=1234 --config X",
    ),
    (
        f"direct --log_file l --no-numa --silent --script primus/cli/main.py -- {TRAIN}",
        "run --launcher=direct --config X",
    ),
    (
        f"direct --env PRIMUS_DETERMINISTIC=1 -- {TRAIN}",
        "run --launcher=direct --env=NCCL_ALGO=Ring --env=NVTE_ALLOW_NONDETERMINISTIC_ALGO=0"
        " --env=ROCBLAS_DEFAULT_ATOMICS_MODE=0 --env=TORCH_COMPILE_DISABLE=1 --env=PRIMUS_TURBO_AUTO_TUNE=0 --config X",
    ),
    # the training's own words
    ("direct -- train pretrain --exp X", "run --launcher=direct --config X"),
    ("direct -- train pretrain --config=Y --config X", "run --launcher=direct --config X"),
    *(
        (f"direct -- {TRAIN} {spelt}", f"run --launcher=direct --config X {ours}")
        for spelt, ours in [
            ("--train_iters 10 --mock_data True", "train_iters=10 mock_data=True"),
            ("--training.steps=5 optimizer.lr=1e-5", "training.steps=5 optimizer.lr=1e-5"),
            ("--overlap_grad_reduce --lr -1", "overlap_grad_reduce=true lr=-1"),
            ("--nodes 3 --image i --wait", "nodes=3 image=i wait=true"),  # never options of ours
            ("--moe_shared_expert_intermediate_size None", "moe_shared_expert_intermediate_size=null"),
            ("--data.paths \"['a', None, True]\"", "'data.paths=[\"a\", null, true]'"),
            ("data_path=/d", "data_path=/d"),
        ]
    ),
    (f"direct -- {TRAIN} --data_path ./data", "run --launcher=direct --env=HF_HOME=/here/data/huggingface --config X"),
    (
        f"container -- {TRAIN} --data_path /data",
        "run --launcher=container --mount=/data --env=HF_HOME=/data/huggingface --config X",
    ),
    (
        f"container --volume /mnt:/data --env HF_HOME=/hf -- {TRAIN} --data_path /data/d",
        "run --launcher=container --mount=/mnt:/data --env=HF_HOME=/hf --config X",
    ),
]


@pytest.mark.parametrize(("text", "ours"), TRANSLATED, ids=[text for text, _ in TRANSLATED])
def test_a_command_is_translated(text: str, ours: str) -> None:
    assert words(text) == ours


@pytest.mark.parametrize(("text", "ours"), TRANSLATED, ids=[text for text, _ in TRANSLATED])
def test_the_new_form_is_one_that_run_takes(text: str, ours: str) -> None:
    if "=slurm" in ours and "partition" not in option_names(run):
        pytest.skip("primus run has no Slurm launcher here")
    context = run.make_context("run", [word.replace("/here", str(Path.cwd())) for word in shlex.split(ours)[1:]])
    assert [word for word in context.params["overrides"] if word.startswith("-")] == []


REFUSED = [
    ("", "the mode is missing"),
    ("--debug", "the mode is missing"),
    (f"-- {TRAIN}", "the mode is missing"),
    (TRAIN, "train: the mode is missing in front of it"),
    (f"contaner -- {TRAIN}", "contaner: there is no such mode\nhint: did you mean container?"),
    ("k8s", "k8s: there is no such mode\nhint: the modes are direct, container, slurm"),
    (f"--dryrun direct -- {TRAIN}", "--dryrun: upstream knows no such option there\nhint: did you mean --dry-run?"),
    (f"-x direct -- {TRAIN}", "-x: upstream knows no such option"),
    ("--config", "the mode is missing"),
    ("direct", "direct: what to run is missing"),
    ("container", "container: what to run is missing"),
    ("container --image I --", "container: what to run is missing"),
    ("slurm", "slurm: what to run is missing"),
    (f"direct -- --dry-run {TRAIN}", "--dry-run: stands behind the --\nhint: write it in front of the mode"),
    ("slurm srun -N 4", "slurm: what to run is missing"),
    ("slurm srun -N 4 --", "slurm: what to run is missing"),
    (f"slurm srun -N 4 {TRAIN}", "'train' stands among Slurm's options and is none"),
    (f"slurm srun sbatch -- {TRAIN}", "'sbatch' stands among Slurm's options"),
    (f"slurm -N 4 -- direct -- {TRAIN}", "on Slurm's nodes a training runs in its image\nhint: leave out 'direct'"),
    ("deps sync --dir D", "deps: there is nothing to fetch"),
    *(
        (f"slurm srun {words} -- {TRAIN}", reason)
        for words, reason in [
            ("-N 2-4", "-N 2-4: has no counterpart\nhint: write one number of nodes"),
            ("-N", "-N: the value is missing"),
            ("-N 2 -n 4", "-n: is not the number of nodes"),
            ("--ntasks-per-node=8", "--ntasks-per-node: one task runs on each node"),
            ("--export=NONE", "--export: variables reach the training by name"),
            ("--exclusive=user", "--exclusive user: nodes are whole"),
            ("--gpus-per-node=mi300x:8", "--gpus-per-node mi300x:8: has no counterpart"),
            ("--requeue", "--requeue: does not say how often"),
            ("-D /x", "-D: relative paths are taken from where you type"),
            ("--jobid=7 --overlap", "--overlap: a run is a job of its own"),
            ("--wait=30", "--wait: a run ends when"),
            ("--container-image=i", "hint: add --engine pyxis to the new form"),
            ("--env HF_TOKEN=abc", "--env: is an option of container, not of Slurm\nhint: write it behind the --"),
            ("-Z", "-Z: upstream knows no such option"),
            ("--partion gpu", "--partion: is no option\nhint: did you mean --partition?"),
            ("--node=4", "hint: did you mean --nodes?"),
        ]
    ),
    *(
        (f"container {words} -- {TRAIN}", reason)
        for words, reason in [
            ("--image", "--image: the value is missing"),
            ("-v /a:/b", "-v: upstream knows no such option\nhint: write --volume"),
            ("-e A=b", "hint: write --env"),
            ("--volume data:/data", "data names a volume of the engine's"),
            ("--volume /a:/b:z", "'z' has no counterpart"),
            ("--volume", "is not HOST[:CONTAINER[:ro]]"),
            ("--mount type=volume,source=a,target=/b", "is not HOST[:CONTAINER[:ro]]"),
            ("--env ./env.sh", "--env ./env.sh: a file of variables is not read"),
            ("--env 1A=b", "'1A' is no name of a variable"),
            ("--env", "'' is no name of a variable"),
            ("--env NNODES=two", "--env NNODES=two: is no number"),
            ("--env REBUILD_PRIMUS_TURBO=1", "--env REBUILD_PRIMUS_TURBO: nothing is installed, compiled or patched"),
            ("--env-file f", "--env-file: variables are passed on by name"),
            ("--name mine", "--name: the launcher names its containers"),
            ("--gpus 8", "--gpus: is for NVIDIA's GPUs"),
            ("--detach", "--detach: a container ends with its launcher"),
            ("--entrypoint bash", "--entrypoint: is the launcher's own"),
            ("--imag i", "--imag: is no option\nhint: did you mean --image?"),
            ("--volumes /a", "hint: did you mean --volume?"),
            ("--pull sometimes", "hint: write missing, always or never"),
        ]
    ),
    *(
        (f"direct {words} -- {TRAIN}", reason)
        for words, reason in [
            ("--single", "--single: the backend decides"),
            ("--script my.py", "--script: only training is started"),
            ("--patch p.sh", "--patch: nothing is installed, compiled or patched at launch"),
            ("--numa", "--numa: processes are not bound to NUMA nodes"),
            ("--image i", "--image: is no option of direct mode\nhint: use container mode"),
            ("--volume /a", "--volume: is no option of direct mode"),
            ("--log_fil l", "--log_fil: is no option\nhint: did you mean --log_file?"),
        ]
    ),
    *(
        (f"container -- {words}", reason)
        for words, reason in [
            ("benchmark gemm --M 4096", "benchmark: Primus has no benchmarks\nhint: run hipblaslt-bench"),
            ("preflight --quick", "preflight: Primus has no check of nodes yet\nhint: primus config check FILE"),
            ("node_smoke --tier2-perf", "node_smoke: Primus has no check of nodes yet"),
            ("projection memory --config X", "hint: primus config explain FILE estimates the memory"),
            ("data diffusion-encoded --config X", "primus data prepare-megatron"),
            ("tran pretrain", "tran: there is no such command\nhint: did you mean train?"),
            ("--nproc-per-node=8 data x", "--nproc-per-node: is no option"),
            ("train", "train: pretrain or posttrain is missing"),
            ("train --config X", "train: pretrain or posttrain is missing"),
            ("train finetune --config X", "train finetune: is neither pretrain nor posttrain"),
            ("train pretrain", "train pretrain: --config is missing"),
            ("train pretrain --config", "--config: the value is missing"),
            (f"{TRAIN} --backend_path /b", "--backend_path: the backend is in the image"),
            (f"{TRAIN} --export_config out.yaml", "hint: write primus config show FILE > OUTPUT"),
            (f"{TRAIN} stray", "'stray': is no override"),
            (f"{TRAIN} --dry-run", "--dry-run: stands behind the training's words"),
            ("train pretrain --confg a.yaml", "hint: did you mean --config a.yaml?"),
            ("train pretrain a.yaml", "hint: did you mean --config a.yaml?"),
            (f"{TRAIN} -x", "'-x': is no override"),
        ]
    ),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=[text or "nothing" for text, _ in REFUSED])
def test_what_has_no_counterpart_is_refused_with_the_reason(text: str, reason: str) -> None:
    assert reason in refusal(text)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    said = refusal("container --gpus 8 --name n -- train pretrain --backend_path b", {"USING_UEP": "1"})
    assert [line for line in said.splitlines() if not line.startswith("hint: ")] == [
        "--gpus: is for NVIDIA's GPUs",
        "--name: the launcher names its containers, to find them again",
        "USING_UEP=1: UCCL is not in the images",
        "--backend_path: the backend is in the image",
        "train pretrain: --config is missing",
    ]


def test_what_is_left_out_is_said() -> None:
    notes = of(f"--debug container --clean --ipc host --rm --log_file l --image rocm/primus:v26.5 -- {TRAIN}").notes
    assert [note.partition(":")[0] for note in notes] == [
        "--image rocm/primus",
        "--clean is left out",
        "--log_file l is left out",
        "--debug is left out",
        "left out, as it is so here or not needed",
    ]
    assert notes[-1].endswith(": --ipc host, --rm")
    assert of(f"direct -- {TRAIN}").notes == ()


# --- variables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "text", "ours"),
    [
        ({"DOCKER_IMAGE": "mine"}, "container", "--image=mine"),
        ({"DOCKER_IMAGE": "mine"}, "container --image flag", "--image=flag"),
        ({"DOCKER_IMAGE": "rocm/primus:v26.5"}, "container", ""),
        ({"DOCKER_IMAGE": "mine"}, "direct", ""),
        ({"USING_AINIC": "0", "REBUILD_BNXT": "false", "VENV_ACTIVATE": "a"}, "container", ""),
        ({"MINE": "x"}, "container --env MINE", "--env=MINE"),
    ],
)
def test_variables_that_upstream_reads(environ: dict[str, str], text: str, ours: str) -> None:
    expected = f"run --launcher={text.split()[0]} {ours} --config X".replace("  ", " ")
    assert words(f"{text} -- {TRAIN}", environ) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PRIMUS_PATCHES", "none"),
        ("USING_AINIC", "1"),
        ("REBUILD_PRIMUS_TURBO", "1"),
        ("BACKEND_PATH", "/b"),
    ],
)
def test_variables_without_a_counterpart_are_refused(name: str, value: str) -> None:
    assert f"{name}={value}: " in refusal(f"container -- {TRAIN}", {name: value})


ONLINE = "--env=TE_HIPBLASLT_TUNING_RUN_COUNT=10 --env=TE_HIPBLASLT_TUNING_ALGO_COUNT=50"


@pytest.mark.parametrize(
    ("environ", "ours"),
    [
        ({"PRIMUS_HIPBLASLT_TUNING": "0", "PRIMUS_HIPBLASLT_TUNING_STAGE": "1"}, ""),
        ({"PRIMUS_HIPBLASLT_TUNING": "1"}, ONLINE),
        ({"PRIMUS_HIPBLASLT_TUNING": "1", "TE_HIPBLASLT_TUNING_RUN_COUNT": "3"}, ONLINE.replace("=10", "=3")),
        ({"PRIMUS_HIPBLASLT_TUNING": "1", "PRIMUS_HIPBLASLT_TUNING_STAGE": "1"}, "--hipblaslt-dump"),
        (
            {
                "PRIMUS_HIPBLASLT_TUNING": "1",
                "PRIMUS_HIPBLASLT_TUNING_STAGE": "3",
                "HIPBLASLT_TUNING_OVERRIDE_FILE": "/t",
            },
            "",
        ),
    ],
    ids=["off", "online", "online with a number", "dump", "use"],
)
def test_the_stages_of_hipblaslt_tuning(environ: dict[str, str], ours: str) -> None:
    expected = f"run --launcher=container {ours} --config X".replace("  ", " ")
    assert words(f"container -- {TRAIN}", environ) == expected


@pytest.mark.parametrize(
    ("stage", "why"),
    [
        ("2", "run primus tune hipblaslt tune RUN"),
        ("3", "primus tune hipblaslt use RESULT"),
        ("7", "is no stage"),
    ],
)
def test_a_stage_that_is_a_command_here_is_refused(stage: str, why: str) -> None:
    environ = {"PRIMUS_HIPBLASLT_TUNING": "1", "PRIMUS_HIPBLASLT_TUNING_STAGE": stage}
    assert why in refusal(f"container -- {TRAIN}", environ)


def test_a_credential_is_used_and_not_printed() -> None:
    made = of(f"container --env HF_TOKEN=abc --env MINE=hf_{'x' * 34} -- {TRAIN} --wandb.api_key=k a=hf_{'y' * 34}")
    assert "--env=HF_TOKEN=abc" in made.words
    printed = " ".join(shown(made.words))
    assert printed == "run --launcher=container --env=HF_TOKEN --env=MINE --config X wandb.api_key=... a=..."
    assert all("abc" not in note and "hf_x" not in note for note in made.notes)
    assert made.notes[0].endswith("export HF_TOKEN instead")


# --- the packaged launchers' variables -------------------------------------------------------------------------------

EVERYTHING = {
    "EXP": "exp.yaml",
    "NNODES": "4",
    "GPUS_PER_NODE": "8",
    "DATA_PATH": "/data",
    "DOCKER_IMAGE": "mine:1",
    "SLURM_TIME": "4:00:00",
    "SLURM_NODELIST": "n[1-4]",
    "SLURM_PARTITION": "gpu",
    "CPUS_PER_TASK": "96",
    "TOKENIZED_DATA_PATH": "/data/tok",
    "MASTER_PORT": "12345",
    "PRIMUS_SKIP_PIP": "1",
}


@pytest.mark.parametrize(
    ("environ", "given", "ours"),
    [
        ({"EXP": "e"}, "", "run --launcher=slurm --wait --exclusive --config e"),
        (
            EVERYTHING,
            "",
            "run --launcher=slurm --wait --exclusive '--nodelist=n[1-4]' --time=4:00:00 --partition=gpu"
            " --cpus-per-task=96 --nodes=4 --gpus-per-node=8 --image=mine:1 --mount=/data --env=DATA_PATH"
            " --env=HF_HOME=/data/huggingface --env=TOKENIZED_DATA_PATH --config exp.yaml",
        ),
        (
            EVERYTHING,
            "--launcher=container --train_iters 5",
            "run --nodes=4 --gpus-per-node=8 --image=mine:1 --mount=/data --env=DATA_PATH"
            " --env=HF_HOME=/data/huggingface --env=TOKENIZED_DATA_PATH --config exp.yaml"
            " --launcher=container --train_iters 5",
        ),
        (
            {"EXP": "e", "PRIMUS_LAUNCHER": "direct", "DATA_PATH": "d", "HF_HOME": "/h"},
            "",
            "run --launcher=direct --env=DATA_PATH --config e",
        ),
        (
            {"EXP": "e", "SLURM_JOB_ID": "1", "SLURM_NODELIST": "n1"},
            "",
            "run --launcher=slurm --wait --exclusive --config e",
        ),
        ({"EXP": "e", "NODE_LIST": "n1"}, "", "run --launcher=slurm --wait --exclusive --nodelist=n1 --config e"),
        ({}, "--config f", "run --launcher=slurm --wait --exclusive --config f"),
    ],
)
def test_the_packaged_launchers_variables(environ: dict[str, str], given: str, ours: str) -> None:
    assert shlex.join(from_env(environ, given.split(), "/here").words) == ours


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({}, "--from-env: EXP is not set\nhint: export EXP=FILE"),
        ({"EXP": ""}, "EXP is not set"),
        ({"EXP": "e", "NNODES": "0"}, "NNODES=0: is no number from 1"),
        ({"EXP": "e", "GPUS_PER_NODE": "all"}, "GPUS_PER_NODE=all: is no number from 1"),
        ({"EXP": "e", "USING_AINIC": "1"}, "USING_AINIC=1: AINIC's libraries are not in the images"),
        ({"EXP": "e", "SKIP_TRAIN": "1"}, "SKIP_TRAIN=1: nothing would be left to do"),
        ({"EXP": "e", "MEGATRON_PATH": "/m"}, "MEGATRON_PATH=/m: the backend is in the image"),
    ],
)
def test_wrong_variables_of_the_packaged_launchers(environ: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_env(environ, [], "/here")
    assert reason in str(caught.value)


def test_from_env_runs(primus: Primus, experiment: Experiment) -> None:
    Path("data").mkdir()
    os.environ.update(EXP=str(experiment()), DATA_PATH="data", CLEAN_DOCKER_CONTAINER="1", HF_TOKEN="your_hf_token")
    done = primus("run", "--from-env", "--launcher=container", "--dry-run", "training.steps=7")
    assert done.code == 0
    assert f"--mount=type=bind,source={Path.cwd()}/data,target={Path.cwd()}/data" in done.out
    assert "steps = 7" in done.out
    assert "--env=HF_HOME" in done.out
    assert "HF_TOKEN" not in done.out
    assert "in the new form: primus run --mount=" in done.err


def test_from_env_is_no_word_of_the_training(primus: Primus, experiment: Experiment) -> None:
    done = primus("run", "--config", experiment(), "--launcher=container", "--dry-run", "--", "--from-env")
    assert (done.code, "from-env" in done.err) == (2, True)


# --- the file of settings --------------------------------------------------------------------------------------------

SETTINGS = """\
main:
  debug: false
  dry_run: true
slurm:
  nodes: 4
  gpus_per_node: 8
  partition: "gpu"
  time: "4:00:00"
  exclude: bad1
container:
  options:
    image: "mine:1"
    ipc: "host"
    privileged: "true"
    cpus: "16"
    device:
      - "/dev/kfd"
    volume:
      - "/data:/data"
    env:
      - "HF_TOKEN"
      - "NOT_SET"
      - "MINE"
      - "A=b"
direct:
  gpus_per_node: 8
  numa: "auto"
  log_file: ""
  patch: []
  env: []
"""


def test_a_file_of_settings_stands_below_the_command_line(write: Write) -> None:
    write("old.yaml", SETTINGS)
    environ = {"HF_TOKEN": "t", "MINE": "m"}
    in_container = "--image=mine:1 --engine-arg=--cpus=16 --mount=/data --env=MINE --env=A=b --dry-run --config X"
    assert words(f"container -- {TRAIN}", environ, "old.yaml") == f"run --launcher=container {in_container}"
    assert words(f"slurm sbatch -N8 -- {TRAIN}", environ, "old.yaml") == (
        "run --launcher=slurm --gpus-per-node=8 --partition=gpu --time=4:00:00 --sbatch-arg=--exclude=bad1 --nodes=8 "
        + in_container
    )
    assert words(f"direct -- {TRAIN}", environ, "old.yaml") == "run --launcher=direct --dry-run --config X"
    assert "--image=flag" in words(f"container --image flag --volume /b -- {TRAIN}", environ, "old.yaml")
    assert re.search("--mount=/data .*--mount=/b ", words(f"container --volume /b -- {TRAIN}", environ, "old.yaml"))
    assert "--image=variable" in words(f"container -- {TRAIN}", {"DOCKER_IMAGE": "variable"}, "old.yaml")
    assert of(f"container -- {TRAIN}", environ, "old.yaml").notes == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("slrum: {}\n", "old.yaml:1:1: slrum: upstream does not read it\nhint: did you mean slurm?"),
        ("slurm: 3\n", "old.yaml:1:8: slurm: must be a mapping"),
        ("main:\n  log: x\n", "old.yaml:2:3: main.log: upstream does not read it"),
        ("container:\n  image: x\n", "old.yaml:2:3: container.image: upstream does not read it"),
        ("container:\n  options: [a]\n", "container.options: upstream does not read it"),
        ("container:\n  options:\n    env: {A: b}\n", "container.options.env: must be a value or a list of values"),
        ("container:\n  options:\n    name: n\n", "old.yaml:3:11: container.options.name: the launcher names"),
        ("direct:\n  script: my.py\n", "old.yaml:2:11: direct.script: only training is started"),
        ("direct:\n  nnodes: 2\n", "direct.nnodes: upstream does not read it either\nhint: export NNODES"),
        ("direct:\n  patch: [p.sh]\n", "direct.patch: nothing is installed"),
        ("direct:\n  run_mod: single\n", "hint: did you mean direct.run_mode?"),
        ("modules: {}\n", "old.yaml: is an experiment, and no file of upstream's settings"),
        ("- a\n", "the file must be a mapping"),
        ("slurm:\n\tnodes: 1\n", "old.yaml:2"),
    ],
)
def test_what_is_wrong_in_a_file_of_settings(write: Write, text: str, reason: str) -> None:
    write("old.yaml", text)
    assert reason in refusal(f"container -- {TRAIN}", file="old.yaml")


def test_slurms_keys_are_read_for_slurm_alone(write: Write) -> None:
    write("old.yaml", 'slurm:\n  nodes: "1-2"\n  partition: ""\n')
    assert words(f"container -- {TRAIN}", file="old.yaml") == "run --launcher=container --config X"
    said = refusal(f"slurm srun -- {TRAIN}", file="old.yaml")
    assert "old.yaml:2:10: slurm.nodes 1-2: has no counterpart" in said
    assert "old.yaml:3:14: slurm.partition: the value is missing" in said


def test_values_of_python() -> None:
    assert [literal(text) for text in ("None", "True", "(1, 'a')", "{'a': None}", "[a", "{1,2}", "1e-5")] == [
        *("null", "True", '[1, "a"]', '{"a": null}', "[a", "{1,2}", "1e-5"),
    ]


# --- the program -----------------------------------------------------------------------------------------------------


@pytest.fixture
def primus_cli_(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Primus:
    """Run `primus-cli WORDS...` in this process."""

    def call(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["primus-cli", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            primus_cli.main()
        out, err = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), out, err)

    return call


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("-h",),
        ("--help",),
        ("direct", "--help"),
        ("container", "-h"),
        ("slurm", "--help"),
        ("--version",),
        ("--debug", "--version"),
    ],
    ids=str,
)
def test_help_is_data(primus_cli_: Primus, words: tuple[str, ...]) -> None:
    done = primus_cli_(*words)
    assert (done.code, done.err) == (0, "")
    assert done.out


def test_help_behind_the_separator_is_that_of_run(primus_cli_: Primus) -> None:
    for words in (("--help",), ("train", "--help"), ("train", "pretrain", "-h")):
        done = primus_cli_("direct", "--", *words)
        assert (done.code, done.out.startswith("Usage: primus run ")) == (0, True)


def test_the_new_form_is_printed_once_and_run(primus_cli_: Primus, primus: Primus, experiment: Experiment) -> None:
    path = experiment()
    done = primus_cli_(
        "--dry-run", "container", "--cpus", "2", "--", "train", "pretrain", "--config", path, "--training.steps", "9"
    )
    assert done.code == 0
    printed = [line.partition("new form: ")[2] for line in done.err.splitlines()]
    assert printed == [
        f"primus run --launcher=container --engine-arg=--cpus=2 --dry-run --config {path} training.steps=9"
    ]
    again = primus(*shlex.split(printed[0])[1:])
    name = re.compile(r"--name=\S+")
    assert name.sub("", again.out) == name.sub("", done.out)
    assert "steps = 9" in done.out


def test_the_users_own_settings_are_read_as_upstream_does(
    primus_cli_: Primus, experiment: Experiment, write: Write
) -> None:
    write(f"{os.environ['HOME']}/.primus.yaml", "container:\n  options:\n    image: own\n")
    write("named.yaml", "container:\n  options:\n    image: named\n")
    rest = ("--dry-run", "container", "--", "train", "pretrain", "--config", experiment())
    assert "--image=own" in primus_cli_(*rest).err
    assert "--image=named" in primus_cli_("--config", "named.yaml", *rest).err
    done = primus_cli_("--config", "nope.yaml", *rest)
    assert (done.code, "nope.yaml: cannot read" in done.err) == (2, True)


def test_half_of_training_must_be_the_experiments(primus_cli_: Primus, experiment: Experiment) -> None:
    done = primus_cli_("direct", "--", "train", "posttrain", "--config", experiment())
    assert (done.code, done.out) == (2, "")
    assert "train posttrain: exp.yaml is an experiment to pretrain\nhint: write train pretrain\n" in done.err


def test_errors_of_the_run_are_its_own(primus_cli_: Primus, experiment: Experiment) -> None:
    done = primus_cli_("--dry-run", "direct", "--", "train", "pretrain", "--config", experiment(), "--steps", "3")
    assert (done.code, "hint: torchtitan calls it training.steps" in done.err) == (2, True)
    done = primus_cli_("--dry-run", "direct", "--", "train", "pretrain", "--config", "nope.yaml")
    assert (done.code, "error: nope.yaml: does not exist" in done.err) == (2, True)
    done = primus_cli_("container", "-v", "/a", "--", "train")
    assert (done.code, done.out, "error: -v: " in done.err) == (2, "", True)


@pytest.mark.parametrize("path", ["primus-cli", "runner/primus-cli"])
def test_a_checkout_has_it_where_upstreams_documents_say(path: str, experiment: Experiment) -> None:
    words = ["--dry-run", "direct", "--", "train", "pretrain", "--config", str(experiment())]
    environ = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    done = subprocess.run([ROOT / path, *words], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.startswith("# on this machine")) == (0, True), done.stderr


def test_without_its_libraries_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "click", None)
    for name in [name for name in sys.modules if name.startswith("primus.cli")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "primus-cli"), run_name="__main__")
    assert "has no click\nhint: pip install " in str(ended.value.code)


def test_a_file_of_settings_becomes_ours(primus: Primus, write: Write) -> None:
    write("old.yaml", SETTINGS.replace('"A=b"', '"A=b"\n      - "MASTER_ADDR"'))
    done = primus("config", "import-settings", "old.yaml")
    assert done.code == 0
    assert done.out == (
        "nodes: 4\ngpus_per_node: 8\npartition: gpu\ntime: 4:00:00\nsbatch_arg:\n- --exclude=bad1\nimage: mine:1\n"
        "engine_arg:\n- --cpus=16\nmount:\n- /data\nenv:\n- A=b\n"
    )
    assert done.err == "primus: may be unset, so it is no setting: --env NOT_SET, --env MINE\n"


def test_our_settings_from_upstreams_are_read(primus: Primus, write: Write, experiment: Experiment) -> None:
    write("old.yaml", 'container:\n  options:\n    image: mine\n    cpus: "2"\n    env: ["A=b"]\n')
    write("primus.yaml", primus("config", "import-settings", "old.yaml").out)
    done = primus("run", "--config", experiment(), "--launcher=container", "--dry-run")
    given = shlex.split(done.out.splitlines()[1])
    assert {"--cpus=2", "mine", "--env=A"} <= {*given}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('container:\n  options:\n    env: ["HF_TOKEN=abc"]\n', "env: HF_TOKEN is a credential"),
        ("container:\n  options:\n    gpus: 8\n", "old.yaml:3:11: container.options.gpus: is for NVIDIA's GPUs"),
        ("slurm:\n  nodes: a\n", "old.yaml:2:10: slurm.nodes a: has no counterpart"),
        ("x: 1\n", "old.yaml:1:1: x: upstream does not read it"),
    ],
)
def test_what_cannot_become_a_setting(primus: Primus, write: Write, text: str, reason: str) -> None:
    write("old.yaml", text)
    done = primus("config", "import-settings", "old.yaml")
    assert (done.code, done.out) == (2, "")
    assert reason in done.err
    assert "abc" not in done.err


def test_a_copy_of_upstreams_own_settings_says_nothing(primus: Primus, write: Write) -> None:
    write("old.yaml", "main:\n  debug: false\n\ncontainer:\n  options:\n    ipc: host\n    volume: []\n")
    done = primus("config", "import-settings", "old.yaml")
    assert (done.code, done.out, done.err) == (0, "# nothing in it differs from what is so here\n", "")
