"""Watching over one attached container: signals go in, the exit code comes out, nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import IO, Any

from primus.command import Command
from primus.errors import LaunchError
from primus.launchers.view import Plain
from primus.launchers.watch import Watch

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PASSED = (signal.SIGUSR1, signal.SIGUSR2)


def supervise(
    command: Command,
    *,
    engine: str,
    name: str,
    secrets: Mapping[str, str],
    grace: int,
    log: Path | None = None,
    watch: Watch | None = None,
) -> int:
    """Run the engine's client with the lifeline on its standard input, to the end. Returns the command's exit code, or
    128 + n if signal n ended this launch. What it prints is copied to `log`, and shown to `watch`.

    The client is a session of its own: signals reach the container through us alone, so that a terminal's ^C is not
    delivered twice. Raises LaunchError if the engine refused to run the container.
    """
    client = command.start(stdin=subprocess.PIPE, start_new_session=True, **_outputs(log))
    view = watch.view if watch else Plain()
    stopped_by = 0

    def control(*words: str) -> None:
        null = subprocess.DEVNULL
        subprocess.Popen((engine, *words, name), start_new_session=True, stdin=null, stdout=null, stderr=null)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal stopped_by
        if number in _PASSED:
            control("kill", f"--signal={signal.Signals(number).name}")
        elif stopped_by and number == signal.SIGINT:
            control("kill")  # ^C again: no more patience (Slurm may send its signals more than once, and means it once)
            view.say(f"{signal.Signals(number).name} again, killing {name}")
        elif not stopped_by:
            stopped_by = number
            control("stop", "-t", str(grace))
            view.say(f"{signal.Signals(number).name}, stopping {name} (Ctrl-C to kill it)")

    for number in (*_ENDING, *_PASSED):
        signal.signal(number, on_signal)
    copies = [
        threading.Thread(target=_copy, args=(pipe, out, log, watch), daemon=True)
        for pipe, out in ((client.stdout, 1), (client.stderr, 2))
        if pipe is not None and log is not None
    ]
    for thread in copies:
        thread.start()
    assert client.stdin is not None
    try:
        client.stdin.write(json.dumps(dict(secrets)).encode() + b"\n")
        client.stdin.flush()
    except BrokenPipeError:
        pass  # the client ended already, and its exit code says why
    code = client.wait()
    for thread in copies:
        thread.join(5)  # whoever else has the pipe is not waited for
    if watch is not None:
        watch.end()
    if code == 125:
        raise LaunchError(f"{engine} refused to run the container", hint="its own message is above")
    if stopped_by:  # whatever the training made of it (torchrun makes 1)
        return 128 + stopped_by
    return code if code >= 0 else 128 - code


def _outputs(log: Path | None) -> dict[str, Any]:
    """Popen's stdout and stderr: pipes if they are to be copied."""
    return {} if log is None else {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def _copy(pipe: IO[bytes], out: int, log: Path, watch: Watch | None) -> None:
    """Copy all that comes to our own output and to the log, each for as long as it can be written to.

    Whatever happens to them, the pipe is read: a full one would stop the training.
    """
    view = watch.view if watch else Plain()
    with log.open("ab", buffering=0) as file:
        targets: list[Callable[[bytes], None]] = [lambda data: view.output(out, data)]
        if not os.path.samestat(os.fstat(1), os.fstat(file.fileno())):  # under Slurm, our output is the log
            targets.append(lambda data: Plain().output(file.fileno(), data))
        if watch is not None:
            targets.append(lambda data: watch.feed(out, data))
        while data := pipe.read1(65536):  # type: ignore[attr-defined]
            for target in list(targets):
                try:
                    target(data)
                except OSError:
                    targets.remove(target)
