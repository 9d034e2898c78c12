"""What the person at the terminal sees of a run: its output as it comes, and below it one line of how it stands.

Without a terminal the output is passed on as it is; with `--output json` events are told instead, an object a line.
The cursor is never hidden nor moved off its line: however a launch ends, the terminal is as it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from primus.record import now

_ERASE = b"\r\x1b[K"


class Plain:
    """The output as it comes. The others are told the same, and show it otherwise."""

    def output(self, out: int, data: bytes) -> None:
        """What the training printed. Raises OSError once nobody reads it."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(out, rest) :]

    def say(self, text: str) -> None:
        """Something of the launcher's own."""
        with contextlib.suppress(OSError):  # a terminal that was closed
            print(f"primus: {text}", file=sys.stderr, flush=True)

    def stage(self, name: str) -> None: ...

    def step(self, numbers: Mapping[str, Any], done: int) -> None: ...

    def event(self, name: str, **about: Any) -> None: ...

    def __enter__(self) -> Plain:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Json(Plain):
    """Events on standard output: start, stage, step, end. What the training prints is in the record."""

    def output(self, out: int, data: bytes) -> None: ...

    def stage(self, name: str) -> None:
        self.event("stage", stage=name)

    def step(self, numbers: Mapping[str, Any], done: int) -> None:
        self.event("step", **numbers)

    def event(self, name: str, **about: Any) -> None:
        line = json.dumps({"event": name, "time": now(), **about}) + "\n"
        with contextlib.suppress(OSError):  # nobody reads it any more; the training goes on
            super().output(1, line.encode())


class Live(Plain):
    """The output, and the line below it."""

    def __init__(self, *, colour: bool = True) -> None:
        self._lock = threading.RLock()  # a signal's handler may speak while its own thread does
        self._colour = colour
        self._stage, self._since = "pulling", time.monotonic()
        self._numbers: dict[str, Any] = {}
        self._times: deque[tuple[float, int]] = deque(maxlen=20)  # when so many steps were done
        self._drawn, self._line_ended = False, True
        self._over = threading.Event()
        self._log = ""

    def output(self, out: int, data: bytes) -> None:
        with self._lock:
            if not os.isatty(out):
                super().output(out, data)
                return
            self._erase()
            super().output(out, data)
            self._line_ended = data.endswith(b"\n")
            self._draw()

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self.output(2, (b"" if self._line_ended else b"\n") + f"primus: {text}\n".encode())

    def stage(self, name: str) -> None:
        with self._lock:
            self._stage, self._since = name, time.monotonic()
            self._erase()
            self._draw()

    def step(self, numbers: Mapping[str, Any], done: int) -> None:
        with self._lock:
            if self._times and done <= self._times[-1][1]:  # it began again
                self._times.clear()
            self._times.append((time.monotonic(), done))
            self._numbers |= numbers
            self._erase()
            self._draw()

    def event(self, name: str, **about: Any) -> None:
        """The last lines are a backend's tracebacks as often as not: how it ended is said below them."""
        if name == "start":
            self._log = about["log"]
        elif name == "end" and self._log:
            self._over.set()
            steps = f" after {self._times[-1][1]} steps" if self._times else ""
            self.say(f"ended with exit code {about['exit']}{steps}; what it printed is in {self._log}")

    def __enter__(self) -> Live:
        threading.Thread(target=self._tick, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        with self._lock:
            self._erase()

    def _tick(self) -> None:
        """The clock in the line goes on while nothing is printed."""
        while not self._over.wait(1):
            with self._lock:
                self._erase()
                self._draw()

    def _erase(self) -> None:
        if self._drawn:
            self._drawn = False
            self._put(_ERASE)

    def _draw(self) -> None:
        # Half a line or a progress bar is not written over, nor what the engine shows while it pulls.
        if self._over.is_set() or not self._line_ended or self._stage == "pulling":
            return
        text = status(self._stage, self._numbers, tuple(self._times), time.monotonic() - self._since)
        # A line as wide as the terminal would wrap. Its width is asked each time: windows are resized.
        text = text[: shutil.get_terminal_size().columns - 1]
        self._drawn = True
        self._put((f"\x1b[1m{text}\x1b[0m" if self._colour else text).encode())

    def _put(self, data: bytes) -> None:
        try:
            Plain.output(self, 2, data)
        except OSError:  # the terminal is gone; the training goes on
            self._over.set()


def choose(output: str, environ: Mapping[str, str]) -> Plain:
    """The view for --output and where standard error leads."""
    if output == "json":
        return Json()
    if os.isatty(2) and environ.get("TERM", "dumb") != "dumb":
        return Live(colour=not environ.get("NO_COLOR"))
    return Plain()


def status(stage: str, numbers: Mapping[str, Any], times: tuple[tuple[float, int], ...], elapsed: float) -> str:
    """The line: what is known, and nothing else. `times` are those at which so many steps were done."""
    if not times:
        return f"[{stage} {clock(elapsed)}]"
    done, steps = times[-1][1], numbers.get("steps")
    first, last = times[0], times[-1]
    pace = (last[0] - first[0]) / (last[1] - first[1]) if last[1] > first[1] else None
    each = numbers.get("seconds") or pace
    loss, rate, memory = (numbers.get(name) for name in ("loss", "tokens_per_second", "memory_gib"))
    parts = [
        stage,
        f"step {done} of {steps}" if steps else f"step {done}",
        *([f"loss {'nan' if loss is None else f'{loss:.4g}'}"] if "loss" in numbers else []),
        *([f"{rate:,.0f} tokens/s"] if rate else []),
        *([f"{each:.3g} s/step"] if each else []),
        *([f"{memory:.1f} GiB"] if memory else []),
        *([f"{clock(pace * (steps - done))} left"] if pace and steps and steps >= done else []),
    ]
    return f"[{' | '.join(parts)}]"


def clock(seconds: float) -> str:
    """Hours, minutes and seconds: 1:02:03, 2:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
