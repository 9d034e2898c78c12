"""The network between nodes: names, the interface that is taken, ports, RDMA."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from primus.doctor.machine import FAIL, OK, WARN, Machine, Row
from primus.launchers.task import FIRST_PORT, PORTS
from primus.node import DEFAULT_PORT

# Interfaces that lead to containers, virtual machines or tunnels, not to other nodes.
_VIRTUAL = (
    "veth",
    "virbr",
    "br-",
    "cni",
    "flannel",
    "cali",
    "podman",
    "docker",
    "tun",
    "tap",
    "tailscale",
    "wg",
    "lxc",
)
# The version of a driver's interface that Linux itself and rdma-core have; a vendor's own driver may differ.
# include/uapi/rdma/*-abi.h of Linux; seen as a fault: sgl-project/sglang#16242 (bnxt_re), #33374 (ionic)
# The PCI device's driver -> that version.
_ABI = {"bnxt_en": 1, "ionic": 1, "mlx5_core": 1}


class Place(NamedTuple):
    """Where the nodes of the run to come meet."""

    nodes: int = 1
    rank: int = 0
    address: str = ""
    port: int = 0


def rows(machine: Machine, place: Place) -> list[Row]:
    return [
        _host_name(machine, place),
        *_master(machine, place),
        _interface(machine, place),
        *_gloo(machine),
        *_ports(machine, place),
        *_rdma(machine, place),
    ]


def _local(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _host_name(machine: Machine, place: Place) -> Row:
    """gloo announces the address that the host's own name has."""
    found = machine.resolve(machine.host)
    text = f"{machine.host} is {', '.join(found)}"
    if place.nodes == 1:
        if found or machine.inside:
            return Row("host name", OK, text if found else f"{machine.host} has no address, and one node needs none")
        return Row(
            "host name", WARN, f"{machine.host} has no address", f"put it into /etc/hosts: ADDRESS {machine.host}"
        )
    if not found:
        return Row(
            "host name",
            FAIL,
            f"{machine.host} has no address",
            f"put it into the DNS or /etc/hosts: ADDRESS {machine.host}",
        )
    if machine.environ.get("GLOO_SOCKET_IFNAME"):
        return Row("host name", OK, text)
    if all(_local(one) for one in found):
        remedy = f"give {machine.host} its address in /etc/hosts in place of 127.*, or --env GLOO_SOCKET_IFNAME=NAME"
        return Row("host name", FAIL, f"{text}: gloo would tell other nodes to come to themselves", remedy)
    if machine.addresses and not {*found} & {*machine.addresses.values()} and any("." in one for one in found):
        remedy = f"correct {machine.host} in the DNS or /etc/hosts, or --env GLOO_SOCKET_IFNAME=NAME"
        return Row("host name", WARN, f"{text}, which no interface here has", remedy)
    return Row("host name", OK, text)


def _master(machine: Machine, place: Place) -> list[Row]:
    if not place.address:
        return []
    found = machine.resolve(place.address)
    text = f"MASTER_ADDR {place.address}"
    if not found:
        remedy = "name the first node as the others know it, or its address: --env MASTER_ADDR=ADDRESS"
        return [Row("meeting point", FAIL, f"{text} has no address here", remedy)]
    if place.nodes > 1 and all(_local(one) for one in found):
        remedy = "its address in place of 127.* in /etc/hosts, or --env MASTER_ADDR=ADDRESS"
        return [Row("meeting point", FAIL, f"{text} is {found[0]}: each node would wait for itself", remedy)]
    mine = {*found} & {*machine.addresses.values()}
    if place.nodes > 1 and place.rank == 0 and machine.addresses and not mine:
        remedy = "MASTER_ADDR must be the node of rank 0"
        return [Row("meeting point", FAIL, f"{text} is {found[0]}, and this is rank 0, which is another", remedy)]
    return [Row("meeting point", OK, f"{text} is {found[0]}, port {place.port or DEFAULT_PORT}")]


