"""Jobs on a real Slurm: what each node is told, what comes out, and how they are started again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from primus.launchers.nodelist import hosts
from primus.launchers.task import FIRST_PORT, PORTS
from tests.conftest import ROOT
from tests.launch.support import EXAMPLES, primus
from tests.slurm.cluster import Cluster, run, wait_for
from tests.slurm.conftest import Submitted, Toys, containers

pytestmark = pytest.mark.timeout(300)

PLACE = 'echo "place $NODE_RANK of $NNODES x $NPROC_PER_NODE at $MASTER_ADDR:$MASTER_PORT"'


def places(job: Submitted, nodes: int) -> list[str]:
    found = [re.search("place (.*)", job.log(rank)) for rank in range(nodes)]
    return [match[1] if match else "" for match in found]


def test_each_node_knows_its_place(toys: Toys) -> None:
    job = toys.submit(PLACE, "--nodes=2", "--gpus-per-node=3")
    assert job.wait() == "0:0", job.log()
    port = FIRST_PORT + int(job.job) % PORTS
    # The nodes' names resolve nowhere here: they meet at the address that Slurm has for the first.
    assert places(job, 2) == [f"{rank} of 2 x 3 at 127.0.0.1:{port}" for rank in range(2)]
    assert f"scancel {job.job}" in job.said
    assert "primus logs -f" in job.said


def test_eight_nodes(toys: Toys) -> None:
    job = toys.submit(PLACE, "--nodes=8")
    assert job.wait(180) == "0:0", job.log()
    assert [place.split()[0] for place in places(job, 8)] == [str(rank) for rank in range(8)]


def test_two_jobs_on_a_node_do_not_meet(toys: Toys, tmp_path: Path) -> None:
    first = toys.submit(f"{PLACE}; sleep 2", "--nodes=2")
    toys.run_dir = tmp_path / "other"
    second = toys.submit(PLACE, "--nodes=2")
    assert (first.wait(), second.wait()) == ("0:0", "0:0")
    assert places(first, 1)[0].split(":")[1] != places(second, 1)[0].split(":")[1]


@pytest.mark.parametrize("wait", [False, True], ids=["sbatch", "srun"])
def test_the_exit_code_is_that_of_the_node_that_failed(toys: Toys, wait: bool) -> None:
    """Not of the other, which is stopped, and whose code is higher."""
    script = '[ "$NODE_RANK" = 1 ] && exit 42; trap "exit 7" TERM; while :; do sleep 0.1; done'
    if wait:
        done = toys.run(script, "--nodes=2", "--wait")
        assert done.code == 42, done.output
    else:
        job = toys.submit(script, "--nodes=2")
        assert job.wait() == "42:0"
        assert job.record.read("end.json")["exit"] == 42
        assert {attempt.rank: attempt.exit for attempt in job.record.attempts()}[1] == 42
    assert containers(toys.run_dir) == []


def test_the_foreground_shows_what_the_nodes_print(toys: Toys) -> None:
    done = toys.run('echo "hello from $NODE_RANK"', "--nodes=2", "--wait")
    assert done.code == 0
    assert "0: hello from 0" in done.output
    assert "1: hello from 1" in done.output
    (record,) = [path for path in toys.run_dir.iterdir() if path.name[:8].isdecimal()]
    assert (record / "node1.log").read_text().count("hello from 1") == 1


def test_what_is_said_to_slurm(toys: Toys) -> None:
    words = ("--time=3", "--job-name=my job #1", "--nodelist=node3", "--sbatch-arg=--comment=a #b", "--exclusive")
    job = toys.submit("exit 0", *words)
    assert job.wait() == "0:0"
    said = run("scontrol", "show", "job", job.job)
    for wanted in ("JobName=my job #1", "TimeLimit=00:03:00", "NodeList=node3", "Comment=a #b", "OverSubscribe=NO"):
        assert wanted in said


def test_variables_do_not_beat_what_is_said(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    """sbatch's variables beat a script's directives, and those of an allocation would be the new job's."""
    for name, value in (("SBATCH_TIMELIMIT", "9"), ("SBATCH_EXPORT", "NONE"), ("SLURM_NTASKS", "8")):
        monkeypatch.setenv(name, value)
    for name, value in (("NODE_RANK", "5"), ("SBATCH_REQUEUE", "1"), ("MASTER_ADDR", "elsewhere")):
        monkeypatch.setenv(name, value)
    job = toys.submit(PLACE, "--time=3", "--nodes=2")
    assert job.wait() == "0:0", job.log()
    assert places(job, 1)[0].startswith("0 of 2 x 1 at 127.0.0.1:")
    said = run("scontrol", "show", "job", job.job)
    assert "TimeLimit=00:03:00" in said
    assert "Requeue=0" in said


