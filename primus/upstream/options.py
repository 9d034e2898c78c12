"""The options of upstream's modes, one by one, as options of `primus run`; the table says what each becomes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from primus.errors import Problem
from primus.experiment.substitute import looks_secret
from primus.launchers.environment import forwarded, secret
from primus.launchers.jobscript import SHORT
from primus.upstream import table
from primus.upstream.call import Option
from primus.upstream.table import Rule


@dataclass
class Out:
    """What has been said so far."""

    environ: Mapping[str, str]
    words: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    mounts: list[tuple[str, str]] = field(default_factory=list)  # source, target

    def refuse(self, said: str, why: str, hint: str = "", where: str = "") -> None:
        self.problems.append(Problem(message=f"{said}: {why}", hint=hint, where=where))

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def apply(self, option: Option, rules: Mapping[str, Rule], hand_on: str = "", others: Collection[str] = ()) -> None:
        """What the table says of the option; one that it does not name, nor is almost one of `others`, is handed on."""
        rule = rules.get(option.name, Rule())
        if rule.as_here and (table.ANY in rule.as_here or (option.value or "") in rule.as_here):
            if not option.where:  # a file is often a copy of upstream's own, with all its defaults
                self.left_out.append(str(option))
        elif rule.why:
            self.refuse(option.said, rule.why, rule.hint, option.where)
        elif rule.note:
            self.note(f"{option} is left out: {rule.note}")
        elif not rule.to:
            near = difflib.get_close_matches(option.name, (*rules, *others), 1, 0.84)
            if near and near[0] != option.name:
                self.refuse(option.said, "is no option", f"did you mean --{near[0]}?", option.where)
            self.words.append(f"{hand_on}=--{option.name}" + ("" if option.value is None else f"={option.value}"))
        elif option.value is None:
            self.refuse(option.said, "the value is missing", where=option.where)
        elif rule.only and not re.fullmatch(rule.only, option.value):
            self.refuse(str(option), "has no counterpart", rule.hint, option.where)
        else:
            self.words.append(f"{rule.to}={option.value}")

    def outside(self, path: str) -> str:
        """The path on this machine of one that a mount shows to the container as `path`."""
        for source, target in sorted(self.mounts, key=lambda mount: -len(mount[1])):
            if source != target and PurePosixPath(path).is_relative_to(target):
                return str(PurePosixPath(source) / PurePosixPath(path).relative_to(target))
        return path


def say_slurm(out: Out, options: Sequence[Option], *, batch: bool) -> None:
    if not batch:
        out.words.append("--wait")
    nodes = next((option.value for option in options if option.name == "nodes"), None)
    for option in options:
        if option.name == "exclusive" and option.value is None:
            out.words.append("--exclusive")
        elif option.name == "exclusive":
            out.refuse(str(option), "nodes are whole, or shared with everybody", "write --exclusive", option.where)
        elif option.name == "wait" and batch:
            out.words.append("--wait")
        elif option.name == "wait":
            out.refuse(option.said, "a run ends when its training has ended on every node", "leave it out")
        elif option.name == "ntasks" and option.value == nodes:
            out.left_out.append(str(option))
        else:
            out.apply(option, table.SLURM, "--sbatch-arg", (*table.SLURM_FLAGS, *SHORT.values()))


def say_container(out: Out, options: Sequence[Option]) -> None:
    own_ipc = any(option.name == "ipc" and option.value != "host" for option in options)
    image = next((option for option in options if option.name == "image"), None)
    variable = out.environ.get("DOCKER_IMAGE", "")
    if variable and (image is None or image.where):
        image = Option("image", variable, "DOCKER_IMAGE")
    elif variable and image is not None and variable != image.value:
        out.note(f"DOCKER_IMAGE is not used: {image} says it closer by")
    if image is not None:
        say_image(out, image)
    for option in options:
        if option.name == "image":
            continue
        if option.name in ("volume", "mount"):
            _say_mount(out, option)
        elif option.name == "env":
            _say_env(out, option)
        elif option.name == "shm-size" and own_ipc:
            out.words.append(f"--engine-arg=--shm-size={option.value}")
        else:
            out.apply(option, table.CONTAINER, "--engine-arg", ("image", *table.CONTAINER_FLAGS, *table.REPEATABLE))


def say_image(out: Out, option: Option) -> None:
    if not option.value:
        out.refuse(option.said, "the value is missing", "write --image REFERENCE", option.where)
    elif re.fullmatch(table.UPSTREAM_IMAGE, option.value):
        out.note(f"{option} is left out: it is upstream's image; the one of the experiment's framework takes its place")
    else:
        out.words.append(f"--image={option.value}")


def _say_mount(out: Out, option: Option) -> None:
    source, target, mode = _bind(option.value or "")
    if not source:
        out.refuse(str(option), "is not HOST[:CONTAINER[:ro]]", "write --volume HOST[:CONTAINER[:ro]]", option.where)
    elif "/" not in source and source[0] not in ".~":
        out.refuse(str(option), f"{source} names a volume of the engine's", "mount a directory", option.where)
    elif mode not in ("", "ro", "rw"):
        out.refuse(str(option), f"{mode!r} has no counterpart", "only ro and rw are known", option.where)
    else:
        out.mounts.append((source, target))
        tail = f":{target}" if target != source or mode == "ro" else ""
        out.words.append(f"--mount={source}{tail}" + (":ro" if mode == "ro" else ""))


def _bind(text: str) -> tuple[str, str, str]:
    """Source, target and mode of HOST[:CONTAINER[:MODE]] or of type=bind,source=...,target=...; empty if it is none."""
    if "=" in text and not text.startswith(("/", ".", "~")):
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        source = fields.pop("source", fields.pop("src", ""))
        target = fields.pop("target", fields.pop("dst", fields.pop("destination", "")))
        read_only = {fields.pop(name, None) for name in ("readonly", "ro")} - {None, "false"}
        if fields.pop("type", "") != "bind" or fields or not target:
            return "", "", ""
        return source, target, "ro" if read_only else ""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    return source, target or source, mode


def _say_env(out: Out, option: Option) -> None:
    name, assigned, value = (option.value or "").partition("=")
    if not name.isidentifier():
        if name and not assigned:
            out.refuse(
                str(option), "a file of variables is not read", "export them, and write --env NAME", option.where
            )
        else:
            out.refuse(option.said, f"{name!r} is no name of a variable", "write --env NAME=VALUE", option.where)
    elif name in table.SWITCHES:
        if is_on(value if assigned else out.environ.get(name, "")):
            out.refuse(f"{option.said} {name}", *table.SWITCHES[name], option.where)
    elif name.startswith("PRIMUS_HIPBLASLT_TUNING"):
        if is_on(value if assigned else out.environ.get(name, "")):
            out.refuse(f"{option.said} {name}", "is read from the environment", f"export {name}", option.where)
    elif name in ("NNODES", "GPUS_PER_NODE") and assigned:
        ours = "--nodes" if name == "NNODES" else "--gpus-per-node"
        if not re.fullmatch("[0-9]+", value):
            out.refuse(str(option), "is no number", f"write --env {name}=NUMBER", option.where)
        else:
            out.words.append(f"{ours}={value}")
    elif name == "PRIMUS_DETERMINISTIC":
        if is_on(value if assigned else out.environ.get(name, "")):
            out.words += [f"--env={key}={text}" for key, text in table.DETERMINISTIC.items()]
    elif assigned:
        if secret(name, value) or looks_secret(value):
            out.note(f"{option.said} {name}=...: whoever lists processes reads it; export {name} instead")
        out.words.append(f"--env={name}={value}")
    elif name not in out.environ:
        if not option.where:
            out.note(f"{option} is left out: it is not set here")
    elif not option.where or not (name == "DOCKER_IMAGE" or forwarded({name: "x"})):
        out.words.append(f"--env={name}")


def is_on(value: str) -> bool:
    return value.strip().lower() not in ("", "0", "false", "no", "off")


def say_direct(out: Out, options: Sequence[Option]) -> None:
    for option in options:
        if option.name == "env":
            _say_env(out, option)
        elif option.name in table.DIRECT:
            out.apply(option, table.DIRECT)
        else:
            others = "" if option.name not in (*table.CONTAINER, "image", "volume") else " of direct mode"
            known = ("--env", *(f"--{name}" for name in table.DIRECT))
            near = difflib.get_close_matches(option.said, known, 1, 0.6)
            hint = "use container mode" if others else f"did you mean {near[0]}?" if near else ""
            out.refuse(option.said, f"is no option{others}", hint, option.where)


def say_variables(out: Out, *, direct: bool) -> None:
    """What upstream reads from the environment."""
    for name, (why, hint) in table.SWITCHES.items():
        if is_on(out.environ.get(name, "")) and (direct or name != "VENV_ACTIVATE"):
            out.refuse(f"{name}={out.environ[name]}", why, hint)
    if is_on(out.environ.get("PRIMUS_DETERMINISTIC", "")):
        _say_env(out, Option("env", "PRIMUS_DETERMINISTIC", "PRIMUS_DETERMINISTIC"))
