"""The container engine's client: is it there, does it answer, does it have the image."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from primus.errors import ImageError, LaunchError, PrimusError, Problem
from primus.image.manifest import IN_IMAGE, Manifest, from_labels
from primus.image.names import build_command, take_apart
from primus.image.runtimes import RUNTIMES

GIB = 1 << 30
# The images' size where there is none to look at: the CPU images have about 2 GiB; the ROCm ones were not built by us,
# and public ones of their kind have 25 and more.
_SIZE = {"cpu": 2 * GIB, "rocm": 30 * GIB}


def room(accelerator: str) -> float:
    """Bytes that an image needs to be fetched: packed, unpacked, and some room."""
    return 2.5 * _SIZE.get(accelerator, _SIZE["rocm"])


def digests_in(repository: str, about: Mapping[str, Any]) -> tuple[str, ...]:
    """The digests that a repository has for the image: another may have packed the same image differently."""
    names = (str(one).partition("@") for one in about.get("RepoDigests") or ())
    return tuple(digest for name, _, digest in names if take_apart(name).repository == repository)


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

    def check_context(self, environ: Mapping[str, str]) -> None:
        """Raise LaunchError if docker's client talks to Docker Desktop, whose virtual machine has no GPU of this host.

        The engine is asked only where something points the client elsewhere.
        """
        folder = Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME") or "/") / ".docker")
        try:
            context = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("currentContext")
        except (OSError, ValueError, AttributeError):
            context = None
        where = environ.get("DOCKER_HOST") or environ.get("DOCKER_CONTEXT") or context
        if self.engine != "docker" or where in (None, "default"):
            return
        if "Docker Desktop" in self._run("info", "--format", "{{.OperatingSystem}}").stdout:
            raise LaunchError(
                f"docker's client talks to Docker Desktop ({where}): a virtual machine, without this host's /dev/kfd",
                hint="docker context use default, and unset DOCKER_HOST and DOCKER_CONTEXT",
            )

    def check_groups(self) -> None:
        """Raise LaunchError if rootless podman could not keep the groups that the GPUs' devices belong to."""
        done = self._run("info", "--format", "{{.Host.OCIRuntime.Name}}")
        if done.returncode == 0 and done.stdout.strip() == "runc":
            raise LaunchError(
                "podman runs containers with runc here, which cannot keep your groups: the GPUs would refuse you",
                hint='install crun, and set runtime = "crun" in ~/.config/containers/containers.conf',
            )

    def about(self, image: str) -> dict[str, Any] | None:
        """The engine's own description of a local image; None if it is not here."""
        done = self._run("image", "inspect", image)
        if done.returncode != 0:
            return None
        about: dict[str, Any] = json.loads(done.stdout)[0]
        about["Id"] = f"sha256:{about.get('Id', '').removeprefix('sha256:')}"  # podman leaves that out
        return about

    def inside(self, image: str) -> Mapping[str, Any]:
        """What a local image says of itself inside: its /etc/primus/image.json. Raises ImageError if it has none."""
        words = ("run", "--rm", "--network=none", "--pull=never", "--entrypoint=cat", image, str(IN_IMAGE))
        done = self._run(*words)
        if done.returncode:
            raise ImageError(f"{image} is not a Primus image: it has no {IN_IMAGE}")
        found: Mapping[str, Any] = json.loads(done.stdout)
        return found

    def ids(self, *filters: str) -> list[str]:
        """The IDs of the local images that the filters let through, each once."""
        words = ("image", "ls", "--quiet", "--no-trunc", *(f"--filter={text}" for text in filters))
        done = self._run(*words)
        if done.returncode != 0:
            raise LaunchError(f"{self.engine} does not list its images: {done.stderr.strip()}")
        return list(dict.fromkeys(f"sha256:{word.removeprefix('sha256:')}" for word in done.stdout.split()))

    def containers(self, *filters: str) -> list[str]:
        """The IDs of the running containers that the filters let through."""
        words = ("ps", "--quiet", "--no-trunc", *(f"--filter={text}" for text in filters))
        done = self._run(*words)
        if done.returncode != 0:
            raise LaunchError(f"{self.engine} does not list its containers: {done.stderr.strip()}")
        return done.stdout.split()

    def container(self, container: str) -> dict[str, Any] | None:
        """The engine's own description of a container; None if there is none."""
        done = self._run("container", "inspect", container)
        found: dict[str, Any] | None = json.loads(done.stdout)[0] if done.returncode == 0 else None
        return found

    def layers(self) -> list[list[str]]:
        """The layers of every local image, by the digests of their unpacked content."""
        found = [self.about(one) for one in self.ids()]
        return [(one.get("RootFS") or {}).get("Layers") or [] for one in found if one]

    def tag(self, image: str, name: str) -> None:
        done = self._run("image", "tag", image, name)
        if done.returncode != 0:
            raise ImageError(f"{name}: {self.engine} does not name {image} so: {done.stderr.strip()}")

    def remove(self, image: str) -> str:
        """Remove a local image; gives the engine's reason where it does not."""
        done = self._run("image", "rm", image)
        said = done.stderr.strip().splitlines()
        return "" if done.returncode == 0 else (said[-1] if said else f"exit code {done.returncode}")

    def free(self) -> tuple[Path, int] | None:
        """Where the engine keeps its images and how much room is left there; None if that is not on this machine."""
        form = "{{.Store.GraphRoot}}" if self.engine == "podman" else "{{.DockerRootDir}}"
        root = Path(self._run("info", "--format", form).stdout.strip() or "/nowhere")
        return (root, shutil.disk_usage(root).free) if root.is_dir() else None

    def manifest(self, image: str) -> Manifest | None:
        """What the local image says about itself; None if it is not here. Raises ImageError if it is not ours."""
        about = self.about(image)
        if about is None:
            return None
        labels = about.get("Config", {}).get("Labels") or {}
        found = from_labels(labels, about["Id"])
        if found is None:
            raise ImageError(
                f"{image} is not a Primus image: it has no label io.primus.framework",
                hint="build one with: docker buildx bake FRAMEWORK, and leave --image out",
            )
        return replace(found, name=image, digests=digests_in(take_apart(image).repository, about))

    def ensure(self, image: str, *, pull: str, expected: str = "", after: float = 0) -> Manifest:
        """The image's manifest, fetched first if the policy (missing, always, never) says so. Raises ImageError.

        `expected` is the ID that a lock has for it: an image that was loaded from a file has lost its digest, and is
        found by that. `after` so many seconds the registry is asked, if it is.
        """
        found = None if pull == "always" else self.manifest(image)
        if found is None and expected and pull != "always":
            found = self.manifest(expected)
        if found is None:
            found = self._fetch(image, pull, after)
        if expected and expected != found.id and take_apart(image).digest not in (found.id, *found.digests):
            raise ImageError(
                f"{image} is {found.id} on this machine, and the lock says {expected}",
                hint="build or pull what was locked, lock this one (primus image lock), or pass --no-lock",
            )
        return found

    def _fetch(self, image: str, pull: str, after: float) -> Manifest:
        name, _, tag = image.rsplit("/", 1)[-1].partition("@")[0].partition(":")
        framework, accelerator = name.removeprefix("primus-"), tag.rpartition("-")[2]
        build = f"build it: {build_command(framework, accelerator)}; or name another with --image or --registry"
        if "@" in image:
            build = f"fetch it where the registry is reached: primus image pull {framework}; or name another"
        elif self.engine == "podman":
            build = f"load it: docker save {image} | podman load; or name another with --image or --registry"
        if pull == "never":
            raise ImageError(f"{image} is not on this machine, and nothing is pulled", hint=build)
        time.sleep(after)
        done = subprocess.run((self.engine, "pull", image), check=False, stdout=2)  # progress is talk: to stderr
        if done.returncode != 0:
            why = self._why_not(image)
            free = self.free()
            if why is None and free is not None and free[1] < room(accelerator):  # the registry would give it
                build = f"{free[0]} has only {free[1] / GIB:.0f} GiB free; make room there, or {build}"
            raise ImageError(
                f"{image} is not on this machine and cannot be pulled{f': {why.message}' if why else ''}",
                hint="; or ".join(text for text in (why.hint if why else "", build) if text),
            )
        found = self.manifest(image)
        if found is None:
            raise ImageError(f"{image} was pulled but is not there", hint=build)
        return found

    @staticmethod
    def _why_not(image: str) -> Problem | None:
        """What the registry says, asked by ourselves: the engine's words mix up a wrong tag and a wrong password."""
        from primus.image.publish import nearest
        from primus.image.registry import Registry

        name = take_apart(image)
        registry = Registry(name.host, name.path, timeout=10, pauses=())
        try:
            if registry.digest(name.digest or name.tag or "latest"):
                return None
            hint = f"{name.repository}: {nearest(name.tag, registry.tags())}"
        except PrimusError as error:
            return error.problems[0]
        return Problem(message=f"the registry has no such {'digest' if name.digest else 'tag'}", hint=hint)
