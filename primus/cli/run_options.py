"""The options of `primus run`."""

from __future__ import annotations

from pathlib import Path

import click

from primus.cli.from_env import FLAG
from primus.cli.hipblaslt import DUMP, TUNING
from primus.cli.later import later
from primus.cli.locked import LOCKS
from primus.cli.options import COUNT, EXPERIMENT, RUN_DIR, RUNTIME, ExperimentFile, stack
from primus.cli.slurm import SLURM
from primus.record import RECORD_VARIABLE

RUN = stack(
    click.option(
        "--config",
        "config",
        type=ExperimentFile(),
        shell_complete=later("config_file"),
        help="The experiment.  [required]",
    ),
    click.option(
        FLAG,
        is_flag=True,
        expose_value=False,
        help="Read EXP, NNODES, DATA_PATH, ... as upstream's packaged launchers do; "
        "on Slurm, if --launcher says nothing.",
    ),
    click.option(
        "--launcher",
        type=click.Choice(["direct", "container", "slurm"]),
        envvar="PRIMUS_LAUNCHER",
        show_envvar=True,
        help="[default: container; direct inside one of our images]",
    ),
    click.option(
        "--image",
        envvar="PRIMUS_IMAGE",
        show_envvar=True,
        help="A name, or a file: .tar[.zst] of docker save, .sif, .sqsh.  [default: the image of the framework]",
    ),
    LOCKS,
    EXPERIMENT,
    RUNTIME,
    click.option(
        "--pull",
        type=click.Choice(["missing", "always", "never"]),
        default="missing",
        show_default=True,
        envvar="PRIMUS_PULL",
        show_envvar=True,
        help="Whether to fetch the image.",
    ),
    click.option(
        "--offline",
        is_flag=True,
        envvar="PRIMUS_OFFLINE",
        show_envvar=True,
        help="Touch no network: pull nothing, keep the libraries off it, and say before the start all that is missing.",
    ),
    click.option("--nodes", type=COUNT, help="Nodes of the run.  [default: $NNODES or 1]"),
    click.option(
        "--gpus-per-node",
        type=COUNT,
        help="GPUs to use on each node; on cpu, processes.  [default: all that are visible; on cpu 1]",
    ),
    click.option(
        "--mount",
        "mounts",
        multiple=True,
        metavar="SRC[:DST[:ro]]",
        help="Show a directory or file of this machine to the container.",
    ),
    click.option(
        "--env", "env", multiple=True, metavar="NAME[=VALUE]", help="Pass a variable on; beats everything else."
    ),
    click.option(
        "--engine-arg",
        "engine_args",
        multiple=True,
        metavar="ARG",
        help="An option for docker run, apptainer exec, or srun (pyxis), e.g. --engine-arg=--cpus=8.",
    ),
    RUN_DIR,
    TUNING,
    DUMP,
    SLURM,
    click.option(
        "--slurm-task", is_flag=True, help="This is one task of srun's on each node: take the place from Slurm."
    ),
    click.option("--record", type=click.Path(path_type=Path, file_okay=False), envvar=RECORD_VARIABLE, hidden=True),
    click.option(
        "--profile",
        shell_complete=later("profiles"),
        metavar="NAME",
        envvar="PRIMUS_PROFILE",
        show_envvar=True,
        expose_value=False,
        help="Take the settings of a cluster from `profiles` in primus.yaml.",
    ),
    click.option("--in-image", is_flag=True, hidden=True),
    click.option("--any-gpu", is_flag=True, help="Run an example of one GPU's folder (MI300X, MI355X) on another."),
    click.option(
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="json: events instead of what the training prints, one object a line.",
    ),
    click.option("--dev", is_flag=True, help="Mount this checkout's primus/ over the image's, read-only."),
    click.option(
        "--dry-run", is_flag=True, help="Print what would run and what would be written. Works on any machine."
    ),
)
