"""Building from clean a second time gives the same image, down to its ID."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import randrange
from typing import Any
from uuid import uuid4

import pytest

from tests.image.conftest import copy_checkout

MADE = "1796000000"  # 2026-11-30


@pytest.fixture
def version(engine: Any) -> Iterator[str]:
    """A version of its own, whose images are removed."""
    found = f"again-{uuid4().hex[:12]}"
    yield found
    names = engine("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", f"--filter=reference=*:{found}-*").split()
    if names:
        engine("image", "rm", *names)


def entries(docker: str, image: str, into: Path) -> dict[str, tuple[Any, ...]]:
    """Each entry of each layer, with all that a layer keeps of it."""
    subprocess.run([docker, "save", f"--output={into}", image], check=True)
    found = {}
    with tarfile.open(into) as archive:
        (about,) = json.load(archive.extractfile("manifest.json") or io.BytesIO())
        for number, layer in enumerate(about["Layers"]):
            with tarfile.open(fileobj=archive.extractfile(layer)) as tar:
                for one in tar:
                    content = tar.extractfile(one) if one.isreg() else None
                    found[f"layer {number}: /{one.name}"] = (
                        *(
                            one.type,
                            one.mode,
                            one.uid,
                            one.gid,
                            one.mtime,
                            one.size,
                            one.linkname,
                            str(one.pax_headers),
                        ),
                        hash(content.read()) if content else None,
                    )
    into.unlink()
    return found


# Each with what is built anew for it: all that it consists of, or a backend's own steps on a base that is here.
@pytest.mark.parametrize(("name", "anew"), [("base", "*"), ("torchtitan", "torchtitan launcher")])
def test_a_second_build_from_clean_has_the_same_id(
    docker: str,
    settings: Mapping[str, str],
    version: str,
    engine: Any,
    tmp_path: Path,
    name: str,
    anew: str,
) -> None:
    """The OS packages, the virtual environment, the backend, the launcher: whatever the checkout's times and modes."""
    words = [docker, "buildx", "bake", "--progress=plain", *(f"--set={one}.no-cache=true" for one in anew.split())]
    ids = []
    for number in range(2):
        checkout = copy_checkout(tmp_path / str(number))
        if number:  # as a checkout on another day, under another umask
            subprocess.run(["chmod", "--recursive", "go-rwx", checkout / "primus"], check=True)
            # A day of its own: BuildKit takes a file of the same name, size and time for the one it got before.
            day = f"--date=@{randrange(1_000_000_000)}"
            subprocess.run(["find", checkout, "-exec", "touch", day, "{}", "+"], check=True)
        done = subprocess.run(
            [*words, name],
            cwd=checkout,
            env={**settings, "VERSION": version, "SOURCE_DATE_EPOCH": MADE},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        about = json.loads(engine("image", "inspect", f"primus-{name}:{version}-cpu"))[0]
        ids.append(about["Id"])
    assert about["Created"].startswith("2026-11-30T")
    if ids[0] != ids[1]:
        first, second = (entries(docker, one, tmp_path / "image.tar") for one in ids)
        differ = sorted(path for path in {*first, *second} if first.get(path) != second.get(path))
        pytest.fail(f"{len(differ)} differ: {[(path, first.get(path), second.get(path)) for path in differ[:10]]}")
    shell = engine("run", "--rm", "--network=none", f"primus-{name}:{version}-cpu", "env")
    assert "SOURCE_DATE_EPOCH" not in shell
    assert "PYTHONHASHSEED" not in shell
