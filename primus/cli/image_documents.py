"""primus image sbom | provenance | diff"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click

from primus.cli import note
from primus.cli.options import ENGINE, REGISTRY, TARGET
from primus.cli.registry import PLAIN_HTTP, open_registry
from primus.cli.settings import with_settings
from primus.errors import ConfigError, ImageError
from primus.experiment.schema import frameworks
from primus.image import content as contents
from primus.image import difference, documents, publish
from primus.image.engine import Client
from primus.image.names import reference
from primus.job import default_engine


def _document(command_name: str, name: str, title: str) -> click.Command:
    """A command that prints one kind of document, of a local image or a published one."""

    def show(
        framework_or_image: str,
        accelerator: str,
        registry: str,
        version: str | None,
        engine: str | None,
        plain_http: bool,
    ) -> None:
        if version is not None:
            if not registry or framework_or_image not in frameworks():
                raise ConfigError("--version: is for a FRAMEWORK in a registry", hint="name it: --registry")
            there = open_registry(registry, framework_or_image, plain_http)
            tag = f"{version}-{accelerator}"
            image = there.manifest(tag)
            if image is None:
                raise ImageError(f"{there.name}: has no tag {tag}", hint=publish.nearest(tag, there.tags()))
            text = documents.fetch(there, image.digest, name)
            if not text:
                raise ImageError(f"{there.name}:{tag}: has no {name} beside it", hint="publish it again: it is added")
            click.echo(text, nl=False)
            return
        client = Client(engine or default_engine())
        client.check()
        ours = framework_or_image in frameworks()
        named = reference(framework_or_image, accelerator, registry=registry) if ours else framework_or_image
        found = client.about(named)
        if found is None:
            raise ImageError(f"{named} is not on this machine", hint="primus image list shows what is")
        note(f"reading {named} ...")
        made = documents.of(named, found, contents.of_image(client.engine, named))
        click.echo(next(one.text for one in made if one.name == name), nl=False)

    show.__doc__ = f"""Print {title} of an image, as JSON.

    Of the image on this machine or, with --version, as it was published to --registry. Nothing in the image is run.
    """
    command = click.command(command_name)(show)
    for option in reversed(
        (
            click.argument("framework_or_image", metavar="FRAMEWORK|IMAGE"),
            TARGET,
            REGISTRY,
            click.option("--version", help="As published: a version, or a channel."),
            ENGINE,
            PLAIN_HTTP,
        )
    ):
        command = option(command)
    return with_settings(command)


sbom = _document("sbom", "sbom.cdx.json", "the SBOM (CycloneDX: every Debian and Python package that is installed)")
provenance = _document("provenance", "provenance.json", "the provenance (in-toto: commits, OS image, locks, patches)")


@click.command("diff")
@click.argument("one")
@click.argument("other")
@click.option("--times", is_flag=True, help="Also tell files apart by their times.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@ENGINE
def diff(one: str, other: str, times: bool, form: str, engine: str | None) -> None:
    """Say what differs between two local images: their settings, and each file, by content, mode, owner and link.

    Exits with 1 if anything does.
    """
    client = Client(engine or default_engine())
    client.check()
    sides = []
    for image in (one, other):
        about = client.about(image)
        if about is None:
            raise ImageError(f"{image} is not on this machine", hint="primus image list shows what is")
        note(f"reading {image} ...")
        sides.append((about, contents.of_image(client.engine, image)))
    found = difference.difference(*sides[0], *sides[1], times=times)
    if form == "json":
        click.echo(json.dumps([asdict(line) for line in found], indent=2))
    else:
        for line in found:
            click.echo(f"{line.where}: {line.what}")
    note(f"{len(found)} differences" if found else "the same" + ("" if times else ", times of files aside"))
    if found:
        sys.exit(1)


diff = with_settings(diff)
