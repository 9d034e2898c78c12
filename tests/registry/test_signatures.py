"""Signatures beside published images: made, found, required; and read by a tool that is not ours."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest

from primus.image.sign import tag
from tests.registry.conftest import Project
from tests.registry.server import Server
from tests.registry.test_publish import name

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def keys(project: Project) -> dict[str, Path]:
    """Two pairs of keys; the password is in the project's environment."""
    project.env["PRIMUS_SIGN_PASSWORD"] = "sesame"
    made = {}
    for one in ("ours", "others"):
        done = project.primus("image", "keygen", f"--out=../{one}")
        assert done.code == 0, done.err
        made[one] = project.path.with_name(f"{one}.pub")
        assert made[one].with_suffix(".key").stat().st_mode & 0o777 == 0o600
    return made


def holds(project: Project, digest: str, key: Path, into: Path) -> bool:
    """Whether openssl, by the key, finds the signature that lies where cosign's would."""
    source = f"docker://{project.registry}/primus-torchtitan:{tag(digest)}"
    words = ("skopeo", "copy", "--quiet", "--src-tls-verify=false", source, f"dir:{into}")
    subprocess.run(words, check=True, capture_output=True)
    (layer,) = json.loads((into / "manifest.json").read_text(encoding="utf-8"))["layers"]
    payload = into / layer["digest"].removeprefix("sha256:")
    assert json.loads(payload.read_text(encoding="utf-8"))["critical"]["image"] == {"docker-manifest-digest": digest}
    signature = into / "signature"
    signature.write_bytes(base64.b64decode(layer["annotations"]["dev.cosignproject.cosign/signature"]))
    check = ("openssl", "dgst", "-sha256", "-verify", str(key), "-signature", str(signature), str(payload))
    return subprocess.run(check, capture_output=True, check=False).returncode == 0


def test_what_is_published_with_a_key_is_signed(
    project: Project, registry: Server, keys: dict[str, Path], tmp_path: Path
) -> None:
    key = keys["ours"].with_suffix(".key")
    done = project.image("publish", "torchtitan", "--version=1.0", f"--sign-key={key}")
    assert done.code == 0, done.err
    digest = done.out.strip().partition("@")[2]
    assert tag(digest) in registry.tags(name(project))
    assert holds(project, digest, keys["ours"], tmp_path / "right")
    assert not holds(project, digest, keys["others"], tmp_path / "wrong")


def test_a_key_is_required(project: Project, registry: Server, keys: dict[str, Path]) -> None:
    project.publish("1.0")
    verify = f"--verify-key={keys['ours']}"
    words = ("pull", "torchtitan", "--version=1.0")
    for command in (words, ("lock", *words[1:])):
        done = project.image(*command, verify)
        assert done.code == 3
        assert "is not signed" in done.err
    assert not (project.path / "primus-images.lock.json").exists()

    other = keys["others"].with_suffix(".key")
    assert project.image("sign", "torchtitan", "--version=1.0", f"--key={other}").code == 0
    done = project.image(*words, verify)
    assert done.code == 3
    assert "not by the key" in done.err

    key = keys["ours"].with_suffix(".key")
    assert project.image("sign", "torchtitan", "--version=1.0", f"--key={key}").code == 0  # beside the other one
    done = project.image(*words, verify)
    assert done.code == 0, done.err

    # The lock keeps the signature, so that it is held against the key where no registry is.
    assert project.image("lock", "torchtitan", "--version=1.0", verify).code == 0
    registry.stop()
    (project.path / "x.yaml").write_text(EXPERIMENT, encoding="ascii")
    run = ("run", "--config=x.yaml", "--launcher=container", "--pull=never", "--dry-run")
    assert project.primus(*run, verify).code == 0
    done = project.primus(*run, f"--verify-key={keys['others']}")
    registry.start()
    assert done.code == 3
    assert "not by the key" in done.err


EXPERIMENT = """\
work_group: a
user_name: b
exp_name: x
workspace: ./output
accelerator: cpu
modules:
  pre_trainer:
    framework: torchtitan
    overrides: {training: {steps: 1}}
"""
