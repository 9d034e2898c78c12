"""Bundles against real engines: made here, loaded where there is no network, and trained from."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from primus.image import bundle, bundling
from primus.image import lock as locks
from primus.image.engine import Client
from primus.image.lock import Locked
from tests.image import leaks
from tests.launch.air_gap import host
from tests.launch.support import EXAMPLES, inspect, primus

TOY = "primus-bundle-toy"
LABELS = ("--change=LABEL io.primus.framework=torchtitan io.primus.accelerator=cpu",)


def identity(name: str) -> str:
    found = inspect(name)
    assert isinstance(found, list)
    return str(found[0]["Id"])


def test_a_bundle_trains_where_there_is_no_network(image: Callable[[str], str], tmp_path: Path) -> None:
    ids = {image(name): identity(image(name)) for name in ("torchtitan", "maxtext")}
    out = tmp_path / "both.tar"
    configs = [f"--config={EXAMPLES[name]}" for name in ("torchtitan", "maxtext")]
    run = primus("image", "bundle", f"--out={out}", *configs)
    assert run.code == 0, run.output
    assert nothing_of_this_machine(out) == {}
    with host(tmp_path) as there:
        home = "/root/both"
        loaded = there.primus("image", "load", "both.tar", f"--to={home}")
        assert loaded.returncode == 0, loaded.stdout
        for name, expected in ids.items():
            assert there.run("docker", "image", "inspect", "--format={{.Id}}", name).stdout.strip() == expected
        # A host that has Python, and nothing else.
        steps = f"cd {home} && python3 -m venv /v && /v/bin/pip install -q --no-index --find-links wheels primus"
        installed = there.run("sh", "-c", steps, source=False)
        assert installed.returncode == 0, installed.stdout
        for framework, last in (("torchtitan", "step: 30"), ("maxtext", "completed step: 19")):
            config = f"experiments/{framework}/{EXAMPLES[framework].name}"
            words = ("/v/bin/primus", "run", "--offline", f"--config={config}")
            trained = there.run(*words, cwd=home, source=False)
            assert trained.returncode == 0, trained.stdout
            assert last in trained.stdout


def nothing_of_this_machine(path: Path) -> dict[str, set[str]]:
    """What the bundle has of this machine's settings, by member; its layers are looked through in tests/image."""
    needles = leaks.of_machine(os.environ, leaks.settings(os.environ))
    with tarfile.open(path) as tar:
        members = [one for one in tar if not one.name.startswith("blobs/") or one.size < 1_000_000]
        found = {one.name: leaks.in_bytes(tar.extractfile(one).read(), needles) for one in members}  # type: ignore[union-attr]
    assert {f"images/torchtitan-cpu/{name}" for name in ("sbom.cdx.json", "provenance.json")} <= found.keys()
    return {name: said for name, said in found.items() if said}


