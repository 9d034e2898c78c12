"""`docker buildx bake validate`, with a source tree of our own: what fits, what does not, and what upstream took."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

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
    checkout = tmp_path / "checkout"
    for name in ("base", "images"):
        shutil.copytree(root / name, checkout / name)
    for name in ("docker-bake.hcl", ".dockerignore"):
        shutil.copy(root / name, checkout / name)
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


@pytest.mark.parametrize("backend", ["maxdiffusion", "specforge"])
def test_the_sources_of_backends_are_checked_by_their_commit(
    backend: str, checkout: Path, root: Path, settings: Mapping[str, str]
) -> None:
    """Their own Dockerfiles, as far as it goes without their sources: to a repository that is not theirs."""
    upstream = checkout.parent / "upstream"
    done = subprocess.run(
        [
            *("docker", "buildx", "bake", "--progress=plain", f"validate-{backend}"),
            f"--set=*.contexts.{backend}-source={upstream}",
        ],
        cwd=root,
        env={**settings, "ACCELERATOR": "rocm"},  # with it, every backend that has a source
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert re.search("error: /source: has no commit [0-9a-f]{40}", done.stderr), done.stderr
