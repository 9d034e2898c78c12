"""primus image lock | prune"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from primus._version import __version__
from primus.cli import note
from primus.cli.locked import LOCK
from primus.cli.options import ENGINE, REGISTRY, TARGET
from primus.cli.registry import PLAIN_HTTP, known, open_registry
from primus.cli.settings import files, with_settings
from primus.cli.signing import VERIFY_KEY, verify_key
from primus.command import Command
from primus.errors import ConfigError, ImageError
from primus.experiment.paths import absolute, shown
from primus.image import lock as locks
from primus.image import publish, signatures, transfer
from primus.image.engine import Client
from primus.image.lock import Locked
from primus.image.manifest import IN_IMAGE
from primus.image.names import repository
from primus.image.registry import Registry
from primus.job import default_engine

VERSION = click.option(
    "--version", "version", default=__version__, show_default=True, help="A version, or a channel: candidate, stable."
)


def lock_path(lock: Path | None) -> Path:
    """Where the lock is, or belongs: beside the project's settings, or here."""
    if lock:
        return absolute(lock)
    project = next((file.parent for file in reversed(files()) if file.name == "primus.yaml"), Path.cwd())
    return locks.find(Path.cwd()) or project / locks.NAME


@click.command()
@click.argument("names", nargs=-1, metavar="[FRAMEWORK]...")
@TARGET
@REGISTRY
@VERSION
@LOCK
@VERIFY_KEY
@ENGINE
@PLAIN_HTTP
def lock(
    names: tuple[str, ...],
    accelerator: str,
    registry: str,
    version: str,
    lock: Path | None,
    engine: str | None,
    plain_http: bool,
) -> None:
    """Write down which image each FRAMEWORK has (all without one): digest, ID, size, commits, packages' lock.

    With a registry, what VERSION names there, and no image is fetched; without, the images of this machine. What the
    lock has of others stays. `primus run` then takes these, wherever their tags go. Prints the lock's path.
    """
    path = lock_path(lock)
    before = locks.read(path) if path.exists() else {}
    client = None if registry else Client(engine or default_engine())
    if client:
        client.check()
    found: dict[tuple[str, str], Locked] = {}
    without = []
    tag = f"{version}-{accelerator}"
    for name in known(names):
        if client:
            one = of_this_machine(client, repository(name), tag)
        else:
            there = open_registry(registry, name, plain_http)
            one = _of_registry(there, tag)
            if one is None and names:
                raise ImageError(f"{there.name}: has no tag {tag}", hint=publish.nearest(tag, there.tags()))
        if one is not None:
            if public := verify_key():
                locks.check_signed(public, one)
            found[name, accelerator] = one
        elif names:
            raise ImageError(f"{repository(name)}:{tag} is not on this machine", hint="build it, or name a --registry")
        else:
            without.append(name)
    if not found:
        raise ImageError(f"no image has a tag {tag} {'in ' + registry if registry else 'on this machine'}")
    if without:
        note(f"without a tag {tag}, and not locked: {', '.join(without)}")
    for key, one in found.items():
        was = before.get(key)
        change = "new" if was is None else "as before" if was == one else f"was {was.digest or was.id} ({was.tag})"
        note(f"{key[0]} {key[1]}: {one.digest or one.id} ({change})")
    Command(argv=(), files={path: locks.text({**before, **found})}).write()
    click.echo(shown(path))


def _of_registry(there: Registry, tag: str) -> Locked | None:
    image = there.manifest(tag)
    if image is None:
        return None
    labels = (there.config(image).get("config") or {}).get("Labels") or {}
    inside = there.file(image, str(IN_IMAGE).lstrip("/"))
    if not inside:
        note(
            f"{there.name}:{tag}: none of its small gzip layers has {IN_IMAGE}; locked without its OS image and sources"
        )
    signed = signatures.chosen(signatures.of(there, image.digest), verify_key())
    return locks.of(
        there.name,
        tag,
        identifier=image.id,
        digest=image.digest,
        size=image.size,
        labels=labels,
        inside=json.loads(inside) if inside else {},
        signature=asdict(signed) if signed else {},
    )


def of_this_machine(client: Client, name: str, tag: str) -> Locked | None:
    about = client.about(f"{name}:{tag}")
    if about is None:
        return None
    labels = (about.get("Config") or {}).get("Labels") or {}
    return locks.of(
        name,
        tag,
        identifier=about["Id"],
        digest="",
        size=int(about.get("Size") or 0),
        labels=labels,
        inside=client.inside(about["Id"]),
    )


@click.command()
@click.argument("names", nargs=-1, metavar="[FRAMEWORK]...")
@click.option("--all-but-locked", is_flag=True, help="Also images that have a tag, unless the lock has them.")
@LOCK
@ENGINE
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
def prune(names: tuple[str, ...], all_but_locked: bool, lock: Path | None, engine: str | None, dry_run: bool) -> None:
    """Remove Primus images of this machine that a newer build or pull replaced: those without a tag.

    Only images with our label, of FRAMEWORK... if some are named. What is locked stays, and what a container uses.
    """
    chosen = known(names)
    path = lock_path(lock)
    if all_but_locked and not path.exists():
        raise ConfigError("--all-but-locked: there is no lock", hint="primus image lock writes it")
    kept = locks.identifiers(locks.read(path) if path.exists() else {})
    client = Client(engine or default_engine())
    client.check()
    freed = 0
    for identifier in client.ids("label=io.primus.framework"):
        about = client.about(identifier)
        if about is None or not locks.removable(about, kept, chosen, tagged=all_but_locked):
            continue
        size = int(about.get("Size") or 0)
        shown_as = ", ".join(about.get("RepoTags") or []) or identifier[:19]
        if dry_run:
            note(f"would remove {shown_as} ({transfer.mb(size)})")
            continue
        names_of = [*(about.get("RepoTags") or ()), *(about.get("RepoDigests") or ())] if all_but_locked else []
        why = ""
        for name in names_of or [identifier]:
            why = client.remove(name) or why
        if why and client.about(identifier) is not None:
            note(f"{shown_as} stays: {why}")
            continue
        freed += size
        click.echo(shown_as)
    if not dry_run:
        note(f"removed {transfer.mb(freed)}, of which layers that other images share are not freed")


for _command in (lock, prune):
    with_settings(_command)
