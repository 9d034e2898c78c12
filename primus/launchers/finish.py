"""The last line of a job's script: writes down how the run ended, and has it started again where that was asked for.

python -m primus.launchers.finish RECORD STATUS --requeue=N
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from primus import failure
from primus.record import Record, now

# A run that could not start for what it was told will not start for it the next time.
_FINAL = (0, 2, 3, 4)


def finish(record: Record, status: int, environ: Mapping[str, str]) -> int:
    """The run's exit code: that of the node that failed first, for srun's own is the highest of all nodes'."""
    attempt = int(environ.get("SLURM_RESTART_COUNT") or 0)
    first = record.first_failure(attempt)
    code = first.exit if status and first is not None and first.exit else status
    failed = {"failed_first": first.host} if code and first is not None else {}
    record.write("end.json", {"ended": now(), "exit": code, "attempt": attempt, **failed})
    return code


def job_id(environ: Mapping[str, str]) -> str:
    """Slurm's name for this job alone: the number of an array's element may be that of the whole array, too."""
    if environ.get("SLURM_ARRAY_JOB_ID"):
        return f"{environ['SLURM_ARRAY_JOB_ID']}_{environ['SLURM_ARRAY_TASK_ID']}"
    return environ.get("SLURM_JOB_ID", "")


def main() -> None:
    parser = argparse.ArgumentParser(prog="primus.launchers.finish")
    parser.add_argument("record", type=Path)
    parser.add_argument("status", type=int)
    parser.add_argument("--requeue", type=int, default=0)
    asked = parser.parse_args()
    code = finish(Record(asked.record.absolute()), asked.status, os.environ)
    attempt = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    if code and (why := failure.explain(Record(asked.record.absolute()), attempt)):
        print(why, flush=True)
    if code not in _FINAL and attempt < asked.requeue:
        print(f"primus: exit code {code}; starting again, restart {attempt + 1} of {asked.requeue}", flush=True)
        (asked.record / "end.json").unlink()
        subprocess.run(("scontrol", "requeue", job_id(os.environ)), check=False)
    print(f"primus: the run ended with exit code {code}", flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
