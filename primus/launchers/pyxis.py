"""The srun options of a container of pyxis', Slurm's plugin for enroot: it is made of the step's own processes.

https://github.com/NVIDIA/pyxis has the options. Slurm starts it, signals it and ends it; there is nothing to sweep.
"""

from __future__ import annotations

from collections.abc import Mapping

from primus.errors import ConfigError
from primus.image.runtimes import spelled
from primus.job import Job, Mount
from primus.launchers.container import mounts_of
from primus.launchers.environment import forwarded

# What enroot itself wants of the user's environment, and programs of any; the image's own values beat them.
_HOST = ("HOME", "USER", "LOGNAME", "PATH", "LANG", "XDG_RUNTIME_DIR")
# Of the job's place Slurm says everything.
_PLACE = {"NODE_RANK", "NNODES", "GPUS_PER_NODE"}
_OURS = ("image", "mounts", "workdir", "env", "entrypoint", "save")


def options(job: Job, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The container of the step, for srun.

    pyxis gives a container all variables of the step; so the step gets those that are on the launcher's list, and
    no others. --container-env has them beat the image's.
    """
    names = tuple(name for name in forwarded(environ, job.env_names) if name not in _PLACE or name in job.env_names)
    enroot = tuple(sorted(name for name in environ if name.startswith("ENROOT_")))
    mounts = ",".join(map(_mount, (Mount(source=job.run_dir, target=job.run_dir), *mounts_of(job, environ))))
    return (
        f"--export={','.join(dict.fromkeys((*_HOST, *enroot, *names)))}",
        f"--container-image={spelled(job.image, 'pyxis')}",
        f"--container-mounts={mounts}",
        f"--container-workdir={job.run_dir}",
        *([f"--container-env={','.join(names)}"] if names else []),
        "--no-container-entrypoint",
        "--no-container-mount-home",
        *_given(job.engine_args),
    )


def _mount(mount: Mount) -> str:
    for path in (mount.source, mount.target):
        wrong = [character for character in ",:" if character in str(path)]
        if wrong:
            raise ConfigError(
                f"{path}: pyxis cannot mount a path with {' and '.join(map(repr, wrong))} in it",
                hint="give it a link under another name, and pass that",
            )
    return f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}"


def _given(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """--engine-arg, for srun. Raises ConfigError for what cannot be one."""
    for argument in arguments:
        name = argument.split("=", 1)[0]
        if name == "--container-name":
            raise ConfigError(
                f"--engine-arg={argument}: a container with a name is one job's alone, and is gone in the next",
                hint="keep it as a file that all jobs can use: enroot export --output /shared/IMAGE.sqsh NAME, "
                "then --image /shared/IMAGE.sqsh",
            )
        if name.removeprefix("--no-").removeprefix("--").removeprefix("container-") in _OURS:
            raise ConfigError(f"--engine-arg={argument}: is set by the launcher", hint="see --image, --mount and --env")
        if not name.startswith("--"):
            raise ConfigError(f"--engine-arg={argument!r}: is no option of srun's", hint="write --NAME=VALUE")
    return arguments
