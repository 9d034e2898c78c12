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
from primus.launchers.task import restarts
from primus.record import Record, now

# A run that could not start for what it was told will not start for it the next time.
_FINAL = (0, 2, 3, 4)


def finish(record: Record, status: int, attempt: int) -> int:
    """Write down how the run ended. Returns its exit code."""
    first = record.first_failure(attempt)
    code = exit_code(record, status, attempt)
    failed = {"failed_first": first.host} if code and first is not None else {}
    record.write("end.json", {"ended": now(), "exit": code, "attempt": attempt, **failed})
    return code


def exit_code(record: Record, status: int, attempt: int) -> int:
    """The exit code of the node that failed first, for srun's own, `status`, is the highest of all nodes'."""
    first = record.first_failure(attempt)
    return first.exit if status and first is not None and first.exit else status


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
    record, attempt = Record(asked.record.absolute()), restarts(os.environ)
    code = exit_code(record, asked.status, attempt)
    if code and (why := failure.explain(record, attempt)):
        print(why, flush=True)
    if code not in _FINAL and attempt < asked.requeue:
        print(f"primus: exit code {code}; starting again, restart {attempt + 1} of {asked.requeue}", flush=True)
        if subprocess.run(("scontrol", "requeue", job_id(os.environ)), check=False).returncode == 0:
            sys.exit(code)
    finish(record, asked.status, attempt)
    print(f"primus: the run ended with exit code {code}", flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
