"""Runs inside an image: the fastest kernel of each product, by hipblaslt-bench, several GPUs at once.

    python -m primus.tune.offline --shapes FILE --output DIR --image ID --iters N [--device N ...] [--bench FILE]

With HIPBLASLT_TUNING_FILE set, the tool writes the fastest solution of the product to that file. Each product has a
file of its own, which is moved to its place when the tool has ended well: what is there is done, whatever happens.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from primus.command import Command
from primus.errors import LaunchError, PrimusError
from primus.image import manifest
from primus.node import gfx_targets
from primus.tune import library
from primus.tune.results import ABOUT, NO_GPU, TUNING, folder
from primus.tune.shapes import Shape, read

# As upstream's offline_tune_gemm.py measures: of all solutions, those far off the best are dropped while warming up,
# and 512 MB of rotating buffers keep the operands out of the caches. (The tool's own default is 1000 iterations.)
MEASURE = ("--requested_solution", "-1", "--rotating", "512", "--skip_slow_solution_ratio", "0.7")
_ROW = re.compile(r"[NTC],[NTC],.*\d")  # transA,transB,... of a solution, unlike the names above it


def argv(tool: Path, shape: Shape, device: int, iters: int) -> tuple[str, ...]:
    """hipblaslt-bench for one product: https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/clients.html"""
    count = str(iters)
    return (str(tool), *shape.words, *MEASURE, "--iters", count, "--cold_iters", count, "--device", str(device))


def environment(environ: Mapping[str, str], file: Path) -> dict[str, str]:
    """A tool that looks at no other settings of the library's: neither logs, nor what was tuned before."""
    kept = {name: value for name, value in environ.items() if not name.startswith("HIPBLASLT_")}
    if size := environ.get("HIPBLASLT_TUNING_USER_MAX_WORKSPACE"):
        kept["HIPBLASLT_TUNING_USER_MAX_WORKSPACE"] = size
    return {**kept, "HIPBLASLT_TUNING_FILE": str(file)}


def place(parts: Path, shape: Shape) -> Path:
    return parts / f"{hashlib.sha256(shape.line.encode()).hexdigest()[:16]}.txt"


def merged(texts: Sequence[str]) -> str:
    """One tuning file of many: what stands above the first one's rows (the library's version, the names), all rows."""
    head: list[str] = []
    rows: list[str] = []
    for text in texts:
        lines = text.splitlines()
        head = head or [line for line in lines if not _ROW.match(line)]
        rows += [line for line in lines if _ROW.match(line)]
    return "".join(f"{line}\n" for line in (*head, *rows))


