"""A container of docker's or podman's, as its client's command line.

https://docs.docker.com/reference/cli/docker/container/run/ has the options; podman takes the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from primus.command import Command
from primus.errors import ConfigError
from primus.job import Job, Mount
from primus.launchers.environment import forwarded, secret
from primus.launchers.host import Host

DEVICES = (Path("/dev/kfd"), Path("/dev/dri"))  # of AMD's GPUs


def around(
    inner: Command, job: Job, mounts: tuple[Mount, ...], *, host: Host, environ: Mapping[str, str], name: str
) -> Command:
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
        # Where SELinux enforces, a container may touch no file of the host's. The alternative, to write labels on
        # what is mounted, would change data that belongs to others, and may lock them out of it.
        *([("--security-opt=label=disable",)] if host.selinux else []),
        (f"--workdir={job.run_dir}",),
        *_accelerator(job, host),
        *((f"--mount={_bind(mount)}",) for mount in mounts),
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
_REPEATABLE = {"--mount", "--env", "--device", "--group-add", "--ulimit", "--label", "--security-opt"}
_SAME = {
    "--net": "--network",
    "-u": "--user",
    "-w": "--workdir",
    "--shm-size": "--ipc",
}  # podman refuses shm-size with ipc


_NVIDIA = ("--gpus", "--runtime=nvidia", "--device=nvidia.com/")


def _given(arguments: tuple[str, ...]) -> set[str]:
    """Names of our options that --engine-arg replaces. Raises ConfigError for an argument that cannot be one."""
    for argument in arguments:
        if re.match(r"-[^\s=]* ", argument):
            raise ConfigError(
                f"--engine-arg={argument!r} is not one argument",
                hint=f"write --engine-arg={argument.replace(' ', '=', 1)}",
            )
        if argument.split("=", 1)[0] == "--name":
            raise ConfigError("--engine-arg=--name: the launcher names its containers, to find them again")
    names = {argument.split("=", 1)[0] for argument in arguments}
    if nvidia := [argument for argument in arguments if argument.startswith(_NVIDIA)]:
        raise ConfigError(
            f"--engine-arg={nvidia[0]}: is for NVIDIA's GPUs, or gives AMD's a second time",
            hint="leave it out: a container for ROCm gets /dev/kfd and /dev/dri; --gpus-per-node says how many",
        )
    return {_SAME.get(name, name) for name in names} - _REPEATABLE


def _user(host: Host) -> list[tuple[str, ...]]:
    """Files belong to the user who typed the command. Rootless podman maps that user to root unless told to keep it."""
    if host.rootless:
        return [("--userns=keep-id",), ("--group-add=keep-groups",)]
    return [(f"--user={host.uid}:{host.gid}",), *((f"--group-add={group}",) for group in host.own_groups)]


def _accelerator(job: Job, host: Host) -> list[tuple[str, ...]]:
    if job.experiment.accelerator != "rocm":
        return []
    # RDMA registers memory without bound; RCCL and the loaders open many files. Without root, the user's own limits.
    limits = ("host",) if host.rootless else ("memlock=-1", "nofile=1048576:1048576", "stack=67108864")
    groups = () if host.rootless else tuple(group for group in host.groups if group not in host.own_groups)
    devices = ("amd.com/gpu=all",) if host.cdi else (DEVICES[0], *host.devices)
    return [
        *((f"--device={device}",) for device in devices),
        *((f"--group-add={group}",) for group in groups),
        *([("--device=/dev/infiniband",)] if host.infiniband else []),
        *((f"--ulimit={limit}",) for limit in limits),
    ]


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
