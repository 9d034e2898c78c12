"""A model as one of Megatron Bridge's recipes, which take the model itself from where `hf_path` says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from primus.models import flavors, published
from primus.models.architecture import Architecture
from primus.models.huggingface import Reading
from primus.models.preset import Preset, Row


def preset(reading: Reading) -> Preset:
    """The recipe made for a model of these dimensions. Raises ConfigError if there is none."""
    title = f"Megatron Bridge {flavors.table('megatron_bridge', 'recipes')['version']}"
    unknown = [name.rpartition("/")[2] for name in _hub() if published.reading(name) is None]
    advice = (
        "; its recipes take the dimensions of whatever hf_path names, as "
        "primus/configs/models/megatron_bridge/llama3_tiny.yaml does, and only their numbers may not suit it. "
        f"Not compared, as their dimensions are not known here: {', '.join(unknown)}"
    )
    none = "has no recipe that is known to be for a model of this shape"
    # What names itself needs no comparison.
    same = (name for name in _hub() if reading.name and published.short(name) == published.short(reading.name))
    name = next(same, "")
    if not name:
        name, _ = flavors.nearest(reading.architecture, known(), title=title, free=("vocab",), advice=advice, none=none)
    flavor = best(name, "sft") or best(name, "pretrain")
    home, _ = flavors.table("megatron_bridge", "recipes")["flavors"][flavor]
    path, source = _path(reading, name)
    rows = (
        Row(key="recipe", value=home, source="Megatron Bridge's module"),
        Row(key="flavor", value=flavor, source=f"made for {name}"),
        Row(key="hf_path", value=path, source=source),
    )
    return Preset(rows=rows)


def known() -> Iterator[tuple[str, Architecture]]:
    """Every model of the hub that a recipe takes and whose dimensions are known here."""
    for name in _hub():
        if reading := published.reading(name):
            yield name, reading.architecture


def _hub() -> list[str]:
    """Every model of the hub that a recipe takes."""
    return list(dict.fromkeys(found["hf_path"] for _, found in _recipes() if found["hf_path"]))


def best(name: str, stage: str) -> str:
    """The plainest flavor (pretrain, sft, peft) of a model of the hub; "" if it has none."""
    names = [flavor for flavor, found in _recipes() if found["hf_path"] == name and flavor.endswith(f"_{stage}_config")]
    return min(names, key=len, default="")


def _recipes() -> Iterator[tuple[str, dict[str, str]]]:
    table = flavors.table("megatron_bridge", "recipes")
    for flavor, (_, name) in table["flavors"].items():
        if found := table["recipes"][name]:
            yield flavor, found


def _path(reading: Reading, name: str) -> tuple[str, str]:
    """Where Bridge finds the model: the name it was published under, or the directory that it is in."""
    if reading.name:
        return reading.name, "_name_or_path"
    folder = Path(reading.where).absolute().parent
    if any(folder.glob("*.safetensors")):
        return str(folder), "the directory of config.json"
    return name, "config.json names no repository: a model of the same dimensions"
