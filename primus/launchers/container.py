"""One container on this machine, which runs the direct launcher and never outlives the process that started it."""

from __future__ import annotations

import os
import re
import stat
import sys
import uuid
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from primus.command import Command
from primus.errors import ConfigError, LaunchError
from primus.experiment.paths import exists
from primus.experiment.render import resolved_yaml
from primus.image import engine as engines
from primus.image import manifest
from primus.job import Job, Mount
from primus.launchers import direct, lock, sweep, task
from primus.launchers.environment import forwarded, secret
from primus.launchers.supervise import supervise
from primus.node import render_nodes
from primus.record import Attempt, Record, now

# Seconds between TERM and KILL; less than Slurm's default KillWait of 30, so that the container ends before its job.
GRACE = 20
PACKAGE_IN_IMAGE = Path("/opt/primus/primus")
_KFD, _DRI = Path("/dev/kfd"), Path("/dev/dri")


class Host(NamedTuple):
    """What the container needs to know of this machine; looked up here, on the node that has it."""

    uid: int
    gid: int
    own_groups: tuple[int, ...]  # the user's besides gid: project directories belong to them
    groups: tuple[int, ...]  # of /dev/kfd and the render nodes, as numbers: names differ between host and image
    infiniband: bool
    rootless: bool  # podman without root: users and groups are mapped
    devices: tuple[Path, ...] = (Path("/dev/dri"),)  # the GPUs
    grace: int = GRACE

    @classmethod
    def look(cls, engine: str, devices: Path = Path("/dev"), *, in_slurm: bool = False) -> Host:
        nodes = (devices / "kfd", *(devices / "dri").glob("render*"))
        own = render_nodes() if in_slurm else ()
        wait = task.kill_wait() if in_slurm else None
        groups = {node.stat().st_gid for node in nodes if node.exists() and stat.S_ISCHR(node.stat().st_mode)}
        return cls(
            uid=os.getuid(),
            gid=os.getgid(),
            own_groups=tuple(sorted({*os.getgroups()} - {os.getgid()})),
            groups=tuple(sorted(groups)),
            infiniband=(devices / "infiniband").is_dir(),
            rootless=engine == "podman" and os.getuid() != 0,
            devices=tuple(devices / "dri" / name for name in own) or (devices / "dri",),
            grace=GRACE if wait is None else max(1, min(GRACE, wait - 5)),
        )


def command(job: Job, host: Host, environ: Mapping[str, str], name: str) -> Command:
    """docker|podman run IMAGE primus run --launcher direct --config RUN/experiment.yaml"""
    inner = Command(argv=inner_argv(job), files={job.config: resolved_yaml(job.experiment)})
    return around(inner, job, host, environ, name)


def around(inner: Command, job: Job, host: Host, environ: Mapping[str, str], name: str) -> Command:
    """docker|podman run IMAGE INNER, with the job's mounts, devices and variables."""
    options: list[tuple[str, ...]] = [
        ("--rm",),
        ("--interactive",),  # the lifeline is the container's standard input
        ("--init",),
        (f"--name={name}",),
        (f"--label=io.primus.run={job.run_dir}",),
        *(
            [(f"--label=io.primus.job={job.slurm_job}",), (f"--label=io.primus.uid={host.uid}",)]
            if job.slurm_job
            else []
        ),
        (f"--stop-timeout={host.grace}",),
        ("--pull=never",),  # fetched before, by us, with progress and an error of its own
        ("--network=host",),
        ("--ipc=host",),  # /dev/shm of the host: the default 64 MB is too small for RCCL and data loaders
        *_user(host),
        (f"--workdir={job.run_dir}",),
        *_accelerator(job, host),
        *(
            (f"--mount={_bind(mount)}",)
            for mount in (Mount(source=job.run_dir, target=job.run_dir), *_mounts(job, environ))
        ),
        *(
            (f"--env={variable}",)
            for variable in forwarded(environ, job.env_names)
            if not secret(variable, environ.get(variable, ""))
        ),
        *((f"--env={variable}={value}",) for variable, value in inner.env.items()),
        ("--entrypoint=python",),
    ]
    given = _given(job.engine_args)
    defaults = [option for option in options if option[0].split("=", 1)[0] not in given]
    return Command(
        argv=(
            *(job.engine, "run"),
            *(word for option in defaults for word in option),
            *job.engine_args,
            job.image,
            *("-m", "primus.launchers.lifeline", str(host.grace)),
            *inner.argv,
        ),
        files=inner.files,
    )


