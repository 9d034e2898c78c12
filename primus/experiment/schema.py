"""What a backend at its pin accepts, from its arguments.json: names, types, choices; and how to say what is wrong."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from primus.errors import Problem
from primus.experiment.coerce import Argument, coerce
from primus.experiment.types import Origin
from primus.experiment.yaml import Map, Node, Scalar, scalar_value, untyped

# One idea under each backend's own name, so that a key of another backend is answered with ours.
_SAME_IDEA: tuple[Mapping[str, str], ...] = (
    {"megatron": "train_iters", "megatron_bridge": "train.train_iters", "torchtitan": "training.steps",
     "maxtext": "steps", "maxdiffusion": "max_train_steps", "specforge": "training.max_steps"},
    {"megatron": "micro_batch_size", "megatron_bridge": "train.micro_batch_size",
     "torchtitan": "training.local_batch_size", "maxtext": "per_device_batch_size",
     "maxdiffusion": "per_device_batch_size", "specforge": "training.batch_size"},
    {"megatron": "global_batch_size", "megatron_bridge": "train.global_batch_size",
     "torchtitan": "training.global_batch_size"},
    {"megatron": "seq_length", "megatron_bridge": "model.seq_length", "torchtitan": "training.seq_len",
     "maxtext": "max_target_length", "specforge": "data.max_length"},
    {"megatron": "lr", "megatron_bridge": "optimizer.lr", "torchtitan": "optimizer.lr", "maxtext": "learning_rate",
     "maxdiffusion": "learning_rate", "specforge": "training.learning_rate"},
    {"megatron": "lr_warmup_iters", "megatron_bridge": "scheduler.lr_warmup_iters",
     "torchtitan": "lr_scheduler.warmup_steps", "maxtext": "warmup_steps_fraction",
     "specforge": "training.warmup_ratio"},
    {"megatron": "tensor_model_parallel_size", "megatron_bridge": "model.tensor_model_parallel_size",
     "torchtitan": "parallelism.tensor_parallel_degree", "maxtext": "ici_tensor_parallelism"},
    {"megatron": "pipeline_model_parallel_size", "megatron_bridge": "model.pipeline_model_parallel_size",
     "torchtitan": "parallelism.pipeline_parallel_degree", "maxtext": "ici_pipeline_parallelism"},
    {"megatron": "expert_model_parallel_size", "megatron_bridge": "model.expert_model_parallel_size",
     "torchtitan": "parallelism.expert_parallel_degree", "maxtext": "ici_expert_parallelism"},
    {"megatron": "context_parallel_size", "megatron_bridge": "model.context_parallel_size",
     "torchtitan": "parallelism.context_parallel_degree", "maxtext": "ici_context_parallelism"},
    {"megatron": "save_interval", "megatron_bridge": "checkpoint.save_interval",
     "torchtitan": "checkpoint.interval", "maxtext": "checkpoint_period", "specforge": "training.save_interval"},
    {"megatron": "mock_data", "torchtitan": "training.dataset", "maxtext": "dataset_type",
     "maxdiffusion": "dataset_type"},
    {"megatron": "seed", "megatron_bridge": "rng.seed", "torchtitan": "debug.seed", "maxtext": "data_shuffle_seed",
     "specforge": "training.seed"},
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The arguments of one backend at its pin."""

    framework: str
    version: str
    arguments: Mapping[str, Argument]
    sections: frozenset[str]  # what nested arguments are in: "a" and "a.b" of a.b.c
    computed: frozenset[str]  # names the backend derives itself and refuses to be given
    renamed: Mapping[str, str]  # names (or NAME=VALUE) of upstream Primus, not the backend's -> what to write instead
    removed: Mapping[str, str]  # names that the backend had -> its version that has them no more
    unfold: frozenset[str]  # sections whose keys, dotted ones too, are the arguments beside them


@cache
def frameworks() -> tuple[str, ...]:
    """The backends this package knows, by name."""
    backends = resources.files("primus") / "backends"
    return tuple(sorted(item.name for item in backends.iterdir() if (item / "arguments.json").is_file()))