def taken(interfaces: list[str], wanted: str) -> list[str]:
    """Those of `interfaces`, which are in the kernel's order, that RCCL takes.

    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname
    """
    if wanted:
        body = wanted.lstrip("^=")
        exact = wanted.removeprefix("^").startswith("=")
        words = [word for word in body.split(",") if word]
        hit = [name for name in interfaces if (name in words if exact else name.startswith(tuple(words)))]
        return [name for name in interfaces if name not in hit] if wanted.startswith("^") else hit
    groups = (
        [name for name in interfaces if name.startswith("ib")],
        [name for name in interfaces if not name.startswith(("ib", "docker", "lo"))],
        [name for name in interfaces if name.startswith("docker")],
        [name for name in interfaces if name.startswith("lo")],
    )
    return next((group for group in groups if group), [])


def _interfaces(machine: Machine) -> list[str]:
    """Those with an address, in the kernel's order."""
    names = [name for name in machine.names("/sys/class/net") if name in machine.addresses]
    return sorted(names, key=lambda name: int(machine.text(f"/sys/class/net/{name}/ifindex") or 0))


def _interface(machine: Machine, place: Place) -> Row:
    names = _interfaces(machine)
    wanted = machine.environ.get("NCCL_SOCKET_IFNAME", "")
    chosen = taken(names, wanted)
    there = ", ".join(f"{name} {machine.addresses[name]}" for name in names)
    choose = "--env NCCL_SOCKET_IFNAME=NAME (and GLOO_SOCKET_IFNAME) on all nodes"
    if wanted and not chosen:
        text = f"NCCL_SOCKET_IFNAME={wanted} fits none of: {there or 'no interface at all'}"
        return Row("interface", FAIL, text, f"unset it, or {choose}")
    if not chosen:
        state = FAIL if place.nodes > 1 else WARN
        return Row("interface", state, "no interface has an address", "ip address, and the container's --network=host")
    first = chosen[0]
    text = f"RCCL takes {first} ({machine.addresses[first]})" + (f" of {', '.join(names)}" if len(names) > 1 else "")
    if place.nodes == 1:
        return Row("interface", OK, text)
    if _local(machine.addresses[first]) or first.startswith(_VIRTUAL):
        return Row("interface", FAIL, f"{text}, which leads to no other node", choose)
    if machine.text(f"/sys/class/net/{first}/operstate") == "down":
        return Row("interface", FAIL, f"{text}, which is down", f"ip link set {first} up, or {choose}")
    return Row("interface", OK, text)


def _gloo(machine: Machine) -> list[Row]:
    """Unlike RCCL, gloo wants names, and no patterns."""
    wanted = machine.environ.get("GLOO_SOCKET_IFNAME", "")
    wrong = [name for name in wanted.split(",") if name and name not in machine.addresses]
    if not wrong:
        return []
    there = ", ".join(_interfaces(machine))
    return [
        Row("gloo", FAIL, f"GLOO_SOCKET_IFNAME={wanted}: there is no {wrong[0]}", f"one of {there}: a name, no pattern")
    ]


def _ports(machine: Machine, place: Place) -> list[Row]:
    """The meeting point's: free, and none that the kernel gives to somebody's connection by chance."""
    ephemeral = [
        int(word) for word in machine.text("/proc/sys/net/ipv4/ip_local_port_range").split() if word.isdecimal()
    ]
    first, last = ephemeral if len(ephemeral) == 2 else (32768, 60999)
    port = place.port or DEFAULT_PORT
    listening = _listening(machine)
    if place.nodes > 1 and place.rank == 0 and port in listening:
        remedy = "ss -ltnp names who has it; --env MASTER_PORT=N on all nodes takes another"
        return [Row("ports", FAIL, f"port {port} is in use on this node, where the others would meet", remedy)]
    mine = f"the kernel's own ports are {first} to {last}"
    if place.port and first <= port <= last:
        remedy = f"a MASTER_PORT below {first}, or sysctl net.ipv4.ip_local_reserved_ports={port}"
        return [Row("ports", WARN, f"MASTER_PORT {port}: {mine}, so any connection may have it", remedy)]
    end = FIRST_PORT + PORTS - 1
    if first <= end and last >= FIRST_PORT:
        remedy = "sysctl net.ipv4.ip_local_port_range='32768 60999'"
        return [Row("ports", WARN, f"{mine}, and jobs under Slurm meet on {FIRST_PORT} to {end}", remedy)]
    busy = sorted(one for one in listening if FIRST_PORT <= one <= end)
    note = f"; of {FIRST_PORT} to {end}, {len(busy)} are in use" if busy else f"; {FIRST_PORT} to {end} are free"
    return [Row("ports", OK, f"{port} is outside of the kernel's own{note}")]


