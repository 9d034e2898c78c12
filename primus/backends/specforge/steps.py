"""Runs inside the image: commands one after the other, until one fails. They get the signals that this process gets.

python -m primus.backends.specforge.steps -- python -m A ... -- python -m B ...
"""

from __future__ import annotations

import signal
import subprocess
import sys
from itertools import groupby

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
ENDING = FORWARDED[:3]


def run(commands: list[list[str]]) -> int:
    """The code of the first command that fails, or 0. None starts once a signal asked for the end."""
    child: subprocess.Popen[bytes] | None = None
    ended = 0

    def forward(number: int, _frame: object) -> None:
        nonlocal ended
        ended = ended or (number if number in ENDING else 0)
        if child is not None:
            child.send_signal(number)

    for number in FORWARDED:
        signal.signal(number, forward)
    for program, *words in commands:
        if ended:
            return 128 + ended
        child = subprocess.Popen([sys.executable if program == "python" else program, *words])
        if ended:  # it came while this one was being started
            child.send_signal(ended)
        if code := child.wait():
            return code if code > 0 else 128 - code
    return 0


def main() -> None:
    parts = groupby(sys.argv[1:], key=lambda word: word == "--")
    sys.exit(run([list(words) for separates, words in parts if not separates]))


if __name__ == "__main__":
    main()