def test_the_script_can_be_submitted_again_by_hand(toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY", PLACE)  # what --env passes on is in the environment, not in the script
    job = toys.submit(PLACE, "--nodes=2")
    job.wait()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        ["sbatch", "--parsable", str(job.record.path / "job.sh")],
        cwd=elsewhere,
        capture_output=True,
        text=True,
        check=True,
    )
    again = Submitted(job=done.stdout.strip(), record=job.record, said="")
    assert again.wait() == "0:0", again.log()
    assert again.log().count("place 0 of 2") == 2


def test_a_step_of_ones_own_script(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY", PLACE)
    words = ["--launcher=container", "--slurm-task"]
    inner = [word if word != "--launcher=slurm" else words[0] for word in toys.words(words[1])]
    step = ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--label", *inner]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(step, capture_output=True, text=True, cwd=toys.cwd, env=environ, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "1: place 1 of 2 x 1 at 127.0.0.1:" in done.stdout
    (listed,) = json.loads(primus("runs", str(toys.run_dir), "--output=json").output)
    assert listed["state"] == "completed"
    assert re.fullmatch(r"slurm-\d+\.0", listed["run"])
    both = subprocess.run([*step[:2], "--ntasks=4", *inner], capture_output=True, text=True, env=environ, check=False)
    assert "the step has 4 tasks on 2 nodes" in both.stderr


def test_a_secret_is_in_no_file_of_the_run(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret123")
    job = toys.submit("test ${#HF_TOKEN} = 12 && echo it has it; sleep 3", "--nodes=2")
    job.wait_for_text("it has it", node=1)
    shown = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    shown += run("scontrol", "show", "job", job.job)
    shown += "".join(path.read_text(errors="replace") for path in job.record.path.iterdir())
    assert job.wait() == "0:0"
    assert "hf_secret123" not in shown


def test_a_node_that_refuses_ends_the_others_with_its_own_code(toys: Toys, tmp_path: Path) -> None:
    """Here by a file that is there when the job is submitted and gone when the nodes look."""
    file = tmp_path / "there"
    file.touch()
    job = toys.submit("sleep 100", "--nodes=2", f"--mount={file}", "--sbatch-arg=--begin=now+1hour")
    file.unlink()
    run("scontrol", "update", f"JobId={job.job}", "StartTime=now")
    assert job.wait() == "2:0"
    # The node that looks first says it, and may end the other before that has said anything.
    assert f"{file} does not exist on this machine" in job.log(0) + job.log(1)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--partition=nope",), 4, "sbatch refused the job: "),
        (("--sbatch-arg=--ntasks-per-node=8",), 2, "one task runs on each node"),
        (("--sbatch-arg=-N4",), 2, "is an option of primus run"),
        (("--sbatch-arg=constraint",), 2, "is no option of sbatch's"),
        (("--array=3-1",), 2, "has 0 elements"),
        (("--wait", "--requeue=1"), 2, "srun in the foreground has no restarts"),
        (("--array=0-1",), 2, "share the run directory"),
    ],
    ids=str,
)
def test_refusals(toys: Toys, words: tuple[str, ...], code: int, said: str) -> None:
    done = toys.run("exit 0", *words)
    assert done.code == code, done.output
    assert said in done.output
    assert "hint: " in done.output
    assert "lost" not in primus("runs", str(toys.run_dir.parent)).output


