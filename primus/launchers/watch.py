"""Reads what a node's training prints while it is copied: to the view, and the numbers of each step to the record."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from primus.launchers.view import Plain
from primus.metrics import Reader
from primus.record import now

_END = re.compile(rb"[\r\n]")
_LONGEST = 1 << 16  # no line of a step has more


class Watch:
    """One node's output, from both its streams."""

    def __init__(self, reader: Reader, view: Plain, *, metrics: Path | None, about: Mapping[str, Any]) -> None:
        self.view, self._reader, self._about = view, reader, about
        self._file = os.open(metrics, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) if metrics else None
        self._rest = {1: b"", 2: b""}
        self._lock = threading.Lock()
        self._stage = reader.stage

    def feed(self, out: int, data: bytes) -> None:
        """What came on standard output (1) or error (2)."""
        with self._lock:
            *lines, rest = _END.split(self._rest[out] + data)
            self._rest[out] = rest[-_LONGEST:]
            for line in lines:
                self._line(line.decode(errors="replace"))

    def end(self) -> None:
        """A last line may have no end."""
        self.feed(1, b"\n")
        self.feed(2, b"\n")
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _line(self, line: str) -> None:
        numbers = self._reader.feed(line)
        if numbers is not None and self._file is not None:
            try:
                os.write(self._file, (json.dumps({**numbers, **self._about, "time": now()}) + "\n").encode())
            except OSError:  # a full disk: the training goes on
                os.close(self._file)
                self._file = None
        if self._reader.stage != self._stage:
            self._stage = self._reader.stage
            self.view.stage(self._stage)
        if numbers is not None:
            self.view.step(numbers, self._reader.done(numbers["step"]))
