"""Runs that may touch no network: what is switched off for them, and what they lack, all of it before the start."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from primus.errors import ConfigError, ImageError, LaunchError, Problem
from primus.experiment import Experiment, Template
from primus.experiment.substitute import fill
from primus.image.engine import Client
from primus.image.runtimes import ENGINES, is_path
from primus.job import Mount, cached, hub_cache, hub_names

# https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables and
# https://docs.wandb.ai/guides/track/environment-variables (offline: it writes files, and sends nothing)
SWITCHES: Mapping[str, str] = {
    **dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"), "1"),
    "WANDB_MODE": "offline",
}
_OFF = ("1", "on", "yes", "true", "offline", "disabled", "dryrun")
_ADDRESS = re.compile(
    r"(?:^|[,;])((?:https?|ftp|s3|gs|gcs|hf|az|abfss?|wasbs?|oci|r2|msc|swift)://[^,;]*)", re.IGNORECASE
)
_LOOPBACK = re.compile(r"https?://(?:localhost|127\.[\d.]+|\[::1\])(?:[:/]|$)", re.IGNORECASE)
# Names that no registry is asked for: an engine of this machine's, a file.
_LOCAL = ("dockerd://", "podman://", "docker-daemon:", "docker-archive:", "oci-archive:", "oci:")
_OTHER_MACHINE = re.compile(r"ssh://|tcp://(?!localhost|127\.|\[::1\])")


def switched(experiment: Experiment, environ: Mapping[str, str]) -> tuple[Experiment, tuple[str, ...]]:
    """The experiment with the libraries' switches in its `env`; and what to say of those that somebody set otherwise.

    What the user exports, or the experiment says, stays.
    """
    env, notes = dict(experiment.env), []
    for name, value in SWITCHES.items():
        said = env.get(name)
        if said is None or isinstance(said, Template):  # --env passes on what is in the environment
            said = environ.get(name)
        if not said:
            env[name] = value
        elif said.lower() not in _OFF:
            where = "the experiment's env" if said == env.get(name) else "your environment"
            notes.append(f"{name}={said} is in {where} and stays: with --offline it would be {value}")
    return replace(experiment, env=env), tuple(notes)


def problems(experiment: Experiment, environ: Mapping[str, str]) -> tuple[Problem, ...]:
    """What the experiment needs a network for, besides its input arguments (primus.job.with_inputs)."""
    return (*_addresses(experiment), *_trackers(experiment, environ), *_fetched(experiment, environ))


def _problem(experiment: Experiment, dotted: str, message: str, hint: str) -> Problem:
    where = str(experiment.origins[dotted].origin) if dotted in experiment.origins else ""
    return Problem(message=f"{dotted}: {message}", where=where, hint=hint)


def _addresses(experiment: Experiment) -> Iterator[Problem]:
    for dotted, text in _texts(experiment.args):
        for address in _ADDRESS.findall(text):
            if not _LOOPBACK.match(address):
                # An address can hold a password.
                shown = re.sub(r"//[^/@]*@", "//", address)
                hint = "copy it to where the nodes can read it, and name the path"
                yield _problem(experiment, dotted, f"{shown} is on a network", hint)


def _texts(value: Any, dotted: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, f"{dotted}.{key}" if dotted else str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, dotted)
    elif isinstance(value, str) and not isinstance(value, Template):
        yield dotted, value


def _seen(experiment: Experiment, environ: Mapping[str, str], name: str) -> str:
    """A variable of the experiment's env as the training sees it; --env passes on what is in the environment."""
    said = experiment.env.get(name, "")
    if not isinstance(said, Template):
        return said
    try:
        return str(fill(said, environ))
    except ConfigError:  # it refers to what is not set here
        return "" if said == f"${{{name}}}" else said


