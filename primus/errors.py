"""Every error the launcher raises on purpose, one class for each exit code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong: where it is, what it is and what to do about it."""

    message: str
    where: str = ""  # file:line:column, or empty
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\nhint: {self.hint}" if self.hint else text


class PrimusError(Exception):
    """Base of the launcher's errors; `exit_code` is what the command line ends with."""

    exit_code = 1

    def __init__(self, message: str | Iterable[Problem], *, where: str = "", hint: str = "") -> None:
        self.problems: tuple[Problem, ...] = (
            (Problem(message=message, where=where, hint=hint),) if isinstance(message, str) else tuple(message)
        )
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ConfigError(PrimusError):
    """The experiment, a preset, a setting or the command line is wrong."""

    exit_code = 2


class ImageError(PrimusError):
    """The image is missing, is another one than asked for, or cannot be built or fetched."""

    exit_code = 3


class LaunchError(PrimusError):
    """The engine, the scheduler or the machine refused to start the run."""

    exit_code = 4
