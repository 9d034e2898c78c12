"""Whether Slurm takes what its options are given: sbatch would only say so when the job is submitted.

https://slurm.schedmd.com/sbatch.html has what each may be.
"""

from __future__ import annotations

import re

from primus.errors import ConfigError
from primus.job import Slurm

_JOB = r"\d{1,18}(_(\d{1,9}|\*))?"
_AFTER = rf"after(:{_JOB}(\+\d{{1,9}})?)+"
_DEPENDENCY = rf"{_AFTER}|after(any|burstbuffer|corr|notok|ok)(:{_JOB})+|singleton|{_JOB}"
_SIGNALS = "HUP|INT|QUIT|ABRT|KILL|ALRM|TERM|USR1|USR2|URG|CONT|STOP|TSTP|TTIN|TTOU"
_SIGNAL = rf"(R:)?((SIG)?({_SIGNALS})|[1-9]|[1-5]\d|6[0-4])(@\d{{1,5}})?"
_TIME = r"\d{1,9}(:\d{1,9}){0,2}|\d{1,6}-\d{1,9}(:\d{1,9}){0,2}|-1|infinite|unlimited"

# What is not one of these, and what to write instead.
_FORMS: dict[str, tuple[str, str, str]] = {
    "time": (_TIME, "is no time limit", "write minutes, [hours:]minutes:seconds or days-hours[:minutes[:seconds]]"),
    "signal": (_SIGNAL, "is no signal that Slurm sends", "write NAME[@SECONDS before the time limit], e.g. USR1@120"),
    "dependency": (
        rf"({_DEPENDENCY})(,({_DEPENDENCY}))*|({_DEPENDENCY})(\?({_DEPENDENCY}))*",
        "is no dependency",
        "write afterok:JOB[:JOB ...], afterany:JOB, after:JOB+MINUTES or singleton; all of A,B or one of A?B",
    ),
}
_NAMES = ("partition", "account", "qos", "reservation", "nodelist", "job_name")


def check(slurm: Slurm) -> None:
    """Raise ConfigError for a value that no Slurm takes, or that would not do what it is there for."""
    for name in (*_NAMES, *_FORMS):
        value = getattr(slurm, name)
        if value is None:
            continue
        option = f"--{name.replace('_', '-')}"
        if not value.strip():
            raise ConfigError(f"{option}: is empty", hint="write a value, or leave the option out")
        if not value.isprintable():
            raise ConfigError(
                f"{option} {value!r}: has a line break or another control character, which no batch script can hold"
            )
        if name == "signal" and value[:2].upper() == "B:":
            raise ConfigError(
                f"--signal {value}: B: is for the batch script alone, and the training would never see it",
                hint=f"write --signal {value[2:]}",
            )
        if name in _FORMS:
            form, wrong, hint = _FORMS[name]
            if not re.fullmatch(form, value, re.ASCII | re.IGNORECASE):
                raise ConfigError(f"{option} {value}: {wrong}", hint=hint)
