"""The examples that came with Primus: beside the package in a checkout and an image, inside of it in a wheel."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from primus.errors import ConfigError

_HERE = Path(__file__).parent


def examples(package: Path = _HERE) -> Path | None:
    """The directory examples/ that came with the package; None for one that was copied alone."""
    places = (package / "examples", package.parent / "examples")
    return next((place for place in places if any(place.glob("*/configs"))), None)


def names() -> dict[str, Path]:
    """Each example's file by its name: torchtitan/MI300X/llama3.1_8B-BF16-pretrain."""
    root = examples()
    found: Iterator[Path] = iter(()) if root is None else root.glob("*/configs/**/*.yaml")
    return {name_of(path.relative_to(root)): path for path in sorted(found)} if root else {}


def name_of(path: Path) -> str:
    """examples/torchtitan/configs/CPU/x.yaml, with or without its first folder: torchtitan/CPU/x"""
    parts = [part for part in path.with_suffix("").parts if part not in (".", "configs", "examples")]
    return "/".join(parts)


def find(text: str) -> tuple[str, Path]:
    """The example that `text` means: its name, the end of it, or its path. Raises ConfigError, with what is near."""
    known = names()
    if not known:
        raise ConfigError("no examples came with this Primus", hint="its wheel, images and checkout have them")
    wanted = name_of(Path(text)) if text.endswith((".yaml", ".yml")) else text.strip("/")
    if wanted in known:
        return wanted, known[wanted]
    ends = [name for name in known if name.endswith(f"/{wanted}")]
    if len(ends) == 1:
        return ends[0], known[ends[0]]
    if ends:
        raise ConfigError(f"{text}: {len(ends)} examples end so", hint=f"which of {', '.join(ends)}?")
    last = {name.rpartition("/")[2]: name for name in reversed(known)}
    near = difflib.get_close_matches(wanted, known, 3, 0.6) if "/" in wanted else []
    near = near or [last[one] for one in difflib.get_close_matches(wanted.rpartition("/")[2], last, 1, 0.6)]
    hint = f"did you mean {' or '.join(near)}?" if near else "primus examples list has their names"
    raise ConfigError(f"{text}: there is no such example", hint=hint)


def instead(path: Path) -> Path | None:
    """The package's own file for examples/..., where the current directory has no examples/ at all."""
    root = examples()
    if root is None or path.parts[:1] != ("examples",) or Path("examples").exists():
        return None
    there = root.joinpath(*path.parts[1:])
    return there if there.exists() else None
