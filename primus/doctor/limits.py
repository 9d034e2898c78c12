"""Limits of this user's processes, and shared memory."""

from __future__ import annotations

import re
from pathlib import Path

from primus.doctor.machine import FAIL, GIB, OK, WARN, Asked, Machine, Row, size

# RCCL and the data loaders: some thousands for each GPU.
_FILES = 65_536


def rows(machine: Machine, asked: Asked) -> list[Row]:
    return [_memlock(machine, asked), _files(machine, asked), *_propagated(machine, asked), _shm(machine)]


def _memlock(machine: Machine, asked: Asked) -> Row:
    """RDMA registers memory, which locks it. Containers of an engine that runs as root are given no limit."""
    limit = machine.limit("Max locked memory")
    if limit is None:
        return Row("memlock", OK, "unlimited")
    if not machine.own_limits(asked.engine):
        return Row("memlock", OK, f"{size(limit)} for you; {asked.engine}'s containers for GPUs get it without limit")
    if not machine.names("/sys/class/infiniband"):
        return Row("memlock", OK, f"{size(limit)}, and no RDMA here that would need more")
    return Row(
        "memlock",
        FAIL,
        f"{size(limit)}: RDMA cannot register its memory",
        "memlock unlimited in /etc/security/limits.conf (of Slurm's daemon: LimitMEMLOCK=infinity), and log in again",
    )


def _files(machine: Machine, asked: Asked) -> Row:
    limit = machine.limit("Max open files")
    if limit is None or limit >= _FILES:
        return Row("nofile", OK, str(limit or "unlimited"))
    if not machine.own_limits(asked.engine) or not machine.gpus:
        return Row("nofile", OK if limit >= 1024 else WARN, str(limit), "ulimit -n 1048576" if limit < 1024 else "")
    remedy = "ulimit -n 1048576, or nofile in /etc/security/limits.conf"
    return Row("nofile", WARN, f"{limit}: RCCL and the data loaders open more with 8 GPUs", remedy)


def _propagated(machine: Machine, asked: Asked) -> list[Row]:
    """Slurm gives a job the limits of the shell that submits it: https://slurm.schedmd.com/slurm.conf.html"""
    said = machine.say("scontrol", "show", "config")
    if said.code != 0:
        return []
    values = dict(re.findall(r"^(PropagateResourceLimits\w*)\s*=\s*(\S+)", said.out, re.MULTILINE))
    listed, spared = (
        values.get(name, "").upper().split(",") for name in ("PropagateResourceLimits", "PropagateResourceLimitsExcept")
    )
    passed = spared != [""] and spared != ["(NULL)"] and "MEMLOCK" not in spared and "ALL" not in spared
    passed = passed or "ALL" in listed or "MEMLOCK" in listed
    limit = machine.limit("Max locked memory")
    if not passed:
        return [Row("propagation", OK, "Slurm's nodes keep their own memlock")]
    if limit is None:
        return [Row("propagation", OK, "Slurm passes memlock on: unlimited")]
    text = f"Slurm passes memlock on to jobs: {size(limit)}"
    if asked.engine == "docker":
        return [Row("propagation", OK, f"{text}; docker's containers on the nodes do not have it")]
    remedy = "--sbatch-arg=--propagate=NONE, or PropagateResourceLimitsExcept=MEMLOCK in slurm.conf"
    return [Row("propagation", WARN, text, remedy)]


def _shm(machine: Machine) -> Row:
    """Containers share the host's; the default of a container of its own, 64 MiB, is too small for RCCL and loaders."""
    found = machine.space(machine.path("/dev/shm")) or machine.space(Path("/dev/shm"))
    if found is None:
        return Row("shm", FAIL, "there is no /dev/shm", "mount -t tmpfs tmpfs /dev/shm")
    total, free = found
    needed = 8 * GIB if machine.gpus else GIB
    text = f"{size(free)} free of {size(total)} in /dev/shm"
    bigger = "--engine-arg=--ipc=host" if machine.inside else "mount -o remount,size=64G /dev/shm"
    if total < needed:
        return Row("shm", FAIL if total <= 64 << 20 else WARN, f"{text}: {size(needed)} are advisable", bigger)
    if free < needed / 8:
        return Row("shm", FAIL, f"{text}: it is full", "remove nccl-*, torch_* and the like of runs that are over")
    return Row("shm", OK, text)
