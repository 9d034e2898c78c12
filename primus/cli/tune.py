"""primus tune"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from primus.cli import inside
from primus.cli.hipblaslt import is_no_run, products
from primus.cli.options import TARGET, WORKSPACE
from primus.cli.run import run
from primus.command import Command
from primus.errors import ConfigError
from primus.experiment.paths import absolute
from primus.experiment.schema import frameworks
from primus.job import Mount
from primus.record import find

_HELP = {"help_option_names": ["-h", "--help"]}
# Words that are `primus run`'s, which says itself what is wrong with them.
_RUNS = {"ignore_unknown_options": True, "allow_interspersed_args": False, **_HELP}


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
@WORKSPACE
def tune_products(
    source: str,
    framework: str | None,
    devices: tuple[int, ...],
    iters: int,
    bench: Path | None,
    results: Path,
    accelerator: str,
    workspace: Path,
    **options: Any,
) -> None:
    """Run hipblaslt-bench in the image, for each product of a run that dumped, or of a file of them.

    What is done is kept, whenever it stops: the same command goes on. The path of the result is printed.
    """
    wanted, dry = inside.taken(options)
    about = {} if is_no_run(Path(source)) else find(source, absolute(workspace)).read("run.json")
    whose = framework or about.get("framework")
    if not whose:
        raise ConfigError(f"{source}: does not say whose image to use", hint="add --framework")
    file = products(source, absolute(workspace))
    if about.get("image") and not (
        wanted.image or wanted.lock or wanted.verify_key
    ):  # one that must be signed is locked
        wanted = replace(wanted, image=about["image"])
    where = absolute(results)
    if bench:
        bench = absolute(bench)
    target = about.get("accelerator") or accelerator
    experiment = inside.experiment(whose, target, stage="tune", name="hipblaslt", folder=where, args={})
    shown = [path for path in (file, bench) if path and not path.is_relative_to(where)]
    mounts = (*wanted.mounts, *(Mount(source=path, target=path, read_only=True) for path in shown))
    job = inside.planned(experiment, target, wanted, where, mounts, dry=dry)
    words = [f"--shapes={file}", f"--output={where}", f"--iters={iters}", *(f"--device={n}" for n in devices)]
    words += [f"--bench={bench}"] if bench else []

    def program(identity: str) -> Command:
        return Command(argv=("python", "-m", "primus.tune.offline", *words, f"--image={identity}"))

    inside.start(program, job, wanted, dry=dry)


inside.as_in_run(tune_products)
