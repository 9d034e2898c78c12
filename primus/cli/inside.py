"""What runs a program other than a training in a backend's image, with the options of primus run that apply to it."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from primus.cli import note
from primus.cli.given import checkout, clean_environment, print_commands, take_env
from primus.cli.run import run
from primus.cli.settings import with_settings
from primus.cli.signing import verify_key
from primus.command import Command
from primus.errors import ConfigError
from primus.experiment import Experiment
from primus.image import manifest
from primus.job import Job, Mount, apart, default_engine, with_env
from primus.launchers.engine_args import check as check_engine_args
from primus.plan import Wanted, chosen

_AS_IN_RUN = (
    *("launcher", "image", "engine", "pull", "offline", "mounts", "env", "engine_args", "dev", "dry_run"),
    *("registry", "lock", "no_lock", "image_id"),
)


def as_in_run(command: click.Command) -> None:
    """Give the command these options of primus run, the same objects, and their settings."""
    command.params.extend(option for option in run.params if option.name in (*_AS_IN_RUN, "verify_key"))
    with_settings(command)


def taken(options: dict[str, Any]) -> tuple[Wanted, bool]:
    """How it shall be run, out of all options, of which those of primus run are removed; and whether only to say so.

    Raises ConfigError for what primus run refuses as well, and for Slurm: it runs on one machine.
    """
    given = {name: options.pop(name) for name in _AS_IN_RUN}
    passed = take_env(given.pop("env"))
    check_engine_args(given["engine_args"])
    for text in clean_environment():
        note(text)
    launcher = given.pop("launcher") or ("direct" if manifest.IN_IMAGE.exists() else "container")
    if launcher == "slurm":
        raise ConfigError("--launcher slurm: this runs on one machine", hint="srun with the command without it")
    dry = given.pop("dry_run")
    return Wanted(
        launcher=launcher,
        verify_key=verify_key() if launcher != "direct" else None,
        mounts=tuple(Mount.parse(text) for text in given.pop("mounts")),
        env=passed,
        dev=checkout() if given.pop("dev") else None,
        **given,
    ), dry


def experiment(framework: str, accelerator: str, *, stage: str, name: str, folder: Path, args: Any) -> Experiment:
    """What stands in the place of an experiment for a program that is no training."""
    return Experiment(
        work_group=stage,
        user_name=_user(),
        exp_name=name,
        workspace=str(folder),
        framework=framework,
        stage=stage,
        accelerator=accelerator,
        args=args,
        env={},
        origins={},
        source=Path(),
    )


def planned(
    of: Experiment, image_for: str, wanted: Wanted, folder: Path, mounts: tuple[Mount, ...], *, dry: bool
) -> Job:
    """The job: in the image of the experiment's framework for `image_for`, an accelerator, writing to the folder."""
    engine = wanted.engine or default_engine()
    image = chosen(of.framework, image_for, wanted, engine, dry=dry, say=note)
    return Job(
        experiment=with_env(of, wanted.env),
        image=image.name,
        image_id=image.id,
        lock=image.lock,
        run_dir=folder,
        mounts=apart((mount for mount in mounts if mount.target != folder), folder),
        env_names=wanted.env,
        engine=engine,
        engine_args=wanted.engine_args,
        pull=image.pull,
        dev=wanted.dev,
    )


def start(program: Callable[[str], Command], job: Job, wanted: Wanted, *, dry: bool) -> None:
    """Run the program, given its image's ID where an engine says one, and exit as it does; or print the commands."""
    module: Any = import_module(f"primus.launchers.{wanted.launcher}")
    if dry:
        print_commands(module.dry_run_other(program("IMAGE-ID"), job, dict(os.environ)))
        return
    try:
        job.run_dir.mkdir(parents=True, exist_ok=True)  # as the user, before the engine could as root
    except OSError as error:
        raise ConfigError(f"cannot write to {job.run_dir}: {error.strerror}") from error
    identity, job = module.identified(job)
    sys.exit(module.run(program(identity), job))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name
        return str(os.getuid())
