"""What each runtime is told: the image's name, mounts, variables, devices. Pure, and on no machine that has one."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shlex
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from primus.command import Command
from primus.errors import ConfigError, ImageError, LaunchError, Problem
from primus.experiment import load_experiment
from primus.image import archive, manifest
from primus.image.engine import Client
from primus.image.runtimes import spelled
from primus.job import Job, Mount
from primus.launchers import apptainer, container, direct, pyxis, task
from primus.launchers.container import command
from primus.launchers.host import Host

from .conftest import Experiment, Primus, Write

HOST = Host(uid=1234, gid=100, own_groups=(), groups=(993,), infiniband=True, rootless=False)
ROOTLESS = HOST._replace(rootless=True)
RUN = Path("/run dir")
DIGEST = "@sha256:" + "ab" * 32
MakeJob = Callable[..., Job]


@pytest.fixture
def job(experiment: Experiment) -> MakeJob:
    def call(*, accelerator: str = "cpu", **fields: Any) -> Job:
        found = load_experiment(experiment(), environ={}, accelerator=accelerator)
        return Job(**{"experiment": found, "image": "reg.local:5000/team/img:1", "run_dir": RUN, **fields})

    return call


@pytest.mark.parametrize(
    ("image", "engine", "expected"),
    [
        (f"reg.local:5000/team/img:v1{DIGEST}", "docker", f"reg.local:5000/team/img:v1{DIGEST}"),
        (f"reg.local:5000/team/img:v1{DIGEST}", "podman", f"reg.local:5000/team/img:v1{DIGEST}"),
        (f"reg.local:5000/team/img:v1{DIGEST}", "pyxis", f"reg.local:5000#team/img:v1{DIGEST}"),
        (f"reg.local:5000/team/img:v1{DIGEST}", "apptainer", f"docker://reg.local:5000/team/img{DIGEST}"),
        ("reg.local:5000/team/img:v1", "pyxis", "reg.local:5000#team/img:v1"),
        ("reg.local/team/sub/img:v1", "pyxis", "reg.local#team/sub/img:v1"),
        ("localhost/img", "pyxis", "localhost#img"),
        ("docker.io/team/img:v1", "pyxis", "team/img:v1"),
        ("user@reg.local#team/img:v1", "pyxis", "user@reg.local#team/img:v1"),
        ("dockerd://img:v1", "pyxis", "dockerd://img:v1"),
        ("/shared/img.sqsh", "pyxis", "/shared/img.sqsh"),
        ("reg.local:5000/team/img:v1", "singularity", "docker://reg.local:5000/team/img:v1"),
        ("oras://reg.local/team/img:v1", "apptainer", "oras://reg.local/team/img:v1"),
        ("/shared/img.sif", "apptainer", "/shared/img.sif"),
        ("/shared/img", "apptainer", "/shared/img"),
        ("/shared/img.tar.zst", "docker", "/shared/img.tar.zst"),
    ],
)
def test_an_image_is_spelled_as_the_runtime_wants_it(image: str, engine: str, expected: str) -> None:
    assert spelled(image, engine) == expected


@pytest.mark.parametrize(
    ("image", "engine", "said"),
    [
        ("primus-maxtext:0.1.0-rocm", "pyxis", "enroot would ask Docker Hub"),
        ("team/img:1", "apptainer", "apptainer would ask Docker Hub"),
        ("/shared/img.sif", "pyxis", "enroot import --output"),
        ("/shared/img.tar", "apptainer", "apptainer build img.sif docker-archive:/shared/img.tar"),
        ("/shared/img.tar.zst", "singularity", "not compressed: singularity build img.sif"),
        ("/shared/img.sqsh", "apptainer", "runs a .sif file"),
        ("/shared/img.sif", "docker", "a .sif is apptainer's"),
        ("/shared/img.sqsh", "podman", "a .sqsh is pyxis'"),
        ("reg.local/IMG name", "pyxis", "is no name of an image"),
    ],
)
def test_an_image_that_a_runtime_cannot_run_is_refused(image: str, engine: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        spelled(image, engine)


def test_apptainer_is_told_everything(job: MakeJob) -> None:
    made = command(
        job(engine="apptainer", image="/shared/a.sif", accelerator="rocm"), HOST, {"NCCL_DEBUG": "INFO"}, "n"
    )
    image = made.argv.index("/shared/a.sif")
    assert made.argv[:image] == (
        *("apptainer", "exec", "--cleanenv", "--no-eval", "--no-home", "--no-mount=home,cwd,tmp", "--writable-tmpfs"),
        *("--pid", "--pwd=/run dir", "--mount=type=bind,source=SCRATCH,destination=/tmp"),
        "--mount=type=bind,source=/run dir,destination=/run dir",
    )
    assert made.argv[image + 1 : image + 8] == (
        *("python", "-m", "primus.launchers.lifeline", "20", "primus", "run", "--launcher=direct"),
    )
    assert made.env == {}


@pytest.mark.parametrize("name", ["com,ma", 'quo"te', "col:on", "sp ace", "ümlaut"])
def test_apptainer_mounts_any_path(job: MakeJob, name: str) -> None:
    mount = Mount(source=Path("/src") / name, target=Path("/dst") / name, read_only=True)
    argv = command(job(engine="apptainer", image="/a.sif", mounts=(mount,)), HOST, {}, "n").argv
    quoted = {
        "com,ma": 'type=bind,"source=/src/com,ma","destination=/dst/com,ma",ro',
        'quo"te': 'type=bind,"source=/src/quo""te","destination=/dst/quo""te",ro',
    }.get(name, f"type=bind,source=/src/{name},destination=/dst/{name},ro")
    assert f"--mount={quoted}" in argv


@pytest.mark.parametrize(
    ("argument", "gone"),
    [
        ("--no-pid", "--pid"),
        ("--home=/x", "--no-home"),
        ("--writable", "--writable-tmpfs"),
        ("--cwd=/x", "--pwd=/run dir"),
    ],
)
def test_an_engine_argument_replaces_apptainers_default(job: MakeJob, argument: str, gone: str) -> None:
    before = command(job(engine="apptainer", image="/a.sif"), HOST, {}, "n").argv
    after = command(job(engine="apptainer", image="/a.sif", engine_args=(argument,)), HOST, {}, "n").argv
    assert gone in before
    assert gone not in after
    assert argument in after


def test_apptainers_variables_are_dockers_and_a_home() -> None:
    inner = Command(argv=("x",), env={"A": "1"})
    environ = {"NCCL_DEBUG": "INFO", "HF_TOKEN": "hf_x", "OTHER": "1"}
    assert apptainer.variables(inner, environ, ("HF_TOKEN", "NCCL_DEBUG", "UNSET")) == {
        **{"HOME": "/tmp/primus-home", "HF_TOKEN": "hf_x", "NCCL_DEBUG": "INFO", "A": "1"},
    }


def test_a_sif_tells_its_number(tmp_path: Path) -> None:
    sif, other = tmp_path / "a.sif", tmp_path / "b.sif"
    sif.write_bytes(
        b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0") + b"SIF_MAGIC\0" + b"01\0" + b"02\0" + b"\7" * 16
    )
    other.write_bytes(b"x" * 100)
    assert apptainer.identity(str(sif)) == "sif:" + "07" * 16
    assert apptainer.identity(str(other)) == ""
    assert apptainer.identity("docker://reg.local/a:1") == ""


def test_the_scratch_of_a_killed_launch_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    base = tmp_path / f"primus-{os.getuid()}"
    for name in ("999999999", "1"):  # nobody's, and init's
        (base / name / "x").mkdir(parents=True)
    with apptainer.scratch() as mine:
        assert (mine / "primus-home").is_dir()
        assert {path.name for path in base.iterdir()} == {"1", str(os.getpid())}
    assert {path.name for path in base.iterdir()} == {"1"}


def test_pyxis_is_told_everything(job: MakeJob) -> None:
    mount = Mount(source=Path("/data"), target=Path("/data"), read_only=True)
    environ = {"NCCL_DEBUG": "INFO", "HF_TOKEN": "hf_x", "ENROOT_CACHE_PATH": "/c", "OTHER": "1", "NODE_RANK": "3"}
    given = pyxis.options(job(engine="pyxis", mounts=(mount,), env_names=("FOO",), record=RUN / "id"), environ)
    assert given == (
        "--export=HOME,USER,LOGNAME,PATH,LANG,XDG_RUNTIME_DIR,ENROOT_CACHE_PATH,FOO,HF_TOKEN,NCCL_DEBUG",
        "--container-image=reg.local:5000#team/img:1",
        "--container-mounts=/run dir:/run dir,/data:/data:ro",
        "--container-workdir=/run dir",
        "--container-env=FOO,HF_TOKEN,NCCL_DEBUG",
        "--no-container-entrypoint",
        "--no-container-mount-home",
    )


@pytest.mark.parametrize("name", ["com,ma", "col:on"])
def test_pyxis_cannot_mount_every_path(job: MakeJob, name: str) -> None:
    with pytest.raises(ConfigError, match=r"pyxis cannot mount a path with '[,:]' in it"):
        pyxis.options(job(engine="pyxis", run_dir=Path("/a") / name), {})


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--container-name=primus", "one job's alone"),
        ("--container-image=x", "is set by the launcher"),
        ("--no-container-entrypoint", "is set by the launcher"),
        ("-n2", "is no option of srun's"),
    ],
)
def test_an_argument_that_pyxis_cannot_have_is_refused(job: MakeJob, argument: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        pyxis.options(job(engine="pyxis", engine_args=(argument,)), {})


def test_an_argument_for_srun_goes_to_srun(job: MakeJob) -> None:
    assert pyxis.options(job(engine="pyxis", engine_args=("--container-writable",)), {})[-1] == "--container-writable"


def test_the_script_of_a_job_with_pyxis_is_quoted(primus: Primus, experiment: Experiment) -> None:
    words = ("--launcher=slurm", "--engine=pyxis", "--nodes=2", "--image=reg.local:5000/team/img:v1", "--dry-run")
    done = primus("run", "--config", experiment(), *words)
    assert done.code == 0, done.err
    (line,) = [line for line in done.out.splitlines() if line.startswith("srun ")]
    said = shlex.split(line.removesuffix("\\"))
    assert "--container-image=reg.local:5000#team/img:v1" in said  # a # outside of quotes would end the line
    inner = done.out[done.out.index(line) + len(line) :].strip().splitlines()[0]
    assert inner.startswith("primus run --launcher=direct --slurm-task --in-image --gpus-per-node=1 ")
    assert "# in the container on the first node, which becomes" in done.out
    assert "torch.distributed.run" in done.out
    assert "docker" not in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--engine=pyxis",), "hint: add --launcher slurm"),
        (("--engine=pyxis", "--launcher=slurm"), "names no registry"),
        (("--engine=apptainer",), "names no registry"),
        (("--image=./none.tar",), "none.tar does not exist here"),
        (("--image=none.sqsh", "--engine=pyxis", "--launcher=slurm"), "none.sqsh does not exist here"),
        (("--image=./x.sif",), "docker takes a name, or an archive"),
        (("--engine=enroot",), "'enroot' is not one of"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(
    primus: Primus, experiment: Experiment, words: tuple[str, ...], said: str
) -> None:
    done = primus("run", "--config", experiment(), *words)
    assert done.code == 2
    assert said in done.err


def test_a_dry_run_says_what_would_be_loaded(primus: Primus, experiment: Experiment) -> None:
    done = primus("run", "--config", experiment(), "--image=shared/a b.tar.zst", "--dry-run")
    assert done.code == 0
    assert "b.tar.zst does not exist here" in done.err
    assert f"docker load '--input={Path.cwd()}/shared/a b.tar.zst'" in done.out
    assert " IMAGE-ID -m primus.launchers.lifeline" in done.out


def test_a_dry_run_of_apptainer_names_the_variables(
    primus: Primus, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret123")
    done = primus("run", "--config", experiment(), "--engine=apptainer", "--image=docker://reg.local/a:1", "--dry-run")
    assert done.code == 0, done.err
    assert "on its standard input: HOME, HF_TOKEN" in done.out
    assert "hf_secret123" not in done.out + done.err


def _tar(path: Path, *images: tuple[str, str], compress: bool = False) -> Path:
    document = [{"Config": f"blobs/sha256/{name}", "RepoTags": [tag], "Layers": []} for name, tag in images]
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in (("blobs/sha256/x", b"0" * 100_000), ("manifest.json", json.dumps(document).encode())):
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    path.write_bytes(gzip.compress(stream.getvalue()) if compress else stream.getvalue())
    return path


def test_an_archive_tells_the_id_of_its_image(tmp_path: Path) -> None:
    one = _tar(tmp_path / "one.tar", ("aa", "anything:1"))
    assert archive.identifier(one, "maxtext", {}) == "sha256:aa"
    many = _tar(tmp_path / "many.tar", ("aa", "reg/primus-maxtext:1-rocm"), ("bb", "primus-megatron:1-rocm"))
    assert archive.identifier(many, "megatron", {}) == "sha256:bb"
    with pytest.raises(ImageError, match="holds 2 images, and 0 of them are for specforge"):
        archive.identifier(many, "specforge", {})


def test_podmans_archives_name_the_configuration_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "podman.tar"
    with tarfile.open(file, "w") as tar:
        content = json.dumps([{"Config": "cc.json", "RepoTags": None}]).encode()
        about = tarfile.TarInfo("manifest.json")
        about.size = len(content)
        tar.addfile(about, io.BytesIO(content))
    assert archive.identifier(file, "maxtext", {}) == "sha256:cc"


def test_an_archive_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _tar(tmp_path / "one.tar.gz", ("aa", "a:1"), compress=True)
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert archive.identifier(file, "maxtext", environ) == "sha256:aa"
    with monkeypatch.context() as patched:
        patched.setattr(archive, "_images", lambda _: pytest.fail("it is read again"))
        assert archive.identifier(file, "maxtext", environ) == "sha256:aa"
    file.write_bytes(b"another file, by its size and time")
    with pytest.raises(ImageError, match="cannot be read as an archive"):
        archive.identifier(file, "maxtext", environ)


def test_an_engine_without_room_is_said_before_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    engine = write("bin/docker", f"#!/bin/sh\n[ $1 = info ] && echo {tmp_path} || exit 1\n")
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{engine.parent.absolute()}:/usr/bin:/bin")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1e9))
    file = tmp_path / "image.tar.zst"
    with file.open("wb") as stream:
        stream.truncate(800_000_000)
    with pytest.raises(ImageError, match=rf"{tmp_path} has 1 GB free, and .* needs about 2 GB there"):
        archive.load("docker", file, "sha256:" + "a" * 64)


# A GPU that the experiment is not tuned for.


@pytest.mark.parametrize(
    ("folder", "gfx", "fits"),
    [
        ("MI355X", "gfx942", False),
        ("MI300X", "gfx950", False),
        ("MI325X", "gfx942", True),
        ("MI300X", "gfx942", True),
        ("MI355X", "", True),
        ("CPU", "gfx942", True),
        ("mine", "gfx942", True),
    ],
)
def test_an_example_of_another_gpu_is_refused(
    experiment: Experiment, write: Write, folder: str, gfx: str, fits: bool
) -> None:
    path = write(f"{folder}/exp.yaml", experiment().read_text())
    job = Job(experiment=load_experiment(path, environ={}), image="i", run_dir=RUN)
    if fits:
        direct.check_gpu(job, gfx)
        return
    with pytest.raises(ConfigError, match=rf"is tuned for {folder} .* GPUs are {gfx}"):
        direct.check_gpu(job, gfx)
    direct.check_gpu(Job(experiment=job.experiment, image="i", run_dir=RUN, any_gpu=True), gfx)


def test_a_node_knows_where_the_experiment_came_from(experiment: Experiment, write: Write) -> None:
    record = Path.cwd() / "runs" / "20261130-203300-1a2b"
    write(f"{record}/run.json", json.dumps({"config": "/x/MI355X/exp.yaml"}))
    job = Job(
        experiment=load_experiment(experiment(), environ={}), image="i", run_dir=RUN, record=record, slurm_job="1"
    )
    with pytest.raises(ConfigError, match=r"/x/MI355X/exp\.yaml is tuned for MI355X"):
        direct.check_gpu(job, "gfx942")


# What only shows where it runs.


def test_selinux_is_switched_off_for_the_container_and_no_label_is_written(job: MakeJob, tmp_path: Path) -> None:
    enforce = tmp_path / "enforce"
    for content, on in (("1", True), ("0", False), ("1\n", True)):
        enforce.write_text(content)
        assert Host.look("docker", enforce=enforce).selinux is on
    assert not Host.look("docker", enforce=tmp_path / "none").selinux
    mount = Mount(source=Path("/home/me"), target=Path("/home/me"))
    argv = command(job(mounts=(mount,)), HOST._replace(selinux=True), {}, "n").argv
    assert "--security-opt=label=disable" in argv
    assert not [word for word in argv if re.search(r"[:,][zZ]\b|relabel", word)]


def test_rootless_podman_takes_a_cdi_specification(
    job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    assert not Host.look("podman", cdi=(tmp_path,)).cdi
    (tmp_path / "amd.json").write_text('{"cdiVersion": "0.6.0", "kind": "amd.com/gpu"}')
    assert Host.look("podman", cdi=(tmp_path,)).cdi
    assert not Host.look("docker", cdi=(tmp_path,)).cdi
    argv = command(
        job(accelerator="rocm", engine="podman"), ROOTLESS._replace(cdi=True, infiniband=False), {}, "n"
    ).argv
    assert [word for word in argv if word.startswith("--device")] == ["--device=amd.com/gpu=all"]


def test_a_process_that_should_be_in_an_image_is(job: MakeJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    meant = job(in_image=True)
    place = direct.node(meant, {})
    monkeypatch.setattr(manifest, "inside", lambda: None)
    with pytest.raises(ImageError, match="is in no Primus image"):
        direct._check_image(meant, place)
    direct._check_image(job(), place)
    monkeypatch.setattr(manifest, "inside", lambda: manifest.Manifest(framework="maxtext", accelerator="cpu"))
    with pytest.raises(ImageError, match="this image is for maxtext"):
        direct._check_image(meant, place)


def test_slurms_variables_of_a_shell_on_a_node_are_no_task() -> None:
    """As pam_slurm_adopt leaves them in an ssh session: the job's number alone."""
    with pytest.raises(LaunchError, match=re.escape("SLURM_STEP_ID, SLURM_STEP_NUM_NODES")):
        task.place({"SLURM_JOB_ID": "1"})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("NCCL_DEBUG", "INFO", "forwarded: is on the list, by its prefix NCCL_"),
        ("TZ", "UTC", "forwarded: is on the list"),
        (
            "HIPBLASLT_TUNING_OVERRIDE_FILE",
            "{here}/t.csv",
            "forwarded: is on the list, by its prefix HIP; {here} is mounted",
        ),
        ("HIPBLASLT_TUNING_OVERRIDE_FILE", "/nope/t.csv", "refused: /nope/t.csv does not exist here"),
        ("HF_TOKEN", "hf_secret123", "forwarded as a secret, on the container's standard input"),
        ("FOO", "1", "not forwarded: is not on the list (docs/running.md); --env FOO passes it on"),
        ("XLA_FLAGS", None, "not forwarded: is not set here"),
        ("JAX_PLATFORMS", "", "not forwarded: is empty"),
        ("PRIMUS_IMAGE", "x", "not forwarded: is a setting of the launcher's"),
        ("ROCM_PATH", "/opt/rocm", "not forwarded: means something on this machine alone"),
    ],
)
def test_a_variable_is_explained(primus: Primus, name: str, value: str | None, said: str) -> None:
    here = str(Path.cwd())
    if value is not None:
        os.environ[name] = value.format(here=here)
    done = primus("config", "env", name)
    assert done.code == 0, done.err
    assert done.out.startswith(f"{name}  {said.format(here=here)}")
    assert "hf_secret123" not in done.out


