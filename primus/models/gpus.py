"""The GPUs that experiments are written for."""

from __future__ import annotations

# GiB of each, as its data sheet has it.
SKUS = {"MI300X": 192, "MI325X": 256, "MI350X": 288, "MI355X": 288}
# What a machine's own GPU is. An MI325X calls itself gfx942 too: it is told by the experiment's folder alone.
BY_GFX = {"gfx942": "MI300X", "gfx950": "MI355X"}
