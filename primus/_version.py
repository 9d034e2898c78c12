"""The package's version: the default tag of its images."""

__version__ = "0.1.0"
