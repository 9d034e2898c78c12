"""Models of the Hugging Face hub as their config.json has them, for what must be known of them without a network.

published.json holds the keys that make an architecture, by the hub's names. A test holds each against the whole
config.json, where that is one of its fixtures, or else against MaxText's model or the Megatron preset of the same name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from primus.models import huggingface


@cache
def table() -> Mapping[str, Mapping[str, Any]]:
    """published.json."""
    text = (resources.files("primus") / "models" / "published.json").read_text(encoding="utf-8")
    data: dict[str, dict[str, Any]] = json.loads(text)
    return data


@cache
def reading(name: str) -> huggingface.Reading | None:
    """What the model of that name is, whoever published it, tuned or not; None if it is not known here."""
    found = next((config for known, config in table().items() if short(known) == short(name)), None)
    return None if found is None else huggingface.read(found)


def short(name: str) -> str:
    """The name without who published it, and without what does not change the architecture."""
    bare = name.rpartition("/")[2].lower().removeprefix("meta-").removesuffix("-hf")
    return bare.removesuffix("-instruct").removesuffix("-base")
