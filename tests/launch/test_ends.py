"""However a launch ends, no container outlives it, and its exit code says how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from primus.experiment import load_experiment
from primus.image.names import reference
from primus.job import Job
from primus.launchers import container
from primus.launchers.host import GRACE, Host
from primus.launchers.supervise import Container, supervise
from tests.launch.support import EXAMPLES, ROOT, containers, in_podman, inspect, primus

pytestmark = pytest.mark.timeout(240)

TORCHTITAN = EXAMPLES["torchtitan"]
Toy = Callable[..., "subprocess.Popen[str]"]
ENDLESS = ("training.steps=1000000", "checkpoint.enable=false")


def wait_for(condition: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.2)


class Launch:
    """A launch in the background, its output in a file."""

    def __init__(self, run_dir: Path, *words: str, env: dict[str, str] | None = None) -> None:
        self.run_dir, self.log = run_dir, run_dir.parent / "output.log"
        command = [sys.executable, "-m", "primus", "run", f"--config={TORCHTITAN}", f"--run-dir={run_dir}", *words]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, env={**os.environ, **(env or {})}, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
            )

    def wait_for_text(self, text: str, seconds: float = 90) -> None:
        wait_for(lambda: text in self.output() or self.process.poll() is not None, seconds, f"{text!r} in the output")
        assert text in self.output(), self.output()[-3000:]

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def client(self) -> int:
        """The process id of the docker client."""
        done = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=True)
        return int(done.stdout.split()[0])


@pytest.fixture
def training(image: Callable[[str], str], run_dir: Path) -> Iterator[Launch]:
    """A launch that is training and would go on for hours."""
    image("torchtitan")
    launch = Launch(run_dir, *ENDLESS)
    launch.wait_for_text("step:  3")
    yield launch
    launch.process.kill()
    launch.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_signal_ends_the_container(training: Launch, number: signal.Signals) -> None:
    assert len(containers(training.run_dir)) == 1
    training.process.send_signal(number)
    assert training.process.wait(60) == 128 + number
    assert containers(training.run_dir) == []


def test_a_run_directory_has_one_launch_at_a_time(training: Launch) -> None:
    second = primus("run", f"--config={TORCHTITAN}", f"--run-dir={training.run_dir}")
    assert second.code == 4
    assert f"is in use by another launch (process {training.process.pid} on " in second.output
    assert len(containers(training.run_dir)) == 1


def test_killed_launcher(training: Launch) -> None:
    training.process.kill()
    wait_for(lambda: containers(training.run_dir) == [], GRACE + 25, "the container's end")


def test_killed_launcher_and_client(training: Launch) -> None:
    client = training.client()
    training.process.kill()
    os.kill(client, signal.SIGKILL)
    wait_for(lambda: containers(training.run_dir) == [], GRACE + 25, "the container's end")


@pytest.fixture
def toy(image: Callable[[str], str], run_dir: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the launcher's own container and supervision, with a shell script in the place of the training."""
    image("base-torch")
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *, engine: str = "docker", ready: bool = False) -> subprocess.Popen[str]:
        program = "import sys; from tests.launch.test_ends import run_toy; sys.exit(run_toy(*sys.argv[1:]))"
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(run_dir), script, engine],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        if ready:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def run_toy(run_dir: str, script: str, engine: str) -> int:
    job = Job(
        experiment=load_experiment(TORCHTITAN),
        image=reference("base-torch", "cpu"),
        run_dir=Path(run_dir),
        engine=engine,
        dev=ROOT / "primus",
    )
    job.run_dir.mkdir(parents=True, exist_ok=True)
    name = container.container_name(job)
    made = container.command(job, Host.look(engine), os.environ, name)
    inner = container.inner_argv(job)
    argv = (*made.argv[: -len(inner)], "sh", "-c", script)
    return supervise(replace(made, argv=argv), Container(engine, name), secrets={"HF_TOKEN": "hf_secret123"}, grace=3)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 42", 42), ("kill -9 $$", 137), ("exit 1", 1)],
    ids=["ok", "own code", "killed", "failed"],
)
def test_exit_code_passes_through(toy: Toy, run_dir: Path, script: str, code: int) -> None:
    assert toy(script).wait(60) == code
    assert containers(run_dir) == []


def test_user_signals_reach_the_training_once_each(toy: Toy) -> None:
    script = "trap 'echo saved' USR1; trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.1; done"
    process = toy(script, ready=True)
    process.send_signal(signal.SIGUSR1)
    assert process.stdout is not None
    assert process.stdout.readline() == "saved\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[0].count("bye") == 1
    assert process.returncode == 143


def test_training_that_ignores_being_asked_is_killed(toy: Toy, run_dir: Path) -> None:
    process = toy("trap '' TERM; echo ready; while :; do sleep 0.1; done", ready=True)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert containers(run_dir) == []


def test_second_interrupt_kills_at_once(toy: Toy, run_dir: Path) -> None:
    process = toy("trap '' TERM INT; echo ready; while :; do sleep 0.1; done", ready=True)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(2) == 130  # well within the grace that one interrupt gives
    assert containers(run_dir) == []


def test_killed_launcher_of_a_deaf_training(toy: Toy, run_dir: Path) -> None:
    toy("trap '' TERM HUP INT; echo ready; while :; do sleep 0.1; done", ready=True).kill()
    wait_for(lambda: containers(run_dir) == [], GRACE + 20, "the container's end")


