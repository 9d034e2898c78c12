"""One container on this machine, which runs the direct launcher and never outlives the process that started it."""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

from primus import failure, metrics
from primus.command import Command
from primus.errors import ConfigError, LaunchError, PrimusError
from primus.experiment.paths import absent, exists
from primus.experiment.render import resolved_yaml
from primus.image import archive, manifest
from primus.image import engine as engines
from primus.image.runtimes import PROCESSES, is_archive
from primus.job import Job, Mount
from primus.launchers import apptainer, direct, docker, lock, sweep
from primus.launchers.environment import forwarded, secret
from primus.launchers.host import Host
from primus.launchers.supervise import Child, Container, supervise
from primus.launchers.view import Plain, choose
from primus.launchers.watch import Watch
from primus.record import RECORD_VARIABLE, Record, now
from primus.tune import results

PACKAGE_IN_IMAGE = Path("/opt/primus/primus")


def command(job: Job, host: Host, environ: Mapping[str, str], name: str) -> Command:
    """docker|podman run, or apptainer exec, IMAGE primus run --launcher direct --config RUN/experiment.yaml"""
    return around(inside(job), job, host, environ, name)


def inside(job: Job) -> Command:
    """The direct launcher, on the resolved experiment, which is written unless it came from there."""
    # The record's place is a variable, which an image with an older launcher leaves alone.
    record = {RECORD_VARIABLE: str(job.record)} if job.record else {}
    written = job.experiment.source.absolute() == job.config
    files = {} if written else {job.config: resolved_yaml(job.experiment)}
    return Command(argv=inner_argv(job), env=record, files=files)


def around(inner: Command, job: Job, host: Host, environ: Mapping[str, str], name: str) -> Command:
    """docker|podman run, or apptainer exec, IMAGE INNER, with the job's mounts, devices and variables."""
    mounts = (Mount(source=job.run_dir, target=job.run_dir), *mounts_of(job, environ))
    if job.engine in PROCESSES:
        return apptainer.around(inner, job, mounts, scratch=host.scratch, grace=host.grace)
    return docker.around(inner, job, mounts, host=host, environ=environ, name=name)


def inner_argv(job: Job) -> tuple[str, ...]:
    """What runs inside: the same experiment, resolved, by the direct launcher."""
    counts = [
        f"--{name}={value}" for name, value in (("nodes", job.nodes), ("gpus-per-node", job.gpus_per_node)) if value
    ]
    unknown = [f"--allow-unknown={key}" for key in job.experiment.unknown]
    return (
        *("primus", "run", "--launcher=direct"),
        f"--config={job.config}",
        f"--run-dir={job.run_dir}",
        *counts,
        *unknown,
    )


def dry_run(job: Job, environ: Mapping[str, str]) -> list[tuple[str, Command]]:
    inside = {name: environ[name] for name in forwarded(environ, job.env_names) if name in environ}
    inner = direct.command(job, direct.node(job, environ), inside)
    made = Command(argv=inner_argv(job), files={job.config: resolved_yaml(job.experiment)})
    return [*_dry(made, job, environ), ("in the container", replace(made, files={})), ("which becomes", inner)]


def dry_run_here(job: Job, environ: Mapping[str, str]) -> Command:
    """The container's command of a dry run: what this machine would start."""
    made = Command(argv=inner_argv(job), files={job.config: resolved_yaml(job.experiment)})
    return _dry(made, job, environ)[-1][1]


def dry_run_other(inner: Command, job: Job, environ: Mapping[str, str]) -> list[tuple[str, Command]]:
    return [*_dry(inner, job, environ), ("in the container", inner)]


def _dry(inner: Command, job: Job, environ: Mapping[str, str]) -> list[tuple[str, Command]]:
    """The container's command; before it, what loads an image that is a file."""
    commands = []
    looked_up = "; GPUs, groups and RDMA are looked up where it runs" if job.experiment.accelerator == "rocm" else ""
    if job.engine in PROCESSES:
        names = ", ".join(apptainer.variables(inner, environ, forwarded(environ, job.env_names)))
        looked_up = f"; on its standard input: {names}"
    elif is_archive(job.image):
        load = Command(argv=archive.load_argv(job.engine, Path(job.image)))
        commands.append((f"on this machine, unless {job.engine} has that image", load))
        job = replace(job, image="IMAGE-ID")
    outer = around(inner, job, Host.look(job.engine), environ, container_name(job))
    return [*commands, (f"on this machine ({job.engine}{looked_up})", outer)]


