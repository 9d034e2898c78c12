"""Experiments: files, presets, variables and overrides, resolved into one checked value."""

from primus.experiment.resolve import flat, load_experiment
from primus.experiment.types import Experiment, Origin, Provenance, Template

__all__ = ["Experiment", "Origin", "Provenance", "Template", "flat", "load_experiment"]
