"""The record of one run: what was started, where it ran and how it ended, as files below its run directory.

<run directory>/<run id>/
    run.json          what was started: image, versions, command, git state
    experiment.yaml   the resolved experiment
    job.sh            under Slurm, what was submitted; slurm.json has the job's number
    node<rank>.json   written by each node's launcher: its attempts, with host, times and exit code
    image.json        what the image says of itself
    node<rank>.log    what the node's training printed
    metrics.jsonl     the numbers of each step (primus/metrics.py), of all attempts
    config.json       the resolved experiment with the place that says each value
    end.json          how the run ended
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

from primus._version import __version__
from primus.command import Command, output
from primus.errors import ConfigError, LaunchError, PrimusError
from primus.experiment.render import as_json
from primus.job import Job

RECORD_VARIABLE = "PRIMUS_RUN_RECORD"  # tells the launcher in a container where its record is
DRY_RUN = "RUN-ID"  # what a dry run says for the identifier that nobody has made yet
# What is read again of the files, and its type: what is of another is left out, as is what cannot be read.
_KINDS: Mapping[str, type] = {
    **dict.fromkeys(("run_id", "exp_name", "framework", "accelerator", "run_dir", "config", "started", "job"), str),
    **dict.fromkeys(("nodes", "exit"), int),
    **dict.fromkeys(("attempts", "gfx", "compiled"), list),
    **dict.fromkeys(("args", "env", "origins", "git"), dict),
}
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}|slurm-\d+\.\d+")


def now() -> str:
    """The time as the records have it: UTC, to the millisecond, ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def new_id() -> str:
    """An identifier that sorts by time: 20261130-203300-1a2b. (A step of the user's own script is slurm-JOB.STEP.)"""
    return f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def git_state(directory: Path) -> dict[str, Any] | None:
    """The commit that `directory` is at, and which files differ from it; None outside of git."""
    commit = _git(directory, "rev-parse", "HEAD")
    if not commit:
        return None
    changed = (_git(directory, "diff", "--name-only", "HEAD") or "").splitlines()
    return {"commit": commit.strip(), "changed": changed, "new": _new(directory)}


def _new(directory: Path) -> list[str]:
    """Files at or below the directory that git neither has nor ignores."""
    return (_git(directory, "ls-files", "--full-name", "--others", "--exclude-standard") or "").splitlines()


def _changes(directory: Path) -> str:
    """How what lies below the directory differs from its commit, new files included: what `git apply` takes."""
    changes = _git(directory, "diff", "HEAD", "--", ".") or ""
    root = Path((_git(directory, "rev-parse", "--show-toplevel") or ".").strip())
    for name in _new(directory):
        with contextlib.suppress(OSError, UnicodeDecodeError):  # one that is no text is named in run.json
            lines = (root / name).read_text(encoding="utf-8").splitlines(keepends=True)
            head = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n"
            body = "".join(f"+{line}" for line in lines)
            body += "" if not lines or lines[-1].endswith("\n") else "\n\\ No newline at end of file\n"
            changes += head + (f"@@ -0,0 +1,{len(lines)} @@\n{body}" if lines else "")
    return changes


def _git(directory: Path, *words: str) -> str | None:
    return output("git", *words, cwd=directory)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One node's share of one try of the run."""

    rank: int
    host: str
    started: str
    attempt: int = 0
    job: str = ""  # Slurm's number
    image_id: str = ""
    ended: str = ""
    exit: int | None = None


@dataclass(frozen=True)
class Record:
    """One run's directory."""

    path: Path

    def start(self, job: Job, *, launcher: str, image_id: str = "", digest: str = "") -> None:
        """Write run.json and, where a checkout's own files replace the image's, how they differ from its commit."""
        self.write("run.json", describe(job, launcher=launcher, image_id=image_id, digest=digest))
        about = as_json(job.experiment, image=job.image, origins=True) + "\n"
        Command(argv=(), files={self.path / "config.json": about}).write()
        if job.dev and (changes := _changes(job.dev)):
            Command(argv=(), files={self.path / "dev.diff": changes}).write()

    def identified(self, image_id: str, digest: str) -> None:
        """Add to run.json what the first node ran, where whoever submitted the job could not know it."""
        said = self.read("run.json")
        known = {"image_id": image_id, "image_digest": digest}
        more = {name: value for name, value in known.items() if value and not said.get(name)}
        if said and more:
            self.write("run.json", {**said, **more})

    @property
    def experiment(self) -> Path:
        return self.path / "experiment.yaml"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def steps(self) -> list[dict[str, Any]]:
        """The numbers of each step, by primus/metrics.py's names; of a step that was done twice, the last."""
        found: dict[int, dict[str, Any]] = {}
        try:
            lines = self.metrics.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        for line in lines:
            if one := numbers(line):
                found[one["step"]] = one
        return [found[step] for step in sorted(found)]

    def log(self, rank: int) -> Path:
        return self.path / f"node{rank}.log"

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a file of the record, whole or not at all."""
        Command(argv=(), files={self.path / name: json.dumps(content, indent=1) + "\n"}).write()

    def read(self, name: str) -> dict[str, Any]:
        """A file of the record; empty if it is not there or not readable."""
        try:
            content = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(content, dict):
            return {}
        return {key: value for key, value in content.items() if isinstance(value, _KINDS.get(key, object))}

    def attempts(self) -> tuple[Attempt, ...]:
        """Every node's, the first attempt's first."""
        found = []
        for path in self.path.glob("node*.json"):
            for one in self.read(path.name).get("attempts", ()):
                with contextlib.suppress(TypeError, ValueError):
                    found.append(_attempt(**one))
        return tuple(sorted(found, key=lambda one: (one.attempt, one.rank)))

    def begin(self, attempt: Attempt) -> None:
        """Note that a node has started.

        Raises LaunchError if another node of the attempt has another image under the same name: whoever comes later
        sees it.
        """
        self._store(attempt)
        for other in self.attempts():
            if (other.attempt, other.job) == (attempt.attempt, attempt.job) and other.image_id != attempt.image_id:
                raise LaunchError(
                    f"the image is {attempt.image_id} on {attempt.host} and {other.image_id} on {other.host}",
                    hint="load the same one on every node, or name it by its digest: --image NAME@sha256:...",
                )

    def close(self, attempt: Attempt) -> None:
        """Note how a node's share ended."""
        self._store(attempt)

    def _store(self, attempt: Attempt) -> None:
        name = f"node{attempt.rank}.json"
        this = (attempt.attempt, attempt.job)
        before = [one for one in self.read(name).get("attempts", ()) if (one.get("attempt"), one.get("job")) != this]
        self.write(name, {"attempts": [*before, vars(attempt)]})

    @contextlib.contextmanager
    def noted(self, attempt: Attempt) -> Iterator[None]:
        """Note it if what follows is refused: of several nodes, this one's exit code is then the run's."""
        try:
            yield
        except PrimusError as error:
            self.close(replace(attempt, ended=now(), exit=error.exit_code))
            raise

    def first_failure(self, attempt: int) -> Attempt | None:
        """The node of the attempt that ended first with an exit code of its own: the others were then stopped."""
        ended = [one for one in self.attempts() if one.attempt == attempt and one.ended and one.exit]
        return min(ended, key=lambda one: (one.ended, (one.exit or 0) >= 128), default=None)


