"""Containers that no engine runs, images that are files, and what a launch inside an image makes sure of."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.launch.support import EXAMPLES, Run
from tests.slurm.cluster import KILL_WAIT, run, wait_for
from tests.slurm.conftest import Toys, containers

pytestmark = pytest.mark.timeout(300)
STAND_IN = Path(__file__).with_name("apptainer_stand_in.py")
OBEYS = "echo ready; while :; do sleep 0.1; done"
DEAF = "trap '' TERM INT HUP; echo ready; while :; do sleep 0.1; done"
SAVES = "trap 'echo saved >> saved; exit 0' TERM USR1; echo ready; while :; do sleep 0.1; done"


@dataclass
class Local:
    """Starts the container launcher on this machine, with a shell script in the place of the training."""

    engine: str
    image: str
    run_dir: Path
    environ: Mapping[str, str]

    def start(self, script: str, *words: str) -> subprocess.Popen[str]:
        argv = [
            *(sys.executable, "-m", "primus", "run", "--launcher=container", f"--config={EXAMPLES['torchtitan']}"),
            *(f"--engine={self.engine}", f"--image={self.image}", "--pull=never", f"--run-dir={self.run_dir}"),
            *("--env=TOY", "--env=MARKER", f"--mount={ROOT}/primus:/opt/primus/primus:ro", *words),
        ]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[1:]), **self.environ}
        environ |= {"TOY": script, "MARKER": str(self.run_dir)}
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, env=environ, cwd=ROOT, stdout=pipe, stderr=subprocess.STDOUT, text=True)

    def run(self, script: str, *words: str) -> Run:
        process = self.start(script, *words)
        output, _ = process.communicate(timeout=120)
        return Run(code=process.returncode, output=output)

    def ready(self, script: str) -> subprocess.Popen[str]:
        process = self.start(script)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ready"):
                return process
        raise AssertionError("it never was")

    def processes(self) -> list[int]:
        """Everything that still runs of it, by the marker in its environment."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if b"MARKER=" + str(self.run_dir).encode() + b"\0" in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found


