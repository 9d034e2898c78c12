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
from primus.job import Job, Mount, Slurm
from primus.launchers import container, direct, pyxis
from primus.launchers.finish import finish
from primus.launchers.task import FIRST_PORT
from primus.record import Record

# What sbatch_arg may not say: the job would not fit together any more.
_SET = "is set by the launcher"
_ONE = "one task runs on each node, and starts the node's processes itself"
_OURS = dict.fromkeys(("chdir", "output", "error", "open-mode", "export", "parsable", "wrap", "no-requeue"), _SET) | (
    dict.fromkeys(("ntasks", "ntasks-per-node", "ntasks-per-gpu", "ntasks-per-core", "ntasks-per-socket"), _ONE)
)
_OPTIONS = {
    *("nodes", "gpus-per-node", "partition", "account", "qos", "time", "reservation", "nodelist", "exclusive"),
    *("dependency", "array", "job-name", "signal", "cpus-per-task", "requeue", "wait"),
}
_SHORT = {
    **{"N": "nodes", "n": "ntasks", "a": "array", "p": "partition", "A": "account", "q": "qos", "t": "time"},
    **{"J": "job-name", "D": "chdir", "o": "output", "e": "error", "d": "dependency", "w": "nodelist", "W": "wait"},
    "c": "cpus-per-task",
}
# sbatch lets its environment beat a script's directives: what we say is taken out of it.
_VARIABLE = {"time": "TIMELIMIT", "array": "ARRAY_INX", "gpus-per-node": "GPUS_PER_NODE"}
# Of an allocation that the user may be inside of, nothing is meant for the new job; these are settings.
_KEPT = re.compile(r"SLURM_(CONF|CLUSTERS|TIME_FORMAT|UMASK|EXPORT_ENV|DEBUG|EXIT_.*)")


def elements(spec: str) -> tuple[int, ...]:
    """The task ids of --array: "0-6:2,9%1" is 0, 2, 4, 6, 9. Raises ConfigError for a text that is none."""
    found: list[int] = []
    for part in spec.split("%")[0].split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if match is None or not re.fullmatch(r"[^%]+(%\d+)?", spec) or match[3] == "0":
            raise ConfigError(f"--array {spec}: is no array of Slurm's", hint="write 0-7, 1,3,5 or 0-9%1")
        found += range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))
    if not 0 < len(found) <= 1000:
        raise ConfigError(f"--array {spec}: has {len(found)} elements", hint="1 to 1000 are possible")
    return tuple(dict.fromkeys(found))


def directives(job: Job, slurm: Slurm) -> dict[str, str | None]:
    """What is asked for, by the options' names; None for one without a value."""
    said: dict[str, str | None] = {
        "job-name": slurm.job_name or job.experiment.exp_name,
        "nodes": str(job.nodes),
        "ntasks-per-node": "1",
        **({"gpus-per-node": str(job.gpus_per_node)} if job.experiment.accelerator == "rocm" else {}),
        **({"exclusive": None, "mem": "0"} if slurm.exclusive else {}),  # mem=0: all that the node has
        **({"cpus-per-task": str(slurm.cpus_per_task)} if slurm.cpus_per_task else {}),
    }
    for name in ("partition", "account", "qos", "time", "reservation", "nodelist", "dependency", "signal"):
        if getattr(slurm, name) is not None:
            said[name] = getattr(slurm, name)
    for text in slurm.sbatch_args:
        name, value = argument(text)
        said[name] = value
    return {name: value for name, value in said.items() if name not in slurm.sbatch_omit}


def argument(text: str) -> tuple[str, str | None]:
    """An --sbatch-arg's name and value. Raises ConfigError for what is none, or would take the job apart."""
    match = re.fullmatch(r"--([a-z][a-z0-9-]*)(?:=(.*))?|-([A-Za-z]).*", text, re.DOTALL)
    if match is None:
        raise ConfigError(f"--sbatch-arg={text!r}: is no option of sbatch's", hint="write --sbatch-arg=--NAME=VALUE")
    name = match[1] or _SHORT.get(match[3], match[3])
    if name in _OURS:
        raise ConfigError(f"--sbatch-arg={text}: {_OURS[name]}", hint="leave it out")
    if name in _OPTIONS:
        raise ConfigError(
            f"--sbatch-arg={text}: is an option of primus run, which must know it", hint=f"write --{name} as that"
        )
    if match[3]:
        raise ConfigError(
            f"--sbatch-arg={text}: is the short form", hint="write the long one: --sbatch-arg=--NAME=VALUE"
        )
    return name, match[2]