# Options that add up: one more leaves ours alone.
_REPEATABLE = {"--mount", "--env", "--device", "--group-add", "--ulimit", "--label"}
_SAME = {
    "--net": "--network",
    "-u": "--user",
    "-w": "--workdir",
    "--shm-size": "--ipc",
}  # podman refuses shm-size with ipc


def _given(arguments: tuple[str, ...]) -> set[str]:
    """Names of our options that --engine-arg replaces. Raises ConfigError for an argument that cannot be one."""
    for argument in arguments:
        if re.match(r"-[^\s=]* ", argument) or not argument:
            raise ConfigError(
                f"--engine-arg={argument!r} is not one argument",
                hint=f"write --engine-arg={argument.replace(' ', '=', 1)}",
            )
        if argument.split("=", 1)[0] == "--name":
            raise ConfigError("--engine-arg=--name: the launcher names its containers, to find them again")
    names = {argument.split("=", 1)[0] for argument in arguments}
    return {_SAME.get(name, name) for name in names} - _REPEATABLE


def inner_argv(job: Job) -> tuple[str, ...]:
    """What runs inside: the same experiment, resolved, by the direct launcher."""
    counts = [
        f"--{name}={value}" for name, value in (("nodes", job.nodes), ("gpus-per-node", job.gpus_per_node)) if value
    ]
    unknown = [f"--allow-unknown={key}" for key in job.experiment.unknown]
    return (
        *("primus", "run", "--launcher=direct"),
        f"--config={job.config}",
        *([f"--record={job.record}"] if job.record else []),
        f"--run-dir={job.run_dir}",
        *counts,
        *unknown,
    )


def dry_run(job: Job, environ: Mapping[str, str]) -> list[tuple[str, Command]]:
    inside = {name: environ[name] for name in forwarded(environ, job.env_names) if name in environ}
    inner = direct.command(job, direct.node(job, environ), inside)
    looked_up = "; GPUs, groups and RDMA are looked up where it runs" if job.experiment.accelerator == "rocm" else ""
    outer = command(job, Host.look(job.engine), environ, container_name(job))
    return [
        (f"on this machine ({job.engine}{looked_up})", outer),
        ("in the container", Command(argv=inner_argv(job))),
        ("which becomes", inner),
    ]


def launch(job: Job) -> int:
    """Check engine, image and devices, then run the container to its end. Returns the training's exit code."""
    environ = dict(os.environ)
    place = direct.node(job, environ)
    _check_devices(job)
    found = _image(job)
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
    manifest.check_compiled(found, adapter.modules(job.experiment), job.image)
    name = container_name(job)
    if job.slurm_job:
        sweep.sweep(job.engine)
    host = Host.look(job.engine, in_slurm=bool(job.slurm_job))
    made = command(replace(job, image=found.name), host, environ, name)
    if job.experiment.source.absolute() == job.config:  # written where the run was submitted
        made = replace(made, files={})
    lock.hold(job.run_dir, place.rank)  # makes the directory, as the user, before the engine could as root
    attempt = replace(this_attempt(place.rank, job.slurm_job, environ), image_id=found.id)
    if place.rank == 0 and not record.read("run.json"):  # nobody outside has written it
        record.start(job, launcher="container", image_id=found.id, digest=next(iter(found.digests), ""))
    record.begin(attempt)
    code = LaunchError.exit_code
    try:
        code = _supervised(made, job, name, environ, grace=host.grace, log=record.log(place.rank))
    finally:
        record.close(replace(attempt, ended=now(), exit=code))
        if not job.slurm_job:
            record.write("end.json", {"ended": now(), "exit": code, "attempt": 0})
    return code


def this_attempt(rank: int, slurm_job: str, environ: Mapping[str, str]) -> Attempt:
    restarts = int(environ.get("SLURM_RESTART_COUNT") or 0) if slurm_job else 0
    return Attempt(rank=rank, host=os.uname().nodename, started=now(), attempt=restarts, job=slurm_job)


def dry_run_other(inner: Command, job: Job, environ: Mapping[str, str]) -> list[tuple[str, Command]]:
    outer = around(inner, job, Host.look(job.engine), environ, container_name(job))
    return [(f"on this machine ({job.engine})", outer), ("in the container", inner)]


def run(inner: Command, job: Job) -> int:
    """Run something else than the training in the job's image, whatever it is for. Returns its exit code."""
    environ = dict(os.environ)
    found = _image(job)
    manifest.check(found, framework=job.experiment.framework, accelerator=found.accelerator, gfx="", image=job.image)
    name = container_name(job)
    return _supervised(around(inner, job, Host.look(job.engine), environ, name), job, name, environ, grace=GRACE)


