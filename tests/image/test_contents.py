"""What is in the built CPU images, seen from inside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

RUN = ("run", "--rm", "--network=none")
ANYONE = (*RUN, "--user=4242:4242")
# Each backend's framework finds a place for what it caches.
CACHES = {
    "torchtitan": "import torch, torch._inductor.runtime.cache_dir_utils as c; place = c.cache_dir()",
    "megatron": "import torch, torch._inductor.runtime.cache_dir_utils as c; place = c.cache_dir()",
    "megatron_bridge": "import torch, torch._inductor.runtime.cache_dir_utils as c; place = c.cache_dir()",
    "specforge": "import torch, torch._inductor.runtime.cache_dir_utils as c; place = c.cache_dir()",
    "maxdiffusion": "import jax; jax.jit(lambda x: x + 1)(1); place = '/tmp/jax'",
    "maxtext": "import jax; jax.jit(lambda x: x + 1)(1); place = '/tmp/jax'",
}


def below(targets: Mapping[str, Any], framework: str) -> tuple[str, str]:
    """The base that a backend stands on, and the backend in between, or ""."""
    contexts = targets[framework]["contexts"]
    between = "".join(name.removesuffix("-build") for name in contexts if name.endswith("-build"))
    if between:
        return below(targets, between)[0], between
    (base,) = (name for name in contexts if name.startswith("base-") and name != "base-source")
    return str(base), ""


def locks(root: Path, targets: Mapping[str, Any], framework: str) -> list[Path]:
    """The lock files of an image, lowest layer first."""
    base, between = below(targets, framework)
    families = base.split("-")[1:]
    names = ["requirements-launcher.txt"]
    names += [f"requirements-{family}{end}" for family in families for end in (".txt", ".cpu.txt")]
    if families == ["jax", "torch"]:
        names.remove("requirements-torch.txt")  # its own lock has those
    lower = locks(root, targets, between) if between else [root / "base" / name for name in names]
    own = (root / f"images/{framework}" / name for name in ("requirements.cpu.txt", "no-deps.txt"))
    return [*filter(Path.exists, (*lower, *own))]


@pytest.fixture
def manifest(engine: Any, image: str) -> dict[str, Any]:
    """The image's own account of itself."""
    found: dict[str, Any] = json.loads(engine(*RUN, image, "cat", "/etc/primus/image.json"))
    return found


def test_manifest_and_labels_agree(
    engine: Any, image: str, framework: str, targets: Any, manifest: Any, root: Path
) -> None:
    labels = json.loads(engine("image", "inspect", image))[0]["Config"]["Labels"]
    for key in ("framework", "accelerator"):
        assert manifest[key] == labels[f"io.primus.{key}"] == {"framework": framework, "accelerator": "cpu"}[key]
    assert manifest["version"] == labels["org.opencontainers.image.version"]
    assert (manifest["gfx"], labels["io.primus.gfx"]) == ([], "")
    assert manifest["base_image"] == targets[framework]["args"]["BASE_IMAGE"]
    folder = root / "images" / framework / "patches"
    assert [f"{patch['tree']}/{patch['name']}" for patch in manifest["patches"]] == [
        str(patch.relative_to(folder)) for patch in sorted(folder.glob("*/*.patch"))
    ]
    assert set(manifest["sources"]) == {
        framework for name in targets[framework]["contexts"] if name == f"{framework}-source"
    }


def test_what_is_installed_is_what_the_locks_say(manifest: Any, root: Path, targets: Any, framework: str) -> None:
    files = locks(root, targets, framework)
    assert manifest["lock_sha256"] == hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    inside = {"python_full_version": manifest["python"], "python_version": manifest["python"].rpartition(".")[0]}
    wanted = {}
    for path in files:
        for line in path.read_text(encoding="utf-8").splitlines():
            if "==" in line and line[0] not in " #-":
                requirement = Requirement(line.removesuffix("\\").strip())
                if requirement.marker is None or requirement.marker.evaluate(inside):
                    wanted[canonicalize_name(requirement.name)] = str(requirement.specifier)[2:]
    seen = {canonicalize_name(name): version.partition("+")[0] for name, version in manifest["packages"].items()}
    del seen[canonicalize_name("pip")]  # the OS image's
    assert seen == wanted


