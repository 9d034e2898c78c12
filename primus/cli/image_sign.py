"""primus image keygen | sign"""

from __future__ import annotations

import os
from pathlib import Path

import click

from primus._version import __version__
from primus.cli import note
from primus.cli.options import TARGET
from primus.cli.registry import PLAIN_HTTP, REGISTRY, known, open_registry
from primus.cli.settings import with_settings
from primus.cli.signing import PASSWORD, Signer
from primus.errors import ConfigError, ImageError, LaunchError
from primus.experiment.paths import absolute, shown
from primus.image import publish, sign, signatures


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="NAME", help="Writes NAME.key and NAME.pub."
)
def keygen(out: Path) -> None:
    """Make a pair of keys to sign with, and to verify.

    The private one is encrypted with the password in $PRIMUS_SIGN_PASSWORD, or one that is asked for. Prints the path
    of the public one, which is for everybody.
    """
    private, public = (absolute(out).with_name(f"{out.name}.{ending}") for ending in ("key", "pub"))
    for path in (private, public):
        if os.path.lexists(path):
            raise ConfigError(f"{path}: is there already", hint="a key is never replaced: name another")
    password = os.environ.get(PASSWORD) or click.prompt(
        "Password of the new key", hide_input=True, confirmation_prompt=True, err=True
    )
    key, lock = sign.new_key(password.encode())
    try:
        for path, text, mode in ((private, key, 0o600), (public, lock, 0o644)):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(text)
    except OSError as error:
        raise LaunchError(f"cannot write {error.filename}: {error.strerror}") from error
    note(f"keep {shown(private)} to yourself; with {shown(public)}, others verify: verify_key in their settings")
    click.echo(shown(public))


@click.command("sign")
@click.argument("names", nargs=-1, metavar="[FRAMEWORK]...")
@TARGET
@REGISTRY
@click.option("--version", "version", default=__version__, show_default=True, help="A version, or a channel.")
@click.option(
    "--key",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help=f"Of primus image keygen; its password is ${PASSWORD}, or asked for.",
)
@PLAIN_HTTP
def sign_(names: tuple[str, ...], accelerator: str, registry: str, version: str, key: Path, plain_http: bool) -> None:
    """Sign the published images of FRAMEWORK... (all without one) as they are in the registry now.

    The signature lies beside the image, where cosign looks for it. Prints NAME@DIGEST of each.
    """
    signer = Signer(key)
    tag = f"{version}-{accelerator}"
    done = 0
    for name in known(names):
        there = open_registry(registry, name, plain_http)
        image = there.manifest(tag)
        if image is None:
            if names:
                raise ImageError(f"{there.name}: has no tag {tag}", hint=publish.nearest(tag, there.tags()))
            continue
        signatures.add(there, image.digest, signer.image(there.name, image.digest, image.id))
        click.echo(f"{there.name}@{image.digest}")
        done += 1
    if not done:
        raise ImageError(f"no image has a tag {tag} in {registry}", hint="publish one first: primus image publish")


with_settings(sign_)
