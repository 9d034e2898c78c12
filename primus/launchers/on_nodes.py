"""One command of ours, once on each node of a Slurm job: srun, and what each node says of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from primus.errors import ConfigError, LaunchError
from primus.job import Slurm
from primus.launchers.jobscript import once_on_each
from primus.node import number


def size(nodes: int | None, environ: Mapping[str, str]) -> int:
    """How many nodes: as given, or those of the job that this process is in. Raises ConfigError if there is neither."""
    found = nodes or number(environ, "SLURM_JOB_NUM_NODES", 1)
    if found is None:
        raise ConfigError("--nodes is missing: how many should load it", hint="--nodes N, or type it inside of a job")
    return found


def argv(words: Sequence[str], nodes: int, slurm: Slurm) -> tuple[str, ...]:
    """srun for `primus WORDS --slurm-task` on each node; one that fails leaves the others alone."""
    names = ("partition", "account", "qos", "time", "reservation", "nodelist")
    asked = (f"--{name}={getattr(slurm, name)}" for name in names if getattr(slurm, name) is not None)
    return (
        *(*once_on_each(nodes), *asked, "--job-name=primus-load", "--kill-on-bad-exit=0", "--wait=0"),
        *(sys.executable, "-m", "primus", *words, "--slurm-task"),
    )


def run(words: Sequence[str], say: Callable[[str], None]) -> dict[str, str]:
    """What went wrong on each node that said something; "" where nothing did. Raises LaunchError without srun."""
    if shutil.which("srun") is None:
        raise LaunchError("srun is not installed here", hint="run this on a login node of the cluster")
    found: dict[str, str] = {}
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            node, tab, wrong = line.rstrip("\n").partition("\t")
            if tab:
                found[node] = wrong
                say(f"{len(found)} nodes are done")
    return found