def test_secret_is_seen_by_the_training_alone(image: Callable[[str], str], run_dir: Path) -> None:
    image("torchtitan")
    secret = "hf_secret123"
    words = ("--env=HF_TOKEN", "--env=PLAIN=not in a file", "job.description=${HF_TOKEN}")
    launch = Launch(run_dir, *ENDLESS, *words, env={"HF_TOKEN": secret})
    launch.wait_for_text("step:  2")
    (name,) = containers(run_dir)
    argv = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    files = "".join(
        path.read_text(errors="replace") for path in run_dir.rglob("*") if path.suffix in (".yaml", ".toml")
    )
    shown = {"argv": argv, "files": files, "inspect": str(inspect(name)), "logs": launch.output()}
    environ = subprocess.run(
        ["docker", "exec", name, "sh", "-c", "cat /proc/[0-9]*/environ"], capture_output=True, text=True, check=False
    ).stdout
    launch.process.terminate()
    launch.process.wait(60)
    assert "${HF_TOKEN}" in files
    assert "PLAIN: ${PLAIN}" in files
    assert secret in environ
    # TorchTitan logs the description that it was given, and this test gave it the secret: its own business.
    shown["logs"] = "\n".join(line for line in shown["logs"].splitlines() if "Starting job" not in line)
    assert [place for place, text in shown.items() if secret in text] == []


def test_files_belong_to_the_user(image: Callable[[str], str], run_dir: Path) -> None:
    """Any uid, without an entry in passwd: the run works, and what it writes is the user's."""
    if os.getuid() != 0:
        pytest.skip("root: a directory of another user must be made")
    image("torchtitan")
    run_dir.mkdir()
    os.chown(run_dir, 4242, 4242)
    program = "import sys; from tests.launch.test_ends import run_as; sys.exit(run_as(4242, sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(run_dir)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "step:  2" in done.stdout, (done.stdout + done.stderr)[-3000:]
    assert {path.stat().st_uid for path in run_dir.rglob("*")} == {4242}
    assert (run_dir / "checkpoint" / "step-2").is_dir()


def run_as(uid: int, run_dir: str) -> int:
    """What the launcher of the user `uid` would start: this process may be root, whose Python others cannot read."""
    experiment = load_experiment(TORCHTITAN, ["training.steps=2"])
    job = Job(experiment=experiment, image=reference("torchtitan", "cpu"), run_dir=Path(run_dir))
    name = container.container_name(job)
    made = container.command(job, Host.look("docker")._replace(uid=uid, gid=uid), {}, name)
    made.write()
    for path in made.files:
        os.chown(path, uid, uid)
    return supervise(made, Container("docker", name), secrets={}, grace=3)


def test_no_permission_on_the_socket(docker: str) -> None:
    if os.getuid() != 0:
        pytest.skip("root: another user must be become")
    program = (
        "import os; from primus.image.engine import Client; os.setgroups([]); os.setgid(4242); os.setuid(4242); "
        "Client('docker').check()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "HOME": "/"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "primus.errors.LaunchError: no permission on docker's socket" in done.stderr
    assert "hint: join its group: sudo usermod -aG docker $USER" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--image=primus-nothing:1-cpu", "--pull=never"), 3, "is not on this machine"),
        (("--image={maxtext}",), 3, "is for maxtext, the experiment for torchtitan"),
        (("--accelerator=rocm", "--image={torchtitan}"), 4, "no /dev/kfd"),
        (("--engine-arg=--no-such-option",), 4, "refused to run the container"),
        (("--mount=/no/such/path",), 2, "does not exist"),
    ],
    ids=["missing image", "wrong framework", "no device", "engine refuses", "missing mount"],
)
def test_each_refusal_has_its_own_words(
    image: Callable[[str], str], run_dir: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    names = {framework: image(framework) for framework in ("torchtitan", "maxtext")}
    run = primus("run", f"--config={TORCHTITAN}", f"--run-dir={run_dir}", *(word.format(**names) for word in words))
    assert run.code == code, run.output
    assert said in run.output
    assert "hint: " in run.output
    assert "Traceback" not in run.output


def test_wrong_accelerator_inside_an_image(docker: str, image: Callable[[str], str]) -> None:
    """The direct launcher checks the image it is in, too: nobody may have asked the container launcher."""
    name = image("maxtext")
    mount = f"--mount=type=bind,source={ROOT},target=/src,readonly"
    example = f"/src/{TORCHTITAN.relative_to(ROOT)}"
    done = subprocess.run(
        [
            docker,
            "run",
            "--rm",
            "--network=none",
            mount,
            name,
            "primus",
            "run",
            f"--config={example}",
            "--run-dir=/tmp/run",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "this image is for maxtext, the experiment for torchtitan" in done.stderr


def test_podman_runs_the_same_container(
    podman: str, docker: str, image: Callable[[str], str], toy: Toy, run_dir: Path
) -> None:
    name = image("base-torch")
    in_podman(name)
    assert toy("touch file; exit 5", engine="podman").wait(120) == 5
    assert (run_dir / "file").stat().st_uid == os.getuid()
    names = subprocess.run(
        [podman, "ps", "--all", "--format", "{{.Names}}"], capture_output=True, text=True, check=True
    )
    assert "primus-root-llama3_tiny" not in names.stdout
