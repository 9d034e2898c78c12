"""The Slurm launcher without a Slurm: what is written, said and refused is pure."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from primus.errors import ConfigError, LaunchError
from primus.experiment import load_experiment
from primus.job import Job, Mount, Slurm
from primus.launchers.finish import finish, job_id
from primus.launchers.jobscript import elements, script
from primus.launchers.nodelist import hosts
from primus.launchers.task import FIRST_PORT, PORTS, place, restarts
from primus.node import gfx_targets, render_nodes
from primus.record import Attempt, Record, now

from .conftest import Experiment, Primus, Write

MakeJob = Callable[..., Job]


@pytest.fixture
def job(experiment: Experiment) -> MakeJob:
    """A job of the small experiment on two nodes."""

    def call(*, accelerator: str = "rocm", said: dict[str, Any] | None = None, **fields: Any) -> Job:
        found = load_experiment(experiment(), environ={}, accelerator=accelerator)
        given = {"experiment": found, "image": "reg/primus:1", "run_dir": Path("/runs/a"), "nodes": 2}
        given |= {"gpus_per_node": 8, "record": Path("/runs/a/20261130-120000-abcd"), "slurm": Slurm(**(said or {}))}
        return Job(**{**given, **fields})

    return call


def text(job: Job) -> str:
    assert job.slurm is not None
    assert job.record is not None
    return script(job, job.slurm, Record(job.record))


def said(job: Job) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text(job).splitlines() if line.startswith("#SBATCH ")]


def test_the_whole_script(job: MakeJob) -> None:
    wanted = f"""\
#!/bin/bash
#SBATCH --job-name=tiny
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --cpus-per-task=16
#SBATCH --partition=gpu
#SBATCH --chdir=/runs/a/20261130-120000-abcd
#SBATCH --output=slurm.log
#SBATCH --open-mode=append
#SBATCH --export=ALL
#SBATCH --requeue
record=/runs/a/20261130-120000-abcd
cd "$record" || exit 4
# Slurm itself starts a job again after a failed node, however often.
if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 3 ]; then exec {sys.executable} -m primus.launchers.finish "$record" 4; fi
# One task on each node: it starts the node's container, watches over it and ends it with the job.
srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=16 --kill-on-bad-exit=1 --output=node%n.log \
--open-mode=append \\
  {sys.executable} -m primus run --launcher=container --slurm-task --image=reg/primus:1 --engine=docker \
--pull=missing --gpus-per-node=8 --record="$record" --config="$record/experiment.yaml"
# Writes down how it ended; the exit code is that of the node that failed first.
exec {sys.executable} -m primus.launchers.finish "$record" $? --requeue=3
"""
    found = job(said={"partition": "gpu", "cpus_per_task": 16, "exclusive": True, "requeue": 3})
    named = replace(found, experiment=replace(found.experiment, exp_name="tiny"))
    assert text(named) == wanted


@pytest.mark.parametrize("word", ["sp ace", "#1", 'a"b', "a\\b", "$HOME", "`id`", "日本", "a'b", "a;b", "(x)", "%j"])
def test_any_word_reaches_slurm_and_the_nodes_unchanged(job: MakeJob, word: str) -> None:
    """#SBATCH has a shell's quotes and backslashes, without its variables."""
    mount = Mount(source=Path(f"/data {word}"), target=Path("/data"), read_only=True)
    found = job(
        said={"account": word, "sbatch_args": (f"--comment={word}",)},
        record=Path(f"/runs {word}/20261130-120000-abcd"),
        image=f"image {word}",
        mounts_given=(mount,),
        engine_args=(f"--label=x={word}",),
    )
    directives = [shlex.split(line, comments=True) for line in said(found)]
    assert [f"--account={word}"] in directives
    assert [f"--comment={word}"] in directives
    assert [f"--chdir=/runs {word}/20261130-120000-abcd"] in directives
    line = text(found).split("\nsrun ")[1].split("\n# Writes")[0].replace("\\\n", "")
    words = shlex.split(line)
    for wanted in (f"--image=image {word}", f"--mount=/data {word}:/data:ro", f"--engine-arg=--label=x={word}"):
        assert wanted in words
    record = next(line for line in text(found).splitlines() if line.startswith("record="))
    assert shlex.split(record) == [f"record=/runs {word}/20261130-120000-abcd"]


