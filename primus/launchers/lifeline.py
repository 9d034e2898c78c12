"""Runs first in the container: starts the command, and ends it when the launcher outside is gone, however it went.

The launcher holds the other end of our standard input and says one line on it, a JSON object of the secret variables.
When that end closes (launcher or client killed, even with SIGKILL), nobody is left to stop the container: we do.

    python -m primus.launchers.lifeline GRACE COMMAND...
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from types import FrameType

from primus.launchers import lock

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PASSED = (signal.SIGUSR1, signal.SIGUSR2)


def main() -> None:
    grace, argv = float(sys.argv[1]), sys.argv[2:]
    try:
        secrets = json.loads(_line())
    except ValueError:
        sys.exit("lifeline: standard input is not the launcher's")
    # The child takes no signals before we can pass them on, and its standard input is nobody's.
    signal.pthread_sigmask(signal.SIG_BLOCK, (*_ENDING, *_PASSED))
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **secrets, **lock.inside()},
            start_new_session=True,
            preexec_fn=_unblock,
        )
    except OSError as error:
        sys.exit(f"lifeline: cannot start {argv[0]}: {error.strerror}")
    del secrets
    asked = False

    def forward(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if number in _ENDING:
            # The engine's stop brings SIGTERM, and its client whatever Slurm or a terminal sent it: the training is
            # asked to end once, by the signal that trainers know to save at.
            if asked:
                return
            asked, number = True, signal.SIGTERM
        if child.poll() is None:
            child.send_signal(number)

    for number in (*_ENDING, *_PASSED):
        signal.signal(number, forward)
    _unblock()
    threading.Thread(target=_watch, args=(child, grace), daemon=True).start()
    code = child.wait()
    sys.stdout.flush()
    os._exit(code if code >= 0 else 128 - code)


def _line() -> str:
    """The first line of standard input, byte by byte: nothing after it is ours to take."""
    data = bytearray()
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        data += byte
    return data.decode()


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*_ENDING, *_PASSED))


def _watch(child: subprocess.Popen[bytes], grace: float) -> None:
    while os.read(0, 4096):
        pass
    with contextlib.suppress(OSError):  # the launcher may have been who reads it
        print("lifeline: the launcher is gone, ending the command", file=sys.stderr, flush=True)
    child.send_signal(signal.SIGTERM)
    time.sleep(grace)
    try:
        if os.getppid() == 1:  # under the container's init: everything here but that, which ends when we do
            os.kill(-1, signal.SIGKILL)
        else:  # the host's processes are here too (--pid=host)
            os.killpg(child.pid, signal.SIGKILL)
    finally:
        os._exit(128 + signal.SIGKILL)


if __name__ == "__main__":
    main()
