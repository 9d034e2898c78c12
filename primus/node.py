"""This machine's place in the job, and what it has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from primus.errors import ConfigError

# MASTER_PORT when nobody says otherwise; below Linux's default ephemeral range (32768-60999).
DEFAULT_PORT = 29500

MOST = 999_999  # nodes, GPUs or processes: more than there are anywhere

_TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")

# The folders of examples that are each for one GPU, and its architecture.
GFX_OF = {"MI300X": "gfx942", "MI325X": "gfx942", "MI350X": "gfx950", "MI355X": "gfx950"}


@dataclass(frozen=True, kw_only=True)
class Node:
    """This machine inside the job: its rank among `nodes`, its GPUs (or CPU processes) and their architecture."""

    rank: int = 0
    nodes: int = 1
    gpus: int = 1
    master_addr: str = "127.0.0.1"
    master_port: int = DEFAULT_PORT
    gfx: str = ""

    @classmethod
    def detect(
        cls,
        *,
        accelerator: str,
        nodes: int | None,
        gpus: int | None,
        environ: Mapping[str, str],
        topology: Path = _TOPOLOGY,
    ) -> Node:
        """The node as flags, NNODES/NODE_RANK/MASTER_ADDR/MASTER_PORT/GPUS_PER_NODE and sysfs describe it.

        A flag beats the environment. Without a count, a rocm node has the GPUs that sysfs and the
        *_VISIBLE_DEVICES variables show (8 where there are none, as on the laptop of a dry run), a cpu
        node one process. Raises ConfigError for a number that is none or does not fit.
        """
        found = gfx_targets(topology) if accelerator == "rocm" else ()
        total, count = size(accelerator=accelerator, nodes=nodes, gpus=gpus, environ=environ, topology=topology)
        rank = number(environ, "NODE_RANK", 0) or 0
        if rank >= total:
            raise ConfigError(
                f"NODE_RANK is {rank} but the job has {total} node(s)", hint="ranks count from 0; set NNODES or --nodes"
            )
        if total > 1 and not environ.get("NODE_RANK"):
            raise ConfigError(
                f"{total} nodes need NODE_RANK", hint="set it to 0 on the first node, 1 on the second ..."
            )
        if total > 1 and not environ.get("MASTER_ADDR"):
            raise ConfigError(
                f"{total} nodes need MASTER_ADDR", hint="set it to the first node's name or address on every node"
            )
        return cls(
            rank=rank,
            nodes=total,
            gpus=count,
            master_addr=environ.get("MASTER_ADDR") or cls.master_addr,
            master_port=number(environ, "MASTER_PORT", 1, 65535) or DEFAULT_PORT,
            gfx=found[0] if found else "",
        )


def size(
    *,
    accelerator: str,
    nodes: int | None,
    gpus: int | None,
    environ: Mapping[str, str],
    topology: Path = _TOPOLOGY,
) -> tuple[int, int]:
    """How many nodes the job has, and GPUs (or CPU processes) each: see Node.detect."""
    visible = _visible(gfx_targets(topology) if accelerator == "rocm" else (), environ)
    count = gpus or number(environ, "GPUS_PER_NODE", 1) or len(visible) or (8 if accelerator == "rocm" else 1)
    return nodes or number(environ, "NNODES", 1) or 1, count


def gfx_targets(topology: Path = _TOPOLOGY) -> tuple[str, ...]:
    """The architecture of each GPU of this machine, e.g. ("gfx942",) * 8, in KFD's order.

    From KFD's topology in sysfs: `gfx_target_version` is major * 10000 + minor * 100 + stepping,
    and the name writes minor and stepping in hexadecimal (90402 -> gfx942, 90010 -> gfx90a); 0 is a CPU.
    """
    versions = [gpu["gfx_target_version"] for gpu in _gpus(topology)[0]]
    return tuple(f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" for version in versions)


def render_nodes(topology: Path = _TOPOLOGY) -> tuple[str, ...]:
    """The devices in /dev/dri of the GPUs that a scheduler's cgroup leaves to this process; none if it leaves all.

    A container is no part of that cgroup: given all of /dev/dri, it would count GPUs of other jobs, too.
    """
    mine, hidden = _gpus(topology)
    return tuple(f"renderD{gpu['drm_render_minor']}" for gpu in mine if gpu.get("drm_render_minor")) if hidden else ()


def _gpus(topology: Path) -> tuple[list[dict[str, int]], int]:
    """The properties of each GPU in KFD's order, and how many this process may not read."""
    found, hidden = [], 0
    for properties in sorted(topology.glob("*/properties"), key=lambda path: int(path.parent.name)):
        try:
            text = properties.read_text(encoding="ascii")
        except OSError:
            hidden += 1  # the scheduler gave it to another job
            continue
        values = {name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE)}
        if values.get("gfx_target_version"):
            found.append(values)
    return found, hidden


def _visible(found: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, ...]:
    # ROCR's list narrows the machine, HIP's (CUDA's is another name for it) what is left.
    hip = environ.get("HIP_VISIBLE_DEVICES") or environ.get("CUDA_VISIBLE_DEVICES")
    for listed in (environ.get("ROCR_VISIBLE_DEVICES"), hip):
        if listed:
            found = found[: len(listed.split(","))]
    return found


def number(environ: Mapping[str, str], name: str, least: int, most: int = MOST) -> int | None:
    """The whole number in a variable; None where it is empty or not set. Raises ConfigError for anything else."""
    text = environ.get(name, "").strip()
    if not text:
        return None
    if not re.fullmatch("[0-9]{1,18}", text) or not least <= int(text) <= most:
        raise ConfigError(f"{name} is {text[:20]!r}, which is no number from {least} to {most}")
    return int(text)