def test_an_array_has_an_experiment_for_each_element(toys: Toys) -> None:
    """Its number is the variable's value in the experiment, and is known before anything is queued."""
    experiment = toys.cwd / "my array.yaml"
    text = EXAMPLES["torchtitan"].read_text()
    text = re.sub("workspace: .*", f"workspace: '{toys.run_dir}'", text)
    experiment.write_text(re.sub("exp_name: .*", "exp_name: seed-${SLURM_ARRAY_TASK_ID}", text))
    words = [word for word in toys.words("--array=1-2") if not word.startswith(("--run-dir", "--config"))]
    environ = {**os.environ, "TOY": "echo done", "PYTHONPATH": str(ROOT)}
    words += [f"--config={experiment}", "debug.seed=${SLURM_ARRAY_TASK_ID}"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=toys.cwd, env=environ, check=False)
    assert done.returncode == 0, done.stderr
    number = done.stdout.strip()
    wait_for(lambda: not run("squeue", "--noheader").strip(), 60, "the end of the array")
    listed = json.loads(primus("runs", str(toys.run_dir), "--output=json").output)
    assert [(row["job"], row["experiment"], row["state"]) for row in listed] == [
        (f"{number}_1", "seed-1", "completed"),
        (f"{number}_2", "seed-2", "completed"),
    ]
    logs = [Path(row["path"], "node0.log").read_text() for row in listed]
    assert all("done" in log for log in logs)
    assert "seed: 2" in Path(listed[1]["path"], "experiment.yaml").read_text()


COUNT = 'n=$(cat tries 2>/dev/null || echo 0); echo $((n + 1)) > tries; echo "try $n restart"; '


def start_again(job: Submitted, tries: int) -> None:
    """Slurm waits two minutes before a job starts again; this test does not."""

    def starts(number: int) -> bool:
        if job.state() == "PENDING":  # a job that is still ending cannot be told yet
            run("scontrol", "update", f"JobId={job.job}", "StartTime=now", check=False)
        return f"try {number} " in job.log()

    for number in range(1, tries + 1):
        job.wait_for_text(f"try {number - 1} ")
        time.sleep(4)  # at once, its credential is still the revoked one of the try before
        wait_for(partial(starts, number), 90, f"restart {number}")


def test_a_failed_run_goes_on(toys: Toys) -> None:
    job = toys.submit(COUNT + '[ "$n" = 2 ]', "--requeue=3")
    start_again(job, 2)
    assert job.wait() == "0:0"
    assert [attempt.attempt for attempt in job.record.attempts()] == [0, 1, 2]
    assert [attempt.exit for attempt in job.record.attempts()] == [1, 1, 0]
    assert [f"try {number} " in job.log() for number in range(3)] == [True] * 3  # appended, none lost


def test_it_does_not_go_on_for_ever(toys: Toys) -> None:
    job = toys.submit(COUNT + "exit 9", "--requeue=1")
    start_again(job, 1)
    assert job.wait() == "9:0"
    assert job.record.read("end.json")["attempt"] == 1


def test_a_configuration_that_is_refused_is_not_tried_again(toys: Toys) -> None:
    job = toys.submit(COUNT + "exit 2", "--requeue=3")
    assert job.wait() == "2:0"


def test_runs_and_logs(toys: Toys, cluster: Cluster) -> None:
    job = toys.submit("echo hello; sleep 3; exit 5", "--nodes=2")
    job.wait_for_text("hello")
    listed = primus("runs", str(toys.run_dir))
    assert "running" in listed.output
    followed = primus("logs", "-f", str(job.record.path), "--node=1")
    assert followed.output.splitlines().count("hello") == 1
    assert followed.output.rstrip().endswith("the run is failed (5)")
    job.wait()
    assert "failed (5)" in primus("runs", str(toys.run_dir), "--state=failed").output
    assert "hello" in primus("logs", job.job, f"--workspace={toys.run_dir.parent}").output


