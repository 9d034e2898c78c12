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

from primus.cli import note
from primus.cli.from_env import with_from_env
from primus.cli.given import (
    checkout,
    clean_environment,
    print_commands,
    take_env,
    warn_of_memory,
)
from primus.cli.hipblaslt import dumping, finish, heard, prepare, result, tuned
from primus.cli.locked import moved
from primus.cli.many import note_other_gpu
from primus.cli.options import OVERRIDES, PASS_UNKNOWN, option_names
from primus.cli.run_options import RUN
from primus.cli.settings import with_settings
from primus.cli.signing import verify_key
from primus.cli.slurm import NAMES
from primus.errors import ConfigError
from primus.experiment import load_experiment
from primus.experiment.paths import absolute
from primus.image import lock as locks
from primus.image import manifest
from primus.job import Job, Mount, Slurm
from primus.launchers import direct, task
from primus.launchers.engine_args import check as check_engine_args
from primus.launchers.jobscript import elements
from primus.launchers.lock import held_outside
from primus.plan import Wanted, plan
from primus.record import DRY_RUN, Record, new_id


@click.command(context_settings=PASS_UNKNOWN, short_help="Train: in a container, or directly inside the image.")
@RUN
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
    hipblaslt_tuning: Path | None,
    hipblaslt_dump: bool,
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
    check_engine_args(engine_args)
    if not slurm_task:
        heard(os.environ, dump=hipblaslt_dump)
    if lock and image and not slurm_task and _both_given("lock", "image"):
        raise ConfigError("--lock and --image: both say which image it is", hint="leave one of them out")
    chosen = launcher or ("direct" if manifest.IN_IMAGE.exists() else "container")
    environ = dict(os.environ)
    if dry_run and nodes is not None and nodes > 1:  # what the first node would run, wherever that is
        environ = {"NODE_RANK": "0", "MASTER_ADDR": "MASTER_ADDR"} | environ
    # The tasks of a step that no launcher of ours submitted must find the same.
    step = "slurm-{SLURM_JOB_ID}.{SLURM_STEP_ID}".format(**os.environ) if slurm_task else ""
    tuning, its_mount = result(hipblaslt_tuning, os.environ)
    wanted = Wanted(
        launcher=chosen,
        image=image,
        image_id=image_id,
        lock=lock,
        no_lock=no_lock,
        # Of the image that is started from here. Inside of one, and on a job's nodes, that has been said.
        verify_key=verify_key() if chosen != "direct" and not slurm_task else None,
        registry=registry,
        engine=engine,
        pull=pull,
        offline=offline,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        mounts=(*(Mount.parse(text) for text in mounts), *its_mount),
        env=passed,
        engine_args=engine_args,
        run_dir=run_dir,
        dev=checkout() if dev else None,
        output=output,
        any_gpu=any_gpu,
        slurm=Slurm(**slurm_options) if chosen == "slurm" else None,
        slurm_job=os.environ["SLURM_JOB_ID"] if slurm_task else "",
        in_image=in_image or held_outside(),
        record=record,
        run_id=DRY_RUN if dry_run else step or new_id(),
    )
    said = {""}

    def say_once(text: str) -> None:
        """An array's elements have the same to say."""
        if text not in said:
            said.add(text)
            note(text)

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
        if tuning:
            experiment = tuned(experiment, tuning)
        this = wanted if element is None else replace(wanted, run_id=f"{wanted.run_id}/{element}")
        made = plan(experiment, this, environ=os.environ, dry=dry_run, say=say_once)
        if not slurm_task and not (chosen == "direct" and manifest.IN_IMAGE.exists()):  # there, it has been said
            count, gpus = wanted.size(experiment, os.environ)
            warn_of_memory(experiment, count * gpus)
        if hipblaslt_dump:
            made = replace(made, experiment=dumping(made.experiment, made.record, nodes=made.nodes or 1))
        return made

    module = import_module(f"primus.launchers.{chosen}")
    if chosen == "slurm":
        if output != "text":
            note(f"the slurm launcher has no use for --output {output}: the record has metrics.jsonl")
        jobs = _elements(job, slurm_options["array"])
        if dry_run:
            print_commands(module.dry_run(jobs, environ))
            return
        for one in jobs:
            say_once(_moved(one, wanted))
            if hipblaslt_dump and one.record:
                prepare(one.record)
        say_once(_replaced(wanted))
        code = module.launch(jobs)
        if hipblaslt_dump and slurm_options["wait"] and jobs[0].record:
            finish(code, jobs[0].record)
        sys.exit(code)
    if ignored := _given_for_others(chosen):
        note(f"the {chosen} launcher has no use for {', '.join(ignored)}")
    made = job(os.environ)
    if dry_run:
        print_commands(module.dry_run(made, environ))
        return
    say_once(_moved(made, wanted))
    say_once(_replaced(wanted))
    if hipblaslt_dump and made.record:
        prepare(made.record)
        finish(module.launch(made), made.record)
    sys.exit(module.launch(made))


def _replaced(wanted: Wanted) -> str:
    return f"the image's primus/ is replaced by {wanted.dev}" if wanted.dev else ""


def _moved(job: Job, wanted: Wanted) -> str:
    """What to say if the locked image's tag names another one by now."""
    if job.lock is None:
        return ""
    one = locks.read(job.lock)[job.experiment.framework, job.experiment.accelerator]
    ask = not (wanted.offline or wanted.registry or wanted.pull == "never")
    return moved(one, job.engine, ask_registry=ask)


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
