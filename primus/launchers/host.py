"""What a container needs to know of this machine; looked up here, on the node that has it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import NamedTuple

from primus.launchers import task
from primus.node import render_nodes

# Seconds between TERM and KILL; less than Slurm's default KillWait of 30, so that the container ends before its job.
GRACE = 20
_CDI = (Path("/etc/cdi"), Path("/var/run/cdi"))
_ENFORCE = Path("/sys/fs/selinux/enforce")


class Host(NamedTuple):
    """This machine, and its user."""

    uid: int
    gid: int
    own_groups: tuple[int, ...]  # the user's besides gid: project directories belong to them
    groups: tuple[int, ...]  # of /dev/kfd and the render nodes, as numbers: names differ between host and image
    infiniband: bool
    rootless: bool  # podman without root: users and groups are mapped
    devices: tuple[Path, ...] = (Path("/dev/dri"),)  # the GPUs
    grace: int = GRACE
    selinux: bool = False  # it enforces: a container may not touch the host's files, however they are mounted
    scratch: Path = Path("SCRATCH")  # for apptainer: what becomes the container's /tmp
    cdi: bool = False  # a specification says what a container needs of the GPUs; for rootless podman

    @classmethod
    def look(
        cls,
        engine: str,
        devices: Path = Path("/dev"),
        *,
        in_slurm: bool = False,
        enforce: Path = _ENFORCE,
        cdi: tuple[Path, ...] = _CDI,
    ) -> Host:
        nodes = (devices / "kfd", *(devices / "dri").glob("render*"))
        own = render_nodes() if in_slurm else ()
        wait = task.kill_wait() if in_slurm else None
        groups = {node.stat().st_gid for node in nodes if node.exists() and stat.S_ISCHR(node.stat().st_mode)}
        rootless = engine == "podman" and os.getuid() != 0
        return cls(
            uid=os.getuid(),
            gid=os.getgid(),
            own_groups=tuple(sorted({*os.getgroups()} - {os.getgid()})),
            groups=tuple(sorted(groups)),
            infiniband=(devices / "infiniband").is_dir(),
            rootless=rootless,
            devices=tuple(devices / "dri" / name for name in own) or (devices / "dri",),
            grace=GRACE if wait is None else max(1, min(GRACE, wait - 5)),
            selinux=enforce.is_file() and enforce.read_text(encoding="ascii").strip() == "1",
            # It would give all GPUs, where Slurm gave some.
            cdi=rootless and not own and any(_describes_gpus(file) for folder in cdi for file in folder.glob("*.json")),
        )


def _describes_gpus(file: Path) -> bool:
    """Whether the file is a specification of AMD's GPUs, as their tool writes it (amd-ctk cdi generate)."""
    try:
        return bool(json.loads(file.read_text(encoding="utf-8")).get("kind") == "amd.com/gpu")
    except (OSError, ValueError, AttributeError):
        return False
