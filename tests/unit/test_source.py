"""images/source.py: only the pinned tree is laid out, and a patch that does not fit says where and why."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "images/source.py"
LINES = "".join(f"line {number}\n" for number in range(60))
BASE = {"pkg/a.py": LINES, "pkg/b.py": "one\ntwo\nthree\n", "old.py": "old\n", "dos.txt": "a\r\nb\r\n"}
CHANGED = {
    "pkg/a.py": LINES.replace("line 5\n", "line five\n").replace("line 50\n", "line fifty\n"),
    "pkg/b.py": "one\n2\nthree\n",
    "old.py": None,
    "new.py": "new\n",
    "dos.txt": "a\r\nc\r\n",
}
ENV = {
    **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
    **{f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    "GIT_CONFIG_GLOBAL": os.devnull,
}


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=folder, env=ENV, check=True, capture_output=True, text=True
    ).stdout.strip()


def write(folder: Path, files: Mapping[str, str | None]) -> Path:
    """The folder with these files; None removes one."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(text.encode())
    return folder


def run(tmp_path: Path, source: Path, **options: object) -> subprocess.CompletedProcess[str]:
    words = [f"--{name}={value}" for name, value in options.items()]
    return subprocess.run(
        [sys.executable, SCRIPT, f"--source={source}", f"--output={tmp_path / 'out'}", *words],
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_bytes().decode()
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A repository of one commit."""
    repository = tmp_path / "upstream"
    repository.mkdir()
    git(repository, "init", "--quiet")
    git(repository, "config", "core.autocrlf", "false")
    write(repository, BASE)
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message=First")
    return repository


@pytest.fixture
def patches(tmp_path: Path, upstream: Path) -> Path:
    """One patch to all of BASE's files."""
    copy = tmp_path / "copy"
    shutil.copytree(upstream, copy)
    write(copy, CHANGED)
    git(copy, "add", "--all")
    git(copy, "commit", "--quiet", "--message=Change everything\n\nUpstream-Status: not submitted")
    git(copy, "format-patch", "--quiet", "-1", f"--output-directory={tmp_path / 'patches'}")
    return tmp_path / "patches"


def pinned(upstream: Path) -> dict[str, str]:
    return {"commit": git(upstream, "rev-parse", "HEAD"), "tree": git(upstream, "rev-parse", "HEAD^{tree}")}


def test_patches_are_applied_and_named(tmp_path: Path, upstream: Path, patches: Path) -> None:
    done = run(tmp_path, upstream, **pinned(upstream), patches=patches)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "applied 0001-Change-everything.patch: Change everything\n"
    expected = {name: text for name, text in {**BASE, **CHANGED}.items() if text is not None}
    assert contents(tmp_path / "out") == expected
    assert not (tmp_path / "out/.git").exists()


@pytest.mark.parametrize("form", ["bare", "work tree", "plain", "changed work tree"])
def test_the_commit_is_laid_out_from(tmp_path: Path, upstream: Path, form: str) -> None:
    pin = pinned(upstream)
    source = upstream
    if form == "bare":
        source = tmp_path / "bare"
        git(tmp_path, "clone", "--quiet", "--bare", "--no-local", str(upstream), str(source))
    elif form == "plain":
        shutil.rmtree(upstream / ".git")
    elif form == "changed work tree":  # the commit counts, not what lies beside it
        write(upstream, {"pkg/a.py": "other", "extra": "x"})
    done = run(tmp_path, source, **pin)
    assert (done.returncode, done.stderr) == (0, "")
    assert contents(tmp_path / "out") == BASE


def test_attributes_and_settings_of_git_do_not_change_bytes(tmp_path: Path, upstream: Path) -> None:
    write(upstream, {".gitattributes": "* text=auto eol=crlf ident\n", "ident.py": "$Id$\n"})
    git(upstream, "-c", "core.autocrlf=false", "add", "--all")
    git(upstream, "commit", "--quiet", "--message=Attributes")
    (upstream / "link").symlink_to("ident.py")
    (upstream / "tool").write_text("#!/bin/sh\n")
    (upstream / "tool").chmod(0o755)
    git(upstream, "add", "--all")
    git(upstream, "commit", "--quiet", "--message=Modes")
    pin = pinned(upstream)
    plain = tmp_path / "plain"
    assert run(tmp_path, upstream, **pin).returncode == 0
    assert (tmp_path / "out/ident.py").read_bytes() == b"$Id$\n"
    shutil.move(tmp_path / "out", plain)
    done = run(tmp_path, plain, **pin)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out/link").readlink() == Path("ident.py")
    assert os.access(tmp_path / "out/tool", os.X_OK)


@pytest.mark.parametrize(
    "change", [{"pkg/a.py": "other\n"}, {"extra.py": "x\n"}, {"old.py": None}], ids=["changed", "added", "removed"]
)
def test_another_tree_is_refused(tmp_path: Path, upstream: Path, change: Mapping[str, str | None]) -> None:
    pin = pinned(upstream)
    shutil.rmtree(upstream / ".git")
    done = run(tmp_path, write(upstream, change), **pin)
    assert done.returncode == 1
    assert f"is not commit {pin['commit']}: its files hash to git tree" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_commit_that_moved_away_is_named(tmp_path: Path, upstream: Path) -> None:
    done = run(tmp_path, upstream, commit="1" * 40, tree="2" * 40)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {upstream}: has no commit {'1' * 40}\nhint: git -C {upstream} fetch origin {'1' * 40}\n"
    )


