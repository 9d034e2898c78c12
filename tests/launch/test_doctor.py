"""primus doctor with a real engine, and inside an image."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tests.launch.support import ROOT, primus

pytestmark = pytest.mark.timeout(120)


def test_this_machine(image: Callable[[str], str]) -> None:
    name = image("torchtitan")
    words = ("doctor", "--engine=docker", "--accelerator=cpu", "--framework=torchtitan", "--output=json")
    found = {row["check"]: row for row in json.loads(primus(*words).output)["rows"]}
    assert found["engine"]["state"] == "ok"
    assert "docker " in found["engine"]["found"]
    assert found["image"]["found"].startswith(f"{name}, ")
    assert " free of " in found["disk"]["found"]


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (["--ipc=host"], {}),
        ([], {"shm": "fail"}),
        (["--ipc=host", "--ulimit=nofile=512"], {"nofile": "warn"}),
        (["--ipc=host", "--network=none", "--user=1234:1234"], {}),
    ],
    ids=["as primus run does", "its own 64 MiB", "few files", "nobody, and no network"],
)
def test_inside_an_image(image: Callable[[str], str], docker: str, options: list[str], wrong: dict[str, str]) -> None:
    mount = f"--volume={ROOT}/primus:/opt/primus/primus:ro"
    words = [docker, "run", "--rm", mount, *options, image("torchtitan"), "primus", "doctor", "--output=json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found = {row["check"]: row["state"] for row in json.loads(done.stdout)["rows"] if row["state"] != "ok"}
    found.pop("clock", None)  # the host's
    assert found == wrong
    assert done.returncode == ("fail" in found.values())