def test_a_line_break_is_refused(job: MakeJob) -> None:
    with pytest.raises(ConfigError, match="has a line break"):
        text(job(said={"account": "a\nb"}))
    with pytest.raises(ConfigError, match="has a line break"):
        text(job(said={"sbatch_args": ("--comment=a\nb",)}))


NAMED = ("partition", "account", "qos", "reservation", "nodelist", "job_name")


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        *((name, value, "is empty") for name in (*NAMED, "time", "signal", "dependency") for value in ("", " ")),
        *(("job_name", value, "has a line break or another control character") for value in ("a\tb", "a\x1b[0m")),
        *(("time", value, "is no time limit") for value in ("abc", "1-2-3", "-2", "1.5", "1h", "1:2:3:4", "1-", "٣")),
        *(("signal", value, "is no signal") for value in ("FOO@60", "USR1@", "USR1@x", "@60", "65", "USR1@123456")),
        *(("signal", value, "B: is for the batch script alone") for value in ("B:USR1@60", "b:10")),
        *(("dependency", value, "is no dependency") for value in ("afterok", "afterok:x", "foo:12", "12,,13", "1,2?3")),
    ],
)
def test_what_slurm_does_not_take(job: MakeJob, name: str, value: str, wrong: str) -> None:
    with pytest.raises(ConfigError, match=f"^--{name.replace('_', '-')}.*: {wrong}"):
        text(job(said={name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("time", value) for value in ("30", "90:00", "24:00:00", "1-12", "1-12:30", "7-00:00:00", "-1", "UNLIMITED")),
        *(("signal", value) for value in ("USR1", "usr1@120", "SIGTERM@60", "10@30", "R:USR2@65535")),
        *(("dependency", value) for value in ("12", "afterok:12:13", "after:12+5:13", "singleton,afterany:12_3")),
        *(("dependency", value) for value in ("afterok:1?afternotok:2", "aftercorr:12_*")),
        *(("nodelist", value) for value in ("n[1-4,7],m1", "./hosts.txt")),
        ("job_name", "a job's name"),
    ],
)
def test_what_slurm_takes(job: MakeJob, name: str, value: str) -> None:
    directives = [shlex.split(line, comments=True) for line in said(job(said={name: value}))]
    assert [f"--{name.replace('_', '-')}={value}"] in directives


def test_no_none_anywhere(job: MakeJob) -> None:
    for accelerator in ("cpu", "rocm"):
        assert "None" not in text(job(accelerator=accelerator))


def test_a_directive_that_the_site_refuses_is_left_out(job: MakeJob) -> None:
    everything = {"partition": "p", "account": "a", "qos": "q", "time": "1", "exclusive": True, "signal": "USR1@60"}
    names = [line.removeprefix("--").split("=")[0] for line in said(job(said=everything))]
    kept = {"nodes", "ntasks-per-node", "chdir", "output"}  # without them it is no job of ours
    for name in (name for name in names if name not in kept):
        rest = said(job(said={**everything, "sbatch_omit": (name,)}))
        assert [line for line in rest if line.removeprefix("--").split("=")[0] == name] == []
        assert len(rest) == len(names) - 1


@pytest.mark.parametrize(
    ("name", "hint"), [("partiton", "'partition'"), ("nodes", "mean 'nodelist'"), ("zzz", "there is account, ")]
)
def test_a_directive_that_is_none_cannot_be_left_out(job: MakeJob, name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"--sbatch-omit {name}: no script") as error:
        text(job(said={"sbatch_omit": (name,)}))
    assert hint in str(error.value)


def test_cpu_jobs_ask_for_no_gpu(job: MakeJob) -> None:
    assert [line for line in said(job(accelerator="cpu")) if "gpu" in line] == []


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [("3", (3,)), ("0-3", (0, 1, 2, 3)), ("0-6:2,9%1", (0, 2, 4, 6, 9)), ("1,1", (1,)), ("0-3%2", (0, 1, 2, 3))],
)
def test_elements_of_an_array(spec: str, wanted: tuple[int, ...]) -> None:
    assert elements(spec) == wanted


NO_ARRAYS = (
    *("", "a", "1-", "3-1", "0-3:0", "0-3%", "0-3%x", "0-3%0"),
    *("0-5000", "0-7:00", "0-9999999999", "1;2", "-1"),
)