def _image(job: Job) -> manifest.Manifest:
    client = engines.Client(job.engine)
    client.check()
    return client.ensure(job.image, pull=job.pull, expected=job.image_id)


def _supervised(
    made: Command, job: Job, name: str, environ: Mapping[str, str], *, grace: int, log: Path | None = None
) -> int:
    passed = forwarded(environ, job.env_names)
    secrets = {name: environ[name] for name in passed if name in environ and secret(name, environ[name])}
    print(f"primus: {job.experiment.framework} in {job.image}, results in {job.run_dir}", file=sys.stderr, flush=True)
    return supervise(made, engine=job.engine, name=name, secrets=secrets, grace=grace, log=log)


def container_name(job: Job) -> str:
    """Unique on the machine, and telling: two users, or one user twice, run the same experiment at once."""
    words = re.sub(r"[^a-zA-Z0-9_.-]+", "-", f"{job.experiment.user_name}-{job.experiment.exp_name}").strip("-.")
    return f"primus-{words}-{uuid.uuid4().hex[:8]}"


def _user(host: Host) -> list[tuple[str, ...]]:
    """Files belong to the user who typed the command. Rootless podman maps that user to root unless told to keep it."""
    if host.rootless:
        return [("--userns=keep-id",), ("--group-add=keep-groups",)]
    return [(f"--user={host.uid}:{host.gid}",), *((f"--group-add={group}",) for group in host.own_groups)]


def _accelerator(job: Job, host: Host) -> list[tuple[str, ...]]:
    if job.experiment.accelerator != "rocm":
        return []
    # RDMA registers memory without bound; RCCL and the loaders open many files. Without root, the user's own limits.
    limits = ("host",) if host.rootless else ("memlock=-1", "nofile=1048576:1048576")
    groups = () if host.rootless else tuple(group for group in host.groups if group not in host.own_groups)
    return [
        *((f"--device={device}",) for device in (_KFD, *host.devices)),
        *((f"--group-add={group}",) for group in groups),
        *([("--device=/dev/infiniband",)] if host.infiniband else []),
        *((f"--ulimit={limit}",) for limit in limits),
    ]


def _mounts(job: Job, environ: Mapping[str, str]) -> tuple[Mount, ...]:
    mounts = list(job.mounts)
    if not job.config.is_relative_to(job.run_dir):
        mounts.append(Mount(source=job.config.parent, target=job.config.parent))
    if job.dev is not None:
        mounts.append(Mount(source=job.dev, target=PACKAGE_IN_IMAGE, read_only=True))
    for name in forwarded(environ, job.env_names):
        value = environ.get(name, "")
        if not value.startswith("/") or secret(name, value) or ":" in value:
            continue
        path = Path(value)
        if not exists(path) and path.parent != Path("/") and exists(path.parent):
            path = path.parent  # a file to be written there, perhaps with %h in its name
        if any(path.is_relative_to(mount.target) for mount in (*mounts, Mount(source=job.run_dir, target=job.run_dir))):
            continue
        if not exists(path):
            raise ConfigError(
                f"{name}={value}: there is no such path here, so the container cannot have it",
                hint=f"create it, put it below the run directory {job.run_dir}, or unset {name}",
            )
        mounts.append(Mount(source=path, target=path))
    return tuple(mounts)


def _bind(mount: Mount) -> str:
    """The value of --mount, a line of CSV: unlike --volume it takes any path, and creates none as root."""
    fields = [
        "type=bind",
        f"source={mount.source}",
        f"target={mount.target}",
        *(["readonly"] if mount.read_only else []),
    ]
    quoted = ('"' + field.replace('"', '""') + '"' if re.search('[,"]', field) else field for field in fields)
    return ",".join(quoted)


def _check_devices(job: Job) -> None:
    if job.experiment.accelerator != "rocm":
        return
    missing = [str(device) for device in (_KFD, _DRI) if not device.exists()]
    if missing:
        raise LaunchError(
            f"this machine has no {' and no '.join(missing)}: it shows no AMD GPU",
            hint="install the amdgpu driver, or pass --accelerator cpu for an experiment that can run on the CPU",
        )
    if job.engine == "podman" and os.getuid() != 0 and not os.access("/dev/kfd", os.R_OK | os.W_OK):
        group = Path("/dev/kfd").stat().st_gid
        raise LaunchError(
            f"no permission on /dev/kfd (group {group})", hint=f"join the group: sudo usermod -aG {group} $USER"
        )
