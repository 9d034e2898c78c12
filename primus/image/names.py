"""The name of each backend's image."""

from __future__ import annotations

from primus._version import __version__


def reference(
    framework: str, accelerator: str, *, registry: str = "", version: str = "", engine: str = "docker"
) -> str:
    """[REGISTRY/]primus-<framework>:<version>-<accelerator>.

    podman looks unqualified names up nowhere: without a registry they are its own, under localhost/.
    """
    prefix = f"{registry.rstrip('/')}/" if registry else "localhost/" if engine == "podman" else ""
    return f"{prefix}primus-{framework}:{version or __version__}-{accelerator}"