@pytest.mark.parametrize("spec", NO_ARRAYS)
def test_no_array(spec: str) -> None:
    with pytest.raises(ConfigError, match="--array"):
        elements(spec)


STEP = {
    "SLURM_JOB_ID": "41",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NODELIST": "n[01-02]",
}


def named(host: str) -> str:
    return host


def test_the_place_of_a_task() -> None:
    assert place(STEP, named) == {
        "NODE_RANK": "1",
        "NNODES": "2",
        "MASTER_ADDR": "n01",
        "MASTER_PORT": str(FIRST_PORT + 41),
    }


def test_ports_are_the_same_on_all_nodes_and_differ_between_jobs_and_steps() -> None:
    def port(**other: str) -> int:
        return int(place({**STEP, **other}, named)["MASTER_PORT"])

    assert port(SLURM_NODEID="0") == port(SLURM_NODEID="1")
    assert len({port(), port(SLURM_JOB_ID="42"), port(SLURM_STEP_ID="1")}) == 3
    ports = {port(SLURM_JOB_ID=str(job)) for job in range(0, 2_000_000, 997)}
    assert FIRST_PORT <= min(ports) < max(ports) < FIRST_PORT + PORTS < 32768
    assert port(MASTER_PORT="1234") == 1234


@pytest.mark.parametrize("name", STEP)
def test_half_a_set_of_variables_is_no_place(name: str) -> None:
    """As in a shell that came to a node by ssh, or was started by something else."""
    with pytest.raises(LaunchError, match="not set here") as error:
        place({key: value for key, value in STEP.items() if key != name}, named)
    assert name in str(error.value)


def test_more_than_one_task_on_a_node_is_refused() -> None:
    with pytest.raises(LaunchError, match="16 tasks on 2 nodes"):
        place({**STEP, "SLURM_STEP_NUM_TASKS": "16"}, named)


@pytest.mark.parametrize("text", ["", "n[1-2", "n[]", "n[3-1]", "a,,b", "n[1-2]]", "n[a]", "a b", ",", "n[1,]"])
def test_no_list_of_hosts(text: str) -> None:
    with pytest.raises(LaunchError, match="is no list of hosts"):
        hosts(text)


@pytest.mark.parametrize("text", ["n[0-99999999999]", "n[0-999]-[0-999]-[0-9]", "n[0-999999],m"])
def test_more_hosts_than_there_can_be(text: str) -> None:
    with pytest.raises(LaunchError, match="more than 1,000,000 hosts"):
        hosts(text)


@pytest.mark.parametrize("value", ["abc", "-1", "\u00b2", "9" * 30, "1.5"])
@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "SLURM_NODEID", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS"])
def test_a_variable_of_slurms_that_is_no_number_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        place({**STEP, name: value}, named)
    with pytest.raises(ConfigError, match="SLURM_RESTART_COUNT"):
        restarts({"SLURM_RESTART_COUNT": value})


def test_suffixes_in_a_list_of_hosts() -> None:
    assert hosts("gpu-[001-002,010]-ib") == ("gpu-001-ib", "gpu-002-ib", "gpu-010-ib")


def ended(record: Record, rank: int, code: int, at: str, attempt: int = 0) -> None:
    record.close(Attempt(rank=rank, host=f"n{rank}", started=now(), ended=at, exit=code, attempt=attempt, job="1"))


def test_the_first_failure_is_the_runs(tmp_path: Path) -> None:
    record = Record(tmp_path)
    ended(record, 0, 143, "2026-11-30T12:00:01.500+00:00")
    ended(record, 1, 3, "2026-11-30T12:00:01.100+00:00")
    assert finish(record, 143, 0) == 3
    end = json.loads((tmp_path / "end.json").read_text())
    assert (end["exit"], end["failed_first"], end["attempt"]) == (3, "n1", 0)


def test_an_earlier_attempts_failure_is_not_this_ones(tmp_path: Path) -> None:
    record = Record(tmp_path)
    ended(record, 0, 9, "2026-11-30T12:00:01.500+00:00")
    ended(record, 0, 0, "2026-11-30T12:10:01.500+00:00", attempt=1)
    assert finish(record, 0, 1) == 0
    assert [attempt.exit for attempt in record.attempts()] == [9, 0]


