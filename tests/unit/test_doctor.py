"""primus doctor, on hosts that are folders: nothing on a healthy one, and every planted fault with what to do."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from primus.doctor.machine import FAIL, GIB, OK, WARN, Answer, Asked, Machine, Row, Said
from primus.doctor.network import taken
from primus.doctor.report import rows
from primus.errors import LaunchError

from .conftest import Primus

ROOT = Path(__file__).resolve().parents[2]
UID = 4242
NICS = [f"ens{number}" for number in range(1, 9)]
DOCKER = {"ServerVersion": "28.5.2", "DockerRootDir": "/var/lib/docker", "OperatingSystem": "Ubuntu 24.04.3 LTS"}
PODMAN = {
    "version": {"Version": "5.4.2"},
    "store": {"graphRoot": "/home/u/.local/share/containers/storage"},
    "host": {"ociRuntime": {"name": "crun"}, "security": {"selinuxEnabled": False}},
}
IMAGE = {
    "Id": "sha256:1a2b",
    "Size": 31 * GIB,
    "Config": {
        "Labels": {
            "io.primus.framework": "torchtitan",
            "io.primus.accelerator": "rocm",
            "io.primus.gfx": "gfx942,gfx950",
        }
    },
}
SLURM = """\
Configuration data as of 2026-11-30T21:00:00
KillWait                = 30 sec
PropagateResourceLimits = ALL
PropagateResourceLimitsExcept = (null)
SLURM_VERSION           = 24.05.4
"""
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
"""


