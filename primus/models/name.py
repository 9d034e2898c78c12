"""How many parameters a model's name speaks of, beside how many it has."""

from __future__ import annotations

import re

from primus.models.architecture import Architecture, active_parameters, parameters

_SIZE = re.compile(r"(?<![A-Za-z0-9.])(A?)(?:(\d+)x)?(\d+(?:\.\d+)?)(B|M|T)(?![A-Za-z])", re.IGNORECASE)
_UNITS = {"m": 1e6, "b": 1e9, "t": 1e12}


def comparison(name: str, model: Architecture) -> str:
    """A sentence with both numbers, e.g. "name says 7B, 6.74B counted", and a warning where they are far apart."""
    count, active = parameters(model), active_parameters(model)
    counted = f"{billions(count)} counted" + (f", {billions(active)} of them active" if active != count else "")
    sizes = list(_SIZE.finditer(name.replace("_", "-")))
    total = next((match for match in sizes if not match[1]), None)
    if total is None:
        return counted
    text = f"name says {total[0]}, {counted}"
    said = float(total[3]) * _UNITS[total[4].lower()] * int(total[2] or 1)
    low = 0.65 if total[2] else 0.8  # an 8x7B shares all but its experts: 47 billion
    return text if low * said < count < 1.3 * said else f"{text}: is it that model?"


def billions(count: int) -> str:
    """A number of parameters as names write it: 6.74B, 124M."""
    return f"{count / 1e9:.2f}B" if count >= 1e9 else f"{count / 1e6:.0f}M"
