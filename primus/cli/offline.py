"""--offline, as a command line has it: what is switched off is said, and all that is missing is said at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, MutableMapping

from primus import offline
from primus.cli import note
from primus.cli.given import image_of
from primus.errors import ConfigError, ImageError, Problem
from primus.experiment import Experiment
from primus.job import hub_cache


def switch_off(
    experiment: Experiment, launcher: str, say: Callable[[str], None], environ: MutableMapping[str, str]
) -> Experiment:
    """The experiment with the libraries' switches; the hub's cache, if it is read, is shown to the container."""
    experiment, notes = offline.switched(experiment, os.environ)
    for text in notes:
        say(text)
    if launcher != "direct" and offline.cache_to_show(experiment, os.environ):
        environ["HF_HUB_CACHE"] = os.environ["HF_HUB_CACHE"] = str(hub_cache(os.environ))
    return experiment


def refuse_offline(
    missing: Iterable[Problem],
    image: str,
    identifier: str,
    engine: str,
    launcher: str,
    say: Callable[[str], None],
    *,
    dry_run: bool,
) -> None:
    """Raise ConfigError for all that a run without a network would lack; ImageError if that is the image alone.

    In a dry run it is said, and the machine is not asked for its images: it may be another one.
    """
    found, absent = list(missing), list[Problem]()
    if not dry_run:
        try:
            image_of(image, engine, launcher, dry_run=False)
        except ConfigError as error:
            absent += error.problems
        else:
            absent += offline.no_image(image, identifier, engine, launcher, os.environ)
    if dry_run:
        for problem in found:
            note(str(problem))
        return
    if found:
        raise ConfigError([*found, *absent])
    if absent:
        raise ImageError(absent)
    if launcher == "slurm":
        say(offline.of_nodes(image, identifier, engine))