class Host:
    """A healthy node with 8 MI300X and 8 RDMA NICs, and ways to break it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.said: dict[tuple[str, ...], Said] = {}
        self.spaces = {"/dev/shm": (256 * GIB, 200 * GIB), "/var/lib/docker": (3000 * GIB, 900 * GIB)}
        self.names = {"n1": ("10.0.0.1",), "n2": ("10.0.0.2",)}
        self.engine: LaunchError | None = None
        self.answer = Answer(200, 1000.0)
        self.asked = Asked(engine="docker", framework="torchtitan", registry="reg.example/team", nodes=2)
        self.changes: dict[str, Any] = {}
        self.environ = {"HF_HOME": "/shared/hf", "MASTER_ADDR": "n1", "MASTER_PORT": "20011", "NODE_RANK": "0"}
        self.say("docker", "info", json.dumps(DOCKER))
        self.say("podman", "info", json.dumps(PODMAN))
        self.say("docker", "image", json.dumps(IMAGE))
        self.say("podman", "image", json.dumps(IMAGE))
        self.say("scontrol", "--version", "slurm 24.05.4")
        self.say("scontrol", "show", SLURM)
        for number in range(2, 10):
            self.write(
                f"sys/class/kfd/kfd/topology/nodes/{number}/properties",
                f"gfx_target_version 90402\ndrm_render_minor {126 + number}\n",
            )
            self.write(f"dev/dri/renderD{126 + number}", mode=0o660)
        self.write("sys/class/kfd/kfd/topology/nodes/0/properties", "gfx_target_version 0\ndrm_render_minor 0\n")
        self.write("dev/kfd", mode=0o660)
        self.write("sys/module/amdgpu/version", "6.14.14")
        self.write("etc/group", f"render:x:{root.stat().st_gid}:\n")
        self.write("proc/self/limits", LIMITS)
        self.write("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999")
        self.write("proc/net/tcp", "  sl  local_address rem_address   st\n")
        self.addresses = {"lo": "127.0.0.1", "eno1": "10.0.0.1", "docker0": "172.17.0.1"}
        for index, name in enumerate([*self.addresses, *NICS]):
            self.write(f"sys/class/net/{name}/ifindex", str(index + 1))
            self.write(f"sys/class/net/{name}/operstate", "up")
        for number, nic in enumerate(NICS):
            device = f"sys/class/infiniband/bnxt_re{number}"
            self.write(f"{device}/ports/1/state", "4: ACTIVE")
            self.write(f"{device}/device/net/{nic}/operstate", "up")
            self.write(f"dev/infiniband/uverbs{number}", mode=0o666)
            verbs = f"sys/class/infiniband_verbs/uverbs{number}"
            self.write(f"{verbs}/abi_version", "1")
            (self.root / f"{verbs}/device").mkdir()
            driver = self.root / "sys/bus/pci/drivers/bnxt_en"
            driver.mkdir(parents=True, exist_ok=True)
            (self.root / f"{verbs}/device/driver").symlink_to(driver)
        (self.root / "shared/hf").mkdir(parents=True)

    def write(self, name: str, text: str = "", mode: int = 0o644) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n" if text else "", encoding="utf-8")
        path.chmod(mode)

    def say(self, program: str, first: str, text: str, code: int = 0) -> None:
        self.said[program, first] = Said(code, text)

    def remove(self, pattern: str) -> None:
        found = sorted(self.root.glob(pattern))
        assert found, pattern
        for path in found:
            path.unlink()

    def machine(self) -> Machine:
        def check(_name: str) -> None:
            if self.engine:
                raise self.engine

        def space(path: Path) -> tuple[int, int] | None:
            name = "/" + str(path).removeprefix(str(self.root)).lstrip("/")
            return self.spaces.get(name, (5000 * GIB, 2000 * GIB))

        values: dict[str, Any] = {
            "root": self.root,
            "environ": self.environ,
            "host": "n1",
            "uid": UID,
            "groups": frozenset({self.root.stat().st_gid}),
            "now": 1000.0,
            "synchronised": True,
            "inside": "",
            "addresses": self.addresses,
            "say": lambda *words: self.said.get(words[:2], Said(127, "")),
            "resolve": lambda name: self.names.get(name, ()),
            "space": space,
            "get": lambda _url: self.answer,
            "check_engine": check,
        }
        return Machine(**(values | self.changes))

    def found(self) -> list[Row]:
        return rows(self.machine(), self.asked)

    def wrong(self) -> list[Row]:
        return [row for row in self.found() if row.state != OK]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    if os.getuid() == UID:
        pytest.skip("the files would be the user's own")
    found = Host(tmp_path / "host")
    (found.root / "shared/hf").chmod(0o777)
    return found


def on(**changes: Any) -> Callable[[Host], None]:
    def change(host: Host) -> None:
        host.changes |= changes

    return change


def environ(**values: str) -> Callable[[Host], None]:
    return lambda host: host.environ.update(values)


def podman(host: Host) -> None:
    host.asked = replace(host.asked, engine="podman")


def both(*changes: Callable[[Host], Any]) -> Callable[[Host], None]:
    def change(host: Host) -> None:
        for one in changes:
            one(host)

    return change


def listens(host: Host, port: int) -> None:
    line = (
        f"   0: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0"
    )
    host.write("proc/net/tcp", f"  sl  local_address\n{line}")


def engine_says(host: Host, message: str, hint: str) -> None:
    host.engine = LaunchError(message, hint=hint)


def limit(name: str, value: int) -> Callable[[Host], None]:
    lines = [line for line in LIMITS.splitlines() if not line.startswith(name)]
    return lambda host: host.write("proc/self/limits", "\n".join([*lines, f"{name:<26}{value:<21}{value:<21}units"]))


def properties(version: int, minor: int = 128) -> str:
    return f"gfx_target_version {version}\ndrm_render_minor {minor}"


def no_driver(host: Host) -> None:
    host.remove("sys/class/kfd/kfd/topology/nodes/*/properties")
    for folder in (host.root / "sys/class/kfd/kfd/topology/nodes").iterdir():
        folder.rmdir()
    host.remove("dev/kfd")
    host.write("sys/bus/pci/devices/0000:05:00.0/vendor", "0x1002")
    host.write("sys/bus/pci/devices/0000:05:00.0/class", "0x120000")


def all_gfx(host: Host, version: int) -> None:
    for path in (host.root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties"):
        if "gfx_target_version 0\n" not in path.read_text():
            path.write_text(path.read_text().replace("90402", str(version)))


def docker_info(**values: Any) -> Callable[[Host], None]:
    return lambda host: host.say("docker", "info", json.dumps(DOCKER | values))


def no_infiniband(host: Host) -> None:
    host.remove("dev/infiniband/uverbs*")


CRUN = {**PODMAN, "host": {"ociRuntime": {"name": "runc"}}}

# What is wrong -> how to plant it, the row and its state, what is found, what to do.
FAULTS: dict[str, tuple[Callable[[Host], Any], str, str, str, str]] = {
    "no driver": (no_driver, "gpu", FAIL, "1 AMD GPU(s) on the PCI bus", "modprobe amdgpu"),
    "no /dev/kfd": (lambda host: host.remove("dev/kfd"), "driver", FAIL, "no /dev/kfd", "--device=/dev/kfd"),
    "a render node is missing": (
        lambda host: host.remove("dev/dri/renderD130"),
        "devices",
        FAIL,
        "lacks renderD130",
        "--device=/dev/dri",
    ),
    "not in the group, docker": (on(groups=frozenset({7})), "permissions", WARN, "(render)", "usermod -aG"),
    "not in the group, podman": (
        both(podman, on(groups=frozenset({7}))),
        "permissions",
        FAIL,
        "you are not in group",
        "usermod -aG",
    ),
    "no udev rules": (lambda host: host.write("dev/kfd", mode=0o600), "permissions", FAIL, "mode 0600", "udev"),
    "gfx of another image": (lambda host: all_gfx(host, 90010), "gfx", FAIL, "8 x gfx90a, and the image", "build"),
    "two kinds of GPU": (
        lambda host: host.write("sys/class/kfd/kfd/topology/nodes/2/properties", properties(90500)),
        "gfx",
        WARN,
        "7 x gfx942 (MI300X), 1 x gfx950 (MI355X)",
        "ROCR_VISIBLE_DEVICES",
    ),
    "a GPU that is not there": (environ(ROCR_VISIBLE_DEVICES="0,8"), "visible", FAIL, "names 8", "unset"),
    "no permission on the socket": (
        lambda host: engine_says(host, "no permission on docker's socket", "usermod -aG docker"),
        "engine",
        FAIL,
        "no permission on docker's socket",
        "usermod -aG docker",
    ),
    "Docker Desktop's context": (
        docker_info(OperatingSystem="Docker Desktop", ClientInfo={"Context": "desktop-linux"}),
        "context",
        FAIL,
        "Docker Desktop (desktop-linux)",
        "docker context use default",
    ),
    "rootless docker": (docker_info(SecurityOptions=["name=rootless"]), "users", FAIL, "rootless", "podman"),
    "podman without crun": (
        both(podman, lambda host: host.say("podman", "info", json.dumps(CRUN))),
        "groups",
        FAIL,
        "runc drops your groups",
        "install crun",
    ),
    "no apptainer": (
        lambda host: setattr(host, "asked", replace(host.asked, engine="apptainer")),
        "engine",
        FAIL,
        "apptainer is not installed",
        "module",
    ),
    "no pyxis": (
        lambda host: setattr(host, "asked", replace(host.asked, engine="pyxis")),
        "engine",
        FAIL,
        "srun has no --container-image",
        "pyxis",
    ),
    "no room where apptainer unpacks": (
        both(
            lambda host: setattr(host, "asked", replace(host.asked, engine="apptainer")),
            lambda host: host.say("apptainer", "--version", "apptainer version 1.4.2\n"),
            lambda host: host.spaces.update({"/tmp": (50 * GIB, 20 * GIB)}),
        ),
        "disk",
        FAIL,
        "20 GiB free of 50 GiB in /tmp, and an image takes about 75 GiB",
        "APPTAINER_TMPDIR",
    ),
    "no room where enroot unpacks": (
        both(
            lambda host: setattr(host, "asked", replace(host.asked, engine="pyxis")),
            lambda host: host.say("srun", "--help", "--container-image=PATH\n"),
            lambda host: host.write(
                "etc/enroot/enroot.conf", "ENROOT_DATA_PATH /run/enroot\nENROOT_CACHE_PATH /c/$(id)"
            ),
            lambda host: host.spaces.update({"/run/enroot": (12 * GIB, 12 * GIB)}),
        ),
        "disk",
        FAIL,
        "12 GiB free of 12 GiB in /run/enroot",
        "ENROOT_DATA_PATH",
    ),
    "no room for the image": (
        both(
            lambda host: host.said.pop(("docker", "image")),
            lambda host: host.spaces.update({"/var/lib/docker": (100 * GIB, 60 * GIB)}),
        ),
        "disk",
        FAIL,
        "60 GiB free of 100 GiB in /var/lib/docker; an image for rocm takes about 75 GiB",
        "docker system df",
    ),
    "no room in containerd's store": (
        both(
            docker_info(DriverStatus=[["driver-type", "io.containerd.snapshotter.v1"]]),
            lambda host: host.spaces.update({"/var/lib/containerd": (100 * GIB, GIB // 2)}),
        ),
        "disk",
        FAIL,
        "in /var/lib/containerd",
        "docker system df",
    ),
    "memlock": (both(podman, limit("Max locked memory", 8 << 20)), "memlock", FAIL, "8 MiB", "memlock unlimited"),
    "nofile": (both(podman, limit("Max open files", 1024)), "nofile", WARN, "1024", "ulimit -n"),
    "Slurm passes the limit on": (
        both(podman, limit("Max locked memory", 64 << 10)),
        "propagation",
        WARN,
        "64 KiB",
        "--propagate=NONE",
    ),
    "64 MiB of /dev/shm": (
        lambda host: host.spaces.update({"/dev/shm": (64 << 20, 60 << 20)}),
        "shm",
        FAIL,
        "60 MiB free of 64 MiB",
        "remount",
    ),
    "little /dev/shm": (
        lambda host: host.spaces.update({"/dev/shm": (4 * GIB, 4 * GIB)}),
        "shm",
        WARN,
        "8 GiB",
        "size=",
    ),
    "/dev/shm is full": (
        lambda host: host.spaces.update({"/dev/shm": (256 * GIB, 1 << 20)}),
        "shm",
        FAIL,
        "it is full",
        "nccl-*",
    ),
    "the host's name is loopback": (
        lambda host: host.names.update(n1=("127.0.1.1",)),
        "host name",
        FAIL,
        "n1 is 127.0.1.1",
        "/etc/hosts",
    ),
    "the host's name is unknown": (
        both(environ(MASTER_ADDR="n2", NODE_RANK="1"), lambda host: host.names.pop("n1")),
        "host name",
        FAIL,
        "no address",
        "/etc/hosts",
    ),
    "the host's name is another's": (
        both(environ(MASTER_ADDR="n2", NODE_RANK="1"), lambda host: host.names.update(n1=("10.9.9.9",))),
        "host name",
        WARN,
        "which no interface here has",
        "DNS",
    ),
    "MASTER_ADDR is unknown": (
        environ(MASTER_ADDR="rack1n[01-02]"),
        "meeting point",
        FAIL,
        "no address",
        "MASTER_ADDR",
    ),
    "MASTER_ADDR is another node": (environ(MASTER_ADDR="n2"), "meeting point", FAIL, "this is rank 0", "rank 0"),
    "an interface that is not there": (
        environ(NCCL_SOCKET_IFNAME="=eth2"),
        "interface",
        FAIL,
        "NCCL_SOCKET_IFNAME==eth2 fits none of: lo 127.0.0.1, eno1 10.0.0.1",
        "unset",
    ),
    "an interface of containers": (
        both(
            lambda host: host.addresses.update(virbr0="192.168.122.1"),
            lambda host: host.write("sys/class/net/virbr0/ifindex", "0"),
        ),
        "interface",
        FAIL,
        "RCCL takes virbr0 (192.168.122.1)",
        "NCCL_SOCKET_IFNAME",
    ),
    "an interface that is down": (
        lambda host: host.write("sys/class/net/eno1/operstate", "down"),
        "interface",
        FAIL,
        "which is down",
        "ip link set eno1 up",
    ),
    "a pattern for gloo": (environ(GLOO_SOCKET_IFNAME="^lo,docker"), "gloo", FAIL, "there is no ^lo", "a name"),
    "the port is in use": (lambda host: listens(host, 20011), "ports", FAIL, "20011 is in use", "ss -ltnp"),
    "a port of the kernel's": (environ(MASTER_PORT="43210"), "ports", WARN, "43210", "ip_local_reserved_ports"),
    "the kernel's ports are Slurm's": (
        lambda host: host.write("proc/sys/net/ipv4/ip_local_port_range", "1024 65535"),
        "ports",
        WARN,
        "1024 to 65535",
        "sysctl",
    ),
    "no RDMA": (
        lambda host: host.remove("sys/class/infiniband/*/ports/1/state"),
        "rdma",
        WARN,
        "not active: bnxt_re0",
        "ip link set",
    ),
    "no uverbs": (no_infiniband, "rdma", FAIL, "no /dev/infiniband/uverbs*", "modprobe ib_uverbs"),
    "uverbs for root": (
        lambda host: host.write("dev/infiniband/uverbs3", mode=0o600),
        "rdma",
        FAIL,
        "you may not use /dev/infiniband/uverbs3",
        "udev",
    ),
    "a port is down": (
        lambda host: host.write("sys/class/infiniband/bnxt_re5/ports/1/state", "1: DOWN"),
        "rdma",
        WARN,
        "not active: bnxt_re5, of bnxt_re0 (ens1)",
        "NCCL_IB_HCA=^NAME",
    ),
    "an HCA that is not there": (environ(NCCL_IB_HCA="mlx5_0,mlx5_1"), "rdma", FAIL, "names mlx5_0", "unset"),
    "the vendor's RDMA driver": (
        lambda host: host.write("sys/class/infiniband_verbs/uverbs0/abi_version", "6"),
        "rdma abi",
        WARN,
        "bnxt_en speaks version 6, the image's rdma-core 1",
        "--mount",
    ),
    "Slurm does not answer": (
        lambda host: host.say("scontrol", "show", "", 1),
        "slurm",
        WARN,
        "does not answer",
        "ping",
    ),
    "too short a KillWait": (
        lambda host: host.say("scontrol", "show", SLURM.replace("30 sec", "2 sec")),
        "slurm",
        WARN,
        "1 s to save",
        "KillWait=30",
    ),
    "half a step": (
        environ(SLURM_PROCID="0", SLURM_STEP_ID="0"),
        "step",
        FAIL,
        "SLURM_JOB_ID, SLURM_STEP_NUM_NODES",
        "srun",
    ),
    "eight tasks for a node": (
        environ(
            SLURM_PROCID="0",
            SLURM_STEP_ID="0",
            SLURM_JOB_ID="1",
            SLURM_STEP_NUM_NODES="2",
            SLURM_STEP_NUM_TASKS="16",
            SLURM_NODEID="0",
            SLURM_STEP_NODELIST="n[1-2]",
        ),
        "step",
        FAIL,
        "16 tasks on 2 nodes",
        "--ntasks-per-node=1",
    ),
    "no registry": (
        lambda host: setattr(host, "answer", Answer(0, error="Name or service not known")),
        "registry",
        FAIL,
        "reg.example does not answer: Name or service not known",
        "HTTPS_PROXY",
    ),
    "a web server": (lambda host: setattr(host, "answer", Answer(404)), "registry", FAIL, "answers 404", "HOST"),
    "no cache": (environ(HF_HOME="/nowhere/hf"), "cache", FAIL, "is no directory", "mkdir"),
    "someone's cache": (
        both(on(groups=frozenset({7})), lambda host: (host.root / "shared/hf").chmod(0o755)),
        "cache",
        FAIL,
        "may not write",
        "your own",
    ),
    "a broken token": (environ(HF_TOKEN="hf_a hf_b"), "token", FAIL, "has a space", "copy it again"),
    "the clock": (lambda host: setattr(host, "answer", Answer(200, 1400.0)), "clock", FAIL, "400 s off", "chronyc"),
    "nothing keeps the clock": (on(synchronised=False), "clock", WARN, "nothing keeps", "chronyc"),
}


def test_a_healthy_node_has_nothing(host: Host) -> None:
    assert host.wrong() == []
    assert Row("gfx", OK, "8 x gfx942 (MI300X)") in host.found()
    assert "RCCL takes eno1 (10.0.0.1) of lo, eno1, docker0" in [row.found for row in host.found()]


def test_a_healthy_node_of_rootless_podman_has_nothing(host: Host) -> None:
    podman(host)
    assert host.wrong() == []


def test_a_healthy_node_with_apptainer_has_nothing(host: Host) -> None:
    host.asked = replace(host.asked, engine="apptainer")
    host.say("apptainer", "--version", "apptainer version 1.4.2\n")
    assert host.wrong() == []
    limit("Max locked memory", 65536)(host)
    assert {row.check for row in host.wrong()} == {"memlock", "propagation"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(host: Host, fault: str) -> None:
    plant, check, state, found, remedy = FAULTS[fault]
    plant(host)
    rows_found = host.wrong()
    row = next((row for row in rows_found if row.check == check), None)
    assert row is not None, rows_found
    assert row.state == state
    assert found in row.found
    assert remedy in row.remedy
    # and little else, for one fault has few faces
    assert len([one for one in rows_found if one.check != check]) <= 2, rows_found


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_laptop_has_nothing(tmp_path: Path, nodes: int) -> None:
    """No GPU, no Slurm, no registry, its name is loopback: one node's worth is well, more is said to be not."""
    root = tmp_path / "laptop"
    root.mkdir()
    host = Host(root)
    for name in ("sys", "dev", "proc/net"):
        subprocess.run(["/bin/rm", "-r", str(root / name)], check=True)
    for index, name in enumerate(host.addresses):
        host.write(f"sys/class/net/{name}/ifindex", str(index))
    host.said = {("docker", "info"): Said(0, json.dumps(DOCKER | {"OperatingSystem": "Docker Desktop"}))}
    host.environ, host.names = {}, {"n1": ("127.0.1.1",)}
    host.asked = Asked(engine="docker", nodes=nodes)
    assert [row.check for row in host.wrong()] == ([] if nodes == 1 else ["host name"])