def _listening(machine: Machine) -> set[int]:
    """Of proc_net_tcp(5): state 0A."""
    text = machine.text("/proc/net/tcp") + "\n" + machine.text("/proc/net/tcp6")
    return {int(port, 16) for port in re.findall(r"^\s*\d+: \w+:(\w{4}) \w+:\w{4} 0A ", text, re.MULTILINE)}


def _rdma(machine: Machine, place: Place) -> list[Row]:
    top = "/sys/class/infiniband"
    devices = machine.names(top)
    if not devices:
        if place.nodes > 1 and machine.gpus:
            remedy = "the NICs' driver is missing, or there are none; jobs run, slowly"
            return [Row("rdma", WARN, "no RDMA device: RCCL goes over TCP between nodes", remedy)]
        return [Row("rdma", OK, "no RDMA device")]
    found = []
    verbs = [name for name in machine.names("/dev/infiniband") if name.startswith("uverbs")]
    if not verbs:
        remedy = "sudo modprobe ib_uverbs; in a container, --device=/dev/infiniband"
        found.append(Row("rdma", FAIL, f"{len(devices)} RDMA devices, and no /dev/infiniband/uverbs*", remedy))
    elif closed := [name for name in verbs if not machine.may(f"/dev/infiniband/{name}")]:
        remedy = "rdma-core's udev rules give mode 0666: install it, then udevadm trigger"
        found.append(Row("rdma", FAIL, f"you may not use /dev/infiniband/{closed[0]}", remedy))
    asked = [word.lstrip("^=").split(":")[0] for word in machine.environ.get("NCCL_IB_HCA", "").split(",") if word]
    if wrong := [word for word in asked if not any(name.startswith(word) for name in devices)]:
        text = f"NCCL_IB_HCA names {wrong[0]}, and there are {', '.join(devices)}"
        found.append(Row("rdma", FAIL, text, "unset NCCL_IB_HCA"))
    down = [name for name in devices if not _active(machine, f"{top}/{name}")]
    nets = {name: machine.names(f"{top}/{name}/device/net") for name in devices}
    shown = ", ".join(name + (f" ({'+'.join(nets[name])})" if nets[name] else "") for name in devices)
    if down:
        remedy = "ip link set NIC up, its cable, its switch port; NCCL_IB_HCA=^NAME leaves one out"
        found.append(Row("rdma", WARN, f"not active: {', '.join(down)}, of {shown}", remedy))
    return [*(found or [Row("rdma", OK, f"{len(devices)} active: {shown}")]), *_abi(machine)]


def _active(machine: Machine, device: str) -> bool:
    states = [machine.text(f"{device}/ports/{port}/state") for port in machine.names(f"{device}/ports")]
    return any("ACTIVE" in state for state in states)


def _abi(machine: Machine) -> list[Row]:
    """A vendor's driver on the host and the image's library must speak the same version: else it sees no device."""
    top = "/sys/class/infiniband_verbs"
    differ = {}
    for name in machine.names(top):
        link = machine.path(f"{top}/{name}/device/driver")
        driver = Path(link).resolve().name if link.exists() else ""
        version = machine.text(f"{top}/{name}/abi_version")
        if driver in _ABI and version.isdecimal() and int(version) != _ABI[driver]:
            differ[driver] = version
    remedy = "mount the host's provider library (/usr/lib/*/libibverbs/) into the container: --mount SRC:DST:ro"
    return [
        Row("rdma abi", WARN, f"the host's {name} speaks version {version}, the image's rdma-core {_ABI[name]}", remedy)
        for name, version in differ.items()
    ]
