"""Where module and model presets are found."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from primus.errors import ConfigError
from primus.experiment import paths
from primus.experiment.yaml import Node, Scalar


def package_presets() -> Path:
    """The presets that come with the package."""
    return Path(str(resources.files("primus") / "configs"))


def find_preset(kind: str, framework: str, node: Node, dotted: str, directories: Sequence[Path]) -> tuple[Path, Path]:
    """The file of the preset that `node` (at `dotted`) names, and the directory it may not leave."""
    if not isinstance(node, Scalar) or not node.text:
        raise ConfigError(f"{dotted}: must be the name of a preset", where=str(node.at))
    available: set[str] = set()
    for directory in (*directories, package_presets()):
        folder = directory / kind / framework
        file = folder / node.text
        if not paths.real(file).is_relative_to(paths.real(directory)):
            raise ConfigError(f"{dotted}: {node.text} leaves {paths.shown(directory)}", where=str(node.at))
        if paths.is_file(file):
            return file, directory
        available |= {item.name for item in folder.glob("*.yaml")} if folder.is_dir() else set()
    near = difflib.get_close_matches(node.text, available, 3, 0.5)
    raise ConfigError(
        f"{dotted}: there is no {kind}/{framework}/{node.text}",
        where=str(node.at),
        hint=f"nearest: {', '.join(near)}"
        if near
        else f"look in {package_presets() / kind / framework}, or name your own with --preset-dir",
    )