def test_an_element_is_requeued_alone() -> None:
    """The number of one of an array's elements is that of the whole array."""
    environ = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}
    assert job_id(environ) == "7_3"
    assert job_id({"SLURM_JOB_ID": "7"}) == "7"


def test_another_image_on_another_node_is_refused(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.begin(Attempt(rank=0, host="n0", started=now(), image_id="sha256:1", job="1"))
    with pytest.raises(LaunchError, match="sha256:2 on n1 and sha256:1 on n0"):
        record.begin(Attempt(rank=1, host="n1", started=now(), image_id="sha256:2", job="1"))


def test_the_gpus_that_slurm_leaves_us(tmp_path: Path) -> None:
    for number, (version, minor) in enumerate([(0, 0), (90402, 128), (90402, 129), (90402, 130)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        if number == 2:
            (folder / "properties").mkdir()  # cannot be read, as under a cgroup of another job's
        else:
            (folder / "properties").write_text(f"gfx_target_version {version}\ndrm_render_minor {minor}\n")
    assert gfx_targets(tmp_path) == ("gfx942", "gfx942")
    assert render_nodes(tmp_path) == ("renderD128", "renderD130")
    (tmp_path / "2" / "properties").rmdir()
    assert render_nodes(tmp_path) == ()


def test_a_dry_run_needs_no_slurm_and_writes_nothing(primus: Primus, experiment: Experiment) -> None:
    before = {*Path.cwd().rglob("*")}
    done = primus("run", "--config", experiment(), "--launcher=slurm", "--nodes=4", "--accelerator=cpu", "--dry-run")
    assert done.code == 0
    titles = [line for line in done.out.splitlines() if line.startswith("# ") and "file" not in line]
    assert titles[:4] == [
        "# here",
        "# on the first node (docker)",
        "# in the container",
        "# which becomes",
    ]
    for part in ("sbatch --parsable ", "\nsrun --nodes=4 --ntasks=4", "docker run ", "--node-rank=0 --master-addr="):
        assert part in done.out
    assert {*Path.cwd().rglob("*")} - before <= {Path.cwd() / "exp.yaml"}


def test_without_slurm_it_is_said(primus: Primus, experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    done = primus("run", "--config", experiment(), "--launcher=slurm", "--accelerator=cpu")
    assert done.code == 4
    assert "sbatch is not installed here" in done.err
    assert not Path("output").exists()


PROFILES = """\
partition: small
profiles:
  big: {launcher: slurm, partition: gpu, sbatch_omit: [mem], sbatch_arg: ['--gres=gpu:8']}
"""


@pytest.mark.parametrize("how", ["flag", "variable", "file"])
def test_a_profile_is_a_clusters_settings(
    primus: Primus, experiment: Experiment, write: Write, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    write("primus.yaml", PROFILES + ("profile: big\n" if how == "file" else ""))
    if how == "variable":
        monkeypatch.setenv("PRIMUS_PROFILE", "big")
    words = ["run", "--config", experiment(), "--accelerator=rocm", "--dry-run"]
    done = primus(*words, *(["--profile", "big"] if how == "flag" else []))
    assert done.code == 0, done.err
    assert "#SBATCH --partition=gpu\n" in done.out
    assert "#SBATCH --gres=gpu:8\n" in done.out
    assert "--mem" not in done.out
    if how != "file":
        monkeypatch.delenv("PRIMUS_PROFILE", raising=False)
        assert "#SBATCH --partition=small\n" in primus(*words, "--launcher=slurm").out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PROFILES, "did you mean 'big'?"),
        ("profiles: [a]\n", "must be a mapping"),
        ("profiles: {a: 1}\n", "profiles.a: must be a mapping"),
        ("profiles: {bog: {partitoin: x}}\n", "did you mean 'partition'?"),
    ],
)
def test_a_wrong_profile(primus: Primus, experiment: Experiment, write: Write, text: str, said: str) -> None:
    write("primus.yaml", text)
    done = primus("run", "--config", experiment(), "--profile=bog", "--dry-run")
    assert done.code == 2
    assert said in done.err


def test_options_of_slurm_without_slurm_are_said_to_be_idle(primus: Primus, experiment: Experiment) -> None:
    done = primus("run", "--config", experiment(), "--accelerator=cpu", "--time=5", "--wait", "--dry-run")
    assert "the container launcher has no use for --time, --wait" in done.err
