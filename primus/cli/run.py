"""primus run"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from primus import layout
from primus import offline as network
from primus.cli import note
from primus.cli.from_env import FLAG, with_from_env
from primus.cli.given import (
    checkout,
    clean_environment,
    image_of,
    print_commands,
    refuse_anothers,
    refuse_secrets,
    take_env,
    warn_of_memory,
)
from primus.cli.locked import LOCKS, moved, select
from primus.cli.many import note_other_gpu
from primus.cli.offline import refuse_offline, switch_off
from primus.cli.options import EXPERIMENT, OVERRIDES, PASS_UNKNOWN, RUN_DIR, RUNTIME, option_names
from primus.cli.settings import with_settings
from primus.cli.slurm import NAMES, SLURM, take
from primus.errors import ConfigError
from primus.experiment import load_experiment
from primus.experiment.paths import absolute
from primus.image import manifest
from primus.image.lock import Locked
from primus.image.names import reference
from primus.job import Job, Mount, default_engine, with_env, with_inputs
from primus.launchers import direct, task
from primus.launchers.jobscript import elements
from primus.launchers.lock import held_outside
from primus.node import size
from primus.record import DRY_RUN, RECORD_VARIABLE, Record, new_id


@click.command(context_settings=PASS_UNKNOWN, short_help="Train: in a container, or directly inside the image.")
@click.option("--config", "config", type=click.Path(path_type=Path), help="The experiment.  [required]")
@click.option(
    FLAG,
    is_flag=True,
    expose_value=False,
    help="Read EXP, NNODES, DATA_PATH, ... as upstream's packaged launchers do; on Slurm, if --launcher says nothing.",
)
@click.option(
    "--launcher",
    type=click.Choice(["direct", "container", "slurm"]),
    envvar="PRIMUS_LAUNCHER",
    show_envvar=True,
    help="[default: container; direct inside one of our images]",
)
@click.option(
    "--image",
    envvar="PRIMUS_IMAGE",
    show_envvar=True,
    help="A name, or a file: .tar[.zst] of docker save, .sif, .sqsh.  [default: the image of the framework]",
)
@LOCKS
@EXPERIMENT
@RUNTIME
@click.option(
    "--pull",
    type=click.Choice(["missing", "always", "never"]),
    default="missing",
    show_default=True,
    envvar="PRIMUS_PULL",
    show_envvar=True,
    help="Whether to fetch the image.",
)
@click.option(
    "--offline",
    is_flag=True,
    envvar="PRIMUS_OFFLINE",
    show_envvar=True,
    help="Touch no network: pull nothing, keep the libraries off it, and say before the start all that is missing.",
)
@click.option("--nodes", type=click.IntRange(1), help="Nodes of the run.  [default: $NNODES or 1]")
@click.option(
    "--gpus-per-node",
    type=click.IntRange(1),
    help="GPUs to use on each node; on cpu, processes.  [default: all that are visible; on cpu 1]",
)
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="SRC[:DST[:ro]]",
    help="Show a directory or file of this machine to the container.",
)
@click.option("--env", "env", multiple=True, metavar="NAME[=VALUE]", help="Pass a variable on; beats everything else.")
@click.option(
    "--engine-arg",
    "engine_args",
    multiple=True,
    metavar="ARG",
    help="An option for docker run, apptainer exec, or srun (pyxis), e.g. --engine-arg=--cpus=8.",
)
@RUN_DIR
@SLURM
@click.option("--slurm-task", is_flag=True, help="This is one task of srun's on each node: take the place from Slurm.")
@click.option("--record", type=click.Path(path_type=Path, file_okay=False), envvar=RECORD_VARIABLE, hidden=True)
@click.option(
    "--profile",
    metavar="NAME",
    envvar="PRIMUS_PROFILE",
    show_envvar=True,
    expose_value=False,
    help="Take the settings of a cluster from `profiles` in primus.yaml.",
)
@click.option("--in-image", is_flag=True, hidden=True)
@click.option("--any-gpu", is_flag=True, help="Run an example of one GPU's folder (MI300X, MI355X) on another.")
@click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: events instead of what the training prints, one object a line.",
)
@click.option("--dev", is_flag=True, help="Mount this checkout's primus/ over the image's, read-only.")
@click.option("--dry-run", is_flag=True, help="Print what would run and what would be written. Works on any machine.")
@OVERRIDES
def run(
    config: Path | None,
    launcher: str | None,
    image: str | None,
    lock: Path | None,
    no_lock: bool,
    image_id: str,
    accelerator: str | None,
    registry: str,
    preset_dirs: tuple[Path, ...],
    allow_unknown: tuple[str, ...],
    engine: str | None,
    pull: str,
    offline: bool,
    nodes: int | None,
    gpus_per_node: int | None,
    mounts: tuple[str, ...],
    env: tuple[str, ...],
    engine_args: tuple[str, ...],
    run_dir: Path | None,
    dev: bool,
    dry_run: bool,
    overrides: tuple[str, ...],
    slurm_task: bool,
    record: Path | None,
    in_image: bool,
    any_gpu: bool,
    output: str,
    **slurm_options: Any,
) -> None:
    """Train what an experiment says.

    Anything that is no option is an argument of the backend, under its own name:
    training.steps=50 or --training.steps 50.
    """
    if config is None:
        file = next((word for word in overrides if word.endswith((".yaml", ".yml"))), None)
        raise click.UsageError("Missing option '--config'." + (f" Did you mean --config {file}?" if file else ""))
    if slurm_task:
        place = task.place(os.environ)
        names = {word.partition("=")[0] for word in env}
        os.environ.update({name: value for name, value in place.items() if name not in names})
        if record and not dry_run:
            attempt = direct.this_attempt(int(place["NODE_RANK"]), os.environ["SLURM_JOB_ID"], os.environ)
            click.get_current_context().with_resource(Record(absolute(record)).noted(attempt))
    passed = take_env(env)
    for text in clean_environment():
        note(text)
    refuse_secrets(engine_args)
    if lock and image and not slurm_task and _both_given("lock", "image"):
        raise ConfigError("--lock and --image: both say which image it is", hint="leave one of them out")
    if run_dir is not None and absolute(run_dir) == Path(absolute(run_dir).anchor):
        raise ConfigError(f"--run-dir {run_dir}: is the root of all files", hint="name a directory of its own")
    chosen = launcher or ("direct" if manifest.IN_IMAGE.exists() else "container")
    environ = dict(os.environ)
    if dry_run and nodes is not None and nodes > 1:  # what the first node would run, wherever that is
        environ = {"NODE_RANK": "0", "MASTER_ADDR": "MASTER_ADDR"} | environ
    given = tuple(Mount.parse(text) for text in mounts)
    runtime = engine or default_engine()
    said = {""}
    used: dict[str, Locked] = {}

    def say_once(text: str) -> None:
        """An array's elements have the same to say."""
        if text not in said:
            said.add(text)
            note(text)

    def say_moved() -> None:
        for one in used.values():
            ask = not (offline or registry or pull == "never")
            say_once(moved(one, runtime, ask_registry=ask))

    def job(variables: Mapping[str, str], element: int | None = None) -> Job:
        """The job, with the experiment as it is under `variables`."""
        experiment = load_experiment(
            config,
            overrides,
            environ=variables,
            preset_dirs=preset_dirs,
            accelerator=accelerator,
            allow_unknown=allow_unknown,
            flags=option_names(run),
        )
        note_other_gpu([config], accelerator)
        for key in experiment.unknown:
            note(f"{key} is not known to {experiment.framework} and is passed on as it is")
        # A cluster's nodes are not this machine.
        where = {"topology": Path()} if chosen == "slurm" else {}
        count, gpus = size(
            accelerator=experiment.accelerator, nodes=nodes, gpus=gpus_per_node, environ=os.environ, **where
        )
        if wrong := layout.problems(experiment, nodes=count, gpus=gpus):
            raise ConfigError(wrong)
        if not slurm_task and not (chosen == "direct" and manifest.IN_IMAGE.exists()):  # there, it has been said
            warn_of_memory(experiment, count * gpus)
        experiment = with_env(experiment, passed)
        if offline:
            experiment = switch_off(experiment, chosen, say_once, environ)
        experiment, all_mounts, missing = with_inputs(experiment, given, offline=offline, environ=os.environ)
        if missing and not (dry_run or offline):
            raise ConfigError(missing)
        for problem in missing if not offline else ():
            note(str(problem))
        directory = absolute(run_dir) if run_dir else experiment.run_dir
        if record:
            directory = Path(Record(absolute(record)).read("run.json").get("run_dir") or directory)
        refuse_anothers(directory, experiment.framework)
        whole = experiment.accelerator == "rocm" and gpus_per_node is None
        by_digest, from_lock = (
            select(lock, experiment.framework, experiment.accelerator, say_once)
            if not (image or no_lock or chosen == "direct")
            else (None, None)
        )
        if by_digest is not None:
            name = by_digest.reference(registry, experiment.framework)
        else:
            name = image or reference(experiment.framework, experiment.accelerator, registry=registry)
        elsewhere = bool(registry or image or (by_digest and by_digest.digest))
        if by_digest:
            used[by_digest.tagged] = by_digest
        identifier = by_digest.id if by_digest else image_id
        if offline:
            found = (*missing, *network.problems(experiment, os.environ))
            refuse_offline(found, name, identifier, runtime, chosen, say_once, dry_run=dry_run)
        return Job(
            experiment=replace(experiment, workspace=str(absolute(experiment.workspace))),
            image=image_of(name, runtime, chosen, dry_run=dry_run),
            image_id=identifier,
            lock=from_lock,
            run_dir=directory,
            nodes=count if chosen == "slurm" else nodes,
            gpus_per_node=gpus if chosen == "slurm" else gpus_per_node,
            mounts=all_mounts,
            mounts_given=given,
            env_names=passed,
            engine=runtime,
            engine_args=engine_args,
            # Without a registry the name is this machine's own: elsewhere it would be a stranger's image.
            pull=pull if elsewhere and not offline else "never",
            dev=checkout() if dev else None,
            record=_record(directory) if element is None else directory / run_id / str(element),
            slurm=take(slurm_options, whole=whole) if chosen == "slurm" else None,
            output=output,
            slurm_job=os.environ["SLURM_JOB_ID"] if slurm_task else "",
            any_gpu=any_gpu,
            in_image=in_image or held_outside(),
        )

    def _record(directory: Path) -> Path | None:
        """Where this run is recorded: where the launcher outside said; a process that we become has no record."""
        if record is not None or chosen == "direct":
            return record and absolute(record)
        return directory / run_id

    # The tasks of a step that no launcher of ours submitted must find the same.
    step = "slurm-{SLURM_JOB_ID}.{SLURM_STEP_ID}".format(**os.environ) if slurm_task else ""
    run_id = DRY_RUN if dry_run else step or new_id()
    module = import_module(f"primus.launchers.{chosen}")
    if chosen == "slurm":
        if output != "text":
            note(f"the slurm launcher has no use for --output {output}: the record has metrics.jsonl")
        jobs = _elements(job, slurm_options["array"])
        if dry_run:
            print_commands(module.dry_run(jobs, environ))
            return
        say_moved()
        sys.exit(module.launch(jobs))
    if ignored := _given_for_others(chosen):
        note(f"the {chosen} launcher has no use for {', '.join(ignored)}")
    made = job(os.environ)
    if dry_run:
        print_commands(module.dry_run(made, environ))
        return
    say_moved()
    if made.dev is not None:
        note(f"the image's primus/ is replaced by {made.dev}")
    sys.exit(module.launch(made))


