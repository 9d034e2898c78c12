"""`docker buildx bake validate`, with a source tree of our own: what fits, what does not, and what upstream took."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.image.conftest import copy_checkout

pytestmark = pytest.mark.timeout(300)

DOCKERFILE = """\
FROM scratch AS toy-source
FROM base-source AS validate
ARG COMMIT
ARG TREE
RUN --mount=type=bind,from=toy-source,target=/source \\
    --mount=type=bind,source=images/source.py,target=/build/source.py \\
    --mount=type=bind,source=images/toy/patches/toy,target=/build/patches \\
    python3 /build/source.py --source=/source --commit=$COMMIT --tree=$TREE --patches=/build/patches --output=/opt/toy
"""
LINES = [f"line {number}\n" for number in range(40)]
ENV = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=folder, env={**os.environ, **ENV}, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, root: Path, settings: Mapping[str, str]) -> Path:
    """A checkout with one backend, `toy`, whose one patch changes a line near the end of its source."""
    upstream = tmp_path / "upstream"
    upstream.mkdir()
    git(upstream, "init", "--quiet")
    (upstream / "a.txt").write_text("".join(LINES))
    git(upstream, "add", ".")
    git(upstream, "commit", "--quiet", "--message=First")
    commit, tree = git(upstream, "rev-parse", "HEAD"), git(upstream, "rev-parse", "HEAD^{tree}")
    checkout = copy_checkout(tmp_path / "checkout")
    folder = checkout / "images/toy"
    (folder / "patches/toy").mkdir(parents=True)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (checkout / "docker-bake.override.hcl").write_text(
        'variable "KERNELS" { default = {} }\nvariable "SOURCES" { default = { toy = '
        f'{{ repository = "{upstream}", commit = "{commit}", tree = "{tree}" }} }} }}\n'
    )
    change(upstream, "line 30\n", "line thirty\n")
    git(upstream, "format-patch", "--quiet", "-1", f"--output-directory={folder / 'patches/toy'}")
    git(upstream, "reset", "--quiet", "--hard", commit)
    return checkout


def change(upstream: Path, old: str, new: str) -> str:
    """Commit a change of upstream's; the commit."""
    (upstream / "a.txt").write_text((upstream / "a.txt").read_text().replace(old, new))
    git(upstream, "commit", "--quiet", "--all", "--message=Change a line")
    return git(upstream, "rev-parse", "HEAD")


def validate(checkout: Path) -> subprocess.CompletedProcess[str]:
    source = f"--set=*.contexts.toy-source={checkout.parent / 'upstream'}"
    return subprocess.run(
        ["docker", "buildx", "bake", "--progress=plain", "validate", source],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )


def pin(checkout: Path, commit: str, tree: str) -> None:
    file = checkout / "docker-bake.override.hcl"
    upstream = checkout.parent / "upstream"
    old = git(upstream, "rev-list", "--max-parents=0", "HEAD")
    text = file.read_text().replace(old, commit).replace(git(upstream, "rev-parse", f"{old}^{{tree}}"), tree)
    file.write_text(text)


def bump(checkout: Path, old: str, new: str) -> None:
    """Move the pin to a commit of upstream's that makes this change."""
    upstream = checkout.parent / "upstream"
    commit = change(upstream, old, new)
    pin(checkout, commit, git(upstream, "rev-parse", f"{commit}^{{tree}}"))


def test_a_patch_that_fits(checkout: Path) -> None:
    done = validate(checkout)
    assert done.returncode == 0, done.stderr
    assert "applied 0001-Change-a-line.patch: Change a line" in done.stderr


def test_a_patch_is_part_of_what_is_cached(checkout: Path) -> None:
    assert validate(checkout).returncode == 0
    patch = checkout / "images/toy/patches/toy/0001-Change-a-line.patch"
    patch.write_text(patch.read_text().replace("+line thirty", "+line THIRTY").replace("Change a line", "Shout"))
    done = validate(checkout)
    assert done.returncode == 0, done.stderr
    assert "applied 0001-Change-a-line.patch: Shout" in done.stderr


def test_after_a_bump_a_patch_that_no_longer_fits(checkout: Path) -> None:
    bump(checkout, "line 31\n", "another line\n")
    done = validate(checkout)
    assert done.returncode != 0
    assert "error: 0001-Change-a-line.patch: does not apply" in done.stderr
    assert "a.txt, hunk 1: does not fit" in done.stderr


def test_after_a_bump_a_patch_that_upstream_took(checkout: Path) -> None:
    bump(checkout, "line 30\n", "line thirty\n")
    done = validate(checkout)
    assert done.returncode != 0
    assert "error: 0001-Change-a-line.patch: the source has this change already" in done.stderr


def test_a_source_of_another_commit(checkout: Path) -> None:
    pin(checkout, "1" * 40, "2" * 40)
    done = validate(checkout)
    assert done.returncode != 0
    assert f"has no commit {'1' * 40}" in done.stderr


