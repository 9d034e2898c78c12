"""What of Megatron's data is made without Megatron: the documents in files, and where the result goes."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from primus.backends.megatron.sources import document, lines, published
from primus.errors import ConfigError

DOCUMENTS = ["Anton had a map.", "  Paul, \u00e9t\u00e9 "]


def texts(*paths: Path) -> list[str]:
    return [document(line, "body") for line in lines([str(path) for path in paths])]


def test_every_kind_of_source() -> None:
    rows = "".join(json.dumps({"id": 1, "body": text}) + "\r\n\r\n" for text in DOCUMENTS)
    Path("a.jsonl").write_text(rows, encoding="utf-8-sig", newline="")
    Path("b.json.gz").write_bytes(gzip.compress(rows.encode()))
    Path("c.txt").write_text("\n".join(DOCUMENTS), encoding="utf-8")
    paths = [Path("a.jsonl"), Path("b.json.gz"), Path("c.txt")]
    assert texts(*paths) == 3 * DOCUMENTS
    *_, last = lines([str(path) for path in paths])
    assert last.reached == sum(path.stat().st_size for path in paths)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"body": "a"}\n{"body": "b\n', "a.jsonl:2: is not JSON"),
        ('{"body": "a"}\n["b"]\n', "a.jsonl:2: is no JSON object"),
        ('{"body": "a"}\n\n{"txt": "b"}\n', "a.jsonl:3: has no key 'body'\nhint: it has 'txt'"),
        ('{"body": 1}\n', "a.jsonl:1: 'body' is no text"),
        (b'{"body": "\xff"}\n', "a.jsonl:1: is not UTF-8"),
    ],
    ids=["json", "list", "key", "number", "encoding"],
)
def test_a_bad_line_is_named(text: str | bytes, said: str) -> None:
    Path("a.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as error:
        texts(Path("a.jsonl"))
    assert said in str(error.value)


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(b"text\n" * 9)[:-9]], ids=["other", "cut off"])
def test_a_bad_archive_is_named(content: bytes) -> None:
    Path("a.txt.gz").write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.txt\.gz: is no whole gzip file"):
        texts(Path("a.txt.gz"))


def write(prefix: Path, text: str) -> None:
    for suffix in (".bin", ".idx"):
        Path(f"{prefix}{suffix}").write_text(text)


def found() -> dict[str, str]:
    return {path.name: path.read_text() for path in Path("out").iterdir() if path.is_file()}


def test_the_result_appears_in_the_end() -> None:
    with published(Path("out/x"), overwrite=False) as new:
        write(new, "1")
        assert found() == {}
        with (
            pytest.raises(ConfigError, match="is being written by another process"),
            published(Path("out/x"), overwrite=False),
        ):
            pass
    assert found() == {"x.bin": "1", "x.idx": "1"}
    with (
        pytest.raises(ConfigError, match=r"x\.bin: has appeared meanwhile"),
        published(Path("out/x"), overwrite=False) as new,
    ):
        write(new, "2")
    assert found() == {"x.bin": "1", "x.idx": "1"}
    with published(Path("out/x"), overwrite=True) as new:
        write(new, "3")
    assert found() == {"x.bin": "3", "x.idx": "3"}
    with pytest.raises(OSError, match="No such file"), published(Path("out/x"), overwrite=True) as new:
        write(new / "nowhere", "4")
    assert found() == {"x.bin": "3", "x.idx": "3"}
    assert [path.name for path in Path("out").iterdir() if path.is_dir()] == []


def test_what_a_killed_one_left_disturbs_nobody() -> None:
    code = """
import os, signal
from pathlib import Path
from primus.backends.megatron.sources import published
with published(Path("out/x"), overwrite=False) as new:
    Path(f"{new}.bin").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(root)}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert found() == {}
    with published(Path("out/x"), overwrite=False) as new:
        write(new, "1")
    assert found() == {"x.bin": "1", "x.idx": "1"}
    assert [path.name for path in Path("out").iterdir() if path.is_dir()] == []
