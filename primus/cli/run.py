"""primus run"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import click

from primus import layout
from primus.cli import note
from primus.cli.many import note_other_gpu
from primus.cli.options import ENGINE, EXPERIMENT, OVERRIDES, PASS_UNKNOWN, RUN_DIR, option_names
from primus.cli.settings import with_settings
from primus.command import Command
from primus.errors import ConfigError, PrimusError
from primus.experiment import Experiment, load_experiment
from primus.experiment.paths import absolute
from primus.experiment.substitute import looks_secret
from primus.image import manifest
from primus.image.names import reference
from primus.job import Job, Mount, default_engine, with_env, with_inputs
from primus.launchers.environment import clean_secrets, secret
from primus.node import gfx_targets, size


@click.command(context_settings=PASS_UNKNOWN, short_help="Train: in a container, or directly inside the image.")
@click.option("--config", "config", type=click.Path(path_type=Path), help="The experiment.  [required]")
@click.option(
    "--launcher",
    type=click.Choice(["direct", "container"]),
    envvar="PRIMUS_LAUNCHER",
    show_envvar=True,
    help="[default: container; direct inside one of our images]",
)
@click.option(
    "--image", envvar="PRIMUS_IMAGE", show_envvar=True, help="[default: the image of the experiment's framework]"
)
@EXPERIMENT
@ENGINE
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
    help="Pull nothing, and keep Hugging Face off the network.",
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
    help="An option for docker run, e.g. --engine-arg=--cpus=8.",
)
@RUN_DIR
@click.option("--dev", is_flag=True, help="Mount this checkout's primus/ over the image's, read-only.")
@click.option("--dry-run", is_flag=True, help="Print what would run and what would be written. Works on any machine.")
@OVERRIDES
def run(
    config: Path | None,
    launcher: str | None,
    image: str | None,
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
) -> None:
    """Train what an experiment says.

    Anything that is no option is an argument of the backend, under its own name:
    training.steps=50 or --training.steps 50.
    """
    if config is None:
        file = next((word for word in overrides if word.endswith((".yaml", ".yml"))), None)
        raise click.UsageError("Missing option '--config'." + (f" Did you mean --config {file}?" if file else ""))
    passed = take_env(env)
    for text in clean_environment():
        note(text)
    refuse_secrets(engine_args)
    if run_dir is not None and absolute(run_dir) == Path(absolute(run_dir).anchor):
        raise ConfigError(f"--run-dir {run_dir}: is the root of all files", hint="name a directory of its own")
    environ = dict(os.environ)
    if dry_run and nodes is not None and nodes > 1:  # what the first node would run, wherever that is
        environ = {"NODE_RANK": "0", "MASTER_ADDR": "MASTER_ADDR"} | environ
    experiment = load_experiment(
        config,
        overrides,
        preset_dirs=preset_dirs,
        accelerator=accelerator,
        allow_unknown=allow_unknown,
        flags=option_names(run),
    )
    note_other_gpu([config], accelerator)
    for key in experiment.unknown:
        note(f"{key} is not known to {experiment.framework} and is passed on as it is")
    count, gpus = size(accelerator=experiment.accelerator, nodes=nodes, gpus=gpus_per_node, environ=os.environ)
    if wrong := layout.problems(experiment, nodes=count, gpus=gpus):
        raise ConfigError(wrong)
    if launcher != "direct" or not manifest.IN_IMAGE.exists():  # there, the launcher outside has said so
        _warn_of_memory(experiment, count * gpus)
    engine = engine or default_engine()
    given = tuple(Mount.parse(text) for text in mounts)
    experiment = with_env(experiment, passed, offline=offline)
    experiment, all_mounts, missing = with_inputs(experiment, given, offline=offline, environ=os.environ)
    if missing and not dry_run:
        raise ConfigError(missing)
    for problem in missing:
        note(str(problem))
    directory = absolute(run_dir) if run_dir else experiment.run_dir
    _refuse_anothers(directory, experiment.framework)
    job = Job(
        experiment=replace(experiment, workspace=str(absolute(experiment.workspace))),
        image=image or reference(experiment.framework, experiment.accelerator, registry=registry),
        run_dir=directory,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        mounts=all_mounts,
        env_names=passed,
        engine=engine,
        engine_args=engine_args,
        # Without a registry the name is this machine's own: elsewhere it would be a stranger's image.
        pull=pull if (registry or image) and not offline else "never",
        dev=checkout() if dev else None,
    )
    chosen = launcher or ("direct" if manifest.IN_IMAGE.exists() else "container")
    module = import_module(f"primus.launchers.{chosen}")
    if dry_run:
        print_commands(module.dry_run(job, environ))
        return
    if job.dev is not None:
        note(f"the image's primus/ is replaced by {job.dev}")
    if chosen == "direct" and (ignored := _given_for_containers()):
        note(f"the direct launcher has no container: {', '.join(ignored)} ignored")
    sys.exit(module.launch(job))


def _refuse_anothers(directory: Path, framework: str) -> None:
    """Another backend's run goes on from nothing here, and its record would be lost."""
    try:
        was = load_experiment(directory / "experiment.yaml", environ={}).framework
    except PrimusError:  # none, or none that can be read
        return
    if was != framework:
        raise ConfigError(
            f"{directory}: holds a run of {was}, and this is one of {framework}",
            hint="give this one a directory of its own: --run-dir, or PRIMUS_EXP_NAME in front of a shipped example",
        )


