"""Watching over one attached container: signals go in, the exit code comes out, nothing stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any, Protocol

from primus.command import Command
from primus.errors import LaunchError
from primus.launchers.view import Plain
from primus.launchers.watch import Watch

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PASSED = (signal.SIGUSR1, signal.SIGUSR2)


class Control(Protocol):
    """How what we started is told something."""

    @property
    def name(self) -> str: ...
    @property
    def refused(self) -> int: ...  # the exit code that says that it was not started
    def signal(self, client: subprocess.Popen[bytes], number: int) -> None: ...
    def stop(self, client: subprocess.Popen[bytes], grace: int) -> None: ...
    def kill(self, client: subprocess.Popen[bytes]) -> None: ...


@dataclass(frozen=True)
class Container:
    """A container of an engine's, which its client tells."""

    engine: str
    name: str
    refused: int = 125

    def _control(self, *words: str) -> None:
        null = subprocess.DEVNULL
        subprocess.Popen((self.engine, *words, self.name), start_new_session=True, stdin=null, stdout=null, stderr=null)

    def signal(self, client: subprocess.Popen[bytes], number: int) -> None:
        self._control("kill", f"--signal={signal.Signals(number).name}")

    def stop(self, client: subprocess.Popen[bytes], grace: int) -> None:
        self._control("stop", "-t", str(grace))

    def kill(self, client: subprocess.Popen[bytes]) -> None:
        self._control("kill")


@dataclass(frozen=True)
class Child:
    """A process of our own, as a container of apptainer's is: it passes signals on, and dies with its container."""

    name: str
    refused: int = 255

    def signal(self, client: subprocess.Popen[bytes], number: int) -> None:
        client.send_signal(number)

    def stop(self, client: subprocess.Popen[bytes], grace: int) -> None:
        client.send_signal(signal.SIGTERM)
        timer = threading.Timer(grace, self.kill, (client,))
        timer.daemon = True
        timer.start()

    def kill(self, client: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(client.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Step:
    """A process of the Slurm step that we are in ourselves: Slurm signals all of a step's processes, and ends them."""

    name: str
    refused: int = -1

    def signal(self, client: subprocess.Popen[bytes], number: int) -> None: ...
    def stop(self, client: subprocess.Popen[bytes], grace: int) -> None: ...
    def kill(self, client: subprocess.Popen[bytes]) -> None: ...


def supervise(
    command: Command,
    control: Control,
    *,
    secrets: Mapping[str, str] | None,
    grace: int,
    log: Path | None = None,
    watch: Watch | None = None,
) -> int:
    """Run the command with the lifeline on its standard input, to the end. Returns its exit code, or 128 + n if
    signal n ended this launch. What it prints is copied to `log` and shown to `watch`. Without `secrets` there is no
    lifeline in it.

    It is a session of its own: signals reach the container through us alone, so that a terminal's ^C is not
    delivered twice. Raises LaunchError if the container was refused.
    """
    given = subprocess.DEVNULL if secrets is None else subprocess.PIPE
    client = command.start(stdin=given, start_new_session=True, **_outputs(log))
    view = watch.view if watch else Plain()
    stopped_by = 0

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal stopped_by
        if number in _PASSED:
            control.signal(client, number)
        elif stopped_by and number == signal.SIGINT:
            # ^C again: no more patience. (Slurm may send its signals more than once, and means it once.)
            control.kill(client)
            view.say(f"{signal.Signals(number).name} again, killing {control.name}")
        elif not stopped_by:
            stopped_by = number
            control.stop(client, grace)
            view.say(f"{signal.Signals(number).name}, stopping {control.name} (Ctrl-C to kill it)")

    for number in (*_ENDING, *_PASSED):
        signal.signal(number, on_signal)
    copies = [
        threading.Thread(target=_copy, args=(pipe, out, log, watch), daemon=True)
        for pipe, out in ((client.stdout, 1), (client.stderr, 2))
        if pipe is not None and log is not None
    ]
    for thread in copies:
        thread.start()
    if client.stdin is not None:
        try:
            client.stdin.write(json.dumps(dict(secrets or {})).encode() + b"\n")
            client.stdin.flush()
        except BrokenPipeError:
            pass  # the client ended already, and its exit code says why
    code = client.wait()
    for thread in copies:
        thread.join(5)  # whoever else has the pipe is not waited for
    if watch is not None:
        watch.end()
    if code == control.refused:
        raise LaunchError(f"{command.argv[0]} refused to run the container", hint="its own message is above")
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
