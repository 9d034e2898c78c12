"""primus image verify"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from primus.cli import note
from primus.cli.locked import LOCK
from primus.cli.options import ENGINE, REGISTRY, TARGET
from primus.cli.registry import known
from primus.cli.settings import with_settings
from primus.cli.signing import VERIFY_KEY, check_bundle, verify_key
from primus.errors import ConfigError, ImageError
from primus.experiment.paths import absolute
from primus.image import bundle as bundles
from primus.image import content as contents
from primus.image import load as loading
from primus.image import lock as locks
from primus.image import verification
from primus.image.engine import Client
from primus.image.lock import Locked
from primus.image.names import reference
from primus.image.verification import Check
from primus.job import default_engine
from primus.plan import select

_BEAT = 5.0
_FORMAT = click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)


@click.command("verify")
@click.argument("names", nargs=-1, metavar="[FRAMEWORK]...")
@click.option("--image", metavar="REF", help="Another image.")
@click.option(
    "--bundle", "file", type=click.Path(path_type=Path, dir_okay=False), help="What primus image bundle made."
)
@click.option("--running", is_flag=True, help="The containers of ours that run on this machine.")
@TARGET
@REGISTRY
@LOCK
@VERIFY_KEY
@ENGINE
@_FORMAT
def verify(
    names: tuple[str, ...],
    image: str | None,
    file: Path | None,
    running: bool,
    accelerator: str,
    registry: str,
    lock: Path | None,
    engine: str | None,
    form: str,
) -> None:
    """Check that images are what they say, and what is locked; no network is used, and nothing in them is run.

    Labels, manifest, lock, every file of every Python and Debian package. Without a FRAMEWORK: all that are locked or,
    without a lock, all that are here. Exits with 3 if anything is wrong.
    """
    if sum((bool(names), bool(image), bool(file), running)) > 1:
        raise ConfigError("FRAMEWORK, --image, --bundle and --running: each says what is verified", hint="give one")
    if file:
        bundle = bundles.read(absolute(file))
        check_bundle(bundle.path, bundle.text, bundle.signature, verify_key())
        loading.check(bundle, note)
        made = bundle.manifest
        said = f"{len(made.members)} members, {len(made.images)} images; every byte is as it was written"
        _show({str(file): [Check(name="bundle", state="ok", said=said)]}, form)
        return
    client = Client(engine or default_engine())
    client.check()
    path = absolute(lock) if lock else locks.find(Path.cwd())
    locked = locks.read(path) if path else {}
    public = verify_key()
    if running:
        found = _running(client, locked, public)
    elif image:
        about = client.about(image) or {}
        one = _locked_as(about, locked)
        found = {image: [*_one(client, image, one if lock else None), *_signature(one, public, about)]}
    else:
        wanted = [(name, accelerator) for name in known(names)] if names else sorted(locked)
        if not wanted:
            wanted = [
                (name, accelerator)
                for name in known(())
                if client.about(reference(name, accelerator, registry=registry)) is not None
            ]
        if not wanted:
            raise ImageError(f"there is no image of ours for {accelerator} here, and nothing is locked")
        found = {}
        for framework, target in wanted:
            one, _ = select(lock, framework, target, note)
            name = one.reference(registry, framework) if one else reference(framework, target, registry=registry)
            if one and client.about(name) is None and client.about(one.id) is not None:
                name = one.id
            found[name] = [*_one(client, name, one), *_signature(one, public, client.about(name) or {})]
    _show(found, form)
    if any(one.state == "fail" for checks in found.values() for one in checks):
        raise ImageError("not all is as it should be; see above")


def _locked_as(about: Mapping[str, Any], locked: Mapping[tuple[str, str], Locked]) -> Locked | None:
    """What is locked for the framework and accelerator of an image, by its labels."""
    labels = (about.get("Config") or {}).get("Labels") or {}
    return locked.get((labels.get("io.primus.framework", ""), labels.get("io.primus.accelerator", "")))


def _one(client: Client, image: str, locked: Locked | None) -> list[Check]:
    about = client.about(image)
    if about is None:
        raise ImageError(f"{image} is not on this machine", hint="primus image pull, or build it")
    content = contents.of_image(client.engine, image, _beat(f"reading {image}"))
    return verification.everything(about, content, locked)


def _signature(locked: Locked | None, public: bytes | None, about: Mapping[str, Any]) -> list[Check]:
    """Whether the key signed the image that the engine describes, where one must have."""
    if public is None:
        return []
    try:
        vouched = locks.check_signed(public, locked, "the image")
    except ImageError as error:
        problem = error.problems[0]
        return [Check(name="signature", state="fail", said=problem.message, hint=problem.hint)]
    here = str(about.get("Id", ""))
    digests = {here, *(str(one).rpartition("@")[2] for one in about.get("RepoDigests") or ())}
    if locked and (here == vouched or locked.digest in digests):
        return [Check(name="signature", state="ok", said="the image is signed with the key")]
    said = f"it is for {vouched or (locked and locked.digest)}, and this image is {here}"
    hint = "fetch the one that is signed: primus image pull"
    return [Check(name="signature", state="fail", said=said, hint=hint)]


def _beat(title: str) -> Callable[[int], None]:
    note(f"{title} ...")
    last = time.monotonic()

    def tell(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _BEAT:
            last = time.monotonic()
            note(f"{title}: {done / 1e9:.1f} GB")

    return tell


def _running(client: Client, locked: Mapping[tuple[str, str], Locked], public: bytes | None) -> dict[str, list[Check]]:
    """What each container of ours runs, and whether its files are still the image's."""
    found = {}
    for container in client.containers("label=io.primus.run"):
        about = client.container(container)
        if about is None:  # it has ended meanwhile
            continue
        identifier = f"sha256:{str(about['Image']).removeprefix('sha256:')}"
        name = str(about.get("Name", container)).lstrip("/")
        content = contents.of_container(client.engine, container, _beat(f"reading {name}"))
        image = client.about(identifier) or {"Id": identifier}
        mounts = [str(one.get("Destination")) for one in about.get("Mounts") or ()]
        one = _locked_as(image, locked)
        checks = [*verification.everything(image, content, one), *_signature(one, public, image)]
        dev = [one for one in mounts if one.startswith(("/opt/", "/usr/"))]
        if dev:
            said = f"{', '.join(dev)} is this machine's, mounted over the image's"
            checks.append(Check(name="mounts", state="warn", said=said, hint="a run with --dev is no image's run"))
        found[name] = checks
    if not found:
        note("no container of ours runs here")
    return found


def _show(found: dict[str, list[Check]], form: str) -> None:
    if form == "json":
        click.echo(json.dumps({name: [asdict(one) for one in checks] for name, checks in found.items()}, indent=2))
        return
    for name, checks in found.items():
        click.echo(name)
        for one in checks:
            click.echo(f"  {one.state:<5} {one.name:<9} {one.said}")
            if one.hint and one.state != "ok":
                click.echo(f"        {'':<9} {one.hint}")


verify = with_settings(verify)
