"""Removes what an earlier job of this user's left on this node: containers whose job Slurm does not know any more.

The lifeline ends a container with its launcher; this is for the node whose engine or slurmstepd died with it.
"""

from __future__ import annotations

import os
import sys

from primus.command import output


def sweep(engine: str) -> tuple[str, ...]:
    """Remove them, and return their names. Nothing is touched that is not ours, or whose job may still be there."""
    label = "io.primus.job"
    mine = (f"--filter=label={label}", f"--filter=label=io.primus.uid={os.getuid()}")
    found: dict[str, list[str]] = {}
    for name in (output(engine, "ps", "--all", *mine, "--format={{.Names}}") or "").split():
        job = (output(engine, "inspect", f'--format={{{{index .Config.Labels "{label}"}}}}', name) or "").strip()
        if job.isdecimal():
            found.setdefault(job, []).append(name)
    jobs = output("squeue", "--noheader", "--all", "--format=%A") if found else None
    if jobs is None:  # nothing to ask about, or Slurm does not say
        return ()
    alive = {*jobs.split()}
    dead = tuple(name for job, names in found.items() if job not in alive for name in names)
    for name in dead:
        print(f"primus: removing {name}, left by a job that is over", file=sys.stderr, flush=True)
        output(engine, "rm", "--force", name)
    return dead
