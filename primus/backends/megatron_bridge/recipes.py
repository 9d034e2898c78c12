"""What the recipes of Megatron Bridge 0.6.2 set of the numbers of a run (recipes.json), and the models they take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from primus.errors import ConfigError
from primus.models import flavors, huggingface, published


def table() -> Mapping[str, Any]:
    """recipes.json: `flavors`, each with its module and the recipe that it is; `recipes`; `precisions` by name.

    A recipe is null where Bridge has it in name only.
    """
    return flavors.table("megatron_bridge", "recipes")


def recipe(flavor: object) -> Mapping[str, Any] | None:
    """The recipe of that flavor, if it is one that can be built."""
    _, name = table()["flavors"].get(flavor, (None, None))
    found: Mapping[str, Any] | None = table()["recipes"].get(name)
    return found


def below(values: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """What the experiment's recipe sets where the experiment says nothing, and whose it is."""
    found = recipe(values.get("flavor"))
    if found is None:
        return {}
    whose = f"of {values['flavor']}"
    # A part that the experiment replaces as a whole, or leaves out, has nothing of the recipe's.
    replaced = tuple(f"{part}." for part in ("mixed_precision", "peft") if part in values)
    result = {name: (value, whose) for name, value in found["values"].items() if not name.startswith(replaced)}
    if isinstance(named := values.get("mixed_precision"), str):
        precision = table()["precisions"].get(named.replace("-", "_"), {})
        result |= {name: (value, f"of {named}") for name, value in precision.items()}
    return result


def model(values: Mapping[str, Any]) -> tuple[str, huggingface.Reading | None]:
    """The name of the experiment's model, "" if it has none of the hub's; and what is known of it."""
    found = recipe(values.get("flavor"))
    # A recipe that builds its model itself takes none of the hub's.
    name = str(values.get("hf_path") or found["hf_path"]) if found and found["hf_path"] else ""
    return (name, _read(name)) if name else ("", None)


def _read(name: str) -> huggingface.Reading | None:
    if reading := published.reading(name):
        return reading
    try:
        return huggingface.load(Path(name)) if Path(name, "config.json").is_file() else None
    except (ConfigError, OSError):  # what is wrong with it the backend says
        return None