@cache
def schema(framework: str) -> Schema:
    """The framework's argument table (one of `frameworks()`)."""
    folder = resources.files("primus") / "backends" / framework
    table = json.loads((folder / "arguments.json").read_text(encoding="utf-8"))
    named = json.loads((folder / "rules.json").read_text(encoding="utf-8"))  # choices that no type of the backend's has
    renamed = folder / "renamed.json"
    names = [row["name"] for row in table["arguments"]]
    unfold = frozenset(table.get("unfold", ()))
    return Schema(
        framework=framework,
        version=table["version"],
        arguments={
            row["name"]: Argument(
                name=row["name"],
                type=row["type"],
                default=row["default"],
                choices=tuple(row.get("choices") or named.get("choices", {}).get(row["name"], ())),
                since=row.get("since", ""),
                own=named.get("own", "") if row["name"] in named.get("choices", {}) else "",
            )
            for row in table["arguments"]
        },
        sections=unfold | {name[:dot] for name in names for dot in range(len(name)) if name[dot] == "."},
        computed=frozenset(table.get("computed", ())),
        removed=table.get("removed", {}),
        unfold=unfold,
        renamed=json.loads(renamed.read_text(encoding="utf-8")) if renamed.is_file() else {},
    )


@dataclass(frozen=True, kw_only=True)
class Typed:
    """Arguments with the backend's types, what was let through, and what is wrong with the rest."""

    args: dict[str, Any]
    unknown: tuple[str, ...]
    problems: tuple[Problem, ...]


