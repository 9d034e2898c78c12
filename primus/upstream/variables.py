"""The variables that upstream's packaged launchers read (EXP, NNODES, DATA_PATH, ...), as options of `primus run`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from primus.errors import ConfigError
from primus.upstream import hipblaslt
from primus.upstream.call import Option
from primus.upstream.options import Out, is_on, say_image, say_variables

# variable -> the option that it is; what only means something to Slurm
_NUMBERS = {"NNODES": "--nodes", "GPUS_PER_NODE": "--gpus-per-node"}
_SLURM = {"SLURM_TIME": "--time", "SLURM_PARTITION": "--partition", "CPUS_PER_TASK": "--cpus-per-task"}
_NODES = ("SLURM_NODELIST", "NODE_LIST")
_DATA = ("TOKENIZED_DATA_PATH", "TOKENIZED_TRAIN_DATA_PATH", "TOKENIZED_EVAL_DATA_PATH")
# Set, they change nothing here: what is so instead.
_LEFT_OUT = {
    "BACKEND": "the experiment's framework decides",
    "LOG_DIR": "the logs are in the run directory",
    "TRAIN_LOG": "the logs are in the run directory",
}
# What the packaged launchers put where the user has none. It is no token, and a hub refuses it.
_PLACEHOLDERS = {"HF_TOKEN": "your_hf_token", "WANDB_API_KEY": "your_wandb_api_key"}


@dataclass(frozen=True, kw_only=True)
class FromEnv:
    """The words for `primus run`, what the user should know, and the variables that must not reach the training."""

    words: tuple[str, ...]
    notes: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()


def from_env(environ: Mapping[str, str], given: Sequence[str], cwd: str) -> FromEnv:
    """What the variables say. `given` are the words beside --from-env: they beat it, and come behind it.

    Raises ConfigError with everything that has no counterpart.
    """
    out = Out(environ=environ)
    said = _given("--launcher", given)
    launcher = said or environ.get("PRIMUS_LAUNCHER") or "slurm"
    out.words += ["run", *([] if said else [f"--launcher={launcher}"])]
    if launcher == "slurm":
        out.words += ["--wait", "--exclusive"]
        nodes = next((environ[name] for name in _NODES if environ.get(name)), "")
        if nodes and not environ.get("SLURM_JOB_ID"):  # inside a job it says where we are
            out.words.append(f"--nodelist={nodes}")
        out.words += [f"{option}={environ[name]}" for name, option in _SLURM.items() if environ.get(name)]
    for name, option in _NUMBERS.items():
        if value := environ.get(name, "").strip():
            if not re.fullmatch("[1-9][0-9]*", value):
                out.refuse(f"{name}={value}", "is no number from 1", f"export {name}=NUMBER")
            out.words.append(f"{option}={value}")
    if environ.get("DOCKER_IMAGE") and launcher != "direct":
        say_image(out, Option("image", environ["DOCKER_IMAGE"], "DOCKER_IMAGE"))
    if data := environ.get("DATA_PATH"):
        full = str(PurePosixPath(cwd) / data)
        if launcher != "direct":
            out.words.append(f"--mount={full}")
        out.words.append("--env=DATA_PATH")
        if not environ.get("HF_HOME"):
            out.words.append(f"--env=HF_HOME={full}/huggingface")
    out.words += [f"--env={name}" for name in _DATA if environ.get(name)]
    if is_on(environ.get("CLEAN_DOCKER_CONTAINER", "")):
        out.note("CLEAN_DOCKER_CONTAINER is left out: it removes everybody's containers; ours end with their launcher")
    for name, why in _LEFT_OUT.items():
        if environ.get(name):
            out.note(f"{name} is left out: {why}")
    placeholders = tuple(name for name, text in _PLACEHOLDERS.items() if environ.get(name) == text)
    for name in placeholders:
        out.note(f"{name} is left out: {environ[name]} is a placeholder")
    say_variables(out, direct=launcher == "direct")
    hipblaslt.say(out)
    if environ.get("EXP"):
        out.words += ["--config", environ["EXP"]]
    elif not _given("--config", given):
        out.refuse("--from-env", "EXP is not set", "export EXP=FILE, the experiment")
    if out.problems:
        raise ConfigError(out.problems)
    return FromEnv(words=(*out.words, *given), notes=tuple(out.notes), unset=placeholders)


def _given(option: str, words: Sequence[str]) -> str:
    """The value of the last such option."""
    value = ""
    for number, word in enumerate(words):
        if word == option and number + 1 < len(words):
            value = words[number + 1]
        elif word.startswith(f"{option}="):
            value = word.partition("=")[2]
    return value
