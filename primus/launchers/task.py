"""One task of an srun step: this node's place in the job, as Slurm says it."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping

from primus.command import output
from primus.errors import LaunchError
from primus.launchers.nodelist import hosts
from primus.node import number

# Above the well-known ports and below Linux's default range of ephemeral ones (32768-60999): no client of anybody has
# one of these by chance.
FIRST_PORT, PORTS = 20_000, 12_000

_NEEDED = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS", "SLURM_NODEID")
_LISTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")


def place(environ: Mapping[str, str], address: Callable[[str], str] | None = None) -> dict[str, str]:
    """NODE_RANK, NNODES, MASTER_ADDR and MASTER_PORT of this task.

    The variables are srun's (https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES). MASTER_PORT
    follows from the job's and the step's number, so that two jobs on a node do not meet; the user's own beats it.
    `address` gives an address for a host's name. Raises LaunchError unless this is the one task of its
    node, ConfigError for what is no number.
    """
    missing = [name for name in _NEEDED if not environ.get(name)]
    nodelist = next((environ[name] for name in _LISTS if environ.get(name)), "")
    if missing or not nodelist:
        raise LaunchError(
            f"--slurm-task: this is no task of srun's; not set here: {', '.join(missing or _LISTS)}",
            hint="start it with srun, or leave --slurm-task out and set NNODES, NODE_RANK and MASTER_ADDR yourself",
        )
    nodes, tasks = (number(environ, f"SLURM_STEP_NUM_{what}", 1) for what in ("NODES", "TASKS"))
    rank, job = number(environ, "SLURM_NODEID", 0), number(environ, "SLURM_JOB_ID", 0, 2**32) or 0
    if tasks != nodes:
        raise LaunchError(
            f"--slurm-task: the step has {tasks} tasks on {nodes} nodes; the launcher is one task on each, "
            "which starts the node's processes itself",
            hint=f"srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1",
        )
    port = FIRST_PORT + (job + 97 * _small(environ["SLURM_STEP_ID"])) % PORTS
    return {
        "NODE_RANK": str(rank),
        "NNODES": str(nodes),
        "MASTER_ADDR": (address or reachable)(hosts(nodelist)[0]),
        "MASTER_PORT": environ.get("MASTER_PORT") or str(port),
    }


def _small(step: str) -> int:
    return int(step) if re.fullmatch("[0-9]{1,5}", step) else 0


def reachable(host: str) -> str:
    """The host's name where it resolves, else the address that Slurm itself reaches the node at."""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        found = re.search(r"\bNodeAddr=(\S+)", output("scontrol", "show", "node", host, "--oneliner") or "")
        if found is None:
            raise LaunchError(
                f"the first node, {host}, has no address here", hint="pass --env MASTER_ADDR=ADDRESS"
            ) from None
        return found[1]
    return host


def restarts(environ: Mapping[str, str]) -> int:
    """How often Slurm has started this job again."""
    return number(environ, "SLURM_RESTART_COUNT", 0) or 0


def kill_wait() -> int | None:
    """Seconds that this cluster leaves a step between SIGTERM and SIGKILL; None if it does not say."""
    found = re.search(r"^KillWait\s*=\s*(\d+)", output("scontrol", "show", "config") or "", re.MULTILINE)
    return int(found[1]) if found else None