def test_runs_as_anyone_with_no_entry_in_passwd(engine: Any, image: str, framework: str) -> None:
    code = f"""
import getpass, os, pathlib
{CACHES[framework]}
assert os.getuid() == 4242
assert getpass.getuser() == "primus"
cache = pathlib.Path.home() / ".cache" / "huggingface"
cache.mkdir(parents=True)
pathlib.Path(place).mkdir(parents=True, exist_ok=True)
(pathlib.Path(place) / "x").touch()
import primus
assert primus.__file__ == "/opt/primus/primus/__init__.py"
"""
    engine(*ANYONE, image, "python", "-c", code)
    engine(*ANYONE, "--read-only", "--tmpfs=/tmp", image, "python", "-c", code)


def test_primus_is_the_command(engine: Any, image: str) -> None:
    config = json.loads(engine("image", "inspect", image))[0]["Config"]
    assert (config["Entrypoint"], config["Cmd"], config["User"]) == (None, ["primus", "--help"], "")
    assert "run" in engine(*ANYONE, image)
    owned = {"XLA_FLAGS", "LD_LIBRARY_PATH", "JAX_PLATFORMS", "OMP_NUM_THREADS"}  # the adapters' to set, at launch
    names = {entry.partition("=")[0] for entry in config["Env"]}
    assert not {name for name in names if name in owned or name.startswith(("NCCL_", "RCCL_", "NVTE_", "HSA_"))}


def test_the_examples_are_inside(engine: Any, image: str, framework: str) -> None:
    listed = engine(*ANYONE, image, "primus", "examples", "list").splitlines()
    ours = sorted(name for line in listed if (name := line.split()[0]).startswith(f"{framework}/CPU/"))
    assert ours
    folder, _, name = ours[0].rpartition("/CPU/")
    engine(*ANYONE, image, "primus", "config", "check", f"examples/{folder}/configs/CPU/{name}.yaml")


def test_nothing_of_the_build_is_left(engine: Any, image: str, settings: Mapping[str, str]) -> None:
    code = """
import pathlib
left = [p for p in ("/etc/pip.conf", "/etc/apt/apt.conf.d/99build", "/wheels", "/build", "/run/secrets", "/root/.cache",
                    "/root/.config") if pathlib.Path(p).exists()]
for folder, pattern in (("/var/lib/apt/lists", "*_Packages*"), ("/var/cache/apt/archives", "*.deb"),
                        ("/opt/primus", "**/__pycache__"), ("/tmp/primus-home", "*"), ("/tmp/primus-home", ".*")):
    left += pathlib.Path(folder).glob(pattern)
print(*left)
"""
    assert engine(*RUN, image, "python", "-B", "-c", code).strip() == ""
    history = engine("image", "history", "--no-trunc", "--format", "{{.CreatedBy}}", image)
    inspect = engine("image", "inspect", image)
    for name, value in settings.items():
        # The CA bundle's path in the image is that of most hosts; what counts is that it is the image's own file.
        if name.startswith("BUILD_") and name != "BUILD_CA_BUNDLE" and len(value) > 1:
            assert value not in history + inspect, name
    assert "://" not in history


def test_the_certificates_are_the_os_images_own(engine: Any, image: str, settings: Mapping[str, str]) -> None:
    bundle = Path(settings.get("BUILD_CA_BUNDLE", "/nonexistent"))
    if not bundle.exists():
        pytest.skip("no BUILD_CA_BUNDLE was given")
    listed = engine(*RUN, image, "cat", "/etc/ssl/certs/ca-certificates.crt")
    own = engine(*RUN, image, "sh", "-c", "cat /etc/ssl/certs/*.pem")
    assert listed.count("BEGIN CERTIFICATE") == own.count("BEGIN CERTIFICATE") > 0


def test_a_backend_adds_to_its_base_and_changes_nothing(engine: Any, image: str, framework: str, targets: Any) -> None:
    base, between = below(targets, framework)
    names = [targets[name]["tags"][0] for name in (base, between) if name]
    images = json.loads(engine("image", "inspect", *names, image))
    lowest, *lower, own = (layers["RootFS"]["Layers"] for layers in images)
    assert own[: len(lowest)] == lowest
    for layers in lower:
        assert own[: len(lowest) + 1] == layers[: len(lowest) + 1]  # the other backend's dependencies, not its launcher
    extra = {"maxdiffusion": 3}.get(framework, 0)  # its source, the patched files of transformers, tiny models
    # Dependencies, manifest, launcher.
    assert len(own) == len(lowest) + len(lower) + 3 + extra
