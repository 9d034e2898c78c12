"""Primus: per-backend training images for AMD GPUs, and one thin launcher for them."""

from primus._version import __version__

__all__ = ["__version__"]
