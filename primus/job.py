"""One run: an experiment, the image it runs in, and the machines' share of it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from primus import shipped
from primus.errors import ConfigError, Problem
from primus.experiment import Experiment, Template
from primus.experiment.paths import absent, absolute, exists, shown


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A directory or file of the host at `target` in the container."""

    source: Path
    target: Path
    read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> Mount:
        """SRC[:DST[:ro|rw]]. Raises ConfigError if it is not that, or SRC does not exist."""
        source, _, rest = text.partition(":")
        target, _, mode = rest.partition(":")
        if not source or mode not in ("", "ro", "rw") or (target and not target.startswith("/")):
            raise ConfigError(
                f"--mount {text!r} is not SRC[:DST[:ro]]", hint="DST is an absolute path in the container"
            )
        path = absolute(source)
        if target and not target.strip("/"):
            raise ConfigError(f"--mount {text!r}: would hide all of the image", hint="name a directory below /")
        if not exists(path):
            raise ConfigError(f"--mount {text!r}: {path} {absent(path)} on this machine", hint="create it first")
        return cls(source=path, target=Path(target) if target else path, read_only=mode == "ro")

    def __str__(self) -> str:
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """What to say to Slurm, by Slurm's own names: https://slurm.schedmd.com/sbatch.html"""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str | None = None
    reservation: str | None = None
    nodelist: str | None = None
    dependency: str | None = None
    job_name: str | None = None
    signal: str | None = None
    cpus_per_task: int | None = None
    exclusive: bool | None = None  # None: whole nodes where the experiment is for GPUs
    array: str | None = None
    requeue: int = 0  # restarts at most
    wait: bool = False
    sbatch_args: tuple[str, ...] = ()
    sbatch_omit: tuple[str, ...] = ()  # directives that the site refuses


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that decides how one experiment is started."""

    experiment: Experiment
    image: str
    run_dir: Path
    image_id: str = ""  # that the lock says it has
    lock: Path | None = None  # the lock that the image is from
    nodes: int | None = None
    gpus_per_node: int | None = None
    mounts: tuple[Mount, ...] = ()
    mounts_given: tuple[Mount, ...] = ()  # the user's own among them; the others follow from the experiment
    env_names: tuple[str, ...] = ()  # --env NAME: passed on besides the allow-list
    engine: str = "docker"
    engine_args: tuple[str, ...] = ()
    pull: str = "missing"
    dev: Path | None = None  # a checkout's primus/ to mount over the image's
    record: Path | None = None  # of this run; in the run directory
    slurm: Slurm | None = None
    output: str = "text"  # how the launcher tells what happens: text or json
    slurm_job: str = ""  # the number of the job that this launch is a task of
    any_gpu: bool = False  # whatever GPU the experiment's folder is for
    in_image: bool = False  # a launcher outside meant this process to be in an image

    @property
    def config(self) -> Path:
        """The resolved experiment that the nodes and the container read."""
        return (self.record or self.run_dir) / "experiment.yaml"


def apart(mounts: Iterable[Mount], run_dir: Path) -> tuple[Mount, ...]:
    """The mounts besides the run directory's, each once.

    Raises ConfigError for two in one place, which no engine takes.
    """
    at = {run_dir: Mount(source=run_dir, target=run_dir)}
    for mount in mounts:
        there = at.setdefault(Path(os.path.normpath(mount.target)), mount)
        if there != mount:
            raise ConfigError(f"--mount {mount}: {there} is in that place already", hint="keep one of them")
    return tuple(at.values())[1:]


def with_env(experiment: Experiment, names: tuple[str, ...]) -> Experiment:
    """The experiment with `--env NAME`s as references: their values never reach a file."""
    return replace(experiment, env={**experiment.env, **{name: Template(f"${{{name}}}") for name in names}})


def problems(experiment: Experiment) -> tuple[Problem, ...]:
    """What an adapter finds wrong that no table of arguments can say."""
    adapter = import_module(f"primus.backends.{experiment.framework}.adapter")
    return tuple(adapter.problems(experiment)) if hasattr(adapter, "problems") else ()


def with_inputs(
    experiment: Experiment, mounts: tuple[Mount, ...], *, offline: bool, environ: Mapping[str, str]
) -> tuple[Experiment, tuple[Mount, ...], tuple[Problem, ...]]:
    """The experiment with its existing input paths made absolute, the mounts they need, and what is missing.

    A backend's input arguments hold a path, a list of paths or, those in its HUB, a name on a hub: what exists here, or
    cannot be a hub's name, is a path. Offline, a name on a hub must be in the Hugging Face cache.
    """
    adapter = import_module(f"primus.backends.{experiment.framework}.adapter")
    experiment = _unfolded(experiment, adapter)
    args: dict[str, Any] = _copy(experiment.args)
    found: list[Mount] = []
    missing = [*problems(experiment), *(adapter.refusals(experiment) if hasattr(adapter, "refusals") else ())]
    for dotted, place, key, item in _inputs(adapter.inputs(experiment), args):
        where = str(experiment.origins[dotted].origin) if dotted in experiment.origins else ""
        path = absolute(item)
        files = _needed(path)
        if not files and (ours := shipped.instead(Path(item))):
            path, files = ours, [ours]
        if files:
            place[key] = str(path)
            for file in files:
                if not any(file.is_relative_to(mount.target) for mount in (*mounts, *found)):
                    found.append(Mount(source=file, target=file, read_only=True))
        elif not _MORE_THAN_A_PATH.fullmatch(item) and (_is_path(item) or dotted not in adapter.HUB):
            if not any(Path(item).is_relative_to(mount.target) for mount in mounts):
                message = f"{dotted}: {path} {absent(path)} on this machine"
                missing.append(Problem(message=message, where=where, hint=_maker(dotted, path, adapter)))
        elif offline and dotted in adapter.HUB and _is_name(item) and not cached(item, environ):
            message = f"{dotted}: {item} is no path here, and not in this machine's cache of the Hugging Face hub"
            hint = "fetch it where there is a network (hf download), or give a directory that holds it"
            missing.append(Problem(message=message, where=where, hint=hint))
    return replace(experiment, args=args), (*mounts, *found), tuple(missing)


def with_inputs_at(experiment: Experiment, place_of: Callable[[Path], str]) -> tuple[Experiment, tuple[str, ...]]:
    """The experiment with each input path that exists here replaced, and the names on a hub that it reads besides."""
    adapter = import_module(f"primus.backends.{experiment.framework}.adapter")
    experiment = _unfolded(experiment, adapter)
    args: dict[str, Any] = _copy(experiment.args)
    names = []
    for dotted, place, key, item in _inputs(adapter.inputs(experiment), args):
        path = shipped.instead(Path(item)) or absolute(item)
        if _needed(path):
            place[key] = place_of(path)
        elif dotted in adapter.HUB and _is_name(item):
            names.append(f"{dotted}: {item}")
    return replace(experiment, args=args), tuple(names)


def _unfolded(experiment: Experiment, adapter: ModuleType) -> Experiment:
    """The experiment with what files of lists name, for a backend that has such."""
    return adapter.unfolded(experiment) if hasattr(adapter, "unfolded") else experiment


def _inputs(arguments: Iterable[str], args: dict[str, Any]) -> Iterator[tuple[str, Any, Any, str]]:
    """Each text that the input arguments hold: the argument, and the mapping or list that has it under which key."""
    for dotted in arguments:
        *sections, key = dotted.split(".")
        place: Any = args
        for section in sections:
            place = place.get(section) or {}  # a section can be null
        value = place.get(key)
        pairs: list[tuple[Any, Any]] = [(place, key)]
        if isinstance(value, list):
            pairs = [(value, at) for at in range(len(value))]
        for holder, at in pairs:
            item = holder.get(at) if isinstance(holder, dict) else holder[at]
            if isinstance(item, str) and not isinstance(item, Template) and item:
                yield dotted, holder, at, item


def _needed(path: Path) -> list[Path]:
    """What must be shown to a container for `path` to be there; nothing if it is not.

    A pattern stands for its directory; Megatron names its data files, X.bin and X.idx, by X; and a directory of links,
    as the Hugging Face cache has them, needs what they lead to.
    """
    if "*" in path.name:
        return [path.parent] if exists(path.parent) and any(path.parent.glob(path.name)) else []
    files = [file for file in (path, Path(f"{path}.bin"), Path(f"{path}.idx")) if exists(file)]
    links = {
        link.resolve().parent for file in files if _is_folder(file) for link in file.iterdir() if link.is_symlink()
    }
    return [*files, *sorted(folder for folder in links if not folder.is_relative_to(path.resolve()))]


def _is_folder(path: Path) -> bool:
    return path.is_dir() and os.access(path, os.R_OK)


def _maker(dotted: str, path: Path, adapter: ModuleType) -> str:
    """What makes a missing input, if we have something that does; else how a container sees what is elsewhere."""
    if _TINY in path.parts:
        folder = Path(*path.parts[: path.parts.index(_TINY) + 1])
        return f"python3 examples/data/make_tiny_llama.py {shlex.quote(shown(folder))} makes it"
    made: Mapping[str, str] = getattr(adapter, "MAKERS", {})
    return made.get(dotted, "--mount SRC:DST shows the container a path under another name")


_TINY = "tiny_llama"  # the directory that the examples of fine-tuning on a CPU have their model and data in
_LOADERS = ("json", "csv", "parquet", "arrow", "text")  # what Hugging Face's datasets read files with, and no names
_MORE_THAN_A_PATH = re.compile(r"[-+]?[\d.]+|.*://.*|.*;.*|.*,[\d.]+")  # or less: an address, a mixture, a weight
_HUB_NAME = re.compile(r"([\w.-]+/)?[\w.-]+")
_DATA_FILE = re.compile(r".*\.(json|jsonl|txt|csv|parquet|arrow|array_record|tfrecord|model)")


def _is_path(text: str) -> bool:
    """Whether the text cannot be a name on a hub, which has one slash and no file's ending."""
    return text.startswith(("/", "./", "../", "~")) or text.count("/") > 1 or bool(_DATA_FILE.fullmatch(text))


