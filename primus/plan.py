"""From an experiment, and how it shall be launched, to a Job: the same for the command line and for the Python API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from primus import layout, offline
from primus.errors import ConfigError, ImageError, PrimusError, Problem
from primus.experiment import Experiment, load_experiment
from primus.experiment.paths import absent, absolute, exists, in_the_way, shown, unfit
from primus.image import lock as locks
from primus.image.lock import Locked
from primus.image.names import reference
from primus.image.runtimes import ENGINES, is_path, spelled
from primus.job import Job, Mount, Slurm, apart, default_engine, with_env, with_inputs
from primus.node import size
from primus.record import DRY_RUN, Record, records

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How an experiment shall be launched: the options of `primus run` by their names, converted."""

    launcher: str = "container"
    image: str | None = None
    image_id: str = ""
    lock: Path | None = None
    no_lock: bool = False
    verify_key: bytes | None = None  # a public key, PEM, that must have signed what is locked
    registry: str = ""
    engine: str | None = None
    pull: str = "missing"
    offline: bool = False
    nodes: int | None = None
    gpus_per_node: int | None = None
    mounts: tuple[Mount, ...] = ()
    env: tuple[str, ...] = ()  # names
    engine_args: tuple[str, ...] = ()
    run_dir: Path | None = None
    dev: Path | None = None
    output: str = "text"
    any_gpu: bool = False
    slurm: Slurm | None = None
    slurm_job: str = ""  # the job that this launch is a task of
    in_image: bool = False
    record: Path | None = None  # that a launcher outside has made
    run_id: str = DRY_RUN

    def size(self, experiment: Experiment, environ: Mapping[str, str]) -> tuple[int, int]:
        """How many nodes it will be, and GPUs (or processes on CPUs) each."""
        # A cluster's nodes are not this machine.
        where = {"topology": Path()} if self.launcher == "slurm" else {}
        return size(
            accelerator=experiment.accelerator, nodes=self.nodes, gpus=self.gpus_per_node, environ=environ, **where
        )


