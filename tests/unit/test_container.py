"""The container's command line: pure, from the job, the host and the environment."""

from __future__ import annotations

import csv
import os
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from primus.errors import ConfigError, LaunchError
from primus.experiment import load_experiment
from primus.image.engine import Client
from primus.job import Job, Mount, apart
from primus.launchers import container
from primus.launchers.container import command
from primus.launchers.host import GRACE, Host

from .conftest import Experiment, Write

HOST = Host(uid=1234, gid=100, own_groups=(), groups=(993, 44), infiniband=False, rootless=False)
ROOTLESS = HOST._replace(rootless=True)
RUN = Path("/run dir")
MakeJob = Callable[..., Job]


@pytest.fixture
def job(experiment: Experiment) -> MakeJob:
    """A job of the small experiment."""

    def call(*, accelerator: str = "cpu", **fields: Any) -> Job:
        found = load_experiment(experiment(), environ={}, accelerator=accelerator)
        return Job(**{"experiment": found, "image": "image:1", "run_dir": RUN, **fields})

    return call


def options(job: Job, host: Host = HOST, environ: dict[str, str] | None = None) -> list[str]:
    """The engine's options: everything before the image."""
    argv = command(job, host, environ or {}, "name").argv
    return list(argv[2 : argv.index(job.image)])


def mounts(job: Job, environ: dict[str, str] | None = None) -> list[list[str]]:
    words = [word for word in options(job, HOST, environ) if word.startswith("--mount=")]
    return [next(csv.reader([word.removeprefix("--mount=")])) for word in words]


def test_what_every_container_gets(job: MakeJob) -> None:
    given = options(job())
    for word in (
        *("--rm", "--interactive", "--init", "--name=name", "--label=io.primus.run=/run dir", "--pull=never"),
        *("--network=host", "--ipc=host", "--workdir=/run dir", "--entrypoint=python", "--user=1234:100"),
    ):
        assert word in given


@pytest.mark.parametrize("accelerator", ["rocm", "cpu"])
@pytest.mark.parametrize("host", [HOST, ROOTLESS, HOST._replace(infiniband=True)], ids=["root", "rootless", "ib"])
def test_a_container_is_never_privileged(job: MakeJob, accelerator: str, host: Host) -> None:
    given = options(job(accelerator=accelerator), host)
    assert not [word for word in given if "privileged" in word or "cap-add" in word or "security-opt" in word]
    assert not [word for word in given if word.startswith("--shm-size")]


def test_gpus_come_with_their_groups_as_numbers_and_their_limits(job: MakeJob) -> None:
    given = options(job(accelerator="rocm"))
    assert [word for word in given if word.startswith("--device")] == ["--device=/dev/kfd", "--device=/dev/dri"]
    assert [word for word in given if word.startswith("--group-add")] == ["--group-add=993", "--group-add=44"]
    assert [word for word in given if word.startswith("--ulimit")] == [
        "--ulimit=memlock=-1",
        "--ulimit=nofile=1048576:1048576",
        "--ulimit=stack=67108864",
    ]


def test_a_cpu_run_gets_no_device_group_or_limit(job: MakeJob) -> None:
    given = options(job(), HOST._replace(infiniband=True))
    assert not [word for word in given if word.startswith(("--device", "--group-add", "--ulimit"))]


def test_infiniband_is_passed_on_where_it_is(job: MakeJob) -> None:
    assert "--device=/dev/infiniband" in options(job(accelerator="rocm"), HOST._replace(infiniband=True))
    assert "--device=/dev/infiniband" not in options(job(accelerator="rocm"), HOST)


def test_rootless_podman_keeps_the_user_and_the_groups(job: MakeJob) -> None:
    given = options(job(accelerator="rocm", engine="podman"), ROOTLESS)
    assert "--userns=keep-id" in given
    assert [word for word in given if word.startswith("--group-add")] == ["--group-add=keep-groups"]
    assert not [word for word in given if word.startswith("--user=")]


@pytest.mark.parametrize(
    ("argument", "gone"),
    [
        ("--network=none", "--network=host"),
        ("--net=none", "--network=host"),
        ("--ipc=private", "--ipc=host"),
        ("--shm-size=8g", "--ipc=host"),
        ("--user=0:0", "--user=1234:100"),
        ("--init=false", "--init"),
        ("-u=0", "--user=1234:100"),
    ],
)
def test_an_engine_argument_replaces_the_default(job: MakeJob, argument: str, gone: str) -> None:
    assert gone in options(job(accelerator="rocm"))
    given = options(job(accelerator="rocm", engine_args=(argument,)))
    assert gone not in given
    assert given[-1] == argument


