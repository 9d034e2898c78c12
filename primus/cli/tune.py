"""primus tune"""

from __future__ import annotations

import getpass
import os
import sys
from importlib import import_module
from pathlib import Path

import click

from primus.cli import note
from primus.cli.given import checkout, clean_environment, print_commands, refuse_secrets, take_env
from primus.cli.hipblaslt import products
from primus.cli.options import REGISTRY, TARGET
from primus.cli.run import run
from primus.cli.runs import WORKSPACE
from primus.cli.settings import with_settings
from primus.command import Command
from primus.errors import ConfigError
from primus.experiment import Experiment
from primus.experiment.paths import absolute
from primus.experiment.schema import frameworks
from primus.image import manifest
from primus.image.names import reference
from primus.job import Job, Mount, default_engine, with_env
from primus.plan import image_of
from primus.record import find

_HELP = {"help_option_names": ["-h", "--help"]}
# Words that are `primus run`'s, which says itself what is wrong with them.
_RUNS = {"ignore_unknown_options": True, "allow_interspersed_args": False, **_HELP}
_AS_IN_RUN = ("launcher", "image", "engine", "pull", "offline", "mounts", "env", "engine_args", "dev", "dry_run")


@click.group(context_settings=_HELP)
def tune() -> None:
    """Find the fastest kernels for a training's matrix products."""


@tune.group(context_settings=_HELP)
def hipblaslt() -> None:
    """hipBLASLt's offline tuning, in three steps.

    \b
    primus tune hipblaslt dump --config FILE     which products a training asks for
    primus tune hipblaslt tune RUN               the fastest kernel for each
    primus tune hipblaslt use RESULT --config FILE
    """


@hipblaslt.command(context_settings=_RUNS)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="--config FILE [OPTIONS OF primus run]...")
def dump(words: tuple[str, ...]) -> None:
    """Run a training, and write down the products it asks of hipBLASLt.

    It is primus run, with all its options: a few steps are enough (training.steps=5, train_iters=5). Each process
    writes hipblaslt/*.log in the run's record; at the end they become one file, hipblaslt/shapes.txt, whose path is
    printed. Of a job that was submitted, primus tune hipblaslt tune RUN makes it.
    """
    run.main(["--hipblaslt-dump", *words], prog_name="primus tune hipblaslt dump", standalone_mode=True)


@hipblaslt.command(context_settings=_RUNS)
@click.argument("result", type=click.Path(path_type=Path))
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="--config FILE [OPTIONS OF primus run]...")
def use(result: Path, words: tuple[str, ...]) -> None:
    """Train with a RESULT of tuning: primus run --hipblaslt-tuning RESULT.

    Refused if it was made for another image, GPU or build of the library.
    """
    run.main([f"--hipblaslt-tuning={result}", *words], prog_name="primus tune hipblaslt use", standalone_mode=True)


@hipblaslt.command("tune", short_help="Find the fastest kernel for each product.")
@click.argument("source", metavar="SHAPES|RUN")
@click.option("--framework", type=click.Choice(frameworks()), help="Whose image.  [default: that of RUN]")
@click.option("--device", "devices", type=click.IntRange(0), multiple=True, help="A GPU to use.  [default: all]")
@click.option("--iters", type=click.IntRange(1), default=20, show_default=True, help="Times a kernel is measured.")
@click.option(
    "--bench",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A hipblaslt-bench of your own, built for the image.  [default: the image's]",
)
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("output/hipblaslt"),
    show_default=True,
    help="Where each image, GPU and library has a directory.",
)
@TARGET
@REGISTRY
@WORKSPACE
def tune_products(
    source: str,
    framework: str | None,
    devices: tuple[int, ...],
    iters: int,
    bench: Path | None,
    results: Path,
    accelerator: str,
    registry: str,
    workspace: Path,
    launcher: str | None,
    image: str | None,
    engine: str | None,
    pull: str,
    offline: bool,
    mounts: tuple[str, ...],
    env: tuple[str, ...],
    engine_args: tuple[str, ...],
    dev: bool,
    dry_run: bool,
) -> None:
    """Run hipblaslt-bench in the image, for each product of a run that dumped, or of a file of them.

    What is done is kept, whenever it stops: the same command goes on. The path of the result is printed.
    """
    passed = take_env(env)
    refuse_secrets(engine_args)
    for text in clean_environment():
        note(text)
    if launcher == "slurm":
        raise ConfigError("--launcher slurm: this runs on one machine", hint="srun primus tune hipblaslt tune ...")
    file = products(source, absolute(workspace))
    about = {} if Path(source).is_file() else find(source, absolute(workspace)).read("run.json")
    whose = framework or about.get("framework")
    if not whose:
        raise ConfigError(f"{source}: does not say whose image to use", hint="add --framework")
    where = absolute(results)
    if bench:
        bench = absolute(bench)
    given = tuple(Mount.parse(text) for text in mounts)
    shown = [path for path in (file, bench) if path and not path.is_relative_to(where)]
    chosen = launcher or ("direct" if manifest.IN_IMAGE.exists() else "container")
    runtime = engine or default_engine()
    name = image or about.get("image") or reference(whose, accelerator, registry=registry)
    experiment = Experiment(
        work_group="tune",
        user_name=_user(),
        exp_name="hipblaslt",
        workspace=str(where),
        framework=whose,
        stage="tune",
        accelerator=about.get("accelerator") or accelerator,
        args={},
        env={},
        origins={},
        source=Path(),
    )
    job = Job(
        experiment=with_env(experiment, passed),
        image=image_of(name, runtime, chosen, dry=dry_run, say=note),
        run_dir=where,
        mounts=(*given, *(Mount(source=path, target=path, read_only=True) for path in shown)),
        env_names=passed,
        engine=runtime,
        engine_args=engine_args,
        pull=pull if (registry or image) and not offline else "never",
        dev=checkout() if dev else None,
    )
    module = import_module(f"primus.launchers.{chosen}")
    words = [f"--shapes={file}", f"--output={where}", f"--iters={iters}", *(f"--device={n}" for n in devices)]
    words += [f"--bench={bench}"] if bench else []

    def inner(identity: str) -> Command:
        return Command(argv=("python", "-m", "primus.tune.offline", *words, f"--image={identity}"))

    if dry_run:
        print_commands(module.dry_run_other(inner("IMAGE-ID"), job, dict(os.environ)))
        return
    try:
        where.mkdir(parents=True, exist_ok=True)  # as the user, before the engine could as root
    except OSError as error:
        raise ConfigError(f"cannot write to {where}: {error.strerror}") from error
    identity, job = module.identified(job)
    sys.exit(module.run(inner(identity), job))


tune_products.params.extend(option for option in run.params if option.name in _AS_IN_RUN)
with_settings(tune_products)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name
        return str(os.getuid())
