"""One process to start, described before it is started."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from primus.errors import LaunchError


@dataclass(frozen=True, kw_only=True)
class Command:
    """argv, the variables added to the inherited environment, and the files written first."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The command as one shell-quoted line; `shlex.split` gives its words back."""
        assignments = [f"{name}={value}" for name, value in sorted(self.env.items())]
        return shlex.join([*(["env", *assignments] if assignments else []), *self.argv])

    def write(self) -> None:
        """Write `files`, each whole or not at all; a file that is already right is left alone."""
        for path, text in self.files.items():
            write_bytes(path, text.encode())

    def exec(self) -> None:
        """Write the files, then become argv: signals, terminal and exit status are the program's own."""
        self.write()
        try:
            os.execvpe(self.argv[0], self.argv, {**os.environ, **self.env})
        except OSError as error:
            raise LaunchError(f"cannot start {self.argv[0]}: {error.strerror}") from error

    def start(self, **options: object) -> subprocess.Popen[bytes]:
        """Write the files, then start argv as a child; `options` are Popen's."""
        self.write()
        try:
            return subprocess.Popen(self.argv, env={**os.environ, **self.env}, **options)  # type: ignore[call-overload,no-any-return]
        except OSError as error:
            raise LaunchError(f"cannot start {self.argv[0]}: {error.strerror}") from error


def output(*words: str, cwd: Path | None = None, timeout: float = 60) -> str | None:
    """What a program prints; None if it is not there, fails, or takes longer than `timeout` seconds."""
    try:
        done = subprocess.run(
            words, cwd=cwd, capture_output=True, text=True, errors="replace", check=False, timeout=timeout
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all; one that is already right is left alone. Raises LaunchError.

    What a link leads to is written, and the link stays. A pipe or a device is written to: a rename would replace it.
    """
    named = path
    try:
        target = _followed(path)
        if path.exists() and not (path.is_file() and target.exists()):
            with path.open("wb") as stream:
                stream.write(content)
            return
        if path.is_file() and path.read_bytes() == content:
            return
        path = target
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            try:
                file.write(content)
                file.flush()
                temporary.chmod(0o644 & ~_umask())
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise LaunchError(f"cannot write {named}: {error.strerror}") from error
    except RuntimeError as error:  # what Path.resolve says of it before Python 3.13
        raise LaunchError(f"cannot write {named}: its links lead in a circle") from error


def _followed(path: Path) -> Path:
    try:
        return path.resolve(strict=True)  # else Python 3.13 takes one of a circle of links for a file that is yet to be
    except FileNotFoundError:
        return path.resolve()  # yet to be; or /dev/stdout of a pipe, which leads to no name


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
