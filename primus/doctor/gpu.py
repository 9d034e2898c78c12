"""GPUs: driver, devices, permissions, architecture."""

from __future__ import annotations

import re

from primus.doctor.machine import FAIL, OK, WARN, Asked, Machine, Row
from primus.image.manifest import Manifest
from primus.models.gpus import BY_GFX
from primus.node import gfx_targets

_NODES = "/sys/class/kfd/kfd/topology/nodes"
_LISTS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def rows(machine: Machine, asked: Asked, image: Manifest | None) -> list[Row]:
    targets = gfx_targets(machine.path(_NODES))
    if not machine.gpus:
        return [_none(machine, asked)]
    return [
        _driver(machine),
        _devices(machine),
        _permissions(machine, asked),
        _gfx(targets, asked, image),
        *_visible(machine, len(targets)),
    ]


def _none(machine: Machine, asked: Asked) -> Row:
    """No driver: right for a login node or a laptop, and wrong where there is a GPU, or one was asked for."""
    bus = "/sys/bus/pci/devices"
    # Vendor AMD, class 12: processing accelerators, as the MI300 series is.
    found = [
        name
        for name in machine.names(bus)
        if machine.text(f"{bus}/{name}/vendor") == "0x1002" and machine.text(f"{bus}/{name}/class").startswith("0x12")
    ]
    if found:
        return Row(
            "gpu",
            FAIL,
            f"{len(found)} AMD GPU(s) on the PCI bus, and no /dev/kfd",
            "sudo modprobe amdgpu, and dmesg if it does not come; in a container, it needs --device=/dev/kfd",
        )
    given = next((name for name in ("SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS") if machine.environ.get(name)), "")
    if asked.accelerator == "rocm" or given:
        why = f"{given} says there is one" if given else "--accelerator rocm was asked for"
        return Row("gpu", FAIL, f"no AMD GPU, and {why}", "install the amdgpu driver, or go to a machine that has one")
    return Row("gpu", OK, "no AMD GPU here: dry runs, jobs for Slurm, and experiments for the CPU")


def _driver(machine: Machine) -> Row:
    if not machine.path("/dev/kfd").exists():
        return Row(
            "driver",
            FAIL,
            "the driver shows GPUs, and there is no /dev/kfd",
            "sudo udevadm trigger; in a container, it needs --device=/dev/kfd --device=/dev/dri",
        )
    version = machine.text("/sys/module/amdgpu/version")
    return Row("driver", OK, f"amdgpu {version or 'of the kernel ' + machine.text('/proc/sys/kernel/osrelease')}")


def _devices(machine: Machine) -> Row:
    wanted = []
    for node in machine.names(_NODES):
        found = re.search(r"^drm_render_minor ([1-9]\d*)$", machine.text(f"{_NODES}/{node}/properties"), re.MULTILINE)
        wanted += [f"renderD{found[1]}"] if found else []
    there = [name for name in machine.names("/dev/dri") if name.startswith("render")]
    missing = [name for name in wanted if name not in there]
    if missing or not there:
        return Row(
            "devices",
            FAIL,
            f"/dev/dri lacks {', '.join(missing) or 'all of the GPUs'}",
            "sudo udevadm trigger; in a container, all of --device=/dev/dri",
        )
    return Row("devices", OK, f"/dev/kfd and {len(there)} in /dev/dri")


def _permissions(machine: Machine, asked: Asked) -> Row:
    """What the launcher does about it: docker's containers get the groups by number, whoever starts them."""
    files = [f"/dev/dri/{name}" for name in machine.names("/dev/dri") if name.startswith("render")]
    files = [name for name in ("/dev/kfd", *files) if machine.path(name).exists()]
    closed = [name for name in files if not machine.may(name)]
    if not closed:
        return Row("permissions", OK, "you may use them" if files else "nothing to use")
    about = {name: machine.path(name).stat() for name in closed}
    shut = next((name for name in closed if about[name].st_mode >> 3 & 6 != 6), "")
    if shut:
        return Row(
            "permissions",
            FAIL,
            f"{shut} has mode {about[shut].st_mode & 0o777:04o}: no group may use it",
            "the driver's udev rules are missing: install amdgpu-dkms' (or ROCm's) package again, then udevadm trigger",
        )
    groups = sorted({found.st_gid for found in about.values()})
    named = " and ".join(machine.group(number) for number in groups)
    text = f"you are not in group {named} of {', '.join(closed[:2])}{' ...' if len(closed) > 2 else ''}"
    remedy = "; ".join(f"sudo usermod -aG {number} $USER" for number in groups) + ", and log in again"
    if machine.own_limits(asked.engine):
        return Row("permissions", FAIL, text, remedy)
    return Row("permissions", WARN, f"{text}; {asked.engine}'s containers get it, rocm-smi and the like do not", remedy)


def _gfx(targets: tuple[str, ...], asked: Asked, image: Manifest | None) -> Row:
    kinds = sorted({*targets})
    if not kinds:
        return Row("gfx", FAIL, "the driver shows no GPU", "dmesg | grep amdgpu says what it did not like")
    text = ", ".join(
        f"{targets.count(kind)} x {kind}" + (f" ({BY_GFX[kind]})" if kind in BY_GFX else "") for kind in kinds
    )
    if len(kinds) > 1:
        return Row("gfx", WARN, text, "run on one kind: ROCR_VISIBLE_DEVICES chooses")
    if image and image.gfx and kinds[0] not in image.gfx:
        return Row(
            "gfx",
            FAIL,
            f"{text}, and the image of {asked.framework} is built for {', '.join(image.gfx)}",
            "build the image for this GPU, or run on one it was built for",
        )
    if kinds[0] not in BY_GFX:
        return Row("gfx", WARN, text, f"the images' default is {', '.join(BY_GFX)}: build one for {kinds[0]}")
    return Row("gfx", OK, text)


def _visible(machine: Machine, count: int) -> list[Row]:
    """A list of devices that names one that is not there hides all that stand behind it."""
    for name in _LISTS:
        words = machine.environ.get(name, "").split(",")
        wrong = [word for word in words if word.strip().isdecimal() and int(word) >= count]
        if wrong:
            return [
                Row("visible", FAIL, f"{name} names {', '.join(wrong)}, and there are {count} GPUs", f"unset {name}")
            ]
    return []
