"""Where each runtime takes an image from, and how it wants its name written."""

from __future__ import annotations

import re
from pathlib import Path

from primus.errors import ConfigError

ENGINES = ("docker", "podman")
PROCESSES = ("apptainer", "singularity")  # a container is a process of the user's own, without an engine
RUNTIMES = (*ENGINES, "pyxis", *PROCESSES)

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst")
_FILES = (*ARCHIVES, ".sif", ".sqsh")
# [REGISTRY/]NAME[:TAG][@DIGEST]; the first part is a registry if it has a dot or a port, or is localhost.
_NAME = re.compile(
    r"(?:(?P<registry>[\w.-]*[.][\w.-]*(?::\d+)?|[\w-]+:\d+|localhost)/)?"
    r"(?P<name>[\w./-]+?)(?P<tag>:[\w.-]+)?(?P<digest>@sha256:[0-9a-f]+)?",
    re.ASCII,
)


def is_path(image: str) -> bool:
    """Whether --image means a file or directory rather than a name: the runtimes disagree about `img.sqsh`."""
    return "://" not in image and (image.startswith(("/", "./", "../", "~")) or image.endswith(_FILES))


def is_archive(image: str) -> bool:
    return is_path(image) and image.endswith(ARCHIVES)


def spelled(image: str, engine: str) -> str:
    """The image as the runtime wants it. Raises ConfigError for one that it cannot run, with the way to one it can.

    `image` is a reference as docker has it, or an absolute path.
    """
    if engine in ENGINES:
        if is_path(image) and not is_archive(image):
            raise ConfigError(
                f"--image {image}: {engine} runs no such file",
                hint=f"{engine} takes a name, or an archive of docker save or podman save ({', '.join(ARCHIVES)}); "
                "a .sif is apptainer's, a .sqsh is pyxis'",
            )
        return image
    if engine == "pyxis":
        return _pyxis(image)
    return _apptainer(image, engine)


def _pyxis(image: str) -> str:
    if is_path(image):
        if not image.endswith(".sqsh"):
            raise ConfigError(
                f"--image {image}: pyxis runs a .sqsh file or an image of a registry",
                hint="make one from an engine's image: enroot import --output IMAGE.sqsh dockerd://NAME",
            )
        return image
    if "#" in image or "://" in image:  # enroot's own spelling
        return image
    match = _match(image)
    if match["registry"] is None:
        raise ConfigError(
            f"--image {image}: names no registry, and enroot would ask Docker Hub for it",
            hint="name one (--registry HOST, or --image HOST/NAME:TAG), or give a file: --image /shared/IMAGE.sqsh",
        )
    rest = f"{match['name']}{match['tag'] or ''}{match['digest'] or ''}"
    return rest if match["registry"] == "docker.io" else f"{match['registry']}#{rest}"


def _apptainer(image: str, engine: str) -> str:
    if is_path(image):
        if image.endswith((*ARCHIVES, ".sqsh")):
            built = f"{engine} build {Path(image).name.split('.')[0]}.sif docker-archive:{image}"
            hint = built if image.endswith(".tar") else f"from an archive that is not compressed: {built}"
            raise ConfigError(
                f"--image {image}: {engine} runs a .sif file, a directory or an image of a registry",
                hint=f"make one once, on shared storage: {hint}",
            )
        return image
    if "://" in image:
        return image
    match = _match(image)
    if match["registry"] is None:
        raise ConfigError(
            f"--image {image}: names no registry, and {engine} would ask Docker Hub for it",
            hint="name one (--registry HOST, or --image HOST/NAME:TAG), or give a file: --image /shared/IMAGE.sif",
        )
    # It takes a tag or a digest, not both; the digest says more.
    return f"docker://{match['registry']}/{match['name']}{match['digest'] or match['tag'] or ''}"


def _match(image: str) -> re.Match[str]:
    match = _NAME.fullmatch(image)
    if match is None:
        raise ConfigError(f"--image {image!r}: is no name of an image", hint="write [REGISTRY/]NAME[:TAG][@sha256:...]")
    return match
