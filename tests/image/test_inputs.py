"""The CPU images are made of what images/inputs.cpu.json says, and a change of that is named."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest

from images.inputs import FILE, differences, inputs

LOCKED = json.loads(FILE.read_text(encoding="utf-8"))


def test_an_image_is_made_of_what_is_locked(framework: str, image: str) -> None:
    if framework not in LOCKED:
        pytest.skip(f"{framework}: its source is not here, so its image's inputs are not locked")
    assert list(differences(LOCKED[framework], inputs(image))) == []


def test_a_change_is_named() -> None:
    built = deepcopy(LOCKED["maxtext"])
    built["packages"]["jax"] = "0.0.1"
    built["packages"]["new"] = "1"
    built["debian"].remove("bash")
    built["lock_sha256"] = "0"
    locked = LOCKED["maxtext"]
    assert list(differences(locked, built)) == [
        f"lock_sha256: '0', and locked is {locked['lock_sha256']!r}",
        f"jax: 0.0.1, and locked is {locked['packages']['jax']}",
        "new: 1, and locked is none",
        "Debian's bash is missing",
    ]
