"""Watching over one attached container: signals go in, the exit code comes out, nothing stays behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from types import FrameType

from primus.command import Command
from primus.errors import LaunchError

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PASSED = (signal.SIGUSR1, signal.SIGUSR2)


def supervise(command: Command, *, engine: str, name: str, secrets: Mapping[str, str], grace: int) -> int:
    """Run the engine's client with the lifeline on its standard input, to the end. Returns the command's exit code, or
    128 + n if signal n ended this launch.

    The client is a session of its own: signals reach the container through us alone, so that a terminal's ^C is not
    delivered twice. Raises LaunchError if the engine refused to run the container.
    """
    client = command.start(stdin=subprocess.PIPE, start_new_session=True)
    stopped_by = 0

    def control(*words: str) -> None:
        null = subprocess.DEVNULL
        subprocess.Popen((engine, *words, name), start_new_session=True, stdin=null, stdout=null, stderr=null)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal stopped_by
        if number in _PASSED:
            control("kill", f"--signal={signal.Signals(number).name}")
        elif stopped_by:
            control("kill")  # asked twice: no more patience
        else:
            stopped_by = number
            print(
                f"primus: {signal.Signals(number).name}, stopping {name} (again to kill it)",
                file=sys.stderr,
                flush=True,
            )
            control("stop", "-t", str(grace))

    for number in (*_ENDING, *_PASSED):
        signal.signal(number, on_signal)
    assert client.stdin is not None
    try:
        client.stdin.write(json.dumps(dict(secrets)).encode() + b"\n")
        client.stdin.flush()
    except BrokenPipeError:
        pass  # the client ended already, and its exit code says why
    code = client.wait()
    if code == 125:
        raise LaunchError(f"{engine} refused to run the container", hint="its own message is above")
    if stopped_by:  # whatever the training made of it (torchrun makes 1)
        return 128 + stopped_by
    return code if code >= 0 else 128 - code
