"""Removes what an earlier job of this user's left on this node: containers whose job Slurm does not know any more.

The lifeline ends a container with its launcher; this is for the node whose engine or slurmstepd died with it.
"""

from __future__ import annotations

import os
import subprocess
import sys


def sweep(engine: str) -> tuple[str, ...]:
    """Remove them, and return their names. Nothing is touched that is not ours, or whose job may still be there."""
    label = "io.primus.job"
    found: dict[str, list[str]] = {}
    for line in _said(
        *(engine, "ps", "--all", f"--filter=label={label}", f"--filter=label=io.primus.uid={os.getuid()}"),
        "--format={{.Names}} {{.Labels}}"
        if engine == "podman"
        else f'--format={{{{.Names}}}} {{{{.Label "{label}"}}}}',
    ).splitlines():
        name, _, job = line.partition(" ")
        if engine == "podman":  # prints the labels as a map
            job = next((word.split(":")[1] for word in job.strip("map[]").split() if word.startswith(f"{label}:")), "")
        if job.isdecimal():
            found.setdefault(job, []).append(name)
    alive = _jobs() if found else set()
    dead = tuple(name for job, names in found.items() if alive is not None and job not in alive for name in names)
    for name in dead:
        print(f"primus: removing {name}, left by a job that is over", file=sys.stderr, flush=True)
        _said(engine, "rm", "--force", name)
    return dead


def _jobs() -> set[str] | None:
    """The numbers of all jobs that Slurm has; None if it does not say."""
    try:
        done = subprocess.run(
            ("squeue", "--noheader", "--all", "--format=%A"), capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return {*done.stdout.split()} if done.returncode == 0 else None


def _said(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
