"""Writing a file: whole, where a link leads, and never in place of what is no file."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from primus.command import write_bytes
from primus.errors import LaunchError


def test_a_link_stays_and_what_it_leads_to_is_written() -> None:
    Path("real").write_bytes(b"old")
    Path("link").symlink_to("real")
    write_bytes(Path("link"), b"new")
    assert Path("link").is_symlink()
    assert Path("real").read_bytes() == b"new"


def test_a_link_to_nothing_makes_what_it_leads_to() -> None:
    Path("link").symlink_to("later")
    write_bytes(Path("link"), b"new")
    assert Path("link").is_symlink()
    assert Path("later").read_bytes() == b"new"


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_bytes(tmp_path / "link", b"new")
    reader.join(10)
    assert got == [b"new"]
    assert pipe.is_fifo()


def test_links_in_a_circle_and_directories_are_an_error() -> None:
    Path("a").symlink_to("b")
    Path("b").symlink_to("a")
    Path("folder").mkdir()
    for name in ("a", "folder"):
        with pytest.raises(LaunchError, match=f"cannot write {name}: "):
            write_bytes(Path(name), b"new")
