"""The images that a lock names, and whether a tag has moved since."""

from __future__ import annotations

from pathlib import Path
from shutil import which

import click

from primus.cli.options import stack
from primus.cli.signing import VERIFY_KEY
from primus.errors import PrimusError
from primus.experiment import Experiment
from primus.experiment.paths import absolute
from primus.image import lock as locks
from primus.image.lock import Locked
from primus.image.names import reference, take_apart

LOCK = click.option(
    "--lock",
    "lock",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="PRIMUS_LOCK",
    show_envvar=True,
    help=f"The images by digest.  [default: the nearest {locks.NAME} above this directory]",
)
LOCKS = stack(
    LOCK,
    VERIFY_KEY,
    click.option("--no-lock", is_flag=True, help="Take the image by its tag, whatever is locked."),
    click.option("--image-id", default="", hidden=True),
)


def named(lock: Path | None, experiment: Experiment, registry: str) -> str:
    """The image that `primus run` would take for the experiment."""
    path = absolute(lock) if lock else locks.find(Path.cwd())
    one = locks.read(path).get((experiment.framework, experiment.accelerator)) if path else None
    if one is not None:
        return one.reference(registry, experiment.framework)
    return reference(experiment.framework, experiment.accelerator, registry=registry)


def moved(one: Locked, engine: str, *, ask_registry: bool) -> str:
    """What to say if the tag names another image by now: on this machine, or in the registry; else nothing.

    A registry that does not answer at once is not waited for: what runs is the locked digest in any case.
    """
    from primus.image.engine import Client
    from primus.image.registry import Registry

    take = "primus image lock takes the new one"
    client = Client(engine)
    about = client.about(one.tagged) if which(engine) else None  # a login node may have none
    if about is not None and about["Id"] not in (one.id, one.digest):
        return f"{one.tagged} is {about['Id'][:19]} on this machine by now; the lock has {one.id[:19]}; {take}"
    if not ask_registry or not one.digest:
        return ""
    name = take_apart(one.name)
    try:
        digest = Registry(name.host, name.path, timeout=3, pauses=()).digest(one.tag)
    except PrimusError:
        return ""
    if digest and digest != one.digest:
        return f"{one.tagged} is {digest[:19]} in the registry by now; the lock has {one.digest[:19]}; {take}"
    return "" if digest else f"{one.tagged} is not in the registry any more; the lock's digest is used"