def test_all_that_is_forwarded_is_listed(primus: Primus) -> None:
    os.environ.update(NCCL_DEBUG="INFO", FOO="1", HSA_X="1")
    lines = primus("config", "env").out.splitlines()
    assert [line.split()[0] for line in lines] == ["HSA_X", "NCCL_DEBUG"]
    assert primus("config", "env", "A=b").code == 2


@pytest.mark.parametrize(("runtime", "fits"), [("crun", True), ("runc", False)])
def test_rootless_podman_needs_a_runtime_that_keeps_groups(
    write: Write, monkeypatch: pytest.MonkeyPatch, runtime: str, fits: bool
) -> None:
    engine = write("bin/podman", f"#!/bin/sh\necho {runtime}\n")
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{engine.parent.absolute()}:/usr/bin:/bin")
    if fits:
        Client("podman").check_groups()
    else:
        with pytest.raises(LaunchError, match="cannot keep your groups"):
            Client("podman").check_groups()


def test_a_pull_that_fails_for_want_of_room_says_so(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = write("bin/docker", f"#!/bin/sh\n[ $1 = info ] && echo {tmp_path} || exit 1\n")
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{engine.parent.absolute()}:/usr/bin:/bin")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 << 30))
    monkeypatch.setattr(Client, "_why_not", lambda *_: None)  # asks the registry
    with pytest.raises(ImageError, match=rf"{tmp_path} has only 3 GiB free; make room there, or build it"):
        Client("docker").ensure("reg.local/primus-maxtext:1-rocm", pull="missing")
    monkeypatch.setattr(Client, "_why_not", lambda *_: Problem(message="no such tag", hint="there is 2-rocm"))
    with pytest.raises(ImageError, match="cannot be pulled: no such tag") as error:
        Client("docker").ensure("reg.local/primus-maxtext:1-rocm", pull="missing")
    assert "GiB free" not in str(error.value)


@pytest.mark.parametrize(("rank", "after"), [(0, 0), (3, 0.75), (1000, 60)])
def test_the_nodes_of_a_job_do_not_ask_the_registry_at_once(
    write: Write, experiment: Experiment, monkeypatch: pytest.MonkeyPatch, rank: int, after: float
) -> None:
    engine = write("bin/docker", "#!/bin/sh\n[ $1 = version ]\n")  # it answers, and has no image
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{engine.parent.absolute()}:/usr/bin:/bin")
    monkeypatch.setattr(Client, "_why_not", lambda *_: None)  # asks the registry
    slept: list[float] = []
    monkeypatch.setattr("primus.image.engine.time", SimpleNamespace(sleep=slept.append))
    job = Job(experiment=load_experiment(experiment()), image="reg.local/x:1-cpu", run_dir=Path("/r"), engine="docker")
    with pytest.raises(ImageError, match="cannot be pulled"):
        container._image(job, rank)
    with pytest.raises(ImageError, match="nothing is pulled"):
        container._image(replace(job, pull="never"), rank)
    assert slept == [after]
