"""Paths as users write them: any text may come in, and only ConfigError comes out."""

from __future__ import annotations

from pathlib import Path

from primus.errors import ConfigError


def absolute(path: Path | str) -> Path:
    """The path from the current directory, with `~` replaced. Raises ConfigError if that home is unknown."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:
        raise ConfigError(f"{path}: the home directory of '~' is unknown", hint="write the path in full") from None


def real(path: Path) -> Path:
    """The path without symbolic links, or as it is where they lead in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path.absolute()


def exists(path: Path) -> bool:
    """Like Path.exists, and False for a name too long for any file, or below what may not be entered."""
    try:
        return path.exists()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Like Path.is_file, with the exceptions of `exists`."""
    return exists(path) and path.is_file()


def shown(path: Path) -> str:
    """The path as a user in the current directory would type it."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
