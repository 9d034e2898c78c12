"""Who we are to a registry: found where docker login and podman login leave it, and never printed."""

from __future__ import annotations

import base64
import binascii
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# docker.io's credentials stand under the address of its first registry.
_KEYS = {"docker.io": ("https://index.docker.io/v1/", "index.docker.io", "registry-1.docker.io")}


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """A name with a password, or a token that is exchanged for others; `place` says where they were found."""

    place: str
    basic: str = field(default="", repr=False)  # base64 of NAME:PASSWORD
    identity: str = field(default="", repr=False)


def places(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The files that may hold them, in the order in which they are asked."""
    home = Path(environ.get("HOME") or "/")
    docker = Path(environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    podman = [environ["REGISTRY_AUTH_FILE"]] if environ.get("REGISTRY_AUTH_FILE") else []
    run = [Path(environ["XDG_RUNTIME_DIR"], "containers/auth.json")] if environ.get("XDG_RUNTIME_DIR") else []
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "containers/auth.json"
    return (docker, *map(Path, podman), *run, config)


def find(host: str, path: str, environ: Mapping[str, str]) -> Credentials | None:
    """The credentials for a repository; None if no file has any."""
    for file in places(environ):
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(document, dict) and (found := _in(document, file, host, path)):
            return found
    return None


def _in(document: Mapping[str, Any], file: Path, host: str, path: str) -> Credentials | None:
    parts = path.split("/")
    # podman's may be for a part of the registry: the narrowest counts.
    keys = [f"{host}/{'/'.join(parts[:count])}" for count in range(len(parts), 0, -1)]
    keys += [host, f"https://{host}", f"http://{host}", *_KEYS.get(host, ())]
    helpers, entries = document.get("credHelpers") or {}, document.get("auths") or {}
    for key in keys:
        helper = helpers.get(key) or (document.get("credsStore") if key in entries else None)
        entry = entries.get(key) or {}
        if entry.get("identitytoken"):
            return Credentials(place=str(file), identity=entry["identitytoken"])
        if entry.get("auth") and _is_basic(entry["auth"]):
            return Credentials(place=str(file), basic=entry["auth"])
        if helper and (found := _from_helper(helper, key)):
            return found
    return None


def _is_basic(text: str) -> bool:
    try:
        return b":" in base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False


def _from_helper(helper: str, key: str) -> Credentials | None:
    """What docker-credential-HELPER has: https://github.com/docker/docker-credential-helpers"""
    words = (f"docker-credential-{helper}", "get")
    try:
        done = subprocess.run(words, input=key, capture_output=True, text=True, check=False, timeout=30)
        said = json.loads(done.stdout) if done.returncode == 0 else {}
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    name, secret = said.get("Username"), said.get("Secret")
    if not name or not secret:
        return None
    if name == "<token>":
        return Credentials(place=words[0], identity=secret)
    return Credentials(place=words[0], basic=base64.b64encode(f"{name}:{secret}".encode()).decode())