def typed(node: Map, table: Schema, *, allow: frozenset[str] = frozenset(), flags: tuple[str, ...] = ()) -> Typed:
    """`node` (the arguments, nested) with each value as the type its argument has.

    `allow` names keys to let through unchecked; `flags` are the launcher's own, to recognise a misspelt one.
    """
    problems: list[Problem] = []
    unknown: list[str] = []

    def walk(part: Map, prefix: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in part.items.items():
            dotted = f"{prefix}{key}"
            at = part.keys[key]
            if "." in key:
                nested = ": {".join(key.split(".")) + ": ..." + "}" * key.count(".")
                problems.append(
                    Problem(message=f"{dotted}: unknown key", where=str(at), hint=f"in a file, write {nested}")
                )
            elif dotted in table.sections and isinstance(value, Map):
                result[key] = walk(value, f"{dotted}.")
            elif argument := table.arguments.get(dotted):  # of a section too, if it can be null or a name
                if argument.own and _is_said(node, argument.own):
                    argument = replace(argument, choices=())
                try:
                    result[key] = coerce(value, argument)
                except ValueError as error:
                    hint = _renamed_value(dotted, value, table) or (str(error.args[1]) if len(error.args) > 1 else "")
                    problems.append(Problem(message=f"{dotted}: {error.args[0]}", where=str(value.at), hint=hint))
            elif dotted in table.sections:
                if not (isinstance(value, Scalar) and scalar_value(value) is None):
                    problems.append(
                        Problem(message=f"{dotted}: is a section of keys, not a value", where=str(value.at))
                    )
            elif isinstance(value, Map) and any(name.startswith(f"{dotted}.") for name in allow):
                result[key] = walk(value, f"{dotted}.")
            elif dotted in allow:
                unknown.append(dotted)
                result[key] = untyped(value)
            else:
                problems.extend(_unknown(dotted, at, table, flags, value))
        return result

    args = walk(node, "")
    return Typed(args=args, unknown=tuple(unknown), problems=tuple(problems))


def _is_said(node: Node | None, dotted: str) -> bool:
    """Whether the arguments say something, and not the empty text, of this one."""
    for key in dotted.split("."):
        node = node.items.get(key) if isinstance(node, Map) else None
    return isinstance(node, Scalar) and bool(scalar_value(node))


def _renamed_value(dotted: str, value: Node, table: Schema) -> str:
    """What to write instead of a value that upstream Primus has, or of any value of this argument."""
    text = value.text if isinstance(value, Scalar) else ""
    return table.renamed.get(f"{dotted}={text}", "") or table.renamed.get(dotted, "")


_HEAD_OF = "it stands at the head of an experiment, and no override reaches that: "
# What an experiment says besides its arguments, and how that is said otherwise.
_HEAD = {
    **dict.fromkeys(("work_group", "user_name"), f"{_HEAD_OF}edit the file, or --run-dir DIR"),
    "exp_name": f"{_HEAD_OF}edit the file, or --run-dir DIR; in a shipped example, PRIMUS_EXP_NAME=NAME",
    "workspace": f"{_HEAD_OF}edit the file, or --run-dir DIR; in a shipped example, PRIMUS_WORKSPACE=DIR",
    "accelerator": f"{_HEAD_OF}--accelerator rocm|cpu",
    "env": f"{_HEAD_OF}--env NAME=VALUE",
    **dict.fromkeys(("modules", "framework", "config", "model", "extends"), f"{_HEAD_OF}edit the file"),
}


def _unknown(dotted: str, at: Origin, table: Schema, flags: tuple[str, ...], value: Node) -> list[Problem]:
    if dotted in table.computed:
        return [Problem(message=f"{dotted}: is computed by {table.framework} and cannot be set", where=str(at))]
    hint = suggestion(dotted, table, flags=flags, section=isinstance(value, Map))
    was_a_section = any(name.startswith(f"{dotted}.") for name in table.removed)
    # What is in it may be known under another name, or gone.
    if isinstance(value, Map) and value.items and (was_a_section or not hint):
        return [
            problem
            for key, item in value.items.items()
            for problem in _unknown(f"{dotted}.{key}", value.keys[key], table, flags, item)
        ]
    hint = hint or _HEAD.get(dotted.partition(".")[0], "")
    hint = hint or f"{table.framework} takes nothing like it; --allow-unknown {dotted} passes it on unchecked"
    return [Problem(message=f"{dotted}: {not_here(dotted, table)}", where=str(at), hint=hint)]


def not_here(dotted: str, table: Schema) -> str:
    """What is wrong with a key that the table does not have."""
    if dotted in table.removed:
        return f"was removed in {table.framework} {table.removed[dotted]}"
    return f"unknown to {table.framework} {table.version}"


def suggestion(dotted: str, table: Schema, *, flags: tuple[str, ...] = (), section: bool = False) -> str:
    """What the user may have meant by a key the table does not have, or "" if nothing is near.

    `section` says that the key holds others: it is then no other backend's argument.
    """
    if dotted in table.renamed:
        return table.renamed[dotted]
    if own := _same_idea(dotted, table, 1.0):
        return f"{table.framework} calls it {own}"
    if dotted.replace("-", "_") in table.arguments:
        return f"did you mean {dotted.replace('-', '_')!r}?"
    flag = difflib.get_close_matches(re.sub("_", "-", dotted), flags, 1, 0.8)
    near = difflib.get_close_matches(dotted, table.arguments, 1, 0.75)
    last = dotted.rsplit(".", 1)[-1]
    same_end = [name for name in table.arguments if name.rsplit(".", 1)[-1] == last and "." in name]
    if same_end:
        return f"did you mean {same_end[0]!r}?"
    if dotted in table.removed:  # it is no misspelling of what is merely like it
        return "leave it out"
    if own := _same_idea(dotted, table, 0.9):
        return f"{table.framework} calls it {own}"
    if near:
        return f"did you mean {near[0]!r}?"
    if flag:
        return f"did you mean the option --{flag[0]}?"
    for other in frameworks():
        if not section and other != table.framework and dotted in schema(other).arguments:
            return f"{dotted} is an argument of {other}, not of {table.framework}"
    endings = {name.rsplit(".", 1)[-1]: name for name in table.arguments}
    near = difflib.get_close_matches(last, endings, 1, 0.75)
    return f"did you mean {endings[near[0]]!r}?" if near else ""


def _same_idea(dotted: str, table: Schema, likeness: float) -> str:
    """Our name for what another backend calls `dotted`, or nearly so."""
    for names in _SAME_IDEA:
        ours = names.get(table.framework, "")
        others = [name for name in names.values() if name != ours]
        if ours in table.arguments and difflib.get_close_matches(dotted, others, 1, likeness):
            return ours
    return ""
