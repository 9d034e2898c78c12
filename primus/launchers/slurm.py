"""A job of a Slurm cluster: a short script for sbatch, or one srun in the foreground.

Either starts the container launcher once on each node. Slurm knows nothing of containers here: devices, groups and
limits are looked up on the node that has them, and what to train was decided where the user typed.
https://slurm.schedmd.com/sbatch.html and srun.html have the options.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from types import FrameType

from primus import failure
from primus.command import Command
from primus.errors import ConfigError, LaunchError
from primus.experiment.render import resolved_yaml
from primus.job import Job, Slurm
from primus.launchers import container, direct
from primus.launchers.finish import finish
from primus.launchers.jobscript import container_of, directives, script, srun, task
from primus.launchers.task import FIRST_PORT
from primus.record import Record

# sbatch lets its environment beat a script's directives: what we say is taken out of it.
_VARIABLE = {"time": "TIMELIMIT", "array": "ARRAY_INX", "gpus-per-node": "GPUS_PER_NODE"}
# Of an allocation that the user may be inside of, nothing is meant for the new job; these are settings.
_KEPT = re.compile(r"SLURM_(CONF|CLUSTERS|TIME_FORMAT|UMASK|EXPORT_ENV|DEBUG|EXIT_.*)")


def submission(jobs: tuple[Job, ...]) -> Command:
    """sbatch, the script, and each element's resolved experiment (one that is not an array has one)."""
    job, slurm, record = jobs[0], _said(jobs[0]), _base(jobs)
    if job.engine == "pyxis" and len({one.run_dir for one in jobs}) > 1:
        raise ConfigError(
            f"--array {slurm.array}: elements have run directories of their own, and pyxis is told of one",
            hint="submit them one by one, or use --engine docker, podman or apptainer",
        )
    files = {record.path / "job.sh": script(job, slurm, record)}
    files |= {one.config: resolved_yaml(one.experiment) for one in jobs}
    return Command(argv=("sbatch", "--parsable", str(record.path / "job.sh")), files=files)


def foreground(job: Job) -> Command:
    """srun from the terminal: the same step, with the job's options on it; each line says its task's number."""
    slurm = _said(job)
    asked = (f"--{name}" + ("" if value is None else f"={value}") for name, value in directives(job, slurm).items())
    assert job.record is not None
    words = (*srun(job, slurm), *(word for word in asked if word.split("=")[0] not in ("--nodes", "--ntasks-per-node")))
    return Command(
        # disable-status: the first ^C reaches the tasks.
        argv=(
            *(*words, *container_of(job), "--disable-status", "--label"),
            *(*task(job), f"--record={job.record}", f"--config={job.config}"),
        ),
        files={job.config: resolved_yaml(job.experiment)},
    )


def _said(job: Job) -> Slurm:
    assert job.slurm is not None
    return job.slurm


def _base(jobs: tuple[Job, ...]) -> Record:
    record = jobs[0].record
    assert record is not None
    return Record(record.parent if _said(jobs[0]).array else record)


def dry_run(jobs: tuple[Job, ...], environ: Mapping[str, str]) -> list[tuple[str, Command]]:
    """What is submitted, and what the first node makes of it."""
    job = jobs[0]
    place = {"NNODES": str(job.nodes), "NODE_RANK": "0", "MASTER_ADDR": "MASTER_ADDR", "MASTER_PORT": str(FIRST_PORT)}
    outer = foreground(job) if _said(job).wait else submission(jobs)
    inside: list[tuple[str, Command]] = []
    if job.engine == "pyxis":
        inner = direct.command(job, direct.node(job, {**environ, **place}), environ)
        inside = [("in the container on the first node, which becomes", inner)]
    else:
        inside = container.dry_run(replace(job, slurm_job="SLURM_JOB_ID"), {**environ, **place})
    return [("here", outer), *((title.replace("this machine", "the first node"), made) for title, made in inside)]


def launch(jobs: tuple[Job, ...]) -> int:
    """Submit the job and say where it is; or, with wait, run it to its end. Returns the exit code."""
    job, slurm = jobs[0], _said(jobs[0])
    if slurm.wait and (slurm.array or slurm.requeue):
        raise ConfigError(
            f"--wait: srun in the foreground has no {'array' if slurm.array else 'restarts'}", hint="leave --wait out"
        )
    tool = "srun" if slurm.wait else "sbatch"
    if shutil.which(tool) is None:
        raise LaunchError(
            f"{tool} is not installed here", hint="run this on a login node of the cluster, or leave --launcher out"
        )
    made = foreground(job) if slurm.wait else submission(jobs)
    for one in jobs:
        assert one.record is not None
        Record(one.record).start(one, launcher="slurm")
    if slurm.wait:
        return _wait(made, job)
    made.write()
    done = subprocess.run(made.argv, env=_clean(os.environ, job), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        for one in jobs:
            assert one.record is not None
            finish(Record(one.record), LaunchError.exit_code, 0)
        raise LaunchError(
            f"sbatch refused the job: {_last(done.stderr)}",
            hint=f"sinfo says what this cluster has; the script is {made.argv[-1]}",
        )
    if done.stderr:
        sys.stderr.write(done.stderr)
    number = done.stdout.strip().split(";")[0]
    for one in jobs:
        assert one.record is not None
        name = f"{number}_{one.record.name}" if slurm.array else number
        Record(one.record).write("slurm.json", {"job": name})
    base = _base(jobs)
    print(number)
    print(
        f"primus: {job.experiment.framework} on {job.nodes} node(s), job {number}, in {base.path}\n"
        f"  follow:  primus logs -f {shlex.quote(str(job.record))}\n"
        f"  cancel:  scancel {number}",
        file=sys.stderr,
    )
    return 0


def _wait(made: Command, job: Job) -> int:
    """srun to its end. Signals become the one that srun passes on; when we are killed, it is told to end, too."""
    client = made.start(start_new_session=True, stdin=subprocess.DEVNULL, preexec_fn=_end_with_parent)
    stopped_by = 0

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal stopped_by
        stopped_by = stopped_by or number
        client.send_signal(signal.SIGINT)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, _frame: client.send_signal(number))
    status = client.wait()
    assert job.record is not None
    code = finish(Record(job.record), status if status >= 0 else 128 - status, 0)
    if code and not stopped_by and (why := failure.explain(Record(job.record))):
        print(why, file=sys.stderr, flush=True)
    return 128 + stopped_by if stopped_by else code


def _end_with_parent() -> None:
    """Have the kernel send SIGTERM when our parent is gone: https://man7.org/linux/man-pages/man2/prctl.2.html"""
    ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))  # PR_SET_PDEATHSIG


def _last(text: str) -> str:
    """Slurm's reason, without its name in front."""
    lines = [line.partition("error: ")[2] or line for line in text.strip().splitlines()]
    return "; ".join(lines[:3]) if lines else "without a word"


def _clean(environ: Mapping[str, str], job: Job) -> dict[str, str]:
    """The environment to submit from: what we say ourselves would lose against sbatch's variables, and an allocation
    that the user is inside of means nothing for the new job."""
    said = {*directives(job, _said(job)), "open-mode", "export", "requeue", "no-requeue", "chdir", "output", "array"}
    ours = {f"SBATCH_{_VARIABLE.get(name, name.upper().replace('-', '_'))}" for name in said}
    place = {"NODE_RANK", "NNODES", "MASTER_ADDR", "GPUS_PER_NODE"} - {*job.env_names}
    return {
        name: value
        for name, value in environ.items()
        if name not in ours | place and (not name.startswith("SLURM_") or _KEPT.fullmatch(name))
    }
