"""The container engine's client: is it there, does it answer, does it have the image."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from primus.errors import ImageError, LaunchError
from primus.image.manifest import Manifest, from_labels
from primus.image.names import build_command
from primus.image.runtimes import RUNTIMES

# Bytes: a ROCm image, packed and unpacked.
ROOM = 100_000_000_000


class Client:
    """docker or podman, by its command line."""

    def __init__(self, engine: str) -> None:
        self.engine = engine

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run((self.engine, *words), capture_output=True, text=True, check=False)

    def check_client(self) -> None:
        """Raise LaunchError unless the client is installed."""
        if shutil.which(self.engine) is None:
            others = [name for name in RUNTIMES if name not in ("pyxis", self.engine) and shutil.which(name)]
            hint = (
                f"--engine {others[0]} is installed here"
                if others
                else "install Docker or podman, or use --launcher direct inside the image"
            )
            raise LaunchError(f"{self.engine} is not installed", hint=hint)

    def check(self) -> None:
        """Raise LaunchError unless the engine answers, each cause with its own remedy."""
        self.check_client()
        if self.engine == "podman":
            done = self._run("version", "--format", "{{.Client.Version}}")
        else:
            # `docker info` exits 0 without an engine; asking for the server's version does not.
            done = self._run("version", "--format", "{{.Server.Version}}")
        if done.returncode == 0:
            return
        said = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        if "permission denied" in done.stderr.lower():
            raise LaunchError(
                f"no permission on {self.engine}'s socket ({said})",
                hint="join its group: sudo usermod -aG docker $USER, then log in again; or use podman: --engine podman",
            )
        if self.engine == "podman":
            raise LaunchError(
                f"podman does not work here ({said})", hint="it needs a HOME it may write to; see podman info"
            )
        where = os.environ.get("DOCKER_HOST") or os.environ.get("DOCKER_CONTEXT") or "the default context"
        raise LaunchError(
            f"no {self.engine} engine answers ({said})",
            hint=f"start it (sudo systemctl start {self.engine}), or point the client elsewhere; it asked {where}",
        )

    def check_groups(self) -> None:
        """Raise LaunchError if rootless podman could not keep the groups that the GPUs' devices belong to."""
        done = self._run("info", "--format", "{{.Host.OCIRuntime.Name}}")
        if done.returncode == 0 and done.stdout.strip() == "runc":
            raise LaunchError(
                "podman runs containers with runc here, which cannot keep your groups: the GPUs would refuse you",
                hint='install crun, and set runtime = "crun" in ~/.config/containers/containers.conf',
            )

    def free(self) -> tuple[Path, int] | None:
        """Where the engine keeps its images, and the bytes that are free there; None for one on another machine."""
        template = "{{.Store.GraphRoot}}" if self.engine == "podman" else "{{.DockerRootDir}}"
        root = Path(self._run("info", f"--format={template}").stdout.strip() or "/nonexistent")
        return (root, shutil.disk_usage(root).free) if root.is_dir() else None

    def manifest(self, image: str) -> Manifest | None:
        """What the local image says about itself; None if it is not here. Raises ImageError if it is not ours."""
        done = self._run("image", "inspect", image)
        if done.returncode != 0:
            return None
        about = json.loads(done.stdout)[0]
        labels = about.get("Config", {}).get("Labels") or {}
        found = from_labels(labels, f"sha256:{about.get('Id', '').removeprefix('sha256:')}")
        if found is None:
            raise ImageError(
                f"{image} is not a Primus image: it has no label io.primus.framework",
                hint="build one with: docker buildx bake FRAMEWORK, and leave --image out",
            )
        return found

    def ensure(self, image: str, *, pull: str) -> Manifest:
        """The image's manifest, fetched first if the policy (missing, always, never) says so. Raises ImageError."""
        found = None if pull == "always" else self.manifest(image)
        if found is not None:
            return found
        name, _, tag = image.rsplit("/", 1)[-1].partition(":")
        framework, accelerator = name.removeprefix("primus-"), tag.rpartition("-")[2]
        build = f"build it: {build_command(framework, accelerator)}; or name another with --image or --registry"
        if self.engine == "podman":
            build = f"load it: docker save {image} | podman load; or name another with --image or --registry"
        if pull == "never":
            raise ImageError(f"{image} is not on this machine, and nothing is pulled", hint=build)
        done = subprocess.run((self.engine, "pull", image), check=False, stdout=2)  # progress is talk: to stderr
        if done.returncode != 0:
            found_room = self.free()
            if found_room is not None and found_room[1] < ROOM:
                build = f"{found_room[0]} has only {found_room[1] / 1e9:.0f} GB free; make room there, or {build}"
            raise ImageError(f"{image} is not on this machine and cannot be pulled", hint=build)
        found = self.manifest(image)
        if found is None:
            raise ImageError(f"{image} was pulled but is not there", hint=build)
        return found
