"""Paths as users write them: any text may come in, and only ConfigError comes out."""

from __future__ import annotations

import os
import re
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


def absent(path: Path) -> str:
    """Why `exists` is False for the path: what is not there needs another remedy than what may not be seen."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return f"is a link to {path.readlink()}, which does not exist" if path.is_symlink() else "does not exist"
    except OSError as error:
        return f"cannot be looked at: {error.strerror}"
    return "does not exist"


def unfit(text: str) -> str:
    """Why no directory can be made by that name, on any machine; empty if one can.

    The lengths are Linux's NAME_MAX and PATH_MAX, in bytes.
    """
    if re.search("[\x00-\x1f\x7f]", text):
        return "cannot hold a control character"
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text):
        return "is an address, and no directory of this machine's"
    parts = text.split("/")
    if any(part and not part.strip() for part in parts):
        return "has a name of nothing but blanks"
    longest = max(len(os.fsencode(part)) for part in parts)
    if longest > 255:
        return f"has a name of {longest} bytes, and 255 are possible"
    return f"is too long: {len(text)} characters" if len(os.fsencode(absolute(text))) > 4095 else ""


def in_the_way(path: Path) -> Path | None:
    """What keeps the directory from being made, as it is none itself; None if nothing does."""
    there = next((one for one in (path, *path.parents) if exists(one)), None)
    return there if there and not there.is_dir() else None


def shown(path: Path) -> str:
    """The path as a user in the current directory would type it."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