def _warn_of_memory(experiment: Experiment, gpus: int) -> None:
    """Say so if the GPUs' memory looks too small; nothing where the model or the GPU is not known."""
    from primus.models.memory import GIB
    from primus.models.report import report

    if experiment.accelerator != "rocm":
        return
    here = gfx_targets()
    try:
        found = report(experiment, gpus=gpus, gfx=here[0] if here else "")
    except ValueError:
        return
    if found.exceeds:
        note(
            f"needs about {found.memory.total / GIB:.0f} GiB on each of {found.layout.gpus} GPUs, "
            f"and an {found.sku} has {found.has}; primus config explain {experiment.source} says for what"
        )


def _given_for_containers() -> list[str]:
    """Options on this command line that only mean something for a container."""
    context = click.get_current_context()
    names = {"image": "--image", "mounts": "--mount", "engine_args": "--engine-arg", "pull": "--pull", "dev": "--dev"}
    given = click.core.ParameterSource.COMMANDLINE
    return [option for name, option in names.items() if context.get_parameter_source(name) is given]


def take_env(words: tuple[str, ...]) -> tuple[str, ...]:
    """The names in --env NAME[=VALUE]; a value goes into our own environment, from where it is passed on by name."""
    names = []
    for word in words:
        name, assigned, value = word.partition("=")
        if not name.isidentifier():
            raise ConfigError(f"--env {word.split('=')[0]!r}: is no name of a variable")
        if assigned:
            os.environ[name] = value
        elif name not in os.environ:
            raise ConfigError(f"--env {name}: is not set here", hint=f"export {name}, or write --env {name}=VALUE")
        if not secret(name, "") and looks_secret(os.environ[name]):
            raise ConfigError(f"--env {name}: holds a credential", hint=f"name it {name}_TOKEN: then it stays secret")
        names.append(name)
    return tuple(dict.fromkeys(names))


def refuse_secrets(engine_args: tuple[str, ...]) -> None:
    """The engine's arguments are seen by everyone who can list processes or inspect the container."""
    for word in engine_args:
        option, _, rest = word.partition("=")
        name, _, value = rest.partition("=")
        if looks_secret(word) or (option in ("--env", "-e") and value and secret(name, value)):
            raise ConfigError(
                f"--engine-arg {option}={name}: holds a credential" if value else f"--engine-arg {option}: holds one",
                hint="export it under its name and write --env NAME: then nothing shows it",
            )


def clean_environment() -> tuple[str, ...]:
    cleaned, notes = clean_secrets(os.environ)
    for name in set(os.environ) - set(cleaned):
        del os.environ[name]
    os.environ.update(cleaned)
    return notes


def checkout() -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "primus" / "_version.py").is_file():
            return folder / "primus"
    raise ConfigError("--dev: this directory is in no checkout of Primus", hint="run it from inside one")


def print_commands(commands: list[tuple[str, Command]]) -> None:
    """Every command as one shell-quoted line, then every file it would write."""
    files: dict[Path, str] = {}
    for title, command in commands:
        click.echo(f"# {title}\n{command}")
        files |= command.files
    for path, text in files.items():
        click.echo(f"\n# file: {path}\n{text}", nl=False)


run = with_settings(run)
