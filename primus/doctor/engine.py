"""The container engine: does it answer this user, can it give a container the GPUs, has it room for the image."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from primus.doctor.machine import FAIL, GIB, OK, WARN, Asked, Machine, Row, size
from primus.errors import LaunchError
from primus.image.engine import room
from primus.image.manifest import Manifest, from_labels
from primus.image.names import build_command, reference
from primus.image.runtimes import is_path


def rows(machine: Machine, asked: Asked) -> tuple[list[Row], Manifest | None]:
    """The rows, and what the framework's image here says about itself."""
    if machine.inside:
        return [Row("engine", OK, f"none is needed inside the image of {machine.inside}")], None
    if asked.engine not in ("docker", "podman"):  # no engine at all: a process of the user's own
        return [_process(machine, asked.engine), *_stores(machine, asked)], None
    try:
        machine.check_engine(asked.engine)
    except LaunchError as error:
        (problem,) = error.problems
        login = "not installed" in problem.message and machine.say("sbatch", "--version").code == 0
        text = f"{problem.message}{'; only the nodes need it' if login else ''}"
        return [Row("engine", OK if login else FAIL, text, "" if login else problem.hint)], None
    about = _json(machine, asked.engine, "info", "--format", "json" if asked.engine == "podman" else "{{json .}}")
    version, root, problems = (_podman if asked.engine == "podman" else _docker)(machine, about)
    row, found, bytes_here = _image(machine, asked)
    first = Row("engine", OK, f"{asked.engine} {version}, data in {root or 'another machine'}")
    shown = [first, *problems, *([row] if row else [])]
    return [*shown, *_disk(machine, asked, root, bytes_here)], found


def _process(machine: Machine, program: str) -> Row:
    if program == "pyxis":
        there = "--container-image" in machine.say("srun", "--help").out
        text = "srun has pyxis" if there else "srun has no --container-image, which is pyxis'"
        return Row(
            "engine", OK if there else FAIL, text, "" if there else "ask the site for pyxis, or take --engine docker"
        )
    said = machine.say(program, "--version")
    if said.code != 0:
        return Row("engine", FAIL, f"{program} is not installed", "install it, or load its module")
    return Row("engine", OK, said.out.strip())


def _stores(machine: Machine, asked: Asked) -> list[Row]:
    """Room where a runtime without an engine unpacks an image. A file that apptainer runs is not unpacked."""
    if is_path(asked.image) and not (asked.engine == "pyxis" and asked.image.endswith(".sqsh")):
        return []
    needed = room(_accelerator(machine, asked))
    for name, path in _places(machine, asked.engine).items():
        space = machine.space(Path(path))
        if space is not None and space[1] < needed:
            text = f"{size(space[1])} free of {size(space[0])} in {path}, and an image takes about {size(needed)}"
            return [Row("disk", FAIL, text, f"export {name}=DIR on a larger disk")]
    return [Row("disk", OK, f"room for an image in {', '.join(_places(machine, asked.engine).values())}")]


def _places(machine: Machine, program: str) -> dict[str, str]:
    """Variable -> the directory that it or its default means.

    https://apptainer.org/docs/user/latest/build_env.html and enroot's doc/configuration.md, whose site's own file says
    more, in the shell's words: those with a variable in them are left out.
    """
    environ, home = machine.environ, machine.environ.get("HOME", "/root")
    if program != "pyxis":
        upper = program.upper()
        return {
            f"{upper}_CACHEDIR": environ.get(f"{upper}_CACHEDIR") or f"{home}/.{program}/cache",
            f"{upper}_TMPDIR": environ.get(f"{upper}_TMPDIR") or environ.get("TMPDIR") or "/tmp",
        }
    site = dict(re.findall(r"^\s*(ENROOT_\w+_PATH)\s+(\S+)", machine.text("/etc/enroot/enroot.conf"), re.MULTILINE))
    defaults = {
        "ENROOT_CACHE_PATH": f"{environ.get('XDG_CACHE_HOME') or f'{home}/.cache'}/enroot",
        "ENROOT_DATA_PATH": f"{environ.get('XDG_DATA_HOME') or f'{home}/.local/share'}/enroot",
        "ENROOT_TEMP_PATH": environ.get("TMPDIR") or "/tmp",
    }
    found = {name: environ.get(name) or site.get(name) or default for name, default in defaults.items()}
    return {name: path for name, path in found.items() if "$" not in path}