@pytest.mark.parametrize(
    "argument",
    [
        "--mount=type=tmpfs,target=/x",
        "--env=A=b",
        "--device=/dev/null",
        "--group-add=1",
        "--ulimit=nproc=1",
        "--label=a",
    ],
)
def test_an_engine_argument_that_adds_up_leaves_ours(job: MakeJob, argument: str) -> None:
    before = options(job(accelerator="rocm"), environ={"NCCL_DEBUG": "WARN"})
    assert options(job(accelerator="rocm", engine_args=(argument,)), environ={"NCCL_DEBUG": "WARN"}) == [
        *before,
        argument,
    ]


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--cpus 1", "write --engine-arg=--cpus=1"),
        ("--name=x", "names its containers"),
        ("--gpus=all", "--gpus=all: is for NVIDIA's GPUs"),
        ("--runtime=nvidia", "is for NVIDIA's GPUs"),
    ],
)
def test_an_engine_argument_that_cannot_be_is_refused(job: MakeJob, argument: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        options(job(engine_args=(argument,)))


def test_the_users_own_groups_go_along(job: MakeJob) -> None:
    host = HOST._replace(own_groups=(7777, 993))
    given = options(job(accelerator="rocm"), host)
    assert [word for word in given if word.startswith("--group-add")] == [
        "--group-add=7777",
        "--group-add=993",
        "--group-add=44",
    ]
    assert "--ulimit=host" in options(job(accelerator="rocm"), HOST._replace(rootless=True))


def test_a_password_in_a_url_is_a_secret(job: MakeJob) -> None:
    environ = {"MLFLOW_TRACKING_URI": "http://user:pass@host", "WANDB_BASE_URL": "http://host"}
    assert [word for word in options(job(), environ=environ) if word.startswith("--env")] == ["--env=WANDB_BASE_URL"]


def test_a_file_to_be_written_is_mounted_by_its_directory(job: MakeJob, tmp_path: Path) -> None:
    given = options(job(), environ={"NCCL_DEBUG_FILE": f"{tmp_path}/nccl.%h.%p"})
    assert f"--mount=type=bind,source={tmp_path},target={tmp_path}" in given


def test_other_engine_arguments_are_added(job: MakeJob) -> None:
    given = options(job(engine_args=("--cpus=1", "--memory=1g")))
    assert given == [*options(job()), "--cpus=1", "--memory=1g"]


@pytest.mark.parametrize(
    "name", ["plain", "sp ace", "com,ma", 'quo"te', "sin'gle", "#hash", "$HOME", "a=b", "ümlaut", "(x)", "a\\b"]
)
def test_any_path_can_be_mounted(job: MakeJob, name: str) -> None:
    given = mounts(job(mounts=(Mount(source=Path("/src") / name, target=Path("/dst") / name, read_only=True),)))
    assert given == [
        ["type=bind", f"source={RUN}", f"target={RUN}"],
        ["type=bind", f"source=/src/{name}", f"target=/dst/{name}", "readonly"],
    ]


def test_a_quote_in_a_path_is_doubled_as_strict_csv_wants_it(job: MakeJob) -> None:
    given = options(job(mounts=(Mount(source=Path('/a"b'), target=Path("/c")),)))
    assert '--mount=type=bind,"source=/a""b",target=/c' in given


def test_a_checkout_replaces_the_package_read_only(job: MakeJob) -> None:
    assert mounts(job(dev=Path("/me/primus")))[1:] == [
        ["type=bind", "source=/me/primus", "target=/opt/primus/primus", "readonly"]
    ]


def test_a_path_in_a_variable_is_mounted_where_it_is(job: MakeJob) -> None:
    Path("tuned.csv").write_text("")
    path = Path("tuned.csv").absolute()
    environ = {"HIPBLASLT_TUNING_OVERRIDE_FILE": str(path), "HF_TOKEN": "/x", "UNRELATED": "/y", "NCCL_A": "a/b"}
    assert mounts(job(), environ)[1:] == [["type=bind", f"source={path}", f"target={path}"]]


def test_a_path_in_a_variable_that_does_not_exist_is_refused(job: MakeJob) -> None:
    for value, why in (("/nope", "does not exist"), ("/" + "x" * 5000, "cannot be looked at: File name too long")):
        with pytest.raises(ConfigError, match=f"HF_HOME=/.*: {why} here"):
            options(job(), HOST, {"HF_HOME": value})


@pytest.mark.parametrize("value", [f"{RUN}/cache", "/data/cache"])
def test_a_path_below_a_mount_needs_none(job: MakeJob, value: str) -> None:
    given = mounts(job(mounts=(Mount(source=Path("/src"), target=Path("/data")),)), {"HF_HOME": value})
    assert len(given) == 2


def test_variables_are_named_and_secrets_are_not_even_that(job: MakeJob) -> None:
    environ = {"NCCL_DEBUG": "INFO", "HF_TOKEN": "hf_x", "https_proxy": "http://u:p@h", "FOO": "1", "PATH": "/bin"}
    given = [word for word in options(job(env_names=("FOO",)), HOST, environ) if word.startswith("--env")]
    assert given == ["--env=FOO", "--env=NCCL_DEBUG"]


def test_inside_runs_the_same_experiment_directly(job: MakeJob) -> None:
    made = command(job(nodes=2, gpus_per_node=4), HOST, {}, "name")
    inside = made.argv[made.argv.index("image:1") + 1 :]
    assert inside[:3] == ("-m", "primus.launchers.lifeline", str(GRACE))
    assert inside[3:] == (
        *("primus", "run", "--launcher=direct", f"--config={RUN}/experiment.yaml", f"--run-dir={RUN}"),
        *("--nodes=2", "--gpus-per-node=4"),
    )
    assert list(made.files) == [RUN / "experiment.yaml"]


def test_the_grace_ends_before_slurms(job: MakeJob) -> None:
    assert GRACE < 30
    assert f"--stop-timeout={GRACE}" in options(job())


def test_a_name_is_valid_and_unique(job: MakeJob, experiment: Experiment) -> None:
    path = experiment()
    path.write_text(path.read_text().replace("exp_name: tiny", 'exp_name: "ex périment (1) #$"'))
    named = Job(experiment=load_experiment(path, environ={}), image="i", run_dir=RUN)
    first, second = container.container_name(named), container.container_name(named)
    assert first != second
    assert first.startswith("primus-root-ex-p-riment-1-")
    assert set(first) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")


@pytest.mark.parametrize(
    ("engine", "uid", "rootless"), [("docker", 1000, False), ("podman", 1000, True), ("podman", 0, False)]
)
def test_the_host_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: str, uid: int, rootless: bool
) -> None:
    gids = {"kfd": 993, "renderD128": 109, "renderD129": 109, "card0": 44}
    (tmp_path / "dri").mkdir()
    for name in gids:
        (tmp_path / ("" if name == "kfd" else "dri") / name).touch()
    plain = Path.stat

    def fake(path: Path, **options: Any) -> Any:
        if path.name in gids:
            return SimpleNamespace(st_gid=gids[path.name], st_mode=stat.S_IFCHR | 0o660)
        return plain(path, **options)

    monkeypatch.setattr(Path, "stat", fake)
    monkeypatch.setattr(os, "getuid", lambda: uid)
    found = Host.look(engine, tmp_path)
    assert (found.groups, found.rootless, found.infiniband) == ((109, 993), rootless, False)
    (tmp_path / "infiniband").mkdir()
    assert Host.look(engine, tmp_path).infiniband


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{here}", ("{here}", "{here}", False)),
        ("{here}:/data", ("{here}", "/data", False)),
        ("{here}:/data:ro", ("{here}", "/data", True)),
        ("{here}:/data:rw", ("{here}", "/data", False)),
        ("{here}::ro", ("{here}", "{here}", True)),
        (".:/data", ("{here}", "/data", False)),
        ("~:/home", ("{home}", "/home", False)),
    ],
)
def test_a_mount_is_parsed(text: str, expected: tuple[str, str, bool]) -> None:
    Path(os.environ["HOME"]).mkdir()
    names = {"here": str(Path.cwd()), "home": os.environ["HOME"]}
    source, target, read_only = expected
    assert Mount.parse(text.format(**names)) == Mount(
        source=Path(source.format(**names)), target=Path(target.format(**names)), read_only=read_only
    )