def test_a_tree_of_another_commit_is_refused(tmp_path: Path, upstream: Path) -> None:
    done = run(tmp_path, upstream, commit=pinned(upstream)["commit"], tree="2" * 40)
    assert done.returncode == 1
    assert "hash to git tree" in done.stderr


@pytest.mark.parametrize("there", [True, False])
def test_an_empty_source_says_why_it_may_be(tmp_path: Path, there: bool) -> None:
    source = tmp_path / "source"
    if there:
        source.mkdir()
    done = run(tmp_path, source, commit="1" * 40, tree="2" * 40)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {source}: {'is empty' if there else 'no such directory'}\n")
    assert "git submodule update --init" in done.stderr


NAME = "0001-Change-everything.patch"


@pytest.mark.parametrize(
    ("files", "verdict"),
    [
        ({"pkg/a.py": LINES.replace("line 51", "LINE 51")}, ["pkg/a.py, hunk 2: does not fit"]),
        ({"pkg/a.py": LINES.replace("line 6", "six")}, ["pkg/a.py, hunk 1: does not fit"]),
        (
            {"pkg/a.py": LINES.replace("line 5\n", "line five\n").replace("line 50\n", "fifty\n")},
            ["pkg/a.py, hunk 1: is there already", "pkg/a.py, hunk 2: does not fit"],
        ),
        ({"pkg/b.py": "one\n2\nthree\n"}, ["pkg/b.py, hunk 1: is there already"]),
        ({"pkg/b.py": None}, ["pkg/b.py, the whole file: does not fit"]),
        ({"new.py": "new\n"}, ["new.py, the whole file: is there already"]),
        ({"new.py": "other\n"}, ["new.py, the whole file: does not fit"]),
        ({"old.py": "changed\n"}, ["old.py, the whole file: does not fit"]),
        ({"old.py": None}, ["old.py, the whole file: is there already"]),
        ({"dos.txt": "a\nb\n"}, ["dos.txt, hunk 1: does not fit"]),
    ],
)
def test_a_patch_that_does_not_fit_says_where(
    tmp_path: Path, upstream: Path, patches: Path, files: Mapping[str, str | None], verdict: list[str]
) -> None:
    shutil.rmtree(upstream / ".git")
    done = run(tmp_path, write(upstream, files), patches=patches)
    assert (done.returncode, done.stdout) == (1, "")
    lines = [f"error: {NAME}: does not apply", *(f"  {line}" for line in verdict)]
    assert done.stderr.splitlines() == [*lines, "hint: write it anew against this source"]
    assert not (tmp_path / "out").exists()


def test_a_patch_that_upstream_took_says_so(tmp_path: Path, upstream: Path, patches: Path) -> None:
    shutil.rmtree(upstream / ".git")
    write(upstream, {**CHANGED, "pkg/a.py": f"# a line more\n{CHANGED['pkg/a.py']}"})
    done = run(tmp_path, upstream, patches=patches)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {NAME}: the source has this change already: upstream took it\nhint: remove the patch\n"
    )


def test_the_patch_that_fails_is_named_and_those_before_it_are_told(
    tmp_path: Path, upstream: Path, patches: Path
) -> None:
    shutil.copy(patches / NAME, patches / "0002-again.patch")
    done = run(tmp_path, upstream, **pinned(upstream), patches=patches)
    assert done.returncode == 1
    assert done.stdout.startswith(f"applied {NAME}")
    assert "error: 0002-again.patch: the source has this change already" in done.stderr


