"""The name of each backend's image, and the parts of any image's name."""

from __future__ import annotations

import re
from typing import NamedTuple

from primus._version import __version__
from primus.errors import ConfigError


def build_command(framework: str, accelerator: str) -> str:
    """What a user types to build the framework's image."""
    return f"{'ACCELERATOR=cpu ' if accelerator == 'cpu' else ''}docker buildx bake {framework}"


def repository(framework: str, *, registry: str = "") -> str:
    """[REGISTRY/]primus-<framework>"""
    return f"{registry.rstrip('/')}/primus-{framework}" if registry else f"primus-{framework}"


def reference(framework: str, accelerator: str, *, registry: str = "", version: str = "") -> str:
    """[REGISTRY/]primus-<framework>:<version>-<accelerator>; without a registry, an image of this machine."""
    return f"{repository(framework, registry=registry)}:{version or __version__}-{accelerator}"


class Reference(NamedTuple):
    """An image's name, taken apart: https://github.com/distribution/reference has the grammar."""

    host: str  # with its port
    path: str
    tag: str = ""
    digest: str = ""

    @property
    def repository(self) -> str:
        return f"{self.host}/{self.path}"


_PATH = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def take_apart(text: str) -> Reference:
    """The parts of [HOST[:PORT]/]PATH[:TAG][@DIGEST]; without a host, Docker Hub's. Raises ConfigError."""
    if "://" in text:
        raise ConfigError(
            f"{text.partition('://')[0]}://...: an image's name has no scheme", hint="write HOST[:PORT]/PATH"
        )
    rest, _, digest = text.partition("@")
    name, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        name, tag = rest, ""
    host, slash, path = name.partition("/")
    if not slash or not (set(".:") & set(host) or host == "localhost"):
        host, path = "docker.io", name if slash else f"library/{name}"
    wrong = (
        ("digest", digest and not DIGEST.fullmatch(digest), "sha256: and 64 hexadecimal digits"),
        ("tag", tag and not _TAG.fullmatch(tag), "letters, digits, _ . and -, up to 128"),
        ("name", not _PATH.fullmatch(path), "lower case, digits, and . _ - between them"),
    )
    for what, is_wrong, right in wrong:
        if is_wrong:
            raise ConfigError(f"{text}: is no image's name: its {what} is not one", hint=f"a {what} is {right}")
    return Reference(host, path, tag, digest)
