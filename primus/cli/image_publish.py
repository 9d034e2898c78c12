"""primus image publish"""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from primus._version import __version__
from primus.cli import note
from primus.cli.options import TARGET
from primus.cli.registry import PLAIN_HTTP, REGISTRY
from primus.cli.settings import with_settings
from primus.cli.signing import SIGN_KEY, Signer
from primus.errors import ConfigError, ImageError, LaunchError
from primus.experiment.schema import frameworks
from primus.image import bake, documents, publish, signatures, transfer
from primus.image import content as contents
from primus.image.engine import Client
from primus.image.names import repository, take_apart
from primus.image.registry import Found, Registry
from primus.image.sbom import need


@dataclass(frozen=True, kw_only=True)
class _Target:
    """One image on its way: its target, its name with the version's tag, and its repository."""

    target: str
    reference: str
    registry: Registry

    @property
    def tag(self) -> str:
        return take_apart(self.reference).tag


@click.command("publish")
@click.argument("targets", nargs=-1, metavar="[FRAMEWORK]...")
@TARGET
@REGISTRY
@click.option("--version", "version", default=__version__, show_default=True, help="The tag's first part.")
@click.option("--file", "file", type=click.Path(path_type=Path), default=Path("docker-bake.hcl"), show_default=True)
@click.option("--allow-mutable", is_flag=True, help="Publish though an input has no digest or commit.")
@SIGN_KEY
@click.option("--no-documents", is_flag=True, help="Publish no SBOM and no provenance beside it.")
@PLAIN_HTTP
@click.option("--dry-run", is_flag=True, help="Check, and print what would run; build and push nothing.")
def publish_(
    targets: tuple[str, ...],
    accelerator: str,
    registry: str,
    version: str,
    file: Path,
    allow_mutable: bool,
    sign_key: Path | None,
    no_documents: bool,
    plain_http: bool,
    dry_run: bool,
) -> None:
    """Build the images of FRAMEWORK... (all without one) from a clean checkout and push them.

    Each gets the tag VERSION-ACCELERATOR and one that names its content; nothing else moves. A version that is
    published with other content is left alone. Prints NAME@DIGEST of each.
    """
    from primus.cli.image import SHARED, checkout
    from primus.cli.image import known as suggestion

    publish.check_version(version)
    signer = Signer(sign_key) if sign_key else None
    if not no_documents:
        need()
    take_apart(repository("x", registry=registry))
    for target in targets:
        if target not in (*SHARED, *frameworks()):
            raise ConfigError(f"{target}: there is no such image", hint=suggestion(target))
    root = checkout(file).absolute()
    revision = _committed(root)
    registry = registry.rstrip("/")
    variables = {"ACCELERATOR": accelerator, "REGISTRY": registry, "VERSION": version, "REVISION": revision}
    # The same commit, built anew, is the same image.
    committed = _git(root, "log", "-1", "--format=%ct").strip()
    variables["SOURCE_DATE_EPOCH"] = os.environ.get("SOURCE_DATE_EPOCH") or committed
    file = Path(file.name)  # in its own folder: bake takes the paths inside from where it runs
    plan = bake.plan((file,), targets, variables, root)
    found = publish.mutable(plan, root)
    if not allow_mutable:
        publish.check_mutable(found)
    for text in found:
        note(f"{text}; published all the same, as --allow-mutable says")
    if not dry_run:
        Client("docker").check()
    wanted = [_target(name, plan, plain_http) for name in plan["group"]["default"]["targets"]]
    for one in wanted:  # before hours of building
        one.registry.may_push()
    words = bake.command((file,), targets)
    if dry_run:
        assignments = [f"{name}={value}" for name, value in variables.items()]
        click.echo(shlex.join(["env", *assignments, *words]))
        for one in wanted:
            there = one.registry.manifest(one.tag)
            note(f"{one.reference}: {f'is published ({there.id}); nothing else may replace it' if there else 'is new'}")
            click.echo(shlex.join(publish.push(f"{one.registry.name}:{publish.content_tag('ID')}")))
        return
    code, last = transfer.run(
        bake.with_variables(variables, words), f"building {', '.join(one.target for one in wanted)}", note, cwd=root
    )
    if code:
        raise ImageError(f"the build failed (exit code {code})", hint=last.splitlines()[-1] if last else "")
    publish.same_commit(revision, _committed(root), root)  # what was edited while it built may be in the images
    local = {one.reference: _id(one.reference) for one in wanted}
    for one in wanted:  # all of them, before the first is pushed
        publish.is_published(one.reference, local[one.reference], one.registry.manifest(one.tag))
    for number, one in enumerate(wanted, 1):
        title = f"[{number}/{len(wanted)}] {one.reference}"
        done = _push(one, local[one.reference], title)
        if not no_documents:
            about = Client("docker").about(local[one.reference]) or {}
            content = contents.of_image("docker", local[one.reference])
            documents.attach(one.registry, done, documents.of(one.reference, about, content))
            note(f"{title}: with its SBOM and provenance")
        if signer:
            signatures.add(one.registry, done.digest, signer.image(one.registry.name, done.digest, done.id))
            note(f"{title}: signed")
        click.echo(f"{one.registry.name}@{done.digest}")


