"""primus image build | list | inspect | patches, and the group that the commands of a registry belong to"""

from __future__ import annotations

import difflib
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from primus._version import __version__
from primus.cli import note
from primus.cli.image_bundle import bundle_, load_
from primus.cli.image_channels import channels_, promote, rollback
from primus.cli.image_documents import diff, provenance, sbom
from primus.cli.image_lock import lock, prune
from primus.cli.image_publish import publish_
from primus.cli.image_pull import pull
from primus.cli.image_sign import keygen, sign_
from primus.cli.image_verify import verify
from primus.cli.options import ENGINE, REGISTRY, TARGET
from primus.cli.settings import with_settings
from primus.errors import ConfigError, ImageError, LaunchError
from primus.experiment.schema import frameworks
from primus.image import bake, transfer
from primus.image.engine import Client
from primus.image.names import build_command, reference
from primus.image.patches import patches
from primus.job import default_engine

FILE = click.option(
    "--file", "file", type=click.Path(path_type=Path), default=Path("docker-bake.hcl"), show_default=True
)
FORMAT = click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
SHARED = (
    "base",
    "base-torch",
    "base-jax",
    "base-jax-torch",
    "base-source",
    "launcher",
)  # what the backends' images stand on


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def image() -> None:
    """Build, publish, lock and fetch the images: one for each backend, all from one base."""


@image.command()
@click.argument("targets", nargs=-1, metavar="[FRAMEWORK]...")
@TARGET
@REGISTRY
@click.option("--version", "version", default=__version__, show_default=True, help="The tag's first part.")
@FILE
@click.option("--print", "print_only", is_flag=True, help="Print the build's definition as JSON and build nothing.")
def build(
    targets: tuple[str, ...], accelerator: str, registry: str, version: str, file: Path, print_only: bool
) -> None:
    """Build the images of FRAMEWORK... (all without one) with docker buildx bake.

    The variables of docker-bake.hcl (BASE_IMAGE, BUILD_PIP_CONF, ...) are taken from the environment.
    """
    checkout(file)
    for target in targets:
        if target not in (*SHARED, *frameworks()):
            raise ConfigError(f"{target}: there is no such image", hint=known(target))
    if shutil.which("docker") is None:
        hint = "bake is Docker's; podman can run what it built: docker save IMAGE | podman load"
        raise LaunchError("docker is not installed", hint=hint)
    variables = {"ACCELERATOR": accelerator, "REGISTRY": registry.rstrip("/"), "VERSION": version}
    files = bake.files(file)
    plan = bake.plan(files, targets, variables)
    if print_only:
        click.echo(json.dumps(plan, indent=2))
        return
    Client("docker").check()
    words = bake.with_variables(variables, bake.command(files, targets))
    code, last = transfer.run(words, f"building {', '.join(targets) or 'all'}", note)
    if code:
        raise ImageError(f"the build failed (exit code {code})", hint=last.splitlines()[-1] if last else "")
    for target in plan["group"].get("default", {}).get("targets", ()):
        for tag in plan["target"].get(target, {}).get("tags", ()):
            click.echo(tag)


@image.command("list")
@click.option("--accelerator", type=click.Choice(["rocm", "cpu"]), help="Only these.")
@FORMAT
@ENGINE
def list_(accelerator: str | None, form: str, engine: str | None) -> None:
    """List the Primus images on this machine."""
    client = Client(engine or default_engine())
    client.check()
    rows = [row for row in _local(client) if accelerator in (None, row["accelerator"])]
    if form == "json":
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        click.echo("no Primus image on this machine; build one with: docker buildx bake FRAMEWORK", err=True)
        return
    table(("image", "framework", "accelerator", "version", "size_mb", "id"), rows)


@image.command()
@click.argument("framework_or_image", metavar="FRAMEWORK|IMAGE")
@TARGET
@REGISTRY
@ENGINE
def inspect(framework_or_image: str, accelerator: str, registry: str, engine: str | None) -> None:
    """Print what an image is: its labels, and the manifest inside it, with every package's version, as JSON."""
    client = Client(engine or default_engine())
    client.check()
    name = framework_or_image
    if name in frameworks():
        name = reference(name, accelerator, registry=registry)
    about = client.about(name)
    if about is None:
        ours = framework_or_image in frameworks()
        hint = f"build it: {build_command(framework_or_image, accelerator)}" if ours else known(framework_or_image)
        raise ImageError(f"{name} is not on this machine", hint=hint)
    document = {
        "image": name,
        "id": about["Id"],
        "digests": about.get("RepoDigests") or [],
        "size_mb": round(int(about.get("Size") or 0) / 1e6),
        "labels": (about.get("Config") or {}).get("Labels") or {},
        "manifest": client.inside(name),
    }
    click.echo(json.dumps(document, indent=2))


@image.command("patches")
@click.argument("framework")
@FORMAT
@FILE
def patches_(framework: str, form: str, file: Path) -> None:
    """List the patches that the image of FRAMEWORK gets, from this checkout: what each changes, and where upstream is.

    Whether they still fit their sources: docker buildx bake validate. What an image has: primus image inspect.
    """
    if framework not in frameworks():
        raise ConfigError(f"{framework}: there is no such image", hint=known(framework))
    rows = [asdict(patch) for patch in patches(checkout(file), framework)]
    if form == "json":
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        table(("tree", "name", "subject", "upstream_status"), rows)
    else:
        click.echo(f"{framework} is not patched", err=True)


for _command in (build, list_, inspect, patches_):
    with_settings(_command)
_OTHERS = (
    *(publish_, promote, rollback, channels_, lock, pull, prune),
    *(bundle_, load_, verify, keygen, sign_, sbom, provenance, diff),
)
for _command in _OTHERS:
    image.add_command(_command)


def checkout(file: Path) -> Path:
    """The folder of docker-bake.hcl."""
    if not file.is_file():
        raise ConfigError(
            f"{file}: no such file", hint="stand in a checkout of Primus, or name its docker-bake.hcl with --file"
        )
    return file.parent


def table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    lines = [columns, *([str(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def known(name: str) -> str:
    near = difflib.get_close_matches(name, frameworks(), 1, 0.5)
    return (f"did you mean {near[0]}? " if near else "") + f"images: {', '.join((*frameworks(), *SHARED))}"


def _local(client: Client) -> list[dict[str, Any]]:
    rows = []
    for identifier in client.ids("label=io.primus.framework"):
        about = client.about(identifier) or {}
        labels = (about.get("Config") or {}).get("Labels") or {}
        rows += [
            {
                "image": tag,
                "framework": labels.get("io.primus.framework", ""),
                "accelerator": labels.get("io.primus.accelerator", ""),
                "version": labels.get("org.opencontainers.image.version", ""),
                "size_mb": round(int(about.get("Size") or 0) / 1e6),
                "id": identifier.removeprefix("sha256:")[:12],
            }
            for tag in about.get("RepoTags") or ()  # an untagged one is what a newer build replaced
        ]
    return sorted(rows, key=lambda row: str(row["image"]))
