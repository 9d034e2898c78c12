"""A real Slurm of N nodes on this machine: munged, slurmctld and N slurmd on loopback, without any init."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue")
KILL_WAIT = 10

CONF = """\
ClusterName=primus-test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={dir}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={dir}/ctld
SlurmdSpoolDir={dir}/spool-%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd-%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
KillWait={kill_wait}
UnkillableStepTimeout=60
MinJobAge=3600
SlurmdTimeout=20
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
Epilog={epilog}
NodeName=node[1-{nodes}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first}-{last}] {size}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def run(*words: str, check: bool = True) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert not check or done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def wait_for(condition: object, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.2)


class Cluster:
    """Started by the constructor; `stop` ends its own processes only."""

    def __init__(self, directory: Path, nodes: int, epilog: Path) -> None:
        self.directory, self.nodes = directory, nodes
        self.conf = directory / "slurm.conf"
        for name in ("ctld", "dev"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        port = _free_ports(nodes + 1)
        text = CONF.format(
            dir=directory,
            port=port,
            first=port + 1,
            last=port + nodes,
            nodes=nodes,
            size="CPUs=4 RealMemory=4096 Gres=gpu:8",
            kill_wait=KILL_WAIT,
            epilog=epilog,
        )
        self.conf.write_text(text, encoding="ascii")
        for number in range(8):  # GPUs that Slurm can hand out: /dev/null under names of their own
            os.mknod(directory / "dev" / f"gpu{number}", 0o20666, os.makedev(1, 3))
        (directory / "gres.conf").write_text(f"Name=gpu File={directory}/dev/gpu[0-7]\n", encoding="ascii")
        (directory / "cgroup.conf").write_text("CgroupAutomount=no\n", encoding="ascii")
        key = directory / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        run(
            *("munged", "--force", f"--key-file={key}", f"--socket={directory}/munge.socket"),
            *(f"--pid-file={directory}/munged.pid", f"--log-file={directory}/munged.log"),
            f"--seed-file={directory}/munged.seed",
        )
        os.environ["SLURM_CONF"] = str(self.conf)
        run("slurmctld", "-f", str(self.conf))
        for number in range(1, nodes + 1):
            self.start_node(number)
        wait_for(lambda: self._up() == nodes, 30, "the nodes' start")

    def start_node(self, number: int) -> None:
        run("slurmd", "-f", str(self.conf), "-N", f"node{number}")

    def kill_node(self, number: int) -> None:
        """What a crash does to Slurm's own processes on the node."""
        pid = int((self.directory / f"slurmd-node{number}.pid").read_text())
        os.kill(pid, signal.SIGKILL)

    def _up(self) -> int:
        return len({*run("sinfo", "-h", "-N", "-t", "idle,mixed,allocated", "-o", "%N", check=False).split()})

    def stop(self) -> None:
        run("scancel", "--user=root", check=False)
        wait_for(lambda: not run("squeue", "-h", "-t", "R,CG", check=False).strip(), 60, "the end of the jobs")
        pids = []
        for file in self.directory.glob("*.pid"):
            pid = int(file.read_text() or 0)
            name = Path(f"/proc/{pid}/comm")
            if name.exists() and name.read_text().strip() in ("slurmd", "slurmctld", "munged"):
                os.kill(pid, signal.SIGTERM)
                pids.append(pid)
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 30, "the end of the daemons")


def _free_ports(count: int) -> int:
    """The first of `count` ports in a row that nobody has."""
    for first in range(26_000, 32_000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as sock:
                    sock.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


def installed() -> bool:
    return all(shutil.which(tool) for tool in TOOLS)