def _elements(job: Callable[..., Job], array: str | None) -> tuple[Job, ...]:
    """The job, or each of an array's, with its number in the experiment's place of ${SLURM_ARRAY_TASK_ID}."""
    if array is None:
        return (job(os.environ),)
    jobs = tuple(job({**os.environ, "SLURM_ARRAY_TASK_ID": str(number)}, number) for number in elements(array))
    folders = {one.run_dir for one in jobs}
    if len(folders) < len(jobs) and not array.endswith("%1"):
        raise ConfigError(
            f"--array {array}: elements share the run directory {jobs[0].run_dir}",
            hint="put ${SLURM_ARRAY_TASK_ID} into exp_name, or have them go on from one another: --array 0-9%1",
        )
    first = jobs[0]
    assert first.record is not None
    base = first.record.parent
    return tuple(replace(one, record=base / str(number)) for one, number in zip(jobs, elements(array), strict=True))


def _given_for_others(launcher: str) -> list[str]:
    """Options on this command line that only mean something to another launcher."""
    context = click.get_current_context()
    names = {option.name: max(option.opts, key=len) for option in run.params}
    containers = ("image", "lock", "no_lock", "mounts", "engine_args", "pull", "dev", "output")
    idle = (*(containers if launcher == "direct" else ()), *NAMES)
    given = click.core.ParameterSource.COMMANDLINE
    return [names[name] for name in idle if context.get_parameter_source(name) is given]


def _both_given(*names: str) -> bool:
    context = click.get_current_context()
    return all(context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE for name in names)


run = with_settings(with_from_env(run))