def script(job: Job, slurm: Slurm, record: Record) -> str:
    """job.sh, which holds everything: `sbatch job.sh` submits the same once more."""
    said = directives(job, slurm) | {
        "chdir": str(record.path),
        "output": "slurm-%a.log" if slurm.array else "slurm.log",
        "open-mode": "append",
        "export": "ALL",
        **({"array": slurm.array} if slurm.array else {}),
        ("requeue" if slurm.requeue else "no-requeue"): None,
    }
    here = shlex.quote(str(record.path)) + ("/$SLURM_ARRAY_TASK_ID" if slurm.array else "")
    end = shlex.join((sys.executable, "-m", "primus.launchers.finish"))
    given_up = [
        "# Slurm itself starts a job again after a failed node, however often.",
        f'if [ "${{SLURM_RESTART_COUNT:-0}}" -gt {slurm.requeue} ]; then exec {end} "$record" 4; fi',
    ]
    step = shlex.join((*srun(job, slurm), *_container(job))), shlex.join(task(job))
    lines = [
        "#!/bin/bash",
        *(_directive(name, value) for name, value in said.items() if name not in slurm.sbatch_omit),
        f"record={here}",
        'cd "$record" || exit 4',
        *(given_up if slurm.requeue else []),
        "# One task on each node: it starts the node's container, watches over it and ends it with the job.",
        f"{step[0]} --output=node%n.log --open-mode=append \\",
        f'  {step[1]} --record="$record" --config="$record/experiment.yaml"',
        "# Writes down how it ended; the exit code is that of the node that failed first.",
        f'exec {end} "$record" $? --requeue={slurm.requeue}',
    ]
    return "\n".join(lines) + "\n"


def _directive(name: str, value: str | None) -> str:
    """A line of #SBATCH: quotes and backslashes are as in a shell, and # outside of quotes ends the line."""
    if value is None:
        return f"#SBATCH --{name}"
    if "\n" in value:
        raise ConfigError(f"{name} {value!r}: has a line break, which no batch script can hold")
    plain = re.fullmatch(r"[\w./:,=@%+\[\]-]+", value, re.ASCII)
    return f"#SBATCH --{name}=" + (value if plain else '"' + re.sub(r'(["\\])', r"\\\1", value) + '"')


def srun(job: Job, slurm: Slurm) -> tuple[str, ...]:
    """srun and the size of its step, said again: it does not take all of that over from sbatch."""
    return (
        *("srun", f"--nodes={job.nodes}", f"--ntasks={job.nodes}", "--ntasks-per-node=1"),
        *([f"--cpus-per-task={slurm.cpus_per_task}"] if slurm.cpus_per_task else []),
        "--kill-on-bad-exit=1",
    )


def task(job: Job) -> tuple[str, ...]:
    """What each node runs, without its --record and --config: the container launcher, told everything.

    In a container that Slurm itself makes, the direct launcher.
    """
    if job.engine == "pyxis":
        return (
            *("primus", "run", "--launcher=direct", "--slurm-task", "--in-image"),
            f"--gpus-per-node={job.gpus_per_node}",
            *(f"--allow-unknown={key}" for key in job.experiment.unknown),
            *(["--any-gpu"] if job.any_gpu else []),
        )
    dev = (Mount(source=job.dev, target=container.PACKAGE_IN_IMAGE, read_only=True),) if job.dev else ()
    return (
        *(sys.executable, "-m", "primus", "run", "--launcher=container", "--slurm-task"),
        f"--image={job.image}",
        *([f"--image-id={job.image_id}"] if job.image_id else []),
        f"--engine={job.engine}",
        f"--pull={job.pull}",
        f"--gpus-per-node={job.gpus_per_node}",
        *(f"--mount={mount}" for mount in (*job.mounts_given, *dev)),
        *(f"--env={name}" for name in job.env_names),
        *(f"--engine-arg={word}" for word in job.engine_args),
        *(f"--allow-unknown={key}" for key in job.experiment.unknown),
        *(["--any-gpu"] if job.any_gpu else []),
    )


def _container(job: Job) -> tuple[str, ...]:
    return pyxis.options(job, os.environ) if job.engine == "pyxis" else ()


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
            *(*words, *_container(job), "--disable-status", "--label"),
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
            finish(Record(one.record), LaunchError.exit_code, {})
        raise LaunchError(f"sbatch refused the job: {_last(done.stderr)}", hint=f"the script is {made.argv[-1]}")
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
    code = finish(Record(job.record), status if status >= 0 else 128 - status, {})
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
