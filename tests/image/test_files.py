"""Everything that goes into an image is pinned, and named where it belongs: locks, Dockerfiles, patches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from primus.image.patches import patches

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILES = sorted([*ROOT.glob("base/*Dockerfile"), *ROOT.glob("images/*/Dockerfile")])
LOCKS = sorted([*ROOT.glob("base/requirements*.txt"), *ROOT.glob("images/*/*.txt")])
INPUTS = sorted([*ROOT.glob("base/requirements*.in"), *ROOT.glob("images/*/*.in")])
# Builds of torch are on indexes of their own, and which one serves them differs from site to site.
UNHASHED = {ROOT / "base/requirements-torch.cpu.txt", ROOT / "base/requirements-torch.rocm.txt"}


def name_of(path: object) -> str:
    return str(path.relative_to(ROOT)) if isinstance(path, Path) else str(path)


def lines(path: Path) -> list[str]:
    """The file's logical lines, without comments."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()) if line]


def pins(path: Path) -> list[Requirement]:
    """The file's requirements; a package may have several, for different versions of Python."""
    return [Requirement(line.partition(" --hash")[0]) for line in lines(path) if not line.startswith("-")]


@pytest.mark.parametrize("lock", LOCKS, ids=name_of)
def test_every_requirement_is_exact_and_hashed(lock: Path) -> None:
    for line in lines(lock):
        if line.startswith("-"):
            assert (lock in UNHASHED, line.split()[0]) == (True, "--extra-index-url")
            continue
        requirement, _, hashes = line.partition(" --hash=")
        assert re.fullmatch(r"==[^=*]+", str(Requirement(requirement).specifier)), line
        assert lock in UNHASHED or re.fullmatch(r"sha256:[0-9a-f]{64}(\s+--hash=sha256:[0-9a-f]{64})*", hashes), line


@pytest.mark.parametrize("source", INPUTS, ids=name_of)
def test_every_direct_requirement_has_a_lock(source: Path) -> None:
    outputs = [path for path in LOCKS if path.name.startswith(source.stem) and path.parent == source.parent]
    outputs = [path for path in outputs if path not in UNHASHED]
    assert outputs
    for output in outputs:
        locked = [(canonicalize_name(pin.name), str(pin.specifier)[2:]) for pin in pins(output)]
        for line in lines(source):
            if line.startswith("-"):
                continue
            wanted = Requirement(line)
            versions = [version for name, version in locked if name == canonicalize_name(wanted.name)]
            assert versions, (name_of(output), line)
            assert all(map(wanted.specifier.contains, versions)), (name_of(output), line)


@pytest.mark.parametrize("accelerator", ["cpu", "rocm"])
def test_no_backend_replaces_what_its_base_pinned(framework: str, accelerator: str) -> None:
    folder = ROOT / "images" / framework
    text = (folder / "Dockerfile").read_text(encoding="utf-8")
    base = "jax" if "FROM base-jax" in text else "torch"
    below = [ROOT / "base/requirements-launcher.txt", *ROOT.glob(f"base/requirements-{base}.{accelerator}.txt")]
    below += ROOT.glob(f"base/requirements-{base}.txt")
    if other := re.search(r"^FROM (\w+)-build AS", text, re.MULTILINE):
        below += sorted((ROOT / "images" / other[1]).glob(f"*.{accelerator}.txt"))
    pinned = [(pin.name, pin.specifier) for lock in below for pin in pins(lock)]
    names = {name for name, _ in pinned}
    assert len(names) > 5
    for pin in pins(folder / f"requirements.{accelerator}.txt"):
        # A second version for Pythons that the base does not serve may be there too.
        assert pin.name not in names or (pin.name, pin.specifier) in pinned or pin.marker is not None, pin


@pytest.mark.parametrize("path", DOCKERFILES, ids=name_of)
def test_every_stage_stands_on_something_pinned(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", text, re.MULTILINE)
    assert len(stages) == len(re.findall(r"^\s*FROM\b", text, re.MULTILINE | re.IGNORECASE))
    known = {"scratch", "${BASE_IMAGE}"}  # bake's argument: by digest, see test_bake.py
    for image, stage in stages:
        by_accelerator = {image.replace("${ACCELERATOR}", value) for value in ("cpu", "rocm")}
        assert by_accelerator <= known, image
        known.add(stage)


@pytest.mark.parametrize("path", DOCKERFILES, ids=name_of)
def test_a_dockerfile_downloads_only_through_apt_and_pip(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "syntax=" not in text, "pulls a frontend from a registry"
    assert "://" not in text, "indexes and mirrors come from outside"
    assert not re.search(r"\b(curl|wget|git clone|ADD|ENTRYPOINT)\b", text)
    for run in re.findall(r"^RUN (?:.*\\\n)*.*$", text, re.MULTILINE):
        if re.search(r"\bpip install\b|\bapt-get\b", run):
            assert "--mount=type=cache" in run, "a download without a cache"
            assert "id=pip_conf" in run or "id=apt_conf" in run, "a download that a site cannot redirect"


def test_every_backend_is_complete(framework: str) -> None:
    folder = ROOT / "images" / framework
    files = {"Dockerfile", "README.md", "requirements.in", "requirements.cpu.txt", "requirements.rocm.txt", "smoke.py"}
    assert files <= {path.name for path in folder.iterdir()}
    assert (ROOT / "primus/backends" / framework / "adapter.py").exists()


def test_every_build_holds_the_table_of_arguments_against_the_backend(framework: str) -> None:
    """On both accelerators: in the last stage, which both have."""
    last = (ROOT / f"images/{framework}/Dockerfile").read_text(encoding="utf-8").rpartition("\nFROM ")[2]
    assert re.search(rf"^ && python -B /build/images/arguments\.py {framework} --check\b", last, re.MULTILINE)


def test_the_key_of_rocms_archive_is_amds() -> None:
    """As `gpg --show-keys` and three public projects have it; the URL that serves it is mutable."""
    from hashlib import sha256

    digest = sha256((ROOT / "base/rocm/rocm.asc").read_bytes()).hexdigest()
    assert digest == "2de99e2354646a90d9903e2a669fc4e36b02c1bbff7075c481e12d7edab2c88b"


def test_patches_say_what_they_are_and_where_upstream_is(framework: str) -> None:
    folder = ROOT / "images" / framework / "patches"
    readme = (folder.parent / "README.md").read_text(encoding="utf-8")
    for tree in sorted([*folder.glob("*"), *ROOT.glob("base/patches/*")]):
        numbers = [path.name[:5] for path in sorted(tree.iterdir())]
        assert numbers == [f"{number:04}-" for number in range(1, len(numbers) + 1)], tree
    for patch in patches(ROOT, framework):
        assert patch.files, patch
        assert len(patch.subject) < 72, patch
        assert patch.name in readme, f"{patch.name} has no line in the image's README"
