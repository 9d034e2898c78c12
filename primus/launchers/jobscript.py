"""What Slurm is told: the job's script, its directives, its one step. Pure text.

https://slurm.schedmd.com/sbatch.html and srun.html have the options.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from difflib import get_close_matches

from primus.errors import ConfigError
from primus.job import Job, Mount, Slurm
from primus.launchers import container, pyxis, slurm_options
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
# What a job does without, where a site refuses it; the size and place of the job are not among it.
_OMITTED = (_OPTIONS - {"nodes", "array", "wait", "requeue"}) | {"mem", "no-requeue", "requeue", "export", "open-mode"}
# srun's and sbatch's short options.
SHORT: Mapping[str, str] = {
    **{"N": "nodes", "p": "partition", "A": "account", "q": "qos", "t": "time", "w": "nodelist", "d": "dependency"},
    **{"a": "array", "J": "job-name", "n": "ntasks", "D": "chdir", "x": "exclude", "C": "constraint"},
    **{"c": "cpus-per-task", "o": "output", "e": "error", "i": "input", "L": "licenses", "M": "clusters"},
    **{"G": "gpus", "F": "nodefile", "b": "begin", "W": "wait", "m": "distribution", "k": "no-kill"},
    **{"v": "verbose", "Q": "quiet", "H": "hold", "s": "oversubscribe", "O": "overcommit", "l": "label"},
    **{"u": "unbuffered", "K": "kill-on-bad-exit", "X": "disable-status", "I": "immediate", "S": "core-spec"},
}


def elements(spec: str) -> tuple[int, ...]:
    """The task ids of --array: "0-6:2,9%1" is 0, 2, 4, 6, 9. Raises ConfigError for a text that is none."""
    ranges: list[range] = []
    for part in spec.split("%")[0].split(","):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18})(?::0*([1-9]\d{0,17}))?)?", part, re.ASCII)
        if match is None or not re.fullmatch(r"[^%]+(%0*[1-9]\d*)?", spec, re.ASCII):
            raise ConfigError(f"--array {spec}: is no array of Slurm's", hint="write 0-7, 1,3,5 or 0-9%1")
        ranges.append(range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1)))
    count = sum(map(len, ranges))  # before any is made: 0-9999999999 does not fit into memory
    if not 0 < count <= 1000:
        raise ConfigError(f"--array {spec}: has {count} elements", hint="1 to 1000 are possible")
    return tuple(dict.fromkeys(number for one in ranges for number in one))


def directives(job: Job, slurm: Slurm) -> dict[str, str | None]:
    """What is asked for, by the options' names; None for one without a value."""
    slurm_options.check(slurm)
    check_omitted(slurm)
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


def check_omitted(slurm: Slurm) -> None:
    """Raise ConfigError for a directive to leave out that no script has."""
    given = {argument(text)[0] for text in slurm.sbatch_args}
    for name in slurm.sbatch_omit:
        if name not in _OMITTED | given:
            near = get_close_matches(name, _OMITTED | given, 1, 0.6)
            raise ConfigError(
                f"--sbatch-omit {name}: no script has that directive, or none could do without",
                hint=f"did you mean {near[0]!r}?" if near else f"there is {', '.join(sorted(_OMITTED))}",
            )


def argument(text: str) -> tuple[str, str | None]:
    """An --sbatch-arg's name and value. Raises ConfigError for what is none, or would take the job apart."""
    match = re.fullmatch(r"--([a-z][a-z0-9-]*)(?:=(.*))?|-([A-Za-z]).*", text, re.DOTALL)
    if match is None:
        raise ConfigError(f"--sbatch-arg={text!r}: is no option of sbatch's", hint="write --sbatch-arg=--NAME=VALUE")
    name = match[1] or SHORT.get(match[3], match[3])
    if name in _OURS:
        raise ConfigError(f"--sbatch-arg={text}: {_OURS[name]}", hint="leave it out")
    if name in _OPTIONS:
        raise ConfigError(
            f"--sbatch-arg={text}: is an option of primus run, which must know it", hint=f"write --{name} as that"
        )
    if match[3]:
        raise ConfigError(
            f"--sbatch-arg={text}: is the short form", hint=f"write the long one: --sbatch-arg=--{name}=VALUE"
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
    step = shlex.join((*srun(job, slurm), *container_of(job))), shlex.join(task(job))
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
        *once_on_each(job.nodes),
        *([f"--cpus-per-task={slurm.cpus_per_task}"] if slurm.cpus_per_task else []),
        "--kill-on-bad-exit=1",
    )


def once_on_each(nodes: int | None) -> tuple[str, ...]:
    return "srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"


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


def container_of(job: Job) -> tuple[str, ...]:
    return pyxis.options(job, os.environ) if job.engine == "pyxis" else ()
