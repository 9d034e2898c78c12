"""docker buildx bake: its command line, and the definition that it makes of docker-bake.hcl."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from primus.errors import ImageError, LaunchError


def files(file: Path) -> tuple[Path, ...]:
    """The definition and what a site has beside it, in bake's order: with --file it looks for none itself.

    https://docs.docker.com/build/bake/reference/#file-lookup
    """
    if file.name not in ("docker-bake.hcl", "docker-bake.json"):
        return (file,)
    beside = (file.with_name(f"docker-bake.override.{ending}") for ending in ("json", "hcl"))
    return (file, *(one for one in beside if one.is_file()))


def command(files: Iterable[Path], targets: Iterable[str], *, print_only: bool = False) -> tuple[str, ...]:
    """The build. It does not push: what is in the registry is compared with what came out first."""
    return (
        *("docker", "buildx", "bake", *(f"--file={file}" for file in files)),
        *(["--print"] if print_only else ["--progress=plain", "--load"]),
        *targets,
    )


def with_variables(variables: Mapping[str, str], words: tuple[str, ...]) -> tuple[str, ...]:
    """The command with docker-bake.hcl's variables in its environment."""
    return ("env", *(f"{name}={value}" for name, value in variables.items()), *words)


def plan(
    files: Sequence[Path], targets: Iterable[str], variables: Mapping[str, str], root: Path | None = None
) -> dict[str, Any]:
    """What would be built, as bake has it. Raises ImageError for a definition that it does not take, or not whole."""
    words = command(files, targets, print_only=True)
    environ = {**os.environ, **variables}
    try:
        done = subprocess.run(words, cwd=root, env=environ, capture_output=True, text=True, check=False)
    except OSError as error:
        raise LaunchError(f"cannot start docker: {error.strerror}", hint="bake is Docker's: install it") from None
    if done.returncode:
        raise ImageError(f"{files[0]}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    network = environ.get("BUILD_NETWORK")
    if network and any(target.get("network") != network for target in found["target"].values()):
        raise ImageError(
            f"BUILD_NETWORK={network}: this buildx takes no notice of it, and would build with a network",
            hint="a newer buildx does; or take what --print prints without it to docker buildx build --network",
        )
    return found