def layer(name: str, content: bytes) -> bytes:
    """A layer with one file."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def made(tag: str, *, since: Path | None = None, sign: Path | None = None, folder: Path) -> tuple[Path, Path]:
    """A bundle of a toy image and a lock that has it."""
    locked = Locked(name=TOY, tag=tag, id=identity(f"{TOY}:{tag}"))
    lock = folder / f"{tag}.lock.json"
    lock.write_text(locks.text({("torchtitan", "cpu"): locked}), encoding="utf-8")
    wheels = folder / "wheels"
    wheels.mkdir(exist_ok=True)
    (wheels / "primus-0.1.0-py3-none-any.whl").write_bytes(b"a wheel")
    out = folder / f"{tag}.tar"
    words = ("--framework=torchtitan", "--accelerator=cpu", f"--lock={lock}", f"--wheels={wheels}", f"--out={out}")
    more = [f"--{name}={path}" for name, path in (("since", since), ("sign-key", sign)) if path]
    run = primus("image", "bundle", *words, *more)
    assert run.code == 0, run.output
    return out, lock


@pytest.fixture
def toys(docker: str, tmp_path: Path) -> Iterator[Path]:
    """Bundles of three images: `first`; `second`, which stands on it, without what first has; `big`."""
    for tag, content in (("first", b"first"), ("big", os.urandom(40_000_000))):
        words = ("docker", "import", *LABELS, "-", f"{TOY}:{tag}")
        subprocess.run(words, input=layer(tag, content), check=True, capture_output=True)
    dockerfile = f"FROM {TOY}:first\nCOPY second /second\n"
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "second").write_bytes(b"second")
    build = ("docker", "build", "--quiet", f"--tag={TOY}:second", "--file=-", str(tmp_path / "context"))
    subprocess.run(build, input=dockerfile.encode(), check=True, capture_output=True)
    _, lock = made("first", folder=tmp_path)
    made("second", since=lock, folder=tmp_path)
    made("big", folder=tmp_path)
    yield tmp_path
    for tag in ("second", "first", "big"):
        subprocess.run(("docker", "image", "rm", f"{TOY}:{tag}"), capture_output=True, check=False)


def test_only_what_is_new(toys: Path, podman: str) -> None:
    ids = {tag: identity(f"{TOY}:{tag}") for tag in ("first", "second")}
    source = bundle.read(toys / "second.tar")
    assert [bool(one.blob) for one in source.manifest.images[0].layers] == [False, True]
    try:
        to = f"--to={toys / 'to'}"
        run = primus("image", "load", str(toys / "second.tar"), "--engine=podman", to)
        assert run.code == 3, run.output
        assert f"made for a host that has {TOY}:first" in run.output
        for tag in ids:
            run = primus("image", "load", str(toys / f"{tag}.tar"), "--engine=podman", f"--to={toys / tag}")
            assert run.code == 0, run.output
            about = Client(podman).about(f"{TOY}:{tag}")
            assert about is not None
            assert about["Id"] == ids[tag]
        save = subprocess.run((podman, "save", f"{TOY}:second"), check=True, capture_output=True).stdout
        assert b"first" in save
    finally:
        for tag in ("second", "first"):
            subprocess.run((podman, "rmi", "--force", f"{TOY}:{tag}"), capture_output=True, check=False)


def test_a_disk_that_is_full_while_loading(toys: Path) -> None:
    ids = {tag: identity(f"{TOY}:{tag}") for tag in ("first", "second")}
    understated(toys / "big.tar")
    with host(toys, disk="64m") as there:
        run = there.primus("image", "load", "second.tar")
        assert run.returncode == 3, run.stdout
        assert f"made for a host that has {TOY}:first" in run.stdout
        for tag, expected in ids.items():
            run = there.primus("image", "load", f"{tag}.tar")
            assert run.returncode == 0, run.stdout
            found = there.run("docker", "image", "inspect", "--format={{.Id}}", f"{TOY}:{tag}").stdout.strip()
            assert found == expected
        run = there.primus("image", "load", "big.tar")
        assert run.returncode == 3, run.stdout
        assert "no space left on device" in run.stdout
        assert "its disk is full" in run.stdout
        listed = there.run("docker", "image", "ls", "--all", "--format={{.Tag}}").stdout.split()
        assert sorted(listed) == ["first", "second"]
        assert not (toys / "big").exists()
        assert "is here already" in there.primus("image", "load", "second.tar").stdout
        assert there.run("sh", "-c", "mkdir /small && mount -t tmpfs -o size=4k tmpfs /small").returncode == 0
        run = there.primus("image", "load", "second.tar", "--to=/small/to")
        assert run.returncode == 4, run.stdout
        assert "No space left on device" in run.stdout
        assert there.run("ls", "-A", "/small").stdout == ""


def understated(path: Path) -> None:
    """Have a bundle say that its layers are small, so that the engine, and not we, finds the disk full."""
    source = bundle.read(path)
    images = tuple(
        replace(image, layers=tuple(replace(one, size=0) for one in image.layers)) for image in source.manifest.images
    )
    manifest = replace(source.manifest, images=images)
    files: dict[str, bundling.Content] = {name: b"".join(source.pieces(name)) for name in source.manifest.members}
    head = bundle.head(manifest.text(), None)
    bundling._assemble(head, manifest, files, path.with_suffix(".part"), path, lambda _text: None)


def test_a_bundle_is_a_layout_that_others_load(toys: Path, docker: str, podman: str) -> None:
    expected = identity(f"{TOY}:big")
    subprocess.run((docker, "image", "rm", f"{TOY}:big"), check=True, capture_output=True)
    try:
        for engine in (docker, podman):
            subprocess.run((engine, "load", f"--input={toys / 'big.tar'}"), check=True, capture_output=True)
            about = Client(engine).about(expected)
            assert about is not None, engine
            assert about["Id"] == expected
        assert identity(f"{TOY}:big") == expected
    finally:
        subprocess.run((podman, "rmi", "--force", expected), capture_output=True, check=False)


def test_pull_from_a_bundle(toys: Path, docker: str) -> None:
    expected = identity(f"{TOY}:big")
    subprocess.run((docker, "image", "rm", f"{TOY}:big"), check=True, capture_output=True)
    words = ("image", "pull", "torchtitan", "--accelerator=cpu", f"--lock={toys / 'big.lock.json'}")
    done = primus(*words, f"--from={toys / 'first.tar'}")
    assert done.code == 3, done.output
    assert f"has not {TOY}:big ({expected[:19]}), which is locked" in done.output
    assert primus(*words, f"--from={toys}").code == 0  # a directory of bundles
    assert identity(f"{TOY}:big") == expected


def killed(words: tuple[str, ...], when: Callable[[str], bool]) -> None:
    """Run the launcher, and kill it with all that it started as soon as a line of its says so."""
    command = (sys.executable, "-m", "primus", *words)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if when(line):
                os.killpg(process.pid, signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("at", ["1 of 1 layers to pack", "writing big.tar"])
def test_a_bundle_goes_on_where_it_was_killed(toys: Path, at: str) -> None:
    out, lock = toys / "big.tar", toys / "big.lock.json"
    was = out.read_bytes()
    words = ("--framework=torchtitan", "--accelerator=cpu", f"--lock={lock}", f"--wheels={toys / 'wheels'}")
    again = toys / "again"
    again.mkdir()
    command = ("image", "bundle", *words, "--no-documents", f"--out={again / 'big.tar'}")
    killed(command, lambda line: at in line)
    assert not (again / "big.tar").exists()
    done = primus(*command)
    assert done.code == 0, done.output
    assert ("is packed already" in done.output) == at.startswith("writing")
    assert [path.name for path in again.iterdir()] == ["big.tar"]
    layers = [one.layers for one in bundle.read(again / "big.tar").manifest.images]
    assert layers == [one.layers for one in bundle.read(out).manifest.images]
    assert out.read_bytes() == was


def test_a_load_that_was_killed_offers_nothing_and_goes_on(toys: Path, docker: str) -> None:
    expected = identity(f"{TOY}:big")
    subprocess.run((docker, "image", "rm", f"{TOY}:big"), check=True, capture_output=True)
    command = ("image", "load", str(toys / "big.tar"), f"--to={toys / 'to'}")
    killed(command, lambda line: "loading" in line)
    found = Client(docker).about(f"{TOY}:big")
    assert found is None or found["Id"] == expected  # never a part of it
    assert not (toys / "to").exists()
    done = primus(*command)
    assert done.code == 0, done.output
    assert identity(f"{TOY}:big") == expected
    assert (toys / "to" / "README.md").is_file()


def test_a_key_is_required_of_a_bundle(toys: Path, docker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMUS_SIGN_PASSWORD", "sesame")
    for name in ("ours", "others"):
        assert primus("image", "keygen", f"--out={toys / name}").code == 0
    key = f"--verify-key={toys / 'ours.pub'}"
    locked = (f"--lock={toys / 'first.lock.json'}", "--accelerator=cpu", f"--from={toys / 'first.tar'}")
    for words in (
        ("load", str(toys / "first.tar")),
        ("verify", f"--bundle={toys / 'first.tar'}"),
        ("pull", "torchtitan", *locked),
    ):
        done = primus("image", *words, key)
        assert done.code == 3, done.output
        assert "is not signed, and" in done.output
    signed, lock = made("first", folder=toys, sign=toys / "ours.key")
    assert primus("image", "load", str(signed), key, f"--to={toys / 'signed'}").code == 0
    done = primus("image", "load", str(signed), f"--verify-key={toys / 'others.pub'}")
    assert done.code == 3
    assert "is signed with another key" in done.output
    # As its README says, before anything of it is run.
    with tarfile.open(signed) as tar:
        readme = tar.extractfile("README.md").read().decode()  # type: ignore[union-attr]
    steps = re.findall(r"^```\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)[0]
    place = toys / "elsewhere"
    place.mkdir()
    shutil.copy(toys / "ours.pub", place / "team.pub")
    shutil.copy(signed, place)
    checked = subprocess.run(("bash", "-ec", steps), cwd=place, capture_output=True, text=True, check=True)
    assert checked.stdout.splitlines() == ["Verified OK", "True"]
    (place / "wheels" / "primus-0.1.0-py3-none-any.whl").write_bytes(b"another")
    last = steps.splitlines()[-1]
    assert subprocess.run(("bash", "-ec", last), cwd=place, capture_output=True, text=True).stdout == "False\n"
    assert "'primus[sign]'" in readme
    # What the bundle's lock has is signed, too: that is what a run is held to afterwards.
    inside = locks.read(toys / "signed" / locks.NAME)["torchtitan", "cpu"]
    assert inside.id == locks.read(lock)["torchtitan", "cpu"].id
    assert inside.signature