def launch(job: Job) -> int:
    """Check engine, image and devices, then run the container to its end. Returns the training's exit code."""
    with choose(job.output, os.environ) as view:
        try:
            code = _launch(job, view)
        except PrimusError as error:
            view.event("end", exit=error.exit_code)
            raise
        view.event("end", exit=code)
    assert job.record is not None
    if code not in (2, 3, 4) and not job.slurm_job and (why := failure.explain(Record(job.record))):
        print(why, file=sys.stderr, flush=True)  # those have said why
    return code


def _launch(job: Job, view: Plain) -> int:
    environ = dict(os.environ)
    place = direct.node(job, environ)
    _check_devices(job)
    direct.check_gpu(job, place.gfx)
    view.stage("pulling")
    found, runnable = _image(job, place.rank)
    if found is not None:
        manifest.check(
            found,
            framework=job.experiment.framework,
            accelerator=job.experiment.accelerator,
            gfx=place.gfx,
            image=job.image,
        )
    assert job.record is not None
    record = Record(job.record)
    adapter = import_module(f"primus.backends.{job.experiment.framework}.adapter")
    if found is not None:
        manifest.check_compiled(found, adapter.modules(job.experiment), job.image)
        if tuned := results.named(job.experiment.env, environ):
            results.check(tuned, image=found.id, gfx=place.gfx or results.NO_GPU)
            view.say(f"hipBLASLt uses the kernels of {tuned}")
    if job.slurm_job and job.engine not in PROCESSES:
        sweep.sweep(job.engine)
    host = Host.look(job.engine, in_slurm=bool(job.slurm_job))
    command(runnable, host, environ, "")  # what cannot be is refused before anything is written
    lock.hold(job.run_dir, place.rank)  # makes the directory, as the user, before the engine could as root
    identity = found.id if found is not None else apptainer.identity(job.image)
    attempt = replace(direct.this_attempt(place.rank, job.slurm_job, environ), image_id=identity)
    digest = next(iter(found.digests), "") if found is not None else ""
    if place.rank == 0 and not record.read("run.json"):  # nobody outside has written it
        record.start(job, launcher="container", image_id=identity, digest=digest)
    elif place.rank == 0:
        record.identified(identity, digest)
    if metrics.tells(job.experiment.framework, place):
        record.write("image.json", asdict(found) if found is not None else {"id": identity})
    record.begin(attempt)
    watch = Watch(
        metrics.reader(job.experiment, place),
        view,
        metrics=record.metrics if metrics.tells(job.experiment.framework, place) else None,
        about={"attempt": attempt.attempt},
    )
    code = LaunchError.exit_code
    view.event("start", record=str(record.path), log=str(record.log(place.rank)), image=job.image)
    view.stage("starting")
    try:
        code = _supervised(inside(job), runnable, host, environ, log=record.log(place.rank), watch=watch)
    finally:
        record.close(replace(attempt, ended=now(), exit=code))
        if not job.slurm_job:
            record.write("end.json", {"ended": now(), "exit": code, "attempt": 0})
    return code


def run(inner: Command, job: Job) -> int:
    """Run something else than the training in the job's image, whatever it is for. Returns its exit code."""
    found, runnable = _image(job)
    if found is not None:
        framework = job.experiment.framework
        manifest.check(found, framework=framework, accelerator=found.accelerator, gfx="", image=job.image)
    return _supervised(inner, runnable, Host.look(job.engine), dict(os.environ))


def identified(job: Job) -> tuple[str, Job]:
    """The image's ID, where an engine says one, and the job with the image fetched."""
    found, runnable = _image(job)
    return (found.id if found is not None else apptainer.identity(job.image)), runnable


# Seconds between two nodes of a job that ask a registry for the same image, and the most that one waits: registries
# count requests, and many nodes that come at once are refused.
_APART, _LONGEST = 0.25, 60.0


