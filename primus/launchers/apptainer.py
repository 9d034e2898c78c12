"""A container of apptainer's (or singularity's), which is a process of the user's own: no engine, no groups to add.

https://apptainer.org/docs/user/main/cli/apptainer_exec.html has the options.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from primus.command import Command
from primus.errors import LaunchError
from primus.image.runtimes import is_path, spelled
from primus.job import Job, Mount

# The images' HOME, which apptainer would replace with the user's: their ENV says so, and their caches follow it.
_HOME = Path("/tmp/primus-home")
_SAME = {
    "--home": "--no-home",
    "-H": "--no-home",
    "--no-pid": "--pid",
    "--cwd": "--pwd",
    "--writable": "--writable-tmpfs",
}
_REPEATABLE = {"--mount"}


def around(inner: Command, job: Job, mounts: tuple[Mount, ...], scratch: Path, grace: int) -> Command:
    """apptainer exec IMAGE INNER. Variables go in through the lifeline: see `variables`.

    /dev is the host's by default, GPUs and RDMA included. They are not bound by name: a bind of the user's forbids
    to open devices. --rocm is left out, which puts the host's ROCm libraries over the image's.
    """
    options = (
        "--cleanenv",
        "--no-eval",  # values are text: $(...) in one is not run
        "--no-home",
        "--no-mount=home,cwd,tmp",
        "--writable-tmpfs",  # 64 MB by default: caches go to /tmp, on the node's disk
        "--pid",  # all of it ends with its first process
        f"--pwd={job.run_dir}",
        *(f"--mount={_bind(mount)}" for mount in (Mount(source=scratch, target=Path("/tmp")), *mounts)),
    )
    given = {word.split("=", 1)[0] for word in job.engine_args}
    given = {_SAME.get(name, name) for name in given} - _REPEATABLE
    return Command(
        argv=(
            *(job.engine, "exec"),
            *(option for option in options if option.split("=", 1)[0] not in given),
            *job.engine_args,
            spelled(job.image, job.engine),
            *("python", "-m", "primus.launchers.lifeline", str(grace)),
            *inner.argv,
        ),
        files=inner.files,
    )


def variables(inner: Command, environ: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """What the lifeline is told: the variables that docker would get by name, and the images' HOME."""
    return {
        "HOME": str(_HOME),
        **{name: environ[name] for name in names if name in environ},
        **inner.env,
    }


def _bind(mount: Mount) -> str:
    """The value of --mount, a line of CSV, with apptainer's words."""
    fields = [
        "type=bind",
        f"source={mount.source}",
        f"destination={mount.target}",
        *(["ro"] if mount.read_only else []),
    ]
    return ",".join('"' + field.replace('"', '""') + '"' if re.search('[,"]', field) else field for field in fields)


def identity(image: str) -> str:
    """The number that a .sif file has in its header: reading all of it would take minutes. Empty for what has none.

    The header is a launch script of 32 bytes, a magic of 10, two versions of 3, and a UUID of 16.
    """
    if not is_path(image) or not Path(image).is_file():
        return ""
    with Path(image).open("rb") as file:
        head = file.read(64)
    return f"sif:{head[48:64].hex()}" if head[32:41] == b"SIF_MAGIC" else ""


def check(engine: str, image: str) -> None:
    """Raise LaunchError unless the runtime is installed and the file is there."""
    if shutil.which(engine) is None:
        other = "singularity" if engine == "apptainer" else "apptainer"
        hint = f"--engine {other} is installed here" if shutil.which(other) else "install it, or use --engine docker"
        raise LaunchError(f"{engine} is not installed", hint=hint)
    if is_path(image) and not Path(image).exists():
        raise LaunchError(f"--image {image}: is not on this machine", hint="it must be on storage that every node sees")


@contextmanager
def scratch() -> Iterator[Path]:
    """The container's /tmp: on this machine's disk, and gone with the launch. Those of killed launches go first."""
    base = Path(tempfile.gettempdir()) / f"primus-{os.getuid()}"
    mine = base / str(os.getpid())
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        if base.is_symlink() or base.stat().st_uid != os.getuid():
            raise LaunchError(f"{base} is somebody else's", hint="set TMPDIR to a directory of your own")
        for left in base.iterdir():
            if left.name.isdecimal() and not Path("/proc", left.name).exists():
                shutil.rmtree(left, ignore_errors=True)
        shutil.rmtree(mine, ignore_errors=True)
        (mine / _HOME.name).mkdir(parents=True)
    except OSError as error:
        raise LaunchError(f"cannot write to {base}: {error.strerror}", hint="set TMPDIR to where you may") from error
    try:
        yield mine
    finally:
        shutil.rmtree(mine, ignore_errors=True)


def raise_limits() -> None:
    """Raise our own limits as far as we may, for the container inherits them: RDMA locks memory without bound."""
    for limit in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE):
        with suppress(ValueError, OSError):
            resource.setrlimit(limit, (resource.getrlimit(limit)[1],) * 2)
