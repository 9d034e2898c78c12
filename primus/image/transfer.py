"""Long steps of the engine: each says what it does, that it still does it, and how long it took."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from primus.errors import LaunchError, PrimusError
from primus.image.bundle import shared

_BEAT = 15.0  # seconds without a line after which we say that it goes on
_TRIES = 3
# The engine's words for what trying again does not mend.
_FINAL = re.compile(
    r"unauthorized|denied|authentication required|no basic auth|manifest unknown|not found|no space left"
    r"|toomanyrequests|certificate|server gave HTTP response",
    re.IGNORECASE,
)
# Each layer not on this machine arrives compressed and is unpacked beside that: 4.7 times its compressed size was
# measured (472 MB of layers, 1772 MB unpacked).
_UNPACKED = 5


def run(
    words: Sequence[str],
    title: str,
    say: Callable[[str], None],
    *,
    cwd: Path | None = None,
    feed: Iterable[bytes] | None = None,
) -> tuple[int, str]:
    """Run a command to its end, its output going to stderr as it comes. Gives its exit code and last lines.

    `feed` is what it reads; an error while that is made ends the command, and is raised.
    """
    say(f"{title} ...")
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            words,
            cwd=cwd,
            stdin=None if feed is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            bufsize=1,
        )
    except OSError as error:
        raise LaunchError(f"cannot start {words[0]}: {error.strerror}") from error
    heard = [began]
    over = threading.Event()

    def beat() -> None:
        while not over.wait(1):
            now = time.monotonic()
            if now - heard[0] >= _BEAT:
                heard[0] = now
                say(f"{title}: {now - began:.0f} s so far")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    failed: list[BaseException] = []
    feeder = threading.Thread(target=_feed, args=(process, feed, failed), daemon=True)
    if feed is not None:
        feeder.start()
    last: list[str] = []
    try:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                heard[0] = time.monotonic()
                sys.stderr.write(line)
                last = [*last[-9:], line.rstrip()]
        code = process.wait()
        if feed is not None:
            feeder.join()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        over.set()
        thread.join()
    if failed:
        raise failed[0]
    say(f"{title}: {'done' if code == 0 else f'failed (exit code {code})'} after {time.monotonic() - began:.0f} s")
    return code, "\n".join(line for line in last if line)


def _feed(process: subprocess.Popen[str], pieces: Iterable[bytes], failed: list[BaseException]) -> None:
    assert process.stdin is not None
    try:
        for piece in pieces:
            process.stdin.buffer.write(piece)  # type: ignore[attr-defined]  # the text's bytes
        process.stdin.close()
    except BrokenPipeError:  # it ended before it had read everything, and says why
        pass
    except (PrimusError, OSError) as error:
        failed.append(error)
        process.terminate()


def run_again(
    words: Sequence[str], title: str, say: Callable[[str], None], *, pauses: Sequence[float] = (2.0, 5.0)
) -> tuple[int, str]:
    """The same, up to three times: what arrived is kept, and a registry that restarts is back soon."""
    for number in range(_TRIES):
        code, last = run(words, title, say)
        if code == 0 or _FINAL.search(last) or number == _TRIES - 1:
            break
        say(f"{title}: trying again in {pauses[number]:g} s")
        time.sleep(pauses[number])
    return code, last


def to_fetch(
    layers: Sequence[Mapping[str, Any]], diff_ids: Sequence[str], here: Iterable[Sequence[str]]
) -> tuple[Mapping[str, Any], ...]:
    """The layers that no image of this machine has: images share what they have in common from the bottom up."""
    return tuple(layers[shared(tuple(diff_ids), map(tuple, here)) :])


def room(layers: Iterable[Mapping[str, Any]]) -> int:
    """Bytes of the engine's disk that fetching the layers takes."""
    return _UNPACKED * sum(int(layer["size"]) for layer in layers)


def counter(title: str, total: int, say: Callable[[str], None]) -> Callable[[int], None]:
    """Something to tell how many bytes were dealt with: it says how far that is, each time a while has passed."""
    done, said = 0, time.monotonic()

    def count(size: int) -> None:
        nonlocal done, said
        done += size
        if time.monotonic() - said >= _BEAT:
            said = time.monotonic()
            say(f"{title}: {mb(done)} of {mb(total)}")

    return count


def mb(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
