"""One run: an experiment, the image it runs in, and the machines' share of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from primus.errors import ConfigError
from primus.experiment import Experiment, Template


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
        path = Path(source).expanduser().absolute()
        if not path.exists():
            raise ConfigError(f"--mount {text!r}: {path} does not exist on this machine")
        return cls(source=path, target=Path(target) if target else path, read_only=mode == "ro")


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that decides how one experiment is started."""

    experiment: Experiment
    image: str
    run_dir: Path
    nodes: int | None = None
    gpus_per_node: int | None = None
    mounts: tuple[Mount, ...] = ()
    env_names: tuple[str, ...] = ()  # --env NAME: passed on besides the allow-list
    engine: str = "docker"
    engine_args: tuple[str, ...] = ()
    pull: str = "missing"
    dev: Path | None = None  # a checkout's primus/ to mount over the image's
    notes: tuple[str, ...] = field(default=())  # what a user should know before it starts


def with_env(experiment: Experiment, names: tuple[str, ...], *, offline: bool) -> Experiment:
    """The experiment with `--env NAME`s as references (their values never reach a file) and the offline switches."""
    env: dict[str, str] = dict(experiment.env)
    if offline:
        # https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
        env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    env |= {name: Template(f"${{{name}}}") for name in names}
    return replace(experiment, env=env)


def with_inputs(
    experiment: Experiment, mounts: tuple[Mount, ...]
) -> tuple[Experiment, tuple[Mount, ...], tuple[str, ...]]:
    """The experiment with its existing input paths made absolute, the mounts they need, and notes on missing ones.

    A backend's input arguments may hold a path or a name on a hub: only what exists here, or is written as a path
    (/..., ./..., ../...), is taken for one.
    """
    inputs: tuple[str, ...] = import_module(f"primus.backends.{experiment.framework}.adapter").INPUTS
    args: dict[str, Any] = _copy(experiment.args)
    found: list[Mount] = []
    notes: list[str] = []
    for dotted in inputs:
        *sections, key = dotted.split(".")
        place: Any = args
        for section in sections:
            place = place.get(section, {})
        value = place.get(key)
        if not isinstance(value, str) or isinstance(value, Template) or not value:
            continue
        path = Path(value).expanduser().absolute()
        if path.exists():
            place[key] = str(path)
            if not any(path.is_relative_to(mount.target) for mount in (*mounts, *found)):
                found.append(Mount(source=path, target=path, read_only=True))
        elif value.startswith(("/", "./", "../")) and not any(
            Path(value).is_relative_to(mount.target) for mount in mounts
        ):
            where = experiment.origins[dotted].origin if dotted in experiment.origins else ""
            notes.append(f"{where}: {dotted}: {path} does not exist on this machine")
    return replace(experiment, args=args), (*mounts, *found), tuple(notes)


def _copy(value: Any) -> Any:
    return {key: _copy(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def default_engine(environ: Mapping[str, str] = os.environ) -> str:
    """docker, or podman where only that is installed."""
    from shutil import which

    return "podman" if not which("docker") and which("podman") else "docker"