@pytest.mark.parametrize(
    ("target", "context", "says"),
    [
        ("maxdiffusion", "maxdiffusion", "has no commit [0-9a-f]{40}"),
        ("specforge", "specforge", "has no commit [0-9a-f]{40}"),
        ("megatron", "*", "is at [0-9a-f]{40}, not [0-9a-f]{40}"),
        ("jax", "transformer-engine-jax", "is at [0-9a-f]{40}, not [0-9a-f]{40}"),
    ],
)
def test_sources_are_checked_by_their_commit(
    target: str, context: str, says: str, checkout: Path, root: Path, settings: Mapping[str, str]
) -> None:
    """Their own Dockerfiles, as far as it goes without their sources: to a repository that is not theirs."""
    upstream = checkout.parent / "upstream"
    contexts = ["transformer-engine", "primus-turbo"] if context == "*" else [context]
    done = subprocess.run(
        [
            *("docker", "buildx", "bake", "--progress=plain", f"validate-{target}"),
            *(f"--set=*.contexts.{name}-source={upstream}" for name in contexts),
        ],
        cwd=root,
        env={**settings, "ACCELERATOR": "rocm"},  # with it, every backend that has a source
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert re.search(f"error: /source: {says}", done.stderr), done.stderr


KERNELS = """\
variable "SOURCES" {{ default = {{}} }}
variable "KERNELS" {{ default = {{ jax = {{ transformer-engine-jax = {{ repository = "x", commit = "{}" }} }} }} }}
"""


def compiled(checkout: Path, settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """validate, when what JAX's images compile is `upstream` at its newest commit, with our one patch to it."""
    upstream = checkout.parent / "upstream"
    head = git(upstream, "rev-parse", "HEAD")
    (checkout / "docker-bake.override.hcl").write_text(KERNELS.format(head))
    patches = checkout / "base/patches/transformer_engine"
    if (checkout / "images/toy").exists():
        shutil.rmtree(patches)
        shutil.move(checkout / "images/toy/patches/toy", patches)
        shutil.rmtree(checkout / "images/toy")
    return subprocess.run(
        [
            *("docker", "buildx", "bake", "--progress=plain", "validate"),
            f"--set=*.contexts.transformer-engine-jax-source={upstream}",
        ],
        cwd=checkout,
        env={**settings, "ACCELERATOR": "rocm"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_compiled_is_patched_too(checkout: Path, settings: Mapping[str, str]) -> None:
    upstream = checkout.parent / "upstream"
    done = compiled(checkout, settings)
    assert done.returncode == 0, done.stderr
    assert "applied 0001-Change-a-line.patch: Change a line" in done.stderr
    change(upstream, "line 31\n", "another line\n")
    assert "a.txt, hunk 1: does not fit" in compiled(checkout, settings).stderr
    git(upstream, "reset", "--quiet", "--hard", "HEAD~")
    change(upstream, "line 30\n", "line thirty\n")
    assert "0001-Change-a-line.patch: the source has this change already" in compiled(checkout, settings).stderr
    (upstream / "left.o").touch()
    assert "differs from" in compiled(checkout, settings).stderr


def wheel(folder: Path, line: str) -> str:
    """A wheel of `transformers` with one module; its line in a lock."""
    module = "transformers/models/t5/modeling_flax_t5.py"
    about = "transformers-1.dist-info"
    folder.mkdir(exist_ok=True)
    path = folder / "transformers-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(module, "".join(LINES).replace("line 30\n", line))
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: transformers\nVersion: 1\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", f"{module},,\n")
    return f"transformers==1 \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\nz==1\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("line 30\n", "applied 0001-Change-a-line.patch: Change a line"),
        ("another line\n", "modeling_flax_t5.py, hunk 1: does not fit"),
        ("line thirty\n", "0001-Change-a-line.patch: the source has this change already: upstream took it"),
    ],
    ids=["fits", "no longer fits", "was taken"],
)
def test_a_patch_of_a_wheel_is_tried_on_the_wheel_of_the_lock(
    line: str, says: str, checkout: Path, settings: Mapping[str, str]
) -> None:
    """MaxDiffusion's own Dockerfile, with a source and a wheel of ours."""
    upstream, image = checkout.parent / "upstream", checkout / "images/maxdiffusion"
    override = (checkout / "docker-bake.override.hcl").read_text()
    (checkout / "docker-bake.override.hcl").write_text(override.replace("toy = ", "maxdiffusion = "))
    shutil.rmtree(image / "patches")
    shutil.move(checkout / "images/toy/patches", image / "patches")
    shutil.rmtree(checkout / "images/toy")
    shutil.move(image / "patches/toy", image / "patches/maxdiffusion")
    (image / "patches/transformers").mkdir()
    patch = (image / "patches/maxdiffusion/0001-Change-a-line.patch").read_text()
    patch = patch.replace("a.txt", "transformers/models/t5/modeling_flax_t5.py")
    (image / "patches/transformers/0001-Change-a-line.patch").write_text(patch)
    (image / "requirements.cpu.txt").write_text(wheel(checkout.parent / "wheels", line))
    done = subprocess.run(
        [
            *("docker", "buildx", "bake", "--progress=plain", "validate"),
            f"--set=*.contexts.maxdiffusion-source={upstream}",
        ],
        cwd=checkout,
        env={**settings, "BUILD_WHEELS": str(checkout.parent / "wheels")},
        capture_output=True,
        text=True,
        check=False,
    )
    fits = says.startswith("applied")
    assert (done.returncode == 0) == fits, done.stderr
    assert done.stderr.count(says) >= (2 if fits else 1), done.stderr