def plan(experiment: Experiment, wanted: Wanted, *, environ: Mapping[str, str], dry: bool = False, say: Say) -> Job:
    """The job. `say` is told what the user should know; of a dry run also what is missing, else that is an error.

    Raises ConfigError for what cannot start: a number of GPUs that the parallelism does not divide, an input that is
    not there, another backend's run directory.
    """
    count, gpus = wanted.size(experiment, environ)
    if wrong := layout.problems(experiment, nodes=count, gpus=gpus):
        raise ConfigError(wrong)
    experiment = with_env(experiment, wanted.env)
    shown_too: tuple[Mount, ...] = ()
    if wanted.offline:
        experiment, notes = offline.switched(experiment, environ)
        for text in notes:
            say(text)
        if wanted.launcher != "direct":
            experiment, shown_too = offline.shown_cache(experiment, environ)
    experiment, mounts, missing = with_inputs(
        experiment, (*wanted.mounts, *shown_too), offline=wanted.offline, environ=environ
    )
    if wanted.offline:
        missing = (*missing, *offline.problems(experiment, environ))
    if missing and not (dry or wanted.offline):
        raise ConfigError(missing)
    for problem in missing if dry else ():
        say(str(problem))
    directory = absolute(wanted.run_dir) if wanted.run_dir else experiment.run_dir
    if wanted.run_dir and (unusable := unfit(str(wanted.run_dir))):
        raise ConfigError(f"--run-dir {str(wanted.run_dir)[:40]!r}: {unusable}", hint="name a directory")
    if file := in_the_way(directory):
        raise ConfigError(f"{directory}: cannot be the run directory, {file} is no directory")
    if directory == Path(directory.anchor):
        raise ConfigError(f"--run-dir {directory}: is the root of all files", hint="name a directory of its own")
    if wanted.record:
        directory = Path(Record(absolute(wanted.record)).read("run.json").get("run_dir") or directory)
    _refuse_anothers(directory, experiment.framework)
    mounts, given = apart(mounts, directory), apart(wanted.mounts, directory)
    engine = wanted.engine or default_engine()
    image = chosen(experiment.framework, experiment.accelerator, wanted, engine, dry=dry, say=say)
    if wanted.offline and not dry:  # the machine of a dry run may be another one
        offline.refuse(missing, image.name, image.id, engine, wanted.launcher, environ, say)
    slurm = wanted.slurm if wanted.launcher == "slurm" else None
    return Job(
        experiment=replace(experiment, workspace=str(absolute(experiment.workspace))),
        image=image.name,
        image_id=image.id,
        lock=image.lock,
        run_dir=directory,
        nodes=count if wanted.launcher == "slurm" else wanted.nodes,
        gpus_per_node=gpus if wanted.launcher == "slurm" else wanted.gpus_per_node,
        mounts=mounts,
        mounts_given=given,
        env_names=wanted.env,
        engine=engine,
        engine_args=wanted.engine_args,
        pull=image.pull,
        dev=wanted.dev,
        record=_record(wanted, directory),
        # For GPUs, whole nodes, unless somebody says how many of them.
        slurm=slurm and (replace(slurm, exclusive=_whole(experiment, wanted)) if slurm.exclusive is None else slurm),
        output=wanted.output,
        slurm_job=wanted.slurm_job,
        any_gpu=wanted.any_gpu,
        in_image=wanted.in_image,
    )


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The image that something runs in: its name or file, the ID that it must have, the lock that says so."""

    name: str
    id: str
    lock: Path | None
    pull: str


def chosen(framework: str, accelerator: str, wanted: Wanted, engine: str, *, dry: bool, say: Say) -> Chosen:
    """The image that is named, else what is locked, else the framework's by its tag.

    Raises ConfigError for one that cannot be run, or that no lock can say to be signed where that is required.
    """
    if wanted.verify_key and (wanted.image or wanted.no_lock) and not wanted.slurm_job:
        raise ConfigError(
            "verify_key is set: an image must be signed, and only a lock says that it is",
            hint="leave out --image and --no-lock; primus image lock takes the signature of what is published",
        )
    use_lock = not (wanted.image or wanted.no_lock or wanted.launcher == "direct")
    one, lock = select(wanted.lock, framework, accelerator, say, wanted.verify_key) if use_lock else (None, None)
    if one is not None:
        name = one.reference(wanted.registry, framework)
        if wanted.verify_key and not one.digest and engine not in ENGINES:
            raise ImageError(
                f"{name}: is signed by its ID, which {engine} cannot tell of an image",
                hint="lock what is published (primus image lock --registry HOST), or run it with docker or podman",
            )
    else:
        name = wanted.image or reference(framework, accelerator, registry=wanted.registry)
    # Without a registry the name is this machine's own: elsewhere it would be a stranger's image.
    elsewhere = bool(wanted.registry or wanted.image or (one and one.digest))
    return Chosen(
        name=_image(name, engine, wanted.launcher, dry=dry, say=say),
        id=one.id if one else wanted.image_id,
        lock=lock,
        pull=wanted.pull if elsewhere and not wanted.offline else "never",
    )


def _image(image: str, engine: str, launcher: str, *, dry: bool, say: Say) -> str:
    """The image as the job has it: a file by its absolute path. Raises ConfigError for one that cannot be run."""
    if launcher == "direct":
        return image
    if engine == "pyxis" and launcher != "slurm":
        raise ConfigError(f"--engine pyxis: is Slurm's, and the launcher is {launcher}", hint="add --launcher slurm")
    if not is_path(image):
        spelled(image, engine)
        return image
    path = absolute(image)
    spelled(str(path), engine)
    if not exists(path):
        missing = Problem(
            message=f"--image {image} {absent(path)} here",
            hint="it must be on storage that this machine and every node see",
        )
        if not dry:
            raise ConfigError([missing])
        say(str(missing))
    return str(path)


def _whole(experiment: Experiment, wanted: Wanted) -> bool:
    return experiment.accelerator == "rocm" and wanted.gpus_per_node is None


def _record(wanted: Wanted, directory: Path) -> Path | None:
    """Where this run is recorded: where the launcher outside said; a process that we become has no record."""
    if wanted.record is not None or wanted.launcher == "direct":
        return wanted.record and absolute(wanted.record)
    return directory / wanted.run_id


def select(
    lock: Path | None, framework: str, accelerator: str, say: Say, public: bytes | None = None
) -> tuple[Locked | None, Path | None]:
    """What is locked for a framework, and where; nothing, and why, if the lock does not have it.

    With a public key, raises ImageError unless what is locked is signed with it; its ID is then the one that the
    signature vouches for, or "".
    """
    path = absolute(lock) if lock else locks.find(Path.cwd())
    one = locks.read(path).get((framework, accelerator)) if path else None
    if public:
        vouched = locks.check_signed(public, one, f"an image of {framework} that no lock names")
        one = one and replace(one, id=vouched)
    if path is None:
        return None, None
    if one is None:
        say(f"{shown(path)} has no image of {framework} for {accelerator}: it is taken by its tag")
        return None, None
    return one, path


def _refuse_anothers(directory: Path, framework: str) -> None:
    """Another backend's run goes on from nothing here, and its record would be lost."""
    try:
        newest = max(records(directory, 2), key=lambda one: one.path.name, default=None)
        was = load_experiment(newest.experiment if newest else directory / "experiment.yaml", environ={}).framework
    except (PrimusError, OSError):  # none, or none that can be read
        return
    if was != framework:
        raise ConfigError(
            f"{directory}: holds a run of {was}, and this is one of {framework}",
            hint="give this one a directory of its own: --run-dir, or PRIMUS_EXP_NAME in front of a shipped example",
        )
