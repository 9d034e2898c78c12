"""Nothing of the machine that builds is in an image: no secret, no proxy, no address of an index or a mirror."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.image import leaks
from tests.image.conftest import FRAMEWORKS

ADDRESS = "https://builder:s3cret-of-9f@index.example.com:8443/simple"
TOKEN = "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0rUxI"  # no account's


def test_no_layer_history_or_label_has_anything_of_this_machine(
    docker: str, settings: Mapping[str, str], targets: Any, engine: Any, request: pytest.FixtureRequest
) -> None:
    names = [name for target in FRAMEWORKS for name in targets[target]["tags"] if engine("image", "ls", "-q", name)]
    assert names, "no image is built"
    assert leaks.in_images(docker, names, leaks.of_machine(os.environ, leaks.settings(settings))) == []


@pytest.fixture
def planted(docker: str, tmp_path: Path) -> Iterator[str]:
    """An image with secrets where they are easily overlooked: in a replaced file, a label and the history."""
    name = f"primus-leaks:{uuid4().hex}"
    (tmp_path / "first").write_text(f"[global]\nindex-url = {ADDRESS}\n", encoding="utf-8")
    (tmp_path / "second").write_text("[global]\n", encoding="utf-8")
    (tmp_path / "Dockerfile").write_text(
        f"FROM scratch\nCOPY first /etc/pip.conf\nCOPY second /etc/pip.conf\nLABEL a=b&proxy-pass-7f\nENV T={TOKEN}\n",
        encoding="utf-8",
    )
    subprocess.run([docker, "build", "--quiet", f"--tag={name}", str(tmp_path)], check=True, capture_output=True)
    yield name
    subprocess.run([docker, "image", "rm", name], check=True, capture_output=True)


def test_a_planted_secret_is_found(docker: str, planted: str) -> None:
    needles = leaks.of_machine({"PIP_INDEX_URL": ADDRESS, "SITE_PASSWORD": "b&proxy-pass-7f"})
    found = leaks.in_images(docker, [planted], needles)
    assert len([one for one in found if one.endswith("/etc/pip.conf: PIP_INDEX_URL")]) == 1
    assert any(one.endswith(": SITE_PASSWORD") for one in found)
    assert any(one.endswith(": a token hf_...") for one in found)
    assert not [one for one in found if "s3cret" in one or TOKEN in one or "proxy-pass" in one]  # only said, not shown


def test_what_everybodys_machine_has_is_no_leak() -> None:
    environ = {"PIP_INDEX_URL": "https://pypi.org/simple", "HTTP_PROXY": "http://127.0.0.1:3128", "X_TOKEN": "short"}
    assert leaks.of_machine(environ) == {}
    assert leaks.of_machine({"https_proxy": "http://u%40site:pass%21word@proxy.example.com:3128"}).keys() == {
        *(b"proxy.example.com", b"u%40site", b"u@site", b"pass%21word", b"pass!word")
    }


def test_a_secret_on_the_border_of_two_reads_is_found() -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        about = tarfile.TarInfo("data")
        data = b"-" * ((4 << 20) - 5) + b"s3cret-of-9f" + b"-" * 100
        about.size = len(data)
        tar.addfile(about, io.BytesIO(data))
    content.seek(0)
    assert list(leaks.in_layer("layer", content, {b"s3cret-of-9f": "NAME"})) == ["layer: /data: NAME"]