def _docker(machine: Machine, about: dict[str, Any]) -> tuple[str, str, list[Row]]:
    options = [str(one) for one in about.get("SecurityOptions") or ()]
    found = []
    if "Docker Desktop" in str(about.get("OperatingSystem")):
        where = machine.environ.get("DOCKER_HOST") or str((about.get("ClientInfo") or {}).get("Context", ""))
        found.append(
            Row(
                "context",
                FAIL if machine.gpus else OK,
                f"the client talks to Docker Desktop ({where}): a virtual machine, without /dev/kfd",
                "docker context use default, and unset DOCKER_HOST" if machine.gpus else "",
            )
        )
    for name, what in (("rootless", "is rootless"), ("userns", "maps users (userns-remap)")):
        if any(option.startswith(f"name={name}") for option in options):
            remedy = "use the engine that runs as root, or podman: --engine podman"
            found.append(Row("users", FAIL, f"docker {what}: files of a run would not be yours", remedy))
    root = str(about.get("DockerRootDir") or "/var/lib/docker")
    if ["driver-type", "io.containerd.snapshotter.v1"] in (about.get("DriverStatus") or []):
        root = "/var/lib/containerd"  # its image store: https://docs.docker.com/engine/storage/containerd/
    away = found and found[0].check == "context"
    remote = machine.environ.get("DOCKER_HOST", "").startswith(("tcp:", "ssh:"))
    return str(about.get("ServerVersion", "?")), "" if away or remote else root, found


def _podman(machine: Machine, about: dict[str, Any]) -> tuple[str, str, list[Row]]:
    host = about.get("host") or {}
    found = []
    runtime = str((host.get("ociRuntime") or {}).get("name", ""))
    if machine.uid != 0 and machine.gpus and runtime != "crun":
        # https://docs.podman.io/en/latest/markdown/podman-run.1.html, --group-add=keep-groups
        found.append(
            Row(
                "groups",
                FAIL,
                f"rootless podman with {runtime or 'an unknown runtime'} drops your groups: no permission on /dev/kfd",
                'install crun, and set runtime = "crun" in ~/.config/containers/containers.conf',
            )
        )
    store = about.get("store") or {}
    return str((about.get("version") or {}).get("Version", "?")), str(store.get("graphRoot", "")), found


def _image(machine: Machine, asked: Asked) -> tuple[Row | None, Manifest | None, int]:
    if not asked.framework:
        return None, None, 0
    accelerator = _accelerator(machine, asked)
    name = asked.image or reference(asked.framework, accelerator, registry=asked.registry)
    listed = _json(machine, asked.engine, "image", "inspect", name, "--format", "{{json .}}")
    if not listed:
        pulled = asked.registry or asked.image
        text = f"{name} is not here" + (", and is pulled by the first run" if pulled and not asked.offline else "")
        remedy = f"{asked.engine} pull {name}" if pulled else build_command(asked.framework, accelerator)
        return Row("image", OK if pulled and not asked.offline else WARN, text, remedy), None, 0
    found = from_labels((listed.get("Config") or {}).get("Labels") or {}, str(listed.get("Id", "")))
    if found is None or found.framework != asked.framework:
        what = f"an image of {found.framework}" if found else "no image of ours"
        return Row("image", FAIL, f"{name} is {what}", build_command(asked.framework, accelerator)), None, 0
    bytes_here = int(listed.get("Size") or 0)
    return Row("image", OK, f"{name}, {size(bytes_here)}"), found, bytes_here


def _disk(machine: Machine, asked: Asked, root: str, bytes_here: int) -> list[Row]:
    """Room for the image: 2.5 times its size while it is not here, and something to write to once it is."""
    space = machine.space(Path(root)) if root else None
    if space is None:
        return []
    accelerator = _accelerator(machine, asked)
    needed = GIB if bytes_here else room(accelerator)
    text = f"{size(space[1])} free of {size(space[0])} in {root}"
    if space[1] >= needed:
        return [Row("disk", OK, text)]
    why = "" if bytes_here else f"; an image for {accelerator} takes about {size(needed)} to fetch and unpack"
    remedy = f"{asked.engine} system df says what takes it; or move the engine's data root to a larger disk"
    return [Row("disk", FAIL, text + why, remedy)]


def _accelerator(machine: Machine, asked: Asked) -> str:
    return asked.accelerator or ("rocm" if machine.gpus else "cpu")


def _json(machine: Machine, *words: str) -> dict[str, Any]:
    said = machine.say(*words)
    try:
        found = json.loads(said.out) if said.code == 0 else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
