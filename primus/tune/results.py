"""A result of tuning: a directory with hipBLASLt's own tuning file, and about.json, which says what it holds for.

A solution's index means something to one build of the library on one architecture only:
https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/how-to/how-to-use-hipblaslt-offline-tuning.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from primus.errors import ConfigError

VARIABLE = "HIPBLASLT_TUNING_OVERRIDE_FILE"  # hipBLASLt reads the file that it names
TUNING, ABOUT = "tuning.txt", "about.json"
NO_GPU = "nogpu"  # in the place of an architecture, where the driver shows no GPU
_WHAT = {
    "image": "the image",
    "manifest": "the content of the image (/etc/primus/image.json)",
    "gfx": "the GPU",
    "library": "the hipBLASLt library",
}


@dataclass(frozen=True)
class Results:
    """A result's directory and what its about.json says."""

    path: Path
    about: Mapping[str, Any]

    @property
    def tuning(self) -> Path:
        return self.path / TUNING

    def __str__(self) -> str:
        key = ", ".join(str(self.about.get(name) or "unknown")[:30] for name in ("image", "gfx", "library"))
        return f"{self.path} ({self.about.get('tuned')} products; for {key})"


def folder(image: str, gfx: str, library: str) -> str:
    """The name of a result's directory: image, architecture, library."""
    short = image.rpartition(":")[2][:12] or "image"
    return "-".join(re.sub(r"[^A-Za-z0-9_.+]", "_", word) for word in (short, gfx, library))


def load(path: Path) -> Results:
    """The result in a directory, or the only one below it. Raises ConfigError, with what there is."""
    if path.name == TUNING and path.is_file():
        path = path.parent
    found = [path] if (path / ABOUT).is_file() else sorted(about.parent for about in path.glob(f"*/{ABOUT}"))
    if not found:
        raise ConfigError(
            f"{path}: holds no result of tuning, which has an {ABOUT}",
            hint="primus tune hipblaslt tune RUN makes one; "
            f"a tuning file of your own is used with --env {VARIABLE}=FILE",
        )
    if len(found) > 1:
        raise ConfigError(f"{path}: holds {len(found)} results", hint="name one: " + ", ".join(map(str, found)))
    try:
        about = json.loads((found[0] / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{found[0] / ABOUT}: cannot be read: {error}", hint="tune again") from error
    if not isinstance(about, dict) or not all(isinstance(about.get(name), str) for name in _WHAT):
        raise ConfigError(f"{found[0] / ABOUT}: lacks one of {', '.join(_WHAT)}", hint="tune again")
    if not (found[0] / TUNING).is_file():
        raise ConfigError(f"{found[0]}: has no {TUNING}", hint="no product was tuned yet: tune again")
    return Results(found[0], about)


def named(*layers: Mapping[str, str]) -> Results | None:
    """The result that the first layer with the variable names; None without one, or where the file is a user's own."""
    value = next((layer[VARIABLE] for layer in layers if layer.get(VARIABLE)), "")
    path = Path(value)
    return load(path.parent) if value and path.name == TUNING and (path.parent / ABOUT).is_file() else None


def check(results: Results, **here: str) -> None:
    """Raise ConfigError where the result is for another image, manifest, gfx or library than are here.

    What nobody knows of one side is not compared: a result made inside an image knows no ID of the engine's.
    """
    for name, value in here.items():
        wanted = str(results.about.get(name, ""))
        if wanted and value and wanted != value:
            raise ConfigError(
                f"{results.path} was tuned for another {_WHAT[name].removeprefix('the ')}: for {wanted}, "
                f"and this one is {value}",
                hint="tune again here: primus tune hipblaslt tune RUN; or leave --hipblaslt-tuning out",
            )