def test_a_login_node_needs_no_engine(host: Host) -> None:
    no_driver(host)
    subprocess.run(["/bin/rm", "-r", str(host.root / "sys/bus/pci/devices")], check=True)
    host.say("sbatch", "--version", "slurm 24.05.4")
    engine_says(host, "docker is not installed", "install it")
    assert [row for row in host.wrong() if row.check in ("engine", "gpu")] == []
    host.said.pop(("sbatch", "--version"))
    assert [row.remedy for row in host.wrong() if row.check == "engine"] == ["install it"]


def test_inside_an_image_limits_are_ones_own_and_no_engine_is_needed(host: Host) -> None:
    host.changes["inside"] = "torchtitan"
    engine_says(host, "docker is not installed", "install it")
    assert host.wrong() == []
    limit("Max locked memory", 65536)(host)
    assert [row.check for row in host.wrong() if row.state == FAIL] == ["memlock"]


def test_a_step_of_sruns_knows_its_place(host: Host) -> None:
    host.environ = {"HF_HOME": "/shared/hf", "SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "5"}
    host.environ |= {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NODEID": "1"}
    host.environ["SLURM_STEP_NODELIST"] = "n[1-2]"
    host.asked = replace(host.asked, nodes=1)
    assert "MASTER_ADDR n1 is 10.0.0.1, port 20005" in [row.found for row in host.found()]
    host.names = {"n2": ("10.0.0.2",), "10.0.0.7": ("10.0.0.7",)}
    host.changes |= {"host": "n2", "addresses": {"eno1": "10.0.0.2"}}
    host.say("scontrol", "show", "NodeName=n1 NodeAddr=10.0.0.7 NodeHostName=n1")
    assert "MASTER_ADDR 10.0.0.7 is 10.0.0.7, port 20005" in [row.found for row in host.found()]
    host.names["n2"] = ("127.0.1.1",)
    host.names["n1"] = ("127.0.1.1",)
    assert {row.check for row in host.wrong()} == {"host name", "meeting point"}


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("", ["ib0"]),
        ("eth", ["eth0", "eth1"]),
        ("=eth1", ["eth1"]),
        ("^eth,ib", ["lo", "docker0"]),
        ("^=eth0,lo", ["docker0", "eth1", "ib0"]),
        ("ens", []),
    ],
)
def test_the_interfaces_that_rccl_takes(wanted: str, names: list[str]) -> None:
    assert taken(["lo", "eth0", "docker0", "eth1", "ib0"], wanted) == names


