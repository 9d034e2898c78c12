"""What a record keeps of a checkout that was mounted over the image."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from primus.record import _changes, git_state

from .conftest import Write


@pytest.fixture
def checkout(write: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a commit, a change, a new file, one without an end of line, one ignored and one outside."""
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    for name, text in {"primus/a.py": "one\n", "primus/sub/b.py": "b\n", ".gitignore": "*.pyc\n"}.items():
        write(f"repo/{name}", text)
    repo = Path("repo").absolute()
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=repo, check=True)
    write("repo/primus/a.py", "two\n")
    write("repo/primus/sub/new.py", "new\nlines")
    write("repo/primus/empty.py", "")
    write("repo/primus/x.pyc", "no")
    write("repo/other.txt", "outside")
    return repo


def test_a_change_and_a_new_file_are_kept(checkout: Path) -> None:
    state = git_state(checkout / "primus")
    assert state is not None
    assert (state["changed"], sorted(state["new"])) == (["primus/a.py"], ["primus/empty.py", "primus/sub/new.py"])
    text = _changes(checkout / "primus")
    assert "outside" not in text
    subprocess.run(["git", "stash", "-q", "-u"], cwd=checkout, check=True)
    done = subprocess.run(["git", "apply", "-"], cwd=checkout, input=text, text=True, check=False)
    assert done.returncode == 0
    assert (checkout / "primus/a.py").read_text(encoding="utf-8") == "two\n"
    assert (checkout / "primus/sub/new.py").read_text(encoding="utf-8") == "new\nlines"
    assert (checkout / "primus/empty.py").read_text(encoding="utf-8") == ""


def test_a_clean_checkout_has_no_changes(checkout: Path) -> None:
    subprocess.run(["git", "stash", "-q", "-u"], cwd=checkout, check=True)
    assert _changes(checkout / "primus") == ""
