"""A cluster whose hosts are privileged containers: each with its own name, address, engine and slurmd.

They have the machine's /usr, with its engine and its Slurm, and nothing else of it; what they share is one directory.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT
from tests.slurm.cluster import KILL_WAIT, run, wait_for

BASE = "primus-base:0.1.0-cpu"
PYTHON = "/opt/venv/bin/python"

CONF = f"""\
ClusterName=primus-hosts
SlurmctldHost=ctl
AuthType=auth/munge
AuthInfo=socket=/run/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/var/lib/ctld
SlurmdSpoolDir=/var/lib/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait={KILL_WAIT}
MinJobAge=3600
SlurmdTimeout=10
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
NodeName=node[1-2] CPUs=4 RealMemory=4096 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

START = """\
set -e
mkdir -p /var/lib/ctld /var/lib/slurmd /var/log /run
install -m 400 /shared/munge.key /run/munge.key
munged --force --key-file=/run/munge.key --socket=/run/munge.socket --pid-file=/run/munged.pid \
  --log-file=/var/log/munged.log --seed-file=/run/munged.seed
export SLURM_CONF=/shared/slurm.conf
if [ "$1" = ctl ]; then exec slurmctld -D; fi
dockerd >/var/log/dockerd.log 2>&1 &
until docker version >/dev/null 2>&1; do sleep 0.1; done
exec slurmd -D
"""


class Hosts:
    """ctl, node1 and node2."""

    def __init__(self, shared: Path) -> None:
        self.shared, self.prefix = shared, f"primus-hosts-{os.getpid()}"
        (shared / "munge.key").write_bytes(secrets.token_bytes(1024))
        (shared / "slurm.conf").write_text(CONF, encoding="ascii")
        run("docker", "network", "create", self.prefix)
        for name in ("ctl", "node1", "node2"):
            self.start(name)
        wait_for(lambda: self.idle() == 2, 60, "the hosts' start")

    def start(self, name: str) -> None:
        run(
            *("docker", "run", "--detach", "--privileged", f"--name={self.prefix}-{name}"),
            *(f"--hostname={name}", f"--network={self.prefix}", f"--network-alias={name}", "--env=HOME=/root"),
            *("--env=SLURM_CONF=/shared/slurm.conf", "--env=PYTHONPATH=/src"),
            *(f"--volume={self.shared}:/shared", "--mount=type=volume,dst=/var/lib/docker"),
            *("--volume=/usr:/usr:ro", "--volume=/etc/alternatives:/etc/alternatives:ro"),
            *(f"--volume={ROOT / 'primus'}:/src/primus:ro", f"--volume={ROOT / 'examples'}:/src/examples:ro"),
            *(BASE, "sh", "-c", START, "start", name),
        )

    def idle(self) -> int:
        return len({*self.on("ctl", "sinfo", "-h", "-N", "-t", "idle", "-o", "%N", check=False).split()})

    def on(self, host: str, *words: str, check: bool = True, env: tuple[str, ...] = ()) -> str:
        given = (f"--env={word}" for word in env)
        return run("docker", "exec", *given, f"{self.prefix}-{host}", *words, check=check)

    def load(self, host: str, image: str) -> None:
        """Copy an image of this machine's engine into the host's."""
        with subprocess.Popen(("docker", "save", image), stdout=subprocess.PIPE) as save:
            words = ("docker", "exec", "--interactive", f"{self.prefix}-{host}", "docker", "load", "--quiet")
            subprocess.run(words, stdin=save.stdout, capture_output=True, check=True)

    def crash(self, host: str) -> None:
        """The whole host is gone, at once."""
        run("docker", "kill", f"{self.prefix}-{host}")


@contextlib.contextmanager
def hosts(shared: Path) -> Iterator[Hosts]:
    started = None
    try:
        started = Hosts(shared)
        yield started
    finally:
        prefix = f"primus-hosts-{os.getpid()}"
        for name in ("ctl", "node1", "node2"):
            run("docker", "rm", "--force", "--volumes", f"{prefix}-{name}", check=False)
        run("docker", "network", "rm", prefix, check=False)
