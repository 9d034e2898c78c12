"""What an image says about itself: its labels from outside, /etc/primus/image.json from inside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from primus.errors import ImageError
from primus.image.names import build_command

IN_IMAGE = Path("/etc/primus/image.json")
_LABEL = "io.primus."
# The modules that images for GPUs compile, and others do not have.
COMPILED = ("transformer_engine", "primus_turbo", "mamba_ssm", "causal_conv1d")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The part of an image's manifest that decides whether an experiment may run in it."""

    framework: str
    accelerator: str
    gfx: tuple[str, ...] = ()  # empty: any
    id: str = ""  # the engine's, the digest of the image's configuration
    compiled: tuple[str, ...] = ()  # modules of COMPILED
    name: str = ""  # under which the engine has it
    digests: tuple[str, ...] = ()  # of its manifest, in the repository that its name says


def from_labels(labels: Mapping[str, str], identifier: str = "") -> Manifest | None:
    """The manifest in an image's labels; None if the image is not one of ours."""
    if f"{_LABEL}framework" not in labels:
        return None
    return Manifest(
        framework=labels[f"{_LABEL}framework"],
        accelerator=labels.get(f"{_LABEL}accelerator", ""),
        gfx=tuple(name for name in labels.get(f"{_LABEL}gfx", "").replace(";", ",").split(",") if name),
        id=identifier,
        compiled=tuple(labels.get(f"{_LABEL}compiled", "").split()),
    )


def inside(path: Path = IN_IMAGE) -> Manifest | None:
    """The manifest of the image this process runs in; None outside of our images."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ImageError(
            f"{path} cannot be read: {error}", hint="the image is damaged; pull or build it again"
        ) from error
    missing = [key for key in ("framework", "accelerator") if key not in document]
    if missing:
        raise ImageError(f"{path} lacks {', '.join(missing)}", hint="the image is damaged; pull or build it again")
    return Manifest(
        framework=document["framework"], accelerator=document["accelerator"], gfx=tuple(document.get("gfx", ()))
    )


def digest(path: Path = IN_IMAGE) -> str:
    """What tells one image from another from inside, where no engine says its ID; empty outside of our images."""
    try:
        return f"manifest:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    except OSError:
        return ""


def check(manifest: Manifest, *, framework: str, accelerator: str, gfx: str, image: str) -> None:
    """Raise ImageError if the experiment cannot run in the image."""
    if manifest.framework != framework:
        raise ImageError(
            f"{image} is for {manifest.framework}, the experiment for {framework}",
            hint=f"use the image of {framework}: leave --image out, "
            f"or build it: {build_command(framework, accelerator)}",
        )
    if manifest.accelerator != accelerator:
        raise ImageError(
            f"{image} is for accelerator {manifest.accelerator}, the experiment for {accelerator}",
            hint=f"pass --accelerator {manifest.accelerator} if the experiment can run on it, "
            f"or use the {accelerator} image",
        )
    if gfx and manifest.gfx and gfx not in manifest.gfx:
        raise ImageError(
            f"{image} is built for {', '.join(manifest.gfx)}; this machine's GPUs are {gfx}",
            hint="build the image for this GPU, or run on one it was built for",
        )


def check_compiled(manifest: Manifest, needed: Mapping[str, str], image: str) -> None:
    """Raise ImageError if the experiment needs a compiled module that the image's labels do not name.

    `needed` has the modules, and what needs each, as an adapter says it: with the way round, if there is one.
    """
    for module, why in needed.items():
        if module in COMPILED and module not in manifest.compiled:
            raise ImageError(
                f"{image} was built without {module}; needed by {why}",
                hint=f"build it anew: {build_command(manifest.framework, manifest.accelerator)}"
                if manifest.accelerator == "rocm"
                else "it is compiled for GPUs, in the rocm image",
            )