class Tuning:
    """The products still to do, what came of them, and the tools that run."""

    def __init__(
        self, tool: Path, shapes: Sequence[Shape], parts: Path, iters: int, about: Mapping[str, object]
    ) -> None:
        self.tool, self.shapes, self.parts, self.iters, self.about = tool, shapes, parts, iters, about
        self.waiting = [shape for shape in shapes if not place(parts, shape).exists()]
        self.total = len(self.waiting)
        self.failed: dict[str, str] = {}
        self.stopped = 0
        self._ended = 0
        self._started = time.monotonic()
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.RLock()  # a signal's handler takes it, too

    def run(self, devices: Sequence[int], save: threading.Event) -> None:
        threads = [threading.Thread(target=self._work, args=(device, save)) for device in devices]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():  # signals are handled between two waits
                    thread.join(0.2)
                    if save.is_set():
                        save.clear()
                        self.write()
        except BaseException:  # the process would stay until the threads have done every product
            self.stop(signal.SIGTERM)
            raise

    def stop(self, number: int, _frame: FrameType | None = None) -> None:
        self.stopped = number
        with self._lock:
            self.waiting.clear()
            for child in self._running:
                child.terminate()

    def write(self) -> int:
        """Write the tuning file of all that is done, of earlier calls, too, and about.json. Returns the number."""
        texts = [file.read_text(encoding="utf-8") for file in sorted(self.parts.glob("*.txt"))]
        about = {**self.about, "tool": str(self.tool), "tuned": len(texts), "failed": self.failed}
        here = self.parts.parent
        files = {here / TUNING: merged(texts)} if texts else {}
        Command(argv=(), files={**files, here / ABOUT: json.dumps(about, indent=1) + "\n"}).write()
        return len(texts)

    def _work(self, device: int, save: threading.Event) -> None:
        while True:
            with self._lock:
                if not self.waiting:
                    return
                shape = self.waiting.pop(0)
            try:
                said = self._one(shape, device)
            except (OSError, ValueError) as error:  # a full disk, a file that is no text: the others go on
                said = self.failed[shape.line] = f"its result cannot be kept: {error}"
            with self._lock:
                if self.stopped:
                    return
                self._ended += 1
                each = (time.monotonic() - self._started) / self._ended
                left = f"{each * (self.total - self._ended) / 60:.0f} min left"
                print(
                    f"[{self._ended}/{self.total}] GPU {device}: {shape}: {said}; {left}", file=sys.stderr, flush=True
                )
            save.set()

    def _one(self, shape: Shape, device: int) -> str:
        """Tune one product. Returns what to say of it."""
        target = place(self.parts, shape)
        part = target.with_suffix(f".part{device}")
        part.unlink(missing_ok=True)
        command = argv(self.tool, shape, device, self.iters)
        with self._lock:
            if self.stopped:
                return ""
            try:
                child = subprocess.Popen(
                    command,
                    env=environment(os.environ, part),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                )
            except OSError as error:
                self.failed[shape.line] = f"cannot be started: {error.strerror}"
                return self.failed[shape.line]
            self._running.add(child)
        output = child.communicate()[0]
        with self._lock:
            self._running.discard(child)
        rows = part.read_text(encoding="utf-8").splitlines() if part.exists() else []
        if child.returncode == 0 and any(_ROW.match(row) for row in rows):
            part.replace(target)
            return "tuned"
        part.unlink(missing_ok=True)
        last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "it printed nothing")
        why = f"exit code {child.returncode}" if child.returncode else "no solution"
        if not self.stopped:
            self.failed[shape.line] = f"{why}: {last[:200]}"
        return f"failed, {why}: {last[:200]}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--image", default="")
    parser.add_argument("--iters", type=int, required=True)
    parser.add_argument("--device", type=int, action="append")
    parser.add_argument("--bench", type=Path)
    given = parser.parse_args(words)
    # A container shares /sys with its machine, and has that machine's GPUs only with the device.
    targets = gfx_targets() if Path("/dev/kfd").exists() else ()
    wrong = [device for device in given.device or () if targets and device >= len(targets)]
    if wrong:
        raise LaunchError(f"--device {wrong[0]}: there are {len(targets)} GPUs", hint="they count from 0")
    tool = given.bench or library.bench(os.environ, sys.path)
    if tool is None:
        raise LaunchError(
            f"{library.TOOL} is not in this image: neither below ROCM_PATH, nor in ROCm's wheels, /opt/rocm or PATH",
            hint="build it from the sources of this image's hipBLASLt (its clients), and pass it with --bench FILE",
        )
    about = {
        "image": given.image,
        "manifest": manifest.digest(),
        "gfx": targets[0] if targets else NO_GPU,
        "library": library.version(library.library(os.environ, sys.path)),
    }
    here = given.output / folder(about["image"] or about["manifest"], about["gfx"], about["library"])
    parts = here / "products"
    try:
        parts.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchError(f"cannot write to {here}: {error.strerror}") from error
    shapes = read([given.shapes]).counts
    if not shapes:
        raise LaunchError(f"{given.shapes}: holds no product", hint="primus tune hipblaslt dump makes such a file")
    tuning = Tuning(tool, list(shapes), parts, given.iters, about)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, tuning.stop)
    known = len(shapes) - tuning.total
    print(f"{len(shapes)} products, {known} of them tuned before; results in {here}", file=sys.stderr, flush=True)
    tuning.run(given.device or range(len(targets) or 1), threading.Event())
    tuning.write()
    tuned = sum(place(parts, shape).exists() for shape in shapes)
    if tuning.stopped:
        print(f"stopped; {tuned} of {len(shapes)} are tuned: the same command goes on", file=sys.stderr)
        return 128 + tuning.stopped
    print(here)
    if tuned < len(shapes):
        print(f"{len(shapes) - tuned} products are not tuned: {here / ABOUT} has why", file=sys.stderr)
    return LaunchError.exit_code if tuned < len(shapes) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PrimusError as problem:
        first = problem.problems[0]
        print(f"error: {first.message}\nhint: {first.hint}", file=sys.stderr)
        sys.exit(problem.exit_code)
