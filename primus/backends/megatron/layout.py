"""Megatron's demands are those of megatron-core."""

from __future__ import annotations

from primus.backends import megatron_core
from primus.layout import Said
from primus.models.architecture import Architecture

requirements = megatron_core.requirements
spread = megatron_core.spread
precision = megatron_core.precision


def architecture(said: Said) -> Architecture:
    """The experiment's model. Raises ValueError if it is not known."""
    from primus.models import megatron

    return megatron.architecture(said)
