"""The training process itself, on this machine: inside the image, or in any Python that has the backend."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from primus.command import Command
from primus.errors import ConfigError, ImageError, LaunchError
from primus.experiment.render import resolved_yaml
from primus.image import manifest
from primus.job import Job
from primus.launchers import lock
from primus.launchers.environment import filled, process_env
from primus.launchers.supervise import Step, supervise
from primus.launchers.task import restarts
from primus.node import GFX_OF, Node, gfx_targets
from primus.record import Attempt, Record, now
from primus.tune import library, results


def node(job: Job, environ: Mapping[str, str]) -> Node:
    """This machine's place in the job."""
    return Node.detect(accelerator=job.experiment.accelerator, nodes=job.nodes, gpus=job.gpus_per_node, environ=environ)


def command(job: Job, node: Node, environ: Mapping[str, str]) -> Command:
    """The backend's own command, with the environment and the files it needs."""
    adapter = import_module(f"primus.backends.{job.experiment.framework}.adapter")
    inner: Command = adapter.command(job.experiment, node, job.run_dir)
    return replace(
        inner,
        env=process_env(inner.env, job.experiment.env, environ),
        files={job.config: resolved_yaml(job.experiment), **inner.files},
    )


def dry_run(job: Job, environ: Mapping[str, str]) -> list[tuple[str, Command]]:
    return [("on this machine", command(job, node(job, environ), environ))]


def launch(job: Job) -> int:
    """Check that this machine can run the job, then become it: returns only by raising.

    As a task of a Slurm step it stays, to write down how the node's training ends, which nobody else would.
    """
    adapter = import_module(f"primus.backends.{job.experiment.framework}.adapter")
    place = node(job, os.environ)
    _check_image(job, place)
    if job.slurm_job or not job.in_image:  # the container launcher has done so
        check_gpu(job, place.gfx)
    _check_devices(job)
    _check_modules(adapter.modules(job.experiment))
    if tuned := results.named(job.experiment.env, os.environ):
        its = library.version(library.library(os.environ, sys.path))
        results.check(tuned, manifest=manifest.digest(), gfx=place.gfx or results.NO_GPU, library=its)
    _make_home()
    lock.hold(job.run_dir, place.rank)
    made = command(job, place, os.environ)
    # The file that this run was started with is not written again: its references may be filled in by now.
    files = {path: text for path, text in made.files.items() if not _same(path, job.experiment.source)}
    argv = (sys.executable, *made.argv[1:])
    made = replace(made, argv=argv, files=files, env=filled(made.env, os.environ))
    if job.slurm_job and job.record is not None:
        return _stay(made, job, place)
    made.exec()
    raise AssertionError("exec returned")


def _stay(made: Command, job: Job, place: Node) -> int:
    """Run it as a child. Slurm signals all processes of a step, so that nothing is passed on."""
    assert job.record is not None
    record = Record(job.record)
    here = replace(this_attempt(place.rank, job.slurm_job, os.environ), image_id=manifest.digest())
    record.begin(here)
    code = LaunchError.exit_code
    try:
        code = supervise(made, Step("the training"), secrets=None, grace=0, log=record.log(place.rank))
    finally:
        record.close(replace(here, ended=now(), exit=code))
    return code


def check_gpu(job: Job, gfx: str) -> None:
    """Raise ConfigError if the experiment is of a folder for GPUs that this machine's are not."""
    source = job.experiment.source
    if job.slurm_job and job.record is not None:  # this is the resolved one; the record says where it came from
        source = Path(Record(job.record).read("run.json").get("config") or source)
    sku = next((part for part in reversed(source.absolute().parts[:-1]) if part in GFX_OF), "")
    if gfx and sku and GFX_OF[sku] != gfx and not job.any_gpu:
        others = sorted(name for name, its in GFX_OF.items() if its == gfx)
        raise ConfigError(
            f"{source} is tuned for {sku} ({GFX_OF[sku]}), and this machine's GPUs are {gfx}",
            hint=(f"take its namesake in {' or '.join(others)}, or " if others else "")
            + "pass --any-gpu to run it all the same",
        )


def this_attempt(rank: int, slurm_job: str, environ: Mapping[str, str]) -> Attempt:
    attempt = restarts(environ) if slurm_job else 0
    return Attempt(rank=rank, host=os.uname().nodename, started=now(), attempt=attempt, job=slurm_job)


def _make_home() -> None:
    """Make the image's HOME, below /tmp, where the container's runtime put a /tmp of its own over it."""
    if manifest.inside() is not None:
        with suppress(OSError):
            Path(os.environ.get("HOME") or "/").mkdir(parents=True, exist_ok=True)


def dry_run_other(inner: Command, job: Job, environ: Mapping[str, str]) -> list[tuple[str, Command]]:
    return [("on this machine", inner)]


def run(inner: Command, job: Job) -> int:
    """Become something else than the training, here. Returns only by raising."""
    here = manifest.inside()
    if here is not None:
        framework = job.experiment.framework
        manifest.check(here, framework=framework, accelerator=here.accelerator, gfx="", image="this image")
    _check_modules({job.experiment.framework: f"framework: {job.experiment.framework}"})
    replace(inner, argv=(sys.executable, *inner.argv[1:])).exec()
    raise AssertionError("exec returned")


def _check_modules(needed: Mapping[str, str]) -> None:
    for module, why in needed.items():
        if find_spec(module) is None:
            hint = (
                "the direct launcher runs where the backend is: inside its image (leave --launcher out), "
                "or in a Python environment that has it"
            )
            if manifest.inside() is not None:
                hint = "this image does not have it: docs/images.md, and the README of the image, say what is in one"
            raise LaunchError(f"{module} is not installed in {sys.executable}; needed by {why}", hint=hint)


def identified(job: Job) -> tuple[str, Job]:
    """No engine says an ID here."""
    return "", job


def _same(path: Path, other: Path) -> bool:
    return path.exists() and other.exists() and path.samefile(other)


def _check_image(job: Job, place: Node) -> None:
    here = manifest.inside()
    if here is None and job.in_image:
        raise ImageError(
            "this process is in no Primus image, though it was started as one in a container: "
            f"{manifest.IN_IMAGE} is not here",
            hint="the runtime ignored the image (is pyxis set up on the nodes?), or it is another's image",
        )
    if here is not None:
        manifest.check(
            here,
            framework=job.experiment.framework,
            accelerator=job.experiment.accelerator,
            gfx=place.gfx,
            image="this image",
        )


def _check_devices(job: Job, kfd: Path = Path("/dev/kfd")) -> None:
    if job.experiment.accelerator != "rocm":
        return
    if not kfd.exists():
        raise LaunchError(
            f"there is no {kfd}: this machine shows no AMD GPU",
            hint="pass --accelerator cpu for an experiment that can run on the CPU; "
            "a container must be given /dev/kfd and /dev/dri",
        )
    if not os.access(kfd, os.R_OK | os.W_OK):
        group = kfd.stat().st_gid
        raise LaunchError(
            f"no permission on {kfd} (group {group})",
            hint=f"join the group: sudo usermod -aG {group} $USER, then log in again; "
            f"a container needs --group-add {group}",
        )
    if not gfx_targets():
        raise LaunchError("the driver shows no GPU", hint="see what rocminfo says; the container may lack /dev/dri")