@pytest.mark.parametrize(
    ("names", "first"), [(["lo", "docker0"], "docker0"), (["lo"], "lo"), (["docker0", "eno1"], "eno1")]
)
def test_without_better_ones_rccl_takes_these(names: list[str], first: str) -> None:
    assert taken(names, "")[0] == first


def test_no_row_shows_a_token(host: Host) -> None:
    host.environ["HF_TOKEN"] = "hf_secret secret"
    assert "secret" not in str(host.found())


def test_real_limits_of_a_process(host: Host) -> None:
    """Lowered in a child process: the fake host's /proc/self/limits is its own."""
    (host.root / "proc/self/limits").unlink()
    (host.root / "proc/self/limits").symlink_to("/proc/self/limits")
    program = (
        "import sys\nfrom pathlib import Path\nfrom dataclasses import replace\n"
        "from primus.doctor import limits\nfrom primus.doctor.machine import Asked, Machine\n"
        "machine = replace(Machine.here(Path(sys.argv[1])), inside='torchtitan')\n"
        "for row in limits.rows(machine, Asked(engine='docker')):\n"
        "    print(f'{row.check}={row.state}: {row.found}')\n"
    )

    def lower() -> None:
        for name, value in ((resource.RLIMIT_MEMLOCK, 65536), (resource.RLIMIT_NOFILE, 512)):
            resource.setrlimit(name, (value, value))

    words = [sys.executable, "-c", program, str(host.root)]
    done = subprocess.run(
        words, preexec_fn=lower, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert "memlock=fail: 64 KiB: RDMA cannot register its memory" in done.stdout
    assert "nofile=warn: 512: RCCL" in done.stdout


@pytest.fixture
def here(host: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(Machine, "here", classmethod(lambda _cls: host.machine()))
    return host


def test_the_table_and_the_exit_code(here: Host, primus: Primus) -> None:
    done = primus("doctor", "--nodes=2", "--framework=torchtitan", "--engine=docker", "--registry=reg.example")
    assert (done.code, done.err) == (0, f"primus: {len(here.found())} checks, nothing wrong\n")
    assert "ok    gfx            8 x gfx942 (MI300X)\n" in done.out
    assert "hint" not in done.out
    here.remove("dev/dri/renderD130")
    here.changes["synchronised"] = False
    done = primus("doctor", "--engine=docker")
    assert done.code == 1
    assert "fail  devices        /dev/dri lacks renderD130\n" in done.out
    assert "hint: sudo udevadm trigger" in done.out
    assert done.err.endswith("checks: 1 failed, 1 to look at\n")


def test_a_warning_is_no_failure(here: Host, primus: Primus) -> None:
    here.changes["synchronised"] = False
    assert primus("doctor", "--engine=docker").code == 0


def test_json(here: Host, primus: Primus) -> None:
    here.remove("dev/kfd")
    done = primus("doctor", "--engine=docker", "--output=json")
    found = json.loads(done.out)
    assert (done.code, found["host"], done.err) == (1, "n1", "")
    assert {tuple(row) for row in found["rows"]} == {("check", "state", "found", "remedy")}
    assert [row["check"] for row in found["rows"] if row["state"] == "fail"] == ["driver"]


def test_one_of_several_nodes_says_what_is_wrong_with_its_name(here: Host, primus: Primus) -> None:
    os.environ.update(SLURM_STEP_NUM_TASKS="2")
    here.remove("dev/dri/renderD130")
    lines = primus("doctor", "--engine=docker").out.splitlines()
    assert lines[0].startswith("n1: fail  devices: /dev/dri lacks renderD130 (hint: ")
    assert lines[1:] == [f"n1: {len(here.found()) - 1} checks: 1 failed, 0 to look at"]  # no image was asked for


def test_the_document_has_every_row(host: Host) -> None:
    text = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8").partition("| line | cause |")[0]
    listed = {
        name for cells in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE) for name in re.findall("`([^`]+)`", cells)
    }
    assert listed == {row.check for row in host.found()} | {fault[1] for fault in FAULTS.values()}