def _is_name(text: str) -> bool:
    return bool(_HUB_NAME.fullmatch(text)) and text not in _LOADERS


def hub_names(experiment: Experiment) -> tuple[str, ...]:
    """The names on the Hugging Face hub among the experiment's inputs."""
    adapter = import_module(f"primus.backends.{experiment.framework}.adapter")
    found: list[str] = []
    for dotted in adapter.inputs(experiment):
        value: Any = experiment.args
        for key in dotted.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        texts = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)]
        found += [text for text in texts if dotted in adapter.HUB and _is_name(text) and not exists(absolute(text))]
    return tuple(found)


def hub_cache(environ: Mapping[str, str]) -> Path:
    """Where the hub's files are kept: https://huggingface.co/docs/huggingface_hub/guides/manage-cache"""
    home = absolute(environ.get("HF_HOME") or Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    return absolute(environ.get("HF_HUB_CACHE") or home / "hub")


def cached(name: str, environ: Mapping[str, str]) -> bool:
    """Whether the hub's cache holds a snapshot with anything in it."""
    return any(hub_cache(environ).glob(f"*s--{name.replace('/', '--')}/snapshots/*/*"))


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return list(value) if isinstance(value, list) else value


def default_engine() -> str:
    """docker, or podman where only that is installed."""
    from shutil import which

    return "podman" if not which("docker") and which("podman") else "docker"
