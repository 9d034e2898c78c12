"""What the checks look at: one machine, its files below a root, and the few questions that no file answers.

A GPU host that nobody has here is a folder with its sys, dev and proc.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from primus.image import engine, manifest

OK, WARN, FAIL = "ok", "warn", "fail"
GIB = 1 << 30


class Row(NamedTuple):
    """One check: what was found, and what to do unless it is ok."""

    check: str
    state: str
    found: str
    remedy: str = ""


class Said(NamedTuple):
    """How a program ended, and what it printed."""

    code: int
    out: str


class Answer(NamedTuple):
    """A server's: its status (0: none came), its clock in seconds, or what went wrong."""

    status: int
    date: float | None = None
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the run to come would be: the options of the command."""

    engine: str
    framework: str = ""
    accelerator: str = ""
    image: str = ""
    registry: str = ""
    nodes: int = 1
    offline: bool = False


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine, as this user sees it."""

    root: Path
    environ: Mapping[str, str]
    host: str
    uid: int
    groups: frozenset[int]
    now: float
    synchronised: bool | None  # the clock, as the kernel has it
    inside: str  # the framework of the image that this is the inside of
    addresses: Mapping[str, str]  # the IPv4 address of each interface that has one
    say: Callable[..., Said]  # run a program; code 127 if it is not there
    resolve: Callable[[str], tuple[str, ...]]  # the addresses of a host's name; none if there is none
    space: Callable[[Path], tuple[int, int] | None]  # bytes of the file system that holds a path: all, free
    get: Callable[[str], Answer]
    check_engine: Callable[[str], None]  # raises LaunchError

    @classmethod
    def here(cls, root: Path = Path("/")) -> Machine:
        found = manifest.inside()
        return cls(
            root=root,
            environ=dict(os.environ),
            host=socket.gethostname(),
            uid=os.getuid(),
            groups=frozenset({os.getgid(), *os.getgroups()}),
            now=time.time(),
            synchronised=_synchronised(),
            inside=found.framework if found else "",
            addresses={name: address for _, name in socket.if_nameindex() if (address := _address(name))},
            say=_say,
            resolve=_resolve,
            space=_space,
            get=_get,
            check_engine=lambda name: engine.Client(name).check(),
        )

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str:
        """The content of a small file; empty if it is not there or not for us."""
        try:
            return self.path(name).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""

    def names(self, name: str) -> list[str]:
        """What a directory holds."""
        try:
            return sorted(os.listdir(self.path(name)))  # noqa: PTH208 (names, of a fake tree too)
        except OSError:
            return []

    def may(self, name: str) -> bool:
        """Whether this user may read and write a file, by its mode."""
        about = self.path(name).stat()
        if self.uid == 0:
            return True
        bits = about.st_mode >> (6 if about.st_uid == self.uid else 3 if about.st_gid in self.groups else 0)
        return bits & 6 == 6

    def group(self, number: int) -> str:
        """A group's number and, if there is one, its name."""
        found = re.search(rf"^([^:\n]+):[^:\n]*:{number}:", self.text("/etc/group"), re.MULTILINE)
        return f"{number} ({found[1]})" if found else str(number)

    def limit(self, name: str) -> int | None:
        """The soft limit of /proc/self/limits in its unit; None if there is none."""
        found = re.search(rf"^{name} +(\S+)", self.text("/proc/self/limits"), re.MULTILINE)
        return int(found[1]) if found and found[1].isdecimal() else None

    @property
    def gpus(self) -> bool:
        """Whether this machine is one to train on GPUs with."""
        return self.path("/dev/kfd").exists() or bool(self.names("/sys/class/kfd/kfd/topology/nodes"))

    def own_limits(self, engine: str) -> bool:
        """Whether the training has this user's limits and permissions: no engine that runs as root gives it others."""
        return bool(self.inside) or not (engine == "docker" or (engine == "podman" and self.uid == 0))


def size(count: float) -> str:
    """Bytes for people."""
    unit, name = next(
        ((unit, name) for unit, name in ((GIB, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")) if count >= unit),
        (1, "bytes"),
    )
    return f"{count / unit:.0f} {name}"


def _say(*words: str) -> Said:
    if shutil.which(words[0]) is None:
        return Said(127, "")
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", check=False, timeout=30, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return Said(124, "")
    return Said(done.returncode, done.stdout)


def _resolve(name: str) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(name, None)))
    except OSError:
        return ()


def _space(path: Path) -> tuple[int, int] | None:
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


def _get(url: str) -> Answer:
    """A GET without its body; any status is an answer."""
    date = partial(_date)
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return Answer(answer.status, date(answer.headers.get("Date")))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, date(error.headers.get("Date")))
    except (OSError, ValueError) as error:
        return Answer(0, error=str(getattr(error, "reason", error)))


def _date(text: str | None) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except ValueError:
        return None


def _address(interface: str) -> str:
    """SIOCGIFADDR of netdevice(7)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            found = fcntl.ioctl(asking, 0x8915, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return ""
    return socket.inet_ntoa(found[20:24])


def _synchronised() -> bool | None:
    """STA_UNSYNC of adjtimex(2): whether something keeps the clock right."""
    words = (ctypes.c_long * 64)()  # struct timex: modes, offset, freq, maxerror, esterror, status, ...
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "adjtimex") or libc.adjtimex(words) < 0:
        return None
    return not words[5] & 0x40
