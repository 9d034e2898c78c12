"""Text to be prepared for Megatron, document by document; and where the result goes: it appears whole or not at all."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, NamedTuple

from primus.errors import ConfigError


class Line(NamedTuple):
    """One line of a source, and how far into all the sources it reaches, in bytes as they are on the disk."""

    path: str
    number: int
    text: bytes
    reached: int


def lines(sources: list[str]) -> Iterator[Line]:
    """Every line that is not blank."""
    before = 0
    for path in sources:
        with Path(path).open("rb") as file, _unpacked(path, file) as stream:
            try:
                for number, text in enumerate(stream, 1):
                    if not text.isspace():
                        yield Line(path, number, text, before + file.tell())
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise ConfigError(f"is no whole gzip file: {error}", where=path) from error
            before += os.fstat(file.fileno()).st_size


def _unpacked(path: str, file: IO[bytes]) -> AbstractContextManager[Iterable[bytes]]:
    return gzip.open(file) if path.endswith(".gz") else nullcontext(file)


def document(line: Line, key: str) -> str:
    """The text in a line: of .jsonl the value of `key`, of any other file the line itself."""
    where = f"{line.path}:{line.number}"
    try:
        text = line.text.decode("utf-8-sig" if line.number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8: {error.reason}", where=where) from error
    if not line.path.removesuffix(".gz").endswith((".jsonl", ".json")):
        return text.strip("\r\n")
    try:
        value = json.loads(text)
    except ValueError as error:
        hint = "each line is one JSON object; a file that is one object or list as a whole is not read"
        raise ConfigError(f"is not JSON: {error}", where=where, hint=hint) from error
    if not isinstance(value, dict):
        raise ConfigError("is no JSON object", where=where)
    if key not in value:
        raise ConfigError(f"has no key {key!r}", where=where, hint=f"it has {', '.join(map(repr, value)) or 'none'}")
    if not isinstance(value[key], str):
        raise ConfigError(f"{key!r} is no text", where=where)
    return str(value[key])


@contextmanager
def published(prefix: Path, *, overwrite: bool) -> Iterator[Path]:
    """A prefix to write at; what is there in the end becomes `prefix`, whole. The index, without which Megatron reads
    nothing, goes first and comes last, so that it never stands beside another's data."""
    folder = prefix.with_name(f".{prefix.name}.partial")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {prefix.parent}: {error.strerror}") from error
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise ConfigError(f"{prefix}: is being written by another process") from None
    except OSError:
        pass  # a file system without locks: it is taken at its word
    try:
        yield folder / "new"
        if overwrite:
            Path(f"{prefix}.idx").unlink(missing_ok=True)
        for suffix in (".bin", ".idx"):
            target = Path(f"{prefix}{suffix}")
            if target.exists() and not overwrite:
                raise ConfigError(f"{target}: has appeared meanwhile", hint="--overwrite replaces it")
            (folder / f"new{suffix}").replace(target)
    finally:
        shutil.rmtree(folder)
        os.close(held)