def _attempt(**fields: Any) -> Attempt:
    """Raises TypeError or ValueError for what is no attempt."""
    made = Attempt(**fields)
    whole = (made.rank, made.attempt, 0 if made.exit is None else made.exit)
    if not all(isinstance(one, int) for one in whole) or not isinstance(made.host + made.job + made.image_id, str):
        raise TypeError
    for text in (made.started, *((made.ended,) if made.ended else ())):
        if datetime.fromisoformat(text).tzinfo is None:
            raise ValueError
    return made


def numbers(line: str | bytes) -> dict[str, Any] | None:
    """The numbers in a line of metrics.jsonl; None for a line that a full disk or a crash has cut."""
    try:
        one = json.loads(line)
    except ValueError:
        return None
    if not isinstance(one, dict) or not isinstance(one.get("step"), int):
        return None
    finite = {name: None if isinstance(value, float) and not isfinite(value) else value for name, value in one.items()}
    return {name: value for name, value in finite.items() if value is None or isinstance(value, (int, float))}


def describe(job: Job, *, launcher: str, image_id: str = "", digest: str = "") -> dict[str, Any]:
    """The content of run.json: what is started, from what, by whom."""
    assert job.record is not None
    array = job.slurm is not None and job.slurm.array
    return {
        "run_id": f"{job.record.parent.name}_{job.record.name}" if array else job.record.name,
        "exp_name": job.experiment.exp_name,
        "framework": job.experiment.framework,
        "accelerator": job.experiment.accelerator,
        "launcher": launcher,
        "run_dir": str(job.run_dir),
        "image": job.image,
        # Of a tag, only a launch on this machine knows what it named: under Slurm, the first node adds it.
        "image_digest": job.image.partition("@")[2] or digest,
        "image_id": image_id or job.image_id,
        # The file that hipBLASLt takes its kernels from, if any.
        "hipblaslt_tuning": job.experiment.env.get("HIPBLASLT_TUNING_OVERRIDE_FILE"),
        "lock": str(job.lock) if job.lock else None,
        "config": str(job.experiment.source.absolute()),
        "nodes": job.nodes or 1,
        "gpus_per_node": job.gpus_per_node,
        "primus": __version__,
        "git": git_state(job.dev or job.experiment.source.parent),
        "user": os.environ.get("USER") or str(os.getuid()),
        "host": os.uname().nodename,
        "directory": str(Path.cwd()),
        "started": now(),
    }


def records(where: Path, levels: int = 5) -> Iterator[Record]:
    """The records at or below a directory: a workspace, a run directory (2 levels) or a record itself."""
    for depth in range(levels + 1):
        for file in where.glob("*/" * depth + "run.json"):
            if _ID.fullmatch(file.parent.name) or _ID.fullmatch(file.parent.parent.name):
                yield Record(file.parent)


def find(text: str, workspace: Path) -> Record:
    """The record that `text` means: its directory, its identifier, Slurm's job number, or an experiment's newest.

    Raises ConfigError, with what there is, if nothing fits.
    """
    path = Path(text)
    if path.is_dir():
        below = sorted(records(path), key=lambda one: one.path.name)
        if below:
            return below[-1]
        raise ConfigError(f"{text}: no run is recorded there", hint="primus runs DIR lists those below DIR")
    known = sorted(records(workspace), key=lambda one: one.path.name)
    for record in reversed(known):
        about = record.read("run.json")
        if text in (about.get("run_id"), about.get("exp_name"), record.read("slurm.json").get("job")):
            return record
    names = {str(about.get(key)) for about in map(_about, known) for key in ("run_id", "exp_name")}
    near = get_close_matches(text, names, 1, 0.6)
    newest = f"the newest is {known[-1].path}" if known else "say where: --workspace DIR, or the run's directory"
    raise ConfigError(f"{text}: no such run in {workspace}", hint=f"did you mean {near[0]!r}?" if near else newest)


def _about(record: Record) -> dict[str, Any]:
    return record.read("run.json")