def _push(one: _Target, identifier: str, title: str) -> Found:
    """Push under the content's tag, see that it arrived whole, and only then have the version's tag name it."""
    there = one.registry.manifest(one.tag)
    by_content = publish.content_tag(identifier)
    if there is not None and publish.is_published(one.reference, identifier, there):
        note(f"{title}: is published already, with this content")
        if one.registry.digest(by_content) != there.digest:
            one.registry.put(by_content, there)
        return there
    name = f"{one.registry.name}:{by_content}"
    Client("docker").tag(one.reference, name)
    code, last = transfer.run_again(publish.push(name), f"{title}: pushing", note)
    arrived = one.registry.manifest(by_content)
    if code or arrived is None:
        one.registry.may_push()  # says which refusal it was, if it was one
        hint = "run the same command again: what has arrived is not sent again"
        raise ImageError(
            f"{name}: the push failed: {last.splitlines()[-1] if last else f'exit code {code}'}", hint=hint
        )
    if not arrived.is_image(identifier):
        raise ImageError(f"{name}: is {arrived.id} in the registry, and {identifier} was pushed")
    publish.is_published(one.reference, identifier, one.registry.manifest(one.tag))  # somebody else, meanwhile
    one.registry.put(one.tag, arrived)
    note(f"{title}: published, {transfer.mb(arrived.size)} compressed, image {identifier}")
    return arrived


def _target(name: str, plan: dict[str, Any], plain_http: bool) -> _Target:
    reference = plan["target"][name]["tags"][0]
    parts = take_apart(reference)
    return _Target(
        target=name,
        reference=reference,
        registry=Registry(parts.host, parts.path, plain_http=plain_http, say=note),
    )


def _id(reference: str) -> str:
    about = Client("docker").about(reference)
    if about is None:
        raise ImageError(f"{reference}: was built, but is not there", hint="is its target's output `image`?")
    return str(about["Id"])


def _committed(root: Path) -> str:
    """The commit that the checkout is, with nothing else in it. Raises ImageError."""
    publish.clean(_git(root, "status", "--porcelain"), root)
    return _git(root, "rev-parse", "HEAD").strip()


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(("git", *words), cwd=root, capture_output=True, text=True, check=False)
    except OSError as error:
        raise LaunchError(f"cannot start git: {error.strerror}") from None
    if done.returncode:
        raise ImageError(
            f"{root}: is no commit that git knows ({done.stderr.strip().splitlines()[-1]})",
            hint="what is published must be found again: publish from a git checkout",
        )
    return done.stdout


with_settings(publish_)
