"""What a terminal shows of a run, and that nothing of it reaches a file."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from primus.cli.runs import _Steps
from primus.launchers.view import Json, Live, Plain, choose, clock, status
from primus.record import Record

from .conftest import Write

NUMBERS = {"loss": 6.16743, "tokens_per_second": 1234.5, "seconds": 0.61, "memory_gib": 0.65, "steps": 30}


@pytest.mark.parametrize(
    ("numbers", "times", "line"),
    [
        ({}, (), "[compiling 1:04]"),
        ({"steps": 30}, ((5.0, 1),), "[training | step 1 of 30]"),
        (
            NUMBERS,
            ((5.0, 1), (25.0, 11)),
            "[training | step 11 of 30 | loss 6.167 | 1,234 tokens/s | 0.61 s/step | 0.7 GiB | 0:38 left]",
        ),
        ({"loss": 2.0}, ((0.0, 10), (20.0, 20)), "[training | step 20 | loss 2 | 2 s/step]"),
        ({"loss": None}, ((0.0, 1),), "[training | step 1 | loss nan]"),
    ],
    ids=["no step", "one step", "all", "no total", "not a number"],
)
def test_the_line_says_what_is_known(
    numbers: dict[str, float | None], times: tuple[tuple[float, int], ...], line: str
) -> None:
    assert status("training" if times else "compiling", numbers, times, 64.2) == line


def test_clock() -> None:
    assert [clock(seconds) for seconds in (0.4, 61, 3723)] == ["0:00", "1:01", "1:02:03"]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The reading end of a terminal that standard output and error lead to."""
    reading, writing = os.openpty()
    written = Plain.output
    monkeypatch.setattr(os, "isatty", lambda _out: True)
    monkeypatch.setattr(Plain, "output", lambda self, _out, data: written(self, writing, data))
    yield reading
    os.close(reading)
    os.close(writing)


def drained(reading: int) -> bytes:
    data = b""
    while select.select([reading], [], [], 0.1)[0]:
        data += os.read(reading, 1 << 16)
    return data


def screen(reading: int) -> list[str]:
    """What the lines show in the end, of the last `\\r` on; and the escapes that only erase and colour."""
    text = drained(reading).decode().replace("\r\n", "\n")
    assert set(re.findall(r"\x1b\[[0-9;?]*[A-Za-z]", text)) <= {"\x1b[K", "\x1b[1m", "\x1b[0m"}
    return [re.sub(r"\x1b\[[01]m", "", line.rpartition("\r\x1b[K")[2]) for line in text.split("\n")]


def test_output_scrolls_above_the_line(terminal: int) -> None:
    with Live() as live:
        live.stage("training")
        live.output(1, b"one\n")
        live.step({"loss": 2.0, "steps": 3}, 1)
        live.output(2, b"two\nthr")
        live.output(1, b"ee\n")
        live.say("stopping")
        assert screen(terminal) == ["one", "two", "three", "primus: stopping", "[training | step 1 of 3 | loss 2]"]
    assert screen(terminal) == [""]


def test_the_end_is_said(terminal: int) -> None:
    with Live() as live:
        live.event("start", log="/run/node0.log")
        live.step({"loss": 2.0}, 7)
        live.output(2, b"Traceback, without an end")
        live.event("end", exit=1)
    said = "primus: ended with exit code 1 after 7 steps; what it printed is in /run/node0.log"
    assert screen(terminal) == ["Traceback, without an end", said, ""]


def test_half_a_line_is_not_written_over(terminal: int) -> None:
    with Live() as live:
        live.output(1, b"what the engine pulls: 50%\n")
        assert screen(terminal) == ["what the engine pulls: 50%", ""]
        live.output(1, b"progress 50%")
        live.stage("training")
        live.step({}, 1)
        assert screen(terminal) == ["progress 50%"]
        live.say("stopping")
    assert screen(terminal)[:2] == ["", "primus: stopping"]


def test_the_line_fits_the_terminal(terminal: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with Live(colour=False) as live:
        live.step(NUMBERS, 1)
        drained(terminal)
        monkeypatch.setattr(shutil, "get_terminal_size", lambda **_fallback: os.terminal_size((20, 5)))
        live.stage("training")
        assert screen(terminal) == ["[training | step 1 "]


@pytest.mark.parametrize(
    ("output", "tty", "environ", "kind"),
    [
        ("text", False, {"TERM": "xterm"}, Plain),
        ("text", True, {"TERM": "xterm"}, Live),
        ("text", True, {"TERM": "dumb"}, Plain),
        ("text", True, {}, Plain),
        ("json", True, {"TERM": "xterm"}, Json),
    ],
)
def test_who_sees_what(
    output: str, tty: bool, environ: dict[str, str], kind: type[Plain], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "isatty", lambda _out: tty)
    assert type(choose(output, environ)) is kind


def test_events_are_objects(capfd: pytest.CaptureFixture[str]) -> None:
    told = Json()
    told.event("start", image="an image")
    told.stage("training")
    told.output(1, b"what the training prints\n")
    told.step({"step": 3, "loss": None}, 4)
    told.event("end", exit=0)
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["start", "stage", "step", "end"]
    assert events[2] | {"time": ""} == {"event": "step", "time": "", "step": 3, "loss": None}


def test_nobody_reads_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(os, "write", broken)
    Json().event("end", exit=0)


def test_whoever_follows_a_log_sees_the_steps_that_come(terminal: int, write: Write) -> None:
    """Of the steps before there is one line; a half-written one is read once it is whole."""
    write("run/run.json", '{"framework": "maxtext"}')
    file = write("run/metrics.jsonl", '{"step": 0, "loss": 9.0}\n{"step": 1, "loss": 8.0}\n{"step": 2, "lo')
    told: list[tuple[object, int]] = []

    class Told(Live):
        def step(self, numbers: Mapping[str, Any], done: int) -> None:
            told.append((numbers["loss"], done))

    steps = _Steps(Record(Path("run")), Told())
    steps.tell()
    assert told == [(8.0, 2)]  # MaxText counts from 0
    with file.open("a", encoding="utf-8") as stream:
        stream.write('ss": 7.0}\nnonsense\n{"step": 3, "loss": null}\n')
    steps.tell()
    steps.tell()
    assert told == [(8.0, 2), (7.0, 3), (None, 4)]
    _Steps(Record(Path("nowhere")), Told()).tell()
