"""One launch at a time in a run directory: two would write the same checkpoints."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from primus.errors import LaunchError

_HELD_OUTSIDE = "PRIMUS_RUN_DIR_LOCKED"  # set in the container, whose launcher holds the lock


def hold(run_dir: Path, rank: int) -> None:
    """Take the run directory for this node until this process, or what it becomes, ends.

    Raises LaunchError if another launch has it. A file system without locks is taken at its word.
    """
    if held_outside():
        return
    path = run_dir / f".node{rank}.lock"
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise LaunchError(
            f"cannot write to {run_dir}: {error.strerror}", hint="set workspace or --run-dir to where you may write"
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(file, 100).decode(errors="replace").strip()
        raise LaunchError(
            f"{run_dir} is in use by another launch ({holder})",
            hint="wait for it, stop it, or use another --run-dir or exp_name",
        ) from error
    except OSError:
        return
    os.ftruncate(file, 0)
    os.write(file, f"process {os.getpid()} on {os.uname().nodename}".encode())
    os.set_inheritable(file, True)  # exec keeps it


def held_outside() -> bool:
    """Whether a launcher outside holds it: this process is meant to be in its container."""
    return bool(os.environ.get(_HELD_OUTSIDE))


def inside() -> dict[str, str]:
    """The environment that tells a launcher in the container that its lock is held."""
    return {_HELD_OUTSIDE: "1"}
