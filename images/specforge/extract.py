"""SpecForge's arguments: its configuration's pydantic models, the flags of its capture and its export, and ours.

ours.json has what the launcher makes of the steps: which run, what is filtered between them, where online training is.
"""
# mypy: disable-error-code="import-not-found,import-untyped,no-any-unimported"

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args, get_origin

import tables
from pydantic import BaseModel
from specforge.config.schema import Config

# In no wheel: ROCm's image has it, and --source.
SCRIPT = "scripts/prepare_hidden_states.py"
# Places and processes are the launcher's; trackers read their keys from the environment; renamed.json says so.
LEFT_OUT = (
    *(f"deployment.trainer.{name}" for name in ("master_addr", "master_port", "node_rank")),
    *("tracking.swanlab_key", "tracking.wandb_key"),
    "specforge_export.output_dir",  # ours is output_path, below the run directory
)
EMPTY = {"default": ""}  # what must be given, by the experiment or by an earlier step
FACTS: dict[str, dict[str, Any]] = {
    "deployment.disaggregated.backend": EMPTY,
    "deployment.disaggregated.control_dir": EMPTY,
    "model.target_model_path": EMPTY,
    # Text by its type; a registry of strategies knows these, and a capture those that it has a layout for.
    "training.strategy": {"choices": ["eagle3", "peagle", "dflash", "domino", "dspark"]},
    "specforge_capture.strategy": {"choices": ["eagle3", "dflash", "domino", "dspark"]},
    "specforge_capture.data_path": EMPTY | {"type": "str"},
    "specforge_capture.target_model_path": EMPTY | {"type": "str"},  # the training's, if it is not said
    "specforge_export.to": {"type": "str", "default": "hf"},  # as the adapter has it
}


def table(known: dict[str, Any], source: Path | None) -> dict[str, Any]:
    script = (source or Path("/opt/specforge")) / SCRIPT
    capture = [row for row in known["arguments"] if row["name"].startswith("specforge_capture.")]
    if source or script.is_file():
        capture = list(flags(script, "specforge_capture."))
    spec = find_spec("specforge.cli")
    assert spec is not None
    rows = {
        row["name"]: row
        for row in (*walk(Config, ""), *flags(Path(str(spec.origin)), "specforge_export.", of="export"), *capture)
        if row["name"] not in LEFT_OUT
    }
    facts = {name: more for name, more in FACTS.items() if script.is_file() or "specforge_capture." not in name}
    rows = {row["name"]: row for row in tables.changed(rows.values(), facts)}
    rows |= {row["name"]: row for row in json.loads(Path(__file__).with_name("ours.json").read_text(encoding="utf-8"))}
    return {"version": version("specforge"), "unfold": ["specforge_overrides"], "arguments": list(rows.values())}


def walk(cls: type[BaseModel], prefix: str) -> Iterator[tables.Row]:
    for key, field in cls.model_fields.items():
        parts = [kind for kind in (field.annotation, *get_args(field.annotation)) if is_model(kind)]
        if parts and get_origin(field.annotation) is not list:
            for part in parts:
                yield from walk(part, f"{prefix}{key}.")
            continue
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        allowed = tables.choices(field.annotation, lambda member: member.value)
        kinds = tables.words(field.annotation, lambda kind: ["dict"] if is_model(kind) else [])
        yield tables.row(f"{prefix}{key}", kinds, default, allowed)


def is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def flags(path: Path, prefix: str, of: str = "") -> Iterator[tables.Row]:
    """The flags that a file adds to its parsers, or to the one named `of`: read, as importing gives none."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
        ):
            continue
        if of and not (isinstance(call.func.value, ast.Name) and call.func.value.id == of):
            continue
        flag = ast.literal_eval(call.args[0])
        said = {word.arg: word.value for word in call.keywords if word.arg not in (None, "help")}
        name = f"{prefix}{flag.removeprefix('--').replace('-', '_')}"
        if "action" in said:
            yield tables.row(name, ["bool"], False)
            continue
        default = ast.literal_eval(said["default"]) if "default" in said else None
        kind = ast.unparse(said["type"]) if "type" in said else "str"
        allowed = ast.literal_eval(said["choices"]) if "choices" in said else ()
        yield tables.row(name, [kind, *(["null"] if default is None else [])], default, allowed)