@pytest.fixture
def apptainer(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    """apptainer with the stand-in's image: the real one where it is and $SIF names a file made from that; else a
    stand-in, which knows its arguments."""
    run_dir = tmp_path / 'run (v2), $HOME #1 "日本"'
    environ = {"TMPDIR": str(tmp_path)}
    if shutil.which("apptainer") and os.environ.get("SIF"):
        yield Local("apptainer", os.environ["SIF"], run_dir, environ)
        return
    image = request.getfixturevalue("toy")
    sif = tmp_path / "toy.sif"
    sif.write_bytes(b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0") + b"SIF_MAGIC\0" + b"01\002\0" + b"\7" * 16)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "apptainer").write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} {image} "$@"\n', encoding="utf-8")
    (tools / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    yield Local("apptainer", str(sif), run_dir, environ)
    wait_for(lambda: containers(run_dir) == [], 30, "the containers' end")


def attempts(run_dir: Path) -> list[dict[str, object]]:
    (file,) = run_dir.glob("*/node0.json")
    found: list[dict[str, object]] = json.loads(file.read_text())["attempts"]
    return found


def test_apptainer_runs_as_docker_does(apptainer: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same directory, same variables and no others, a HOME to write to, exit code and record."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret123")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("UNLISTED", "1")
    odd = "$(echo ran), a=b\n'c' \"d\""
    script = (
        'echo "at $(pwd)"; echo "home $HOME"; echo "token ${#HF_TOKEN} $NCCL_DEBUG ${UNLISTED-none}"; echo "odd $ODD"; '
        "touch $HOME/x /tmp/y here && echo wrote; exit 7"
    )
    done = apptainer.run(script, f"--env=ODD={odd}")
    assert done.code == 7, done.output
    for said in (f"at {apptainer.run_dir}", "home /tmp/primus-home", "token 12 INFO none", f"odd {odd}", "wrote"):
        assert said in done.output
    assert (apptainer.run_dir / "here").exists()
    (attempt,) = attempts(apptainer.run_dir)
    assert attempt["exit"] == 7
    assert str(attempt["image_id"]).startswith("sif:")
    (log,) = apptainer.run_dir.glob("*/node0.log")
    assert "token 12" in log.read_text()
    assert not list(Path(apptainer.environ["TMPDIR"]).glob("primus-*/*"))  # nothing is left of /tmp


@pytest.mark.parametrize(
    ("number", "script", "code"),
    [(signal.SIGTERM, SAVES, 143), (signal.SIGINT, OBEYS, 130), (signal.SIGUSR1, SAVES, 0)],
    ids=["TERM", "INT", "USR1"],
)
def test_signals_reach_the_training_once(apptainer: Local, number: signal.Signals, script: str, code: int) -> None:
    process = apptainer.ready(script)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == code
    if script is SAVES:
        assert (apptainer.run_dir / "saved").read_text().splitlines() == ["saved"]
    wait_for(lambda: apptainer.processes() == [], 10, "the processes' end")


@pytest.mark.parametrize("script", [OBEYS, DEAF], ids=["obeys", "deaf"])
@pytest.mark.parametrize("client", [False, True], ids=["launcher", "launcher and client"])
def test_a_killed_launcher_leaves_nothing(apptainer: Local, script: str, client: bool) -> None:
    process = apptainer.ready(script)
    children = [int(word) for word in run("pgrep", "-P", str(process.pid)).split()]
    os.kill(process.pid, signal.SIGKILL)
    for pid in children if client else []:
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=60)
    wait_for(lambda: apptainer.processes() == [], 40, "the processes' end")


def test_a_deaf_training_is_killed_after_the_grace(apptainer: Local) -> None:
    process = apptainer.ready(DEAF)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    wait_for(lambda: apptainer.processes() == [], 30, "the processes' end")


def test_a_file_that_is_no_image_is_said(apptainer: Local, tmp_path: Path) -> None:
    apptainer.image = str(tmp_path / "none.sif")
    done = apptainer.run("exit 0")
    assert done.code == 2
    assert " does not exist here" in done.output


def test_apptainer_under_slurm(apptainer: Local, toys: Toys) -> None:
    toys.image = apptainer.image
    job = toys.submit('echo "place $NODE_RANK of $NNODES"', "--nodes=2", "--engine=apptainer")
    assert job.wait() == "0:0", job.log()
    assert [f"place {rank} of 2" in job.log(rank) for rank in range(2)] == [True, True]
    job = toys.submit(SAVES, "--nodes=2", "--engine=apptainer")
    for rank in range(2):
        job.wait_for_text("ready", rank)
    run("scancel", job.job)
    assert job.wait() == "0:15"
    wait_for(lambda: containers(toys.run_dir) == [], KILL_WAIT + 10, "the containers' end")


def images(engine: str) -> set[str]:
    return {*run(engine, "images", "--no-trunc", "--quiet").split()}


@pytest.fixture
def saved(toy: str, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """An archive of an image that no engine has, on storage that all nodes see; and the image's ID."""
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {toy}\nLABEL unique={tmp_path.name}-{os.getpid()}\n", encoding="utf-8")
    name = f"primus-torchtitan:saved-{os.getpid()}"
    run(
        "docker",
        "buildx",
        "build",
        "--load",
        "--quiet",
        f"--build-context={toy}=docker-image://{toy}",
        f"--tag={name}",
        str(context),
    )
    identity = run("docker", "image", "inspect", "--format={{.Id}}", name).strip()
    file = tmp_path / "shared images" / "image.tar"
    file.parent.mkdir()
    run("docker", "save", f"--output={file}", name)
    run("docker", "image", "rm", "--force", name)
    assert identity not in images("docker")
    yield file, identity
    for engine in ("docker", "podman"):
        if shutil.which(engine):
            run(engine, "image", "rm", "--force", identity, check=False)


@pytest.mark.parametrize("engine", ["docker", "podman"])
@pytest.mark.parametrize("compressed", [False, True], ids=["tar", "tar.zst"])
def test_an_image_that_is_a_file_is_loaded_once(
    request: pytest.FixtureRequest, engine: str, compressed: bool, saved: tuple[Path, str], tmp_path: Path
) -> None:
    request.getfixturevalue(engine)
    file, identity = saved
    if compressed:
        run("zstd", "--quiet", "-1", str(file))
        file = file.with_name("image.tar.zst")
    local = Local(engine, str(file), tmp_path / "run", {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    first = local.run("echo here")
    assert first.code == 0, first.output
    assert "Load" in first.output  # the engine says what it loads
    second = Local(engine, str(file), tmp_path / "run2", local.environ).run("echo here")
    assert second.code == 0, second.output
    assert "Load" not in second.output
    for directory in (local.run_dir, tmp_path / "run2"):
        assert attempts(directory)[0]["image_id"] == identity
        (about,) = directory.glob("*/run.json")
        assert json.loads(about.read_text())["image"] == str(file)


def test_two_launches_at_once_load_it_once(saved: tuple[Path, str], tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    started = [Local("docker", str(saved[0]), tmp_path / str(n), cache).start("echo here") for n in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert sum("Loaded image" in output for output in outputs) == 1


def test_nodes_load_a_file_and_agree_on_what_it_is(saved: tuple[Path, str], toys: Toys) -> None:
    file, identity = saved
    toys.image = str(file)
    job = toys.submit("echo here", "--nodes=2")
    assert job.wait() == "0:0", job.log()
    assert [attempt.image_id for attempt in job.record.attempts()] == [identity, identity]


def test_an_archive_of_something_else_is_refused(toy: str, tmp_path: Path) -> None:
    file = tmp_path / "image.tar"
    run("tar", "--create", f"--file={file}", "/etc/hostname")
    done = Local("docker", str(file), tmp_path / "run", {}).run("exit 0")
    assert done.code == 3
    assert "it has no manifest.json" in done.output


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_an_odd_entrypoint_is_not_run(request: pytest.FixtureRequest, engine: str, toy: str, tmp_path: Path) -> None:
    request.getfixturevalue(engine)
    name = f"localhost/primus-torchtitan:odd-{os.getpid()}"
    (tmp_path / "Dockerfile").write_text(f'FROM {toy}\nENTRYPOINT ["/bin/false", "odd"]\n', encoding="utf-8")
    run(
        "docker",
        "buildx",
        "build",
        "--load",
        "--quiet",
        f"--build-context={toy}=docker-image://{toy}",
        f"--tag={name}",
        str(tmp_path),
    )
    try:
        if engine == "podman":
            run("sh", "-c", f"docker save {name} | podman load")
        done = Local(engine, name, tmp_path / "run", {}).run("echo here; exit 5")
    finally:
        run("docker", "image", "rm", "--force", name, check=False)
        if engine == "podman":
            run("podman", "image", "rm", "--force", name, check=False)
    assert done.code == 5, done.output
    assert "here" in done.output


def test_a_container_of_something_else_is_noticed_inside(toy: str, tmp_path: Path) -> None:
    """Whatever its labels say."""
    name = f"primus-torchtitan:marker-{os.getpid()}"
    (tmp_path / "Dockerfile").write_text(f"FROM {toy}\nRUN rm /etc/primus/image.json\n", encoding="utf-8")
    context = f"--build-context={toy}=docker-image://{toy}"
    run("docker", "buildx", "build", "--load", "--quiet", context, f"--tag={name}", str(tmp_path))
    try:
        done = Local("docker", name, tmp_path / "run", {}).run("echo trained")
    finally:
        run("docker", "image", "rm", "--force", name, check=False)
    assert done.code == 3, done.output
    assert "this process is in no Primus image" in done.output
    assert "trained" not in done.output


@pytest.fixture
def ignored(toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toys:
    """A cluster whose srun takes pyxis' options and does nothing about them: the task runs on the bare node."""
    tools = tmp_path / "tools"
    tools.mkdir()
    srun = shutil.which("srun")
    (tools / "srun").write_text(
        "#!/bin/bash\n"
        f'for word; do echo "$word" >> {tools}/said; case $word in --container-*|--no-container-*) ;; '
        f'*) kept+=("$word");; esac; done\nexec {srun} "${{kept[@]}}"\n',
        encoding="utf-8",
    )
    (tools / "primus").write_text(
        f'#!/bin/sh\nexec env PYTHONPATH="{ROOT}/tests/slurm/toy:{ROOT}" {sys.executable} -m primus "$@"\n'
    )
    for tool in ("srun", "primus"):
        (tools / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    toys.image = str(tmp_path / "image.sqsh")
    Path(toys.image).touch()
    toys.run_dir = tmp_path / "run (v2) #1 日本"  # pyxis cannot mount a path with a comma
    return toys


def test_a_container_that_slurm_did_not_make_is_noticed(ignored: Toys, tmp_path: Path) -> None:
    job = ignored.submit("echo trained", "--nodes=2", "--engine=pyxis")
    assert job.wait() == "3:0", job.log()
    assert "this process is in no Primus image" in job.log()
    assert "trained" not in job.log()
    said = (tmp_path / "tools" / "said").read_text().splitlines()
    assert f"--container-image={tmp_path}/image.sqsh" in said
    assert "--no-container-entrypoint" in said


@pytest.fixture
def bare(ignored: Toys, tmp_path: Path) -> Toys:
    """The same, where the task does not mind: what pyxis would start, without its container."""
    primus = tmp_path / "tools" / "primus"
    text = primus.read_text(encoding="utf-8").replace('"$@"', '"${@/--in-image/--any-gpu}"')
    primus.write_text(text.replace("/bin/sh", "/bin/bash"), encoding="utf-8")
    return ignored


@pytest.mark.parametrize("script", [SAVES, DEAF], ids=["saves", "deaf"])
def test_a_step_that_is_its_own_container_is_cancelled(bare: Toys, script: str) -> None:
    job = bare.submit(script, "--nodes=2", "--engine=pyxis", "--env=MASTER_ADDR=127.0.0.1")
    for rank in range(2):
        job.wait_for_text("ready", rank)
    run("scancel", job.job)
    assert job.wait() == "0:15"
    if script is SAVES:
        assert (job.record.path / "saved").read_text().splitlines() == ["saved"] * 2
        wait_for(lambda: [one.exit for one in job.record.attempts()] == [143, 143], 10, "the record")
    wait_for(lambda: not pgrep(str(job.record.path)), KILL_WAIT + 5, "the processes' end")


def pgrep(text: str) -> list[str]:
    return run("pgrep", "-f", "--", text.replace("(", "\\(").replace(")", "\\)"), check=False).split()


@pytest.mark.parametrize("wait", [False, True], ids=["sbatch", "srun"])
def test_a_step_that_is_its_own_container_has_a_record(bare: Toys, wait: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each runs, variables, exit codes."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret123")
    monkeypatch.setenv("UNLISTED", "1")
    script = (
        'echo "place $NODE_RANK of $NNODES token ${#HF_TOKEN} ${UNLISTED-none} at $(pwd)"; '
        '[ "$NODE_RANK" = 1 ] && exit 42; trap "exit 7" TERM; while :; do sleep 0.1; done'
    )
    place = ("--nodes=2", "--engine=pyxis", "--env=MASTER_ADDR=127.0.0.1")
    if wait:
        done = bare.run(script, *place, "--wait")
        assert done.code == 42, done.output
        assert "1: place 1 of 2 token 12 none" in done.output
        (log,) = bare.run_dir.glob("*/node1.log")
        assert log.read_text().count("place 1 of 2") == 1
        return
    job = bare.submit(script, *place)
    assert job.wait() == "42:0", job.log()
    assert "place 1 of 2 token 12 none" in job.log(1)
    assert {attempt.rank: attempt.exit for attempt in job.record.attempts()}[1] == 42
    assert "hf_secret123" not in (job.record.path / "job.sh").read_text()