def _image(job: Job, rank: int = 0) -> tuple[manifest.Manifest | None, Job]:
    """What the image says about itself, and the job with the image as the engine knows it.

    None where only a process inside can read that: the direct launcher does.
    """
    if job.engine in PROCESSES:
        apptainer.check(job.engine, job.image)
        return None, job
    client = engines.Client(job.engine)
    client.check()
    if job.experiment.accelerator == "rocm":
        client.check_context(os.environ)
    if job.engine == "podman" and os.getuid() != 0 and job.experiment.accelerator == "rocm":
        client.check_groups()
    if is_archive(job.image):
        file = Path(job.image)
        identity = archive.identifier(file, job.experiment.framework, os.environ)
        archive.load(job.engine, file, identity)
        job = replace(job, image=identity, pull="never")
    found = client.ensure(job.image, pull=job.pull, expected=job.image_id, after=min(rank * _APART, _LONGEST))
    return found, replace(job, image=found.name)


def _supervised(
    inner: Command,
    job: Job,
    host: Host,
    environ: Mapping[str, str],
    *,
    log: Path | None = None,
    watch: Watch | None = None,
) -> int:
    passed = forwarded(environ, job.env_names)
    name = container_name(job)
    view = watch.view if watch else Plain()
    view.say(f"{job.experiment.framework} in {job.image}, results in {job.run_dir}")
    if job.engine in PROCESSES:
        apptainer.raise_limits()
        said = apptainer.variables(inner, environ, passed)
        with apptainer.scratch() as scratch:
            made = around(inner, job, host._replace(scratch=scratch), environ, name)
            return supervise(made, Child(name), secrets=said, grace=host.grace, log=log, watch=watch)
    secrets = {name: environ[name] for name in passed if name in environ and secret(name, environ[name])}
    if host.selinux:
        view.say("SELinux enforces here: the container runs without its label")
    made = around(inner, job, host, environ, name)
    return supervise(made, Container(job.engine, name), secrets=secrets, grace=host.grace, log=log, watch=watch)


def container_name(job: Job) -> str:
    """Unique on the machine, and telling: two users, or one user twice, run the same experiment at once."""
    words = re.sub(r"[^a-zA-Z0-9_.-]+", "-", f"{job.experiment.user_name}-{job.experiment.exp_name}").strip("-.")
    return f"primus-{words}-{uuid.uuid4().hex[:8]}"


def mounts_of(job: Job, environ: Mapping[str, str]) -> tuple[Mount, ...]:
    mounts = list(job.mounts)
    if not job.config.is_relative_to(job.run_dir):
        mounts.append(Mount(source=job.config.parent, target=job.config.parent))
    if job.dev is not None:
        mounts.append(Mount(source=job.dev, target=PACKAGE_IN_IMAGE, read_only=True))
    for name in forwarded(environ, job.env_names):
        path = path_in(name, environ.get(name, ""))
        if path is None:
            continue
        if any(path.is_relative_to(mount.target) for mount in (*mounts, Mount(source=job.run_dir, target=job.run_dir))):
            continue
        if not exists(path):
            raise ConfigError(
                f"{name}={path}: {absent(path)} here, so that the container cannot have it",
                hint=f"create it, put it below the run directory {job.run_dir}, or unset {name}",
            )
        mounts.append(Mount(source=path, target=path))
    return tuple(mounts)


def path_in(name: str, value: str) -> Path | None:
    """What must be mounted for the variable's value to mean the same in a container; None if it is no path."""
    if not value.startswith("/") or secret(name, value) or ":" in value:
        return None
    path = Path(value)
    if not exists(path) and path.parent != Path("/") and exists(path.parent):
        return path.parent  # a file to be written there, perhaps with %h in its name
    return path


def _check_devices(job: Job) -> None:
    if job.experiment.accelerator != "rocm":
        return
    missing = [str(device) for device in docker.DEVICES if not device.exists()]
    if missing:
        raise LaunchError(
            f"this machine has no {' and no '.join(missing)}: it shows no AMD GPU",
            hint="install the amdgpu driver, or pass --accelerator cpu for an experiment that can run on the CPU",
        )
    if job.engine != "docker" and os.getuid() != 0 and not os.access("/dev/kfd", os.R_OK | os.W_OK):
        group = Path("/dev/kfd").stat().st_gid
        raise LaunchError(
            f"no permission on /dev/kfd (group {group})", hint=f"join the group: sudo usermod -aG {group} $USER"
        )
