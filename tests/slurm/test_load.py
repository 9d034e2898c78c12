"""A bundle, loaded on each node of a job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from primus.image import lock
from primus.image.engine import Client
from primus.image.lock import Locked
from tests.conftest import ROOT
from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.timeout(120)


def primus(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PRIMUS_ACCELERATOR": "cpu"}
    argv = (sys.executable, "-m", "primus", "image", *words)
    return subprocess.run(argv, env=environ, cwd=cwd, capture_output=True, text=True, check=False)


def test_each_node_says_what_became_of_it(cluster: Cluster, docker: str, tmp_path: Path) -> None:
    assert cluster.nodes >= 2
    name = "primus-load-test"
    label = "--change=LABEL io.primus.framework=torchtitan io.primus.accelerator=cpu"
    (tmp_path / "file").write_text("x", encoding="ascii")
    archive = subprocess.run(("tar", "-C", str(tmp_path), "-c", "file"), capture_output=True, check=True).stdout
    subprocess.run((docker, "import", label, "-", f"{name}:1-cpu"), input=archive, capture_output=True, check=True)
    about = Client(docker).about(f"{name}:1-cpu")
    assert about is not None
    locked = Locked(name=name, tag="1-cpu", id=about["Id"])
    (tmp_path / lock.NAME).write_text(lock.text({("torchtitan", "cpu"): locked}), encoding="ascii")
    wheels = tmp_path / "made"
    wheels.mkdir()
    (wheels / "primus-0-py3-none-any.whl").write_bytes(b"x")
    made = primus("bundle", "--out=b.tar", "--framework=torchtitan", "--wheels=made", "--no-documents", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    subprocess.run((docker, "rmi", f"{name}:1-cpu"), capture_output=True, check=True)

    words = ("load", "b.tar", "--launcher=slurm", "--nodes=2")
    try:
        done = primus(*words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, f"{name}:1-cpu\n"), done.stderr
        nodes = [line for line in done.stderr.splitlines() if line.endswith(": loaded")]
        assert len(nodes) == len(set(nodes)) == 2
        loaded = Client(docker).about(f"{name}:1-cpu")
        assert loaded is not None
        assert loaded["Id"] == locked.id
        assert (tmp_path / "b" / "README.md").exists()
    finally:
        subprocess.run((docker, "rmi", f"{name}:1-cpu"), capture_output=True, check=False)

    # One byte of it: no node takes it, and each is named.
    with (tmp_path / "b.tar").open("r+b") as file:
        file.seek(-2000, os.SEEK_END)
        byte = file.read(1)
        file.seek(-2000, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))
    done = primus(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    assert "b.tar is loaded on 0 of 2 nodes" in done.stderr
    assert Client(docker).about(f"{name}:1-cpu") is None
