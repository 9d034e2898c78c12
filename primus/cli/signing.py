"""Keys: to sign with, and to hold signatures against."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from primus.errors import ConfigError, ImageError
from primus.experiment.paths import absolute
from primus.image import signatures
from primus.image.registry import Found, Registry
from primus.image.sign import Signature, check_image, check_key, is_signed, payload, signed

PASSWORD = "PRIMUS_SIGN_PASSWORD"
_KEY = "primus.verify_key"


def _remember(ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
    ctx.meta[_KEY] = value


# Its value is asked for by `verify_key`, wherever an image is chosen: no function in between has a use for it.
VERIFY_KEY = click.option(
    "--verify-key",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="PRIMUS_VERIFY_KEY",
    show_envvar=True,
    expose_value=False,
    callback=_remember,
    help="Take only images, and bundles, that this public key signed.",
)
SIGN_KEY = click.option(
    "--sign-key",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"Sign with this key of primus image keygen; its password is ${PASSWORD}, or asked for.",
)


def verify_key() -> bytes | None:
    """The public key that signatures are held against, where one must be. Raises ConfigError for one that is none."""
    path = click.get_current_context().meta.get(_KEY)
    if path is None:
        return None
    key = _read(path)
    try:
        check_key(key)
    except ConfigError as error:
        problem = error.problems[0]
        raise ConfigError(f"{path}: {problem.message}", hint=problem.hint) from error
    return key


def _read(path: Path) -> bytes:
    try:
        return absolute(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: the key cannot be read: {error.strerror}") from error


class Signer:
    """A private key with its password, asked for once, before anything long is begun."""

    def __init__(self, path: Path) -> None:
        self._key = _read(path)
        self._password = os.environ.get(PASSWORD, "").encode() or None
        if self._password is None and b"ENCRYPTED" in self._key and sys.stdin.isatty():
            self._password = str(click.prompt(f"Password of {path}", hide_input=True, err=True)).encode()
        signed(self._key, self._password, b"")  # a wrong one is said now

    def sign(self, content: bytes) -> str:
        return signed(self._key, self._password, content)

    def image(self, name: str, digest: str, identifier: str) -> Signature:
        text = payload(name, digest, identifier)
        return Signature(payload=text, signature=self.sign(text.encode()))


def check_published(there: Registry, image: Found, public: bytes | None) -> None:
    """Raise ImageError unless the registry has a signature of the image by the key; any will do without one."""
    if public:
        found = signatures.chosen(signatures.of(there, image.digest), public)
        check_image(public, found, name=f"{there.name}@{image.digest}", digest=image.digest, identifier=image.id)


def check_bundle(path: Path, contents: bytes, signature: bytes | None, public: bytes | None) -> None:
    """Raise ImageError unless the key signed the bundle's contents; any bundle will do without one."""
    if public and not is_signed(public, contents, (signature or b"").decode("ascii", "replace")):
        raise ImageError(
            f"{path}: is {'not signed' if not signature else 'signed with another key'}, and must be by verify_key's",
            hint="have it made with --sign-key, by whoever has the key",
        )