def _trackers(experiment: Experiment, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Trackers that wait for a server: the training would stop there, or be retried for minutes.

    Weights & Biases is none: its switch has it write files.
    """
    said = dict(_texts(experiment.args))
    server = _seen(experiment, environ, "MLFLOW_TRACKING_URI") or environ.get("MLFLOW_TRACKING_URI", "")
    for dotted, value in said.items():
        name = dotted.rpartition(".")[2]
        mlflow = name == "mlflow_experiment" or (name == "report_to" and value == "mlflow")
        own = any(key.rpartition(".")[2] == "mlflow_tracking_uri" for key in said)
        if mlflow and not own and server.startswith(("http", "databricks")) and not _LOOPBACK.match(server):
            yield _problem(
                experiment,
                dotted,
                "MLflow would send to the server that MLFLOW_TRACKING_URI names",
                "unset it, or let it name a directory: file:///shared/mlruns",
            )
        if name == "report_to" and value == "swanlab" and not _seen(experiment, environ, "SWANLAB_MODE"):
            hint = f"write {dotted}: tensorboard, or env: {{SWANLAB_MODE: offline}}"
            yield _problem(experiment, dotted, "swanlab sends to its server", hint)
    if experiment.args.get("use_vertex_tensorboard"):
        hint = "enable_tensorboard writes files"
        yield _problem(experiment, "use_vertex_tensorboard", "sends to Google's server", hint)


def _fetched(experiment: Experiment, environ: Mapping[str, str]) -> Iterator[Problem]:
    """What a backend fetches by itself for a word that is no name of the hub's."""
    adapter = import_module(f"primus.backends.{experiment.framework}.adapter")
    if not hasattr(adapter, "fetched"):
        return
    for dotted, name, instead in adapter.fetched(experiment):
        if not name:
            yield _problem(experiment, dotted, "the backend would fetch the data", instead)
        elif not cached(name, environ):
            message = f"stands for {name}, which is not in this machine's cache of the Hugging Face hub"
            yield _problem(
                experiment, dotted, message, f"fetch it where there is a network (hf download), or {instead}"
            )


def shown_cache(experiment: Experiment, environ: Mapping[str, str]) -> tuple[Experiment, tuple[Mount, ...]]:
    """The experiment with the hub's cache named, and the mount that shows it, where a container would see none."""
    if not cache_to_show(experiment, environ):
        return experiment, ()
    cache = hub_cache(environ)
    named = replace(experiment, env={**experiment.env, "HF_HUB_CACHE": str(cache)})
    return named, (Mount(source=cache, target=cache),)


def cache_to_show(experiment: Experiment, environ: Mapping[str, str]) -> bool:
    """Whether the hub's cache must be shown to a container that would look for it in its own home."""
    if {"HF_HOME", "HF_HUB_CACHE"} & {*environ, *experiment.env}:
        return False
    adapter = import_module(f"primus.backends.{experiment.framework}.adapter")
    more = (name for _, name, _ in adapter.fetched(experiment) if name) if hasattr(adapter, "fetched") else ()
    return any(cached(name, environ) for name in (*hub_names(experiment), *more))


def no_image(image: str, identifier: str, engine: str, launcher: str, environ: Mapping[str, str]) -> Iterable[Problem]:
    """Why this machine cannot start the image without a network; nothing where only the nodes can know."""
    if launcher == "direct" or is_path(image):  # a file that is not there has been said
        return ()
    if engine not in ENGINES:
        if image.startswith(_LOCAL):
            return ()
        ending = ".sqsh" if engine == "pyxis" else ".sif"
        hint = f"--image /shared/IMAGE{ending}; docs/runtimes.md says how it is made"
        return (Problem(message=f"{image}: {engine} fetches an image that is no file", hint=hint),)
    if launcher == "slurm":
        return ()
    host = environ.get("DOCKER_HOST", "") if engine == "docker" else environ.get("CONTAINER_HOST", "")
    if _OTHER_MACHINE.match(host):
        name = "DOCKER_HOST" if engine == "docker" else "CONTAINER_HOST"
        return (Problem(message=f"{name}: the engine is on another machine", hint=f"unset {name}"),)
    client = Client(engine)
    try:
        client.check()
    except LaunchError as error:
        return error.problems
    if client.about(image) is None and not (identifier and client.about(identifier)):
        hint = "primus image load FILE takes it from a bundle; where there is a network, primus image pull or build"
        return (Problem(message=f"{image} is not on this machine, and nothing is pulled", hint=hint),)
    return ()


def of_nodes(image: str, identifier: str, engine: str) -> str:
    """What to say before a job of Slurm's is submitted: each node has images of its own."""
    if is_path(image) or engine not in ENGINES:
        return ""
    known = "" if identifier or "@" in image else ", by a tag that says nothing of what it names"
    return (
        f"only the nodes know whether they have {image}{known}: one without it ends the job; "
        "primus image load FILE --launcher slurm brings it there"
    )


def refuse(
    missing: Iterable[Problem],
    image: str,
    identifier: str,
    engine: str,
    launcher: str,
    environ: Mapping[str, str],
    say: Callable[[str], None],
) -> None:
    """Raise ConfigError for all that a run without a network would lack; ImageError if that is the image alone."""
    found = list(missing)
    absent = list(no_image(image, identifier, engine, launcher, environ))
    if found:
        raise ConfigError([*found, *absent])
    if absent:
        raise ImageError(absent)
    if launcher == "slurm":
        say(of_nodes(image, identifier, engine))