def test_a_queued_run_says_why(toys: Toys) -> None:
    job = toys.submit("exit 0", "--sbatch-arg=--begin=now+1hour")
    wait_for(lambda: "queued (BeginTime)" in primus("runs", str(toys.run_dir)).output, 20, "the reason")
    run("scancel", job.job)
    assert "cancelled" in primus("runs", str(toys.run_dir)).output


@pytest.mark.parametrize(
    "text",
    [
        *("n[1-3]", "a,b[1,3-4]", "rack[1-2]n[01-02]", "n", "n[08-11]", "x[1-2],y", "tux[0,0-1]", "n[9-11]"),
        *("gpu-[001-002,010]", "a[1-2],b[3-4],c", "n[1-512]", "r[1-3]n[1-4],login"),
    ],
)
def test_lists_of_hosts_are_read_as_slurm_reads_them(cluster: Cluster, text: str) -> None:
    assert list(hosts(text)) == run("scontrol", "show", "hostnames", text).split()


def test_upstreams_command_and_variables(toys: Toys) -> None:
    """The same job, as upstream's launcher is called, and as its packaged scripts are told."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, "TOY": PLACE, "PATH": path}
    mount = f"{ROOT}/primus:/opt/primus/primus:ro"
    words = [
        *(str(ROOT / "primus-cli"), "slurm", "srun", "-N", "2", "-t", "5"),
        *("--", "container", "--image", toys.image, "--volume", mount, "--env", "TOY"),
        *("--", "train", "pretrain", "--config", str(EXAMPLES["torchtitan"])),
    ]
    environ["PRIMUS_WORKSPACE"] = str(toys.run_dir)
    done = subprocess.run(words, capture_output=True, text=True, cwd=toys.cwd, env=environ, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^1: place 1 of 2 x 1 at 127.0.0.1:", done.stdout, re.MULTILINE)
    environ |= {"EXP": str(EXAMPLES["torchtitan"]), "NNODES": "2", "DOCKER_IMAGE": toys.image, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "primus", "run", "--from-env", f"--mount={mount}", "--env=TOY", "--no-exclusive"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=toys.cwd, env=environ, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^1: place 1 of 2 x 1 at 127.0.0.1:", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("wait", [False, True], ids=["sbatch", "srun"])
def test_a_failed_run_says_why(toys: Toys, wait: bool) -> None:
    """In Slurm's log of the job, or in the terminal; of the node that failed, whatever the others say."""
    script = (
        'if [ "$NODE_RANK" = 1 ]; then echo "RuntimeError: HIP error: invalid device function"; exit 9; fi; '
        'trap "exit 7" TERM; echo "OSError: [Errno 28] No space left on device"; while :; do sleep 0.1; done'
    )
    if wait:
        said = toys.run(script, "--nodes=2", "--wait").output
    else:
        job = toys.submit(script, "--nodes=2")
        assert job.wait() == "9:0"
        said = (job.record.path / "slurm.log").read_text()
    assert "primus: failed with exit code 9, first on node 1 (" in said
    assert "  | RuntimeError: HIP error: invalid device function\ncause: the image has no code for this GPU\n" in said
    assert re.search(r"^log: .*/node1\.log$", said, re.MULTILINE)
    assert "a disk is full" not in said


def test_the_doctor_on_each_node(cluster: Cluster) -> None:
    """What is wrong is said with the node's name, and a step that is none of ours is told apart."""
    words = ("--nodes=2", "--ntasks-per-node=1", sys.executable, "-m", "primus", "doctor", "--engine=docker")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(["srun", *words], capture_output=True, text=True, env=environ, timeout=60, check=False)
    assert len(re.findall(r"^\S+: \d+ checks: \d+ failed", done.stdout, re.MULTILINE)) == 2, done.stdout + done.stderr
    assert (
        "fail  meeting point: MASTER_ADDR 127.0.0.1 is 127.0.0.1: each node" in done.stdout
    )  # so it is, in this cluster
    assert done.returncode == 1
    words = ("--nodes=1", "--ntasks-per-node=2", *words[2:])
    done = subprocess.run(["srun", *words], capture_output=True, text=True, env=environ, timeout=60, check=False)
    assert "fail  step: the step has 2 tasks on 1 nodes" in done.stdout
