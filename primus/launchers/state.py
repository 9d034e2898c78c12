"""How a run stands, from its record's files and, under Slurm, from squeue and sacct.

Their `--format` is the same in all of Slurm's versions; their JSON is not.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from primus.command import output
from primus.record import Record

STATES = ("queued", "running", "completed", "failed", "cancelled", "lost")


@dataclass(frozen=True, kw_only=True)
class State:
    """One of STATES; with the exit code once there is one, and Slurm's reason for a queue."""

    name: str
    exit: int | None = None
    why: str = ""

    @property
    def over(self) -> bool:
        return self.name not in ("queued", "running")

    def __str__(self) -> str:
        detail = self.why or (str(self.exit) if self.exit else "")
        return f"{self.name} ({detail})" if detail else self.name


def states(records: Iterable[Record]) -> dict[Path, State]:
    """The state of each record, by its path; Slurm is asked once for all."""
    known = list(records)
    jobs = [job for one in known if not one.read("end.json") and (job := _job(one))]
    queue = _queue() if jobs else {}
    history = _history([job for job in jobs if queue is not None and job not in queue])
    return {one.path: _state(one, queue, history) for one in known}


def _state(record: Record, queue: Mapping[str, tuple[str, str]] | None, history: Mapping[str, str]) -> State:
    end, job = record.read("end.json"), _job(record)
    if end:
        return _ended(end.get("exit"))
    if job and queue is None:
        return State(name="lost", why="Slurm does not answer")
    if job and queue is not None and job in queue:
        word, why = queue[job]
        waiting = word in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "CONFIGURING", "SUSPENDED")
        return State(name="queued", why=why) if waiting else State(name="running")
    word = history.get(job, "")
    if word.startswith("CANCELLED"):
        return State(name="cancelled")
    if word == "COMPLETED":
        return State(name="completed", exit=0)
    attempts = record.attempts()
    if not job and attempts and _locked(Path(record.read("run.json").get("run_dir", "")), attempts[-1].rank):
        return State(name="running")
    failure = record.first_failure(attempts[-1].attempt) if attempts else None
    if word:
        return State(name="failed", why=word, exit=failure.exit if failure else None)
    if attempts and all(one.ended for one in attempts):
        return _ended(failure.exit if failure else 0)
    return State(name="lost", why="killed" if attempts else "never started")


def _job(record: Record) -> str:
    """Slurm's number for the run: sbatch's, or for one in the foreground that which its nodes saw."""
    attempts = record.attempts()
    return str(record.read("slurm.json").get("job", "")) or (attempts[-1].job if attempts else "")


def _ended(code: int | None) -> State:
    if code == 0:
        return State(name="completed", exit=0)
    return State(name="cancelled" if code in (128 + 2, 128 + 15) else "failed", exit=code)


def _locked(run_dir: Path, rank: int) -> bool:
    """Whether a launch on this machine holds the run directory."""
    try:
        file = os.open(run_dir / f".node{rank}.lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _queue() -> dict[str, tuple[str, str]] | None:
    """State and reason of the jobs that Slurm has, an array's by element; None if it does not answer."""
    text = output("squeue", "--noheader", "--array", "--all", "--format=%i|%T|%r")
    if text is None:
        return None
    rows = (line.strip().split("|") for line in text.splitlines())
    return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}


def _history(jobs: list[str]) -> dict[str, str]:
    """The state of ended jobs: sacct's; on a cluster without accounting, what the controller still knows."""
    if not jobs:
        return {}
    options = ("--noheader", "--allocations", "--parsable2", "--format=JobID,State", f"--jobs={','.join(jobs)}")
    text = output("sacct", *options)
    if text is not None:
        return {row[0]: row[1] for row in (line.split("|") for line in text.splitlines()) if len(row) == 2}
    return dict(map(_shown, (output("scontrol", "show", "job", "--oneliner", "--all") or "").splitlines()))


def _shown(line: str) -> tuple[str, str]:
    """Number and state of a job in scontrol's words, an element of an array by the array's number and its own."""
    said = dict(re.findall(r"\b(JobId|ArrayJobId|ArrayTaskId|JobState)=(\S+)", line))
    number = f"{said['ArrayJobId']}_{said['ArrayTaskId']}" if "ArrayTaskId" in said else said.get("JobId", "")
    return number, said.get("JobState", "")