@pytest.mark.parametrize("text", ["", "not a patch\n", "diff --git a/x b/x\n@@ -1,1 +1,1 @@\n"])
def test_what_is_no_patch_is_an_error(tmp_path: Path, upstream: Path, text: str) -> None:
    write(tmp_path / "patches", {"0001-x.patch": text})
    done = run(tmp_path, upstream, **pinned(upstream), patches=tmp_path / "patches")
    assert done.returncode == 1
    assert done.stderr.startswith("error: 0001-x.patch: ")
    assert len(done.stderr) > len("error: 0001-x.patch: \n")


@pytest.mark.parametrize("name", ["0001-x.diff", "x.patch", "README.md"])
def test_a_file_that_would_be_left_out_is_an_error(tmp_path: Path, upstream: Path, patches: Path, name: str) -> None:
    shutil.copy(patches / NAME, patches / name)
    done = run(tmp_path, upstream, **pinned(upstream), patches=patches)
    assert done.returncode == 1
    assert f"{name}: is not named NNNN-what.patch" in done.stderr


@pytest.fixture
def nested(tmp_path: Path, upstream: Path) -> Path:
    """A checkout of a repository with a submodule, which has one too, and files that git ignores."""
    folders = [upstream]
    for name in ("middle", "outer"):
        folder = tmp_path / name
        folder.mkdir()
        git(folder, "init", "--quiet")
        write(folder, {"own.txt": name, ".gitignore": "build/\n"})
        git(folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(folders[-1]), "third/inner")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", f"--message={name}")
        folders.append(folder)
    checkout = tmp_path / "checkout"
    git(tmp_path, "-c", "protocol.file.allow=always", "clone", "--quiet", "--recurse-submodules", "outer", "checkout")
    return checkout


def at(checkout: Path) -> tuple[str, str]:
    return (f"--commit={git(checkout, 'rev-parse', 'HEAD')}", "--checkout")


def check(tmp_path: Path, source: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, f"--source={source}", f"--output={tmp_path / 'out'}", *words],
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_checkout_with_its_submodules_is_what_the_commit_says(tmp_path: Path, nested: Path) -> None:
    done = check(tmp_path, nested, *at(nested))
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out/own.txt").read_text() == "outer"
    assert not any((tmp_path / "out/third/inner").iterdir())  # what is patched is the repository itself


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"own.txt": "x"}, "checkout: differs from .*: own.txt"),
        ({"more.txt": "x"}, "checkout: differs from .*: more.txt"),
        ({"build/old.o": "x"}, "checkout: differs from .*: build/"),
        ({"third/inner/third/inner/old.py": "x"}, "checkout/third/inner/third/inner: differs from .*: old.py"),
        ({"third/inner/own.txt": None}, "checkout/third/inner: differs from .*: own.txt"),
    ],
    ids=["changed", "added", "left by a build", "changed in a submodule", "removed in a submodule"],
)
def test_a_checkout_that_was_touched_is_refused(
    tmp_path: Path, nested: Path, change: Mapping[str, str | None], says: str
) -> None:
    commit = at(nested)
    done = check(tmp_path, write(nested, change), *commit)
    assert done.returncode == 1
    assert re.search(says, done.stderr), done.stderr


def test_a_submodule_of_another_commit_is_refused(tmp_path: Path, nested: Path) -> None:
    inner = nested / "third/inner/third/inner"
    pinned = git(inner, "rev-parse", "HEAD")
    git(inner, "commit", "--quiet", "--allow-empty", "--message=Another")
    done = check(tmp_path, nested, *at(nested))
    assert done.returncode == 1
    assert f"third/inner/third/inner: is at {git(inner, 'rev-parse', 'HEAD')}, not {pinned}\nhint: there" in done.stderr


def test_a_submodule_that_is_missing_is_named(tmp_path: Path, nested: Path) -> None:
    git(nested, "submodule", "--quiet", "deinit", "--force", "third/inner")
    done = check(tmp_path, nested, *at(nested))
    assert done.returncode == 1
    assert "third/inner: is a submodule that was not initialised\nhint: there, git checkout" in done.stderr


@pytest.mark.parametrize(
    ("how", "hint"),
    [
        ("--checkout", "name a checkout, which git clone --recurse-submodules makes"),
        ("--tree=", "name a git directory"),
    ],
)
def test_without_git_nothing_says_which_commit_it_is(tmp_path: Path, upstream: Path, how: str, hint: str) -> None:
    commit = git(upstream, "rev-parse", "HEAD")
    shutil.rmtree(upstream / ".git")
    done = check(tmp_path, upstream, f"--commit={commit}", how)
    assert done.returncode == 1
    assert done.stderr == f"error: {upstream}: has no .git, so that nothing says which commit it is\nhint: {hint}\n"
