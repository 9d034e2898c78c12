"""primus image pull"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from primus._version import __version__
from primus.cli import note
from primus.cli.image_lock import lock_path
from primus.cli.locked import LOCK
from primus.cli.options import ENGINE, REGISTRY, TARGET
from primus.cli.registry import PLAIN_HTTP, known, open_registry
from primus.cli.settings import with_settings
from primus.cli.signing import VERIFY_KEY, check_bundle, check_published, verify_key
from primus.errors import ConfigError, ImageError, LaunchError
from primus.experiment.paths import absent, absolute, exists
from primus.image import load, oci, publish, transfer
from primus.image import lock as locks
from primus.image.engine import Client
from primus.image.lock import Locked
from primus.image.names import take_apart
from primus.image.registry import Found, Registry
from primus.job import default_engine


@click.command()
@click.argument("names", nargs=-1, metavar="[FRAMEWORK]...")
@TARGET
@REGISTRY
@click.option("--version", "version", help="A version, or a channel.  [default: what the lock has, else the package's]")
@click.option(
    "--from",
    "source",
    default="registry",
    show_default=True,
    metavar="registry|PATH",
    help="Or: a bundle, a directory of bundles, one that is unpacked, an OCI layout.",
)
@LOCK
@VERIFY_KEY
@ENGINE
@PLAIN_HTTP
def pull(
    names: tuple[str, ...],
    accelerator: str,
    registry: str,
    version: str | None,
    source: str,
    lock: Path | None,
    engine: str | None,
    plain_http: bool,
) -> None:
    """Fetch the images of FRAMEWORK... by digest (without one, all that are locked), and give them their tags.

    The registry's answer, the room on the disk and, at the end, the image's ID are checked. Prints NAME@DIGEST.
    """
    if source != "registry" and not exists(absolute(source)):
        raise ConfigError(f"--from {source}: {absent(absolute(source))}")
    path = lock_path(lock)
    locked = locks.read(path) if path.exists() and version is None else {}
    wanted = known(names) if names else tuple(name for name, target in locked if target == accelerator)
    if not wanted:
        raise ConfigError(
            f"nothing is locked for {accelerator}" if version is None else "no FRAMEWORK is named",
            hint="name a FRAMEWORK, or lock them first: primus image lock",
        )
    client = Client(engine or default_engine())
    client.check()
    if source != "registry":
        _pull_from(client, absolute(source), wanted, accelerator, locked, version)
        return
    for number, name in enumerate(wanted, 1):
        one = locked.get((name, accelerator))
        tag = one.tag if one else f"{version or __version__}-{accelerator}"
        if not registry and (one is None or not one.digest):
            raise ConfigError(f"{name}: no registry is known", hint="name it: --registry, or PRIMUS_REGISTRY")
        if one and not registry:
            parts = take_apart(one.name)
            there = Registry(parts.host, parts.path, plain_http=plain_http, say=note)
        else:
            there = open_registry(registry, name, plain_http)
        title = f"[{number}/{len(wanted)}] {there.name}:{tag}"
        image = there.manifest(one.digest if one and one.digest else tag)
        if image is None:
            what = f"{one.digest}, which the lock has" if one else f"tag {tag}"
            raise ImageError(f"{there.name}: has no {what}", hint=publish.nearest(tag, there.tags()))
        if one and not image.is_image(one.id):
            raise ImageError(f"{there.name}@{image.digest}: is {image.id}, and the lock says {one.id}")
        check_published(there, image, verify_key())
        _fetch(client, there, image, f"{there.name}:{tag}", title, plain_http)
        click.echo(f"{there.name}@{image.digest}")


def _pull_from(
    client: Client,
    path: Path,
    wanted: tuple[str, ...],
    accelerator: str,
    locked: Mapping[tuple[str, str], Locked],
    version: str | None,
) -> None:
    """From files: what is locked is known by its ID; else an image of that version, by its tag."""
    found = oci.sources(path)
    public = verify_key()
    for number, name in enumerate(wanted, 1):
        one = locked.get((name, accelerator))
        tag = one.tag if one else f"{version or __version__}-{accelerator}"
        here = [
            (source, image)
            for source in found
            for image in source.manifest.images
            if (image.framework, image.accelerator) == (name, accelerator)
        ]
        same = [(source, image) for source, image in here if (image.id == one.id if one else image.tag == tag)]
        if not same:
            what = f"{one.tagged} ({one.id[:19]}), which is locked" if one else f"a {name} tagged {tag}"
            has = ", ".join(f"{image.tagged} ({image.id[:19]})" for _, image in here) or f"none of {name}"
            raise ImageError(f"{path}: has not {what}", hint=f"it has {has}")
        source, image = same[0]
        if public and one:
            if not locks.check_signed(public, one):
                raise ImageError(
                    f"{one.reference()}: its signature names a digest alone, which an image from a file has not",
                    hint="pull it from its registry; primus image sign adds a signature with the ID",
                )
        elif public:
            check_bundle(source.path, source.text, source.signature, public)
        named = replace(image, name=one.name, tag=one.tag) if one else image
        load.load(client, source, named, f"[{number}/{len(wanted)}] {named.tagged}", note)
        click.echo(f"{named.name}@{one.digest}" if one and one.digest else named.tagged)


def _fetch(client: Client, there: Registry, image: Found, tagged: str, title: str, plain_http: bool) -> None:
    by_digest = f"{there.name}@{image.digest}"
    if client.about(by_digest) is not None:
        note(f"{title}: is here already")
        client.tag(by_digest, tagged)
        return
    diff_ids = (there.config(image).get("rootfs") or {}).get("diff_ids") or []
    layers = transfer.to_fetch(image.layers, diff_ids, client.layers())
    size, needed = sum(int(layer["size"]) for layer in layers), transfer.room(layers)
    free = client.free()
    if free and free[1] < needed:
        raise LaunchError(
            f"{tagged}: {transfer.mb(size)} to fetch need about {transfer.mb(needed)} in {free[0]}, "
            f"and there is {transfer.mb(free[1])}",
            hint=f"make room: primus image prune, or {client.engine} system df",
        )
    # Docker goes by its own settings; loopback is without https for it.
    options = ["--tls-verify=false"] if client.engine == "podman" and (plain_http or there.plain) else []
    words = (client.engine, "pull", *options, by_digest)
    code, last = transfer.run_again(words, f"{title}: pulling {transfer.mb(size)}", note)
    if code:
        hint = "run the same command again"
        raise ImageError(f"{by_digest}: the pull failed: {last.splitlines()[-1] if last else code}", hint=hint)
    about = client.about(by_digest)
    if about is None or not image.is_image(about["Id"]):
        raise ImageError(f"{by_digest}: is {about['Id'] if about else 'not there'}, and should be {image.id}")
    client.tag(by_digest, tagged)


with_settings(pull)
