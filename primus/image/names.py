"""The name of each backend's image."""

from __future__ import annotations

from primus._version import __version__


def build_command(framework: str, accelerator: str) -> str:
    """What a user types to build the framework's image."""
    return f"{'ACCELERATOR=cpu ' if accelerator == 'cpu' else ''}docker buildx bake {framework}"


def reference(framework: str, accelerator: str, *, registry: str = "", version: str = "") -> str:
    """[REGISTRY/]primus-<framework>:<version>-<accelerator>; without a registry, an image of this machine."""
    prefix = f"{registry.rstrip('/')}/" if registry else ""
    return f"{prefix}primus-{framework}:{version or __version__}-{accelerator}"
