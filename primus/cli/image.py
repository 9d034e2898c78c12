"""primus image build | list | inspect | patches, and the group that the commands of a registry belong to"""

from __future__ import annotations

import difflib
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from primus._version import __version__
from primus.cli.image_bundle import bundle_, load_
from primus.cli.image_channels import channels_, promote, rollback
from primus.cli.image_lock import lock, prune, pull
from primus.cli.image_publish import publish_
from primus.cli.options import ENGINE, REGISTRY, TARGET
from primus.cli.settings import with_settings
from primus.errors import ConfigError, ImageError, LaunchError
from primus.experiment.schema import frameworks
from primus.image.engine import Client
from primus.image.names import build_command, reference
from primus.image.patches import patches
from primus.job import default_engine

if TYPE_CHECKING:
    from python_on_whales import DockerClient

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
    from python_on_whales.exceptions import DockerException

    if shutil.which("docker") is None:
        hint = "bake is Docker's; podman can run what it built: docker save IMAGE | podman load"
        raise LaunchError("docker is not installed", hint=hint)
    client = _client("docker", ask=not print_only)
    variables = {"ACCELERATOR": accelerator, "REGISTRY": registry.rstrip("/"), "VERSION": version}
    wanted: list[Any] = list(targets)
    try:
        plan: Any = client.buildx.bake(wanted, files=[file], variables=variables, print=True)
        if print_only:
            click.echo(json.dumps(plan, indent=2))
            return
        for line in client.buildx.bake(wanted, files=[file], variables=variables, stream_logs=True, progress="plain"):
            click.echo(line.rstrip("\n"), err=True)
    except DockerException as error:
        said = (error.stderr or "").strip()
        raise ImageError(f"the build failed (exit code {error.return_code}){': ' if said else ''}{said}") from error
    for target in plan["group"].get("default", {}).get("targets", ()):
        for tag in plan["target"].get(target, {}).get("tags", ()):
            click.echo(tag)


@image.command("list")
@click.option("--accelerator", type=click.Choice(["rocm", "cpu"]), help="Only these.")
@FORMAT
@ENGINE
def list_(accelerator: str | None, form: str, engine: str | None) -> None:
    """List the Primus images on this machine."""
    rows = [row for row in _local(_client(engine or default_engine())) if accelerator in (None, row["accelerator"])]
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
    from python_on_whales.exceptions import DockerException, NoSuchImage

    engine = engine or default_engine()
    name = framework_or_image
    if name in frameworks():
        name = reference(name, accelerator, registry=registry)
    client = _client(engine)
    try:
        found = client.image.inspect(name)
        manifest = client.run(name, ["cat", "/etc/primus/image.json"], remove=True, networks=["none"], pull="never")
    except NoSuchImage as error:
        ours = framework_or_image in frameworks()
        hint = f"build it: {build_command(framework_or_image, accelerator)}" if ours else known(framework_or_image)
        raise ImageError(f"{name} is not on this machine", hint=hint) from error
    except DockerException as error:
        raise ImageError(f"{name} is not a Primus image: it has no /etc/primus/image.json") from error
    document = {
        "image": name,
        "id": found.id,
        "digests": found.repo_digests,
        "size_mb": round((found.size or 0) / 1e6),
        "labels": found.config.labels if found.config else {},
        "manifest": json.loads(str(manifest)),
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
for _command in (publish_, promote, rollback, channels_, lock, pull, prune, bundle_, load_):
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


def _client(engine: str, *, ask: bool = True) -> DockerClient:
    """python-on-whales' client, imported here: it takes half a second that no other command should wait.

    `ask` whether the engine answers first; its definition of a build can be printed without one.
    """
    if ask:
        Client(engine).check()
    from python_on_whales import DockerClient

    return DockerClient(client_call=[engine], client_type=engine)  # type: ignore[arg-type]


def _local(client: DockerClient) -> list[dict[str, Any]]:
    rows = []
    for item in client.image.list(filters={"label": "io.primus.framework"}):
        labels = (item.config.labels if item.config else None) or {}
        rows += [
            {
                "image": tag,
                "framework": labels.get("io.primus.framework", ""),
                "accelerator": labels.get("io.primus.accelerator", ""),
                "version": labels.get("org.opencontainers.image.version", ""),
                "size_mb": round((item.size or 0) / 1e6),
                "id": item.id.removeprefix("sha256:")[:12],
            }
            for tag in item.repo_tags or ()  # an untagged one is what a newer build replaced
        ]
    return sorted(rows, key=lambda row: str(row["image"]))