@pytest.mark.parametrize(
    "text",
    ["", ":", ":/x", "/nope", ".:relative", ".:/x:rx", ".:/x:ro:y", ".:/", ".://:ro", "~nosuchuser/x", "x" * 5000],
)
def test_a_wrong_mount_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Mount.parse(text)


def test_two_mounts_in_one_place_are_refused() -> None:
    run, one, two = Path("/run/dir"), Path("/one"), Path("/two")
    same = Mount(source=one, target=Path("/data"))
    assert apart((same, same, Mount(source=run, target=run)), run) == (same,)
    for other in (Mount(source=two, target=Path("/data")), replace(same, read_only=True), replace(same, target=run)):
        with pytest.raises(ConfigError, match="is in that place already"):
            apart((same, other), run)
    with pytest.raises(ConfigError, match="/one:/data is in that place already"):
        apart((same, Mount(source=two, target=Path("/data/../data/"))), run)


@pytest.mark.parametrize(
    ("environ", "config", "refused"),
    [
        ({"DOCKER_HOST": "unix:///home/me/.docker/desktop/docker.sock"}, "", True),
        ({}, '{"currentContext": "desktop-linux"}', True),
        ({}, '{"currentContext": "default"}', False),
        ({}, "", False),
    ],
    ids=["variable", "context", "default", "nothing"],
)
def test_docker_desktop_has_no_gpu(
    environ: dict[str, str], config: str, refused: bool, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is asked only where something points the client elsewhere."""
    write("bin/docker", "#!/bin/sh\necho Docker Desktop\n").chmod(0o755)
    monkeypatch.setenv("PATH", str(Path("bin").absolute()))
    write("home/config.json", config)
    environ = {**environ, "DOCKER_CONFIG": str(Path("home").absolute())}
    if not refused:
        Client("docker").check_context(environ)
        return
    with pytest.raises(LaunchError, match="talks to Docker Desktop") as caught:
        Client("docker").check_context(environ)
    assert "docker context use default" in caught.value.problems[0].hint
