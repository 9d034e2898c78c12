"""Primus: per-backend training images for AMD GPUs, and one thin launcher for them.

The names below are the Python API (docs/api.md); each is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from primus._version import __version__

if TYPE_CHECKING:
    from primus.api import build_command, check_experiment, find_run, find_runs, read_metrics
    from primus.command import Command
    from primus.errors import ConfigError, ImageError, LaunchError, PrimusError, Problem
    from primus.experiment import Experiment, load_experiment
    from primus.record import Record

__all__ = [
    "Command",
    "ConfigError",
    "Experiment",
    "ImageError",
    "LaunchError",
    "PrimusError",
    "Problem",
    "Record",
    "__version__",
    "build_command",
    "check_experiment",
    "find_run",
    "find_runs",
    "load_experiment",
    "read_metrics",
]

_MODULES = {
    "api": ("build_command", "check_experiment", "find_run", "find_runs", "read_metrics"),
    "command": ("Command",),
    "errors": ("ConfigError", "ImageError", "LaunchError", "PrimusError", "Problem"),
    "experiment": ("Experiment", "load_experiment"),
    "record": ("Record",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"primus.{module}"), name)
    raise AttributeError(f"module 'primus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
