"""What a bundle has besides images: experiments with what they read, the launcher's wheels, a README."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from primus.errors import ConfigError, LaunchError
from primus.experiment import Experiment
from primus.experiment.render import resolved_yaml
from primus.image.bundle import Manifest
from primus.image.transfer import mb, run
from primus.job import with_inputs, with_inputs_at

Say = Callable[[str], None]
# For which the launcher's dependencies are fetched: those that it runs on, and that they have wheels for.
_PYTHONS = ("3.10", "3.11", "3.12", "3.13")


@dataclass
class Experiments:
    """Experiments as they are in a bundle: beside data/, by relative paths, to be run from the directory of both."""

    files: dict[str, bytes] = field(default_factory=dict)  # experiments/...
    data: dict[str, Path] = field(default_factory=dict)  # data/..., and the file here
    folders: dict[Path, str] = field(default_factory=dict)  # directories here, and their names below data/
    flags: dict[str, tuple[str, ...]] = field(default_factory=dict)  # what an experiment cannot be run without

    def add(self, experiment: Experiment, environ: Mapping[str, str], say: Say) -> None:
        """Raises ConfigError if something that the experiment reads is not here."""
        _, _, missing = with_inputs(experiment, (), offline=False, environ=environ)
        if missing:
            raise ConfigError(missing)
        moved, names = with_inputs_at(experiment, self._moved)
        for name in names:
            say(f"{experiment.source}: {name} is on the Hugging Face hub, and not in the bundle; give a directory")
        name = _unused(f"experiments/{experiment.framework}/{experiment.source.stem}", ".yaml", self.files)
        self.files[name] = resolved_yaml(moved).encode()
        self.flags[name] = tuple(f"--allow-unknown={key}" for key in experiment.unknown)

    def _moved(self, path: Path) -> str:
        """Where a path is in the bundle, and all that it stands for with it."""
        if path.parent not in self.folders:
            self.folders[path.parent] = _unused(f"data/{path.parent.name or 'root'}", "", {*self.folders.values()})
        folder = self.folders[path.parent]
        for file in _files(path):
            name = f"{folder}/{file.relative_to(path.parent)}"
            try:
                name.encode()
            except UnicodeEncodeError:
                raise ConfigError(f"{file!r}: its name is no text", hint="rename it") from None
            if not os.access(file, os.R_OK):
                raise ConfigError(f"{file}: cannot be read: Permission denied", hint=_READABLE)
            self.data[name] = file
        return f"./{folder}/{path.name}"


def _unused(stem: str, ending: str, used: Collection[str]) -> str:
    name, number = stem + ending, 1
    while name in used:
        number += 1
        name = f"{stem}-{number}{ending}"
    return name


def _files(path: Path) -> list[Path]:
    """The files that an input path stands for: a pattern's, a directory's, or X.bin and X.idx for Megatron's X."""
    if "*" in path.name:
        found = [one for match in path.parent.glob(path.name) for one in _below(match)]
    else:
        found = [one for start in (path, Path(f"{path}.bin"), Path(f"{path}.idx")) for one in _below(start)]
    return sorted(found)


_READABLE = "what an experiment reads must be here and yours to read: a bundle without it would be short of data"


def _unreadable(error: OSError) -> NoReturn:
    raise ConfigError(f"{error.filename}: cannot be read: {error.strerror}", hint=_READABLE) from None


def _is_file(path: Path) -> bool:
    """Raises ConfigError for what cannot be told, as a link that leads nowhere."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        _unreadable(error)


def _below(path: Path) -> list[Path]:
    """The regular files at a path or below it; links count as what they lead to, each directory once on a way.

    Raises ConfigError for a directory that cannot be listed, or a link that leads nowhere.
    """
    if not os.path.lexists(path):
        return []
    if _is_file(path):
        return [path]
    found = []
    seen: set[Path] = set()
    for folder, folders, names in os.walk(path, onerror=_unreadable, followlinks=True):
        seen.add(Path(folder).resolve())
        folders[:] = [name for name in folders if Path(folder, name).resolve() not in seen]
        found += [Path(folder, name) for name in names if _is_file(Path(folder, name))]
    return found


def wheels(given: Path | None, into: Path, time: int, say: Say, *, signed: bool) -> dict[str, Path]:
    """The launcher's wheel and those that it needs, by their place in the bundle: as given, or made and fetched.

    Of a bundle that is `signed`, also what checks signatures.
    """
    if given is None:
        _make_wheels(into, time, say, "sign" if signed else "launcher")
    found = sorted((given or into).glob("*.whl"))
    if not any(path.name.startswith("primus-") for path in found):
        raise ConfigError(
            f"--wheels {given}: has no wheel of the launcher (primus-*.whl)",
            hint="fill it in a checkout: pip wheel --wheel-dir DIR . -c base/requirements-launcher.txt",
        )
    if signed and not any(path.name.startswith("cryptography-") for path in found):
        say(f"--wheels {given}: has no wheel of cryptography, without which no signature can be checked")
    return {f"wheels/{path.name}": path for path in found}


def _make_wheels(into: Path, time: int, say: Say, what: str) -> None:
    root = Path(__file__).parents[2]
    lock = root / "base" / f"requirements-{what}.txt"
    if not (lock.is_file() and (root / "pyproject.toml").is_file()):
        raise ConfigError(
            "the launcher is installed here, and in no checkout that its wheel could be made from",
            hint="run this in a checkout of Primus (make .venv/ready), or give the wheels: --wheels DIR",
        )
    pip = (sys.executable, "-m", "pip")
    if subprocess.run((*pip, "--version"), capture_output=True, check=False).returncode:
        raise LaunchError(
            f"{sys.executable} has no pip, which fetches the launcher's wheels", hint="or give --wheels DIR"
        )
    quiet = ("--quiet", "--disable-pip-version-check")
    with tempfile.TemporaryDirectory() as scratch:
        # A copy: setuptools leaves its own files where it builds.
        for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
            shutil.copy(root / name, scratch)
        for name in ("primus", "examples"):
            shutil.copytree(root / name, Path(scratch) / name, ignore=shutil.ignore_patterns("__pycache__"))
        built = ("env", f"SOURCE_DATE_EPOCH={max(time, 315532800)}", *pip, "wheel", *quiet)  # a zip begins in 1980
        _pip((*built, "--no-deps", f"--wheel-dir={into}", scratch), "building the launcher's wheel", say)
    fetch = (*pip, "download", *quiet, "--require-hashes", "--only-binary=:all:", f"--dest={into}", f"-r{lock}")
    for version in _PYTHONS:
        _pip((*fetch, f"--python-version={version}"), f"fetching what it needs on Python {version}", say)


def _pip(words: Sequence[str], title: str, say: Say) -> None:
    code, last = run(words, title, say)
    if code:
        said = next((line for line in reversed(last.splitlines()) if line), f"exit code {code}")
        raise LaunchError(
            f"{title} failed: {said}", hint="pip's own message is above; or give the wheels: --wheels DIR"
        )


_CHECK = """
The bundle is signed. Before anything in it is run, check with openssl and the public key, which came another way:

```
tar -xf {file} primus-bundle.json primus-bundle.json.sig wheels && base64 -d primus-bundle.json.sig > signature
openssl dgst -sha256 -verify {key} -signature signature primus-bundle.json
{wheels}
```

The last line prints "True": the wheels are those that were signed.
"""
# One line, and nothing but Python's own library: the launcher in the bundle is not to be believed yet.
_WHEELS = (
    'python3 -c \'import hashlib, json, pathlib; said = json.load(open("primus-bundle.json"))["members"]; '
    'print(all(hashlib.sha256(p.read_bytes()).hexdigest() == said[str(p)]["sha256"] '
    'for p in pathlib.Path("wheels").iterdir()))\''
)


def readme(name: str, made: Manifest, flags: Mapping[str, Sequence[str]], *, signed: bool) -> str:
    """README.md of a bundle: `made` has its images and experiments."""
    folder = name.removesuffix(".tar")
    first = made.experiments[0] if made.experiments else "EXPERIMENT.yaml"
    extra = "".join(f" {shlex.quote(word)}" for word in flags.get(first, ()))
    images = "\n".join(f"| {one.tagged} | {one.framework} | {one.accelerator} | {one.id} |" for one in made.images)
    listed = "\n".join(
        f"- {one}{' (with ' + ' '.join(flags[one]) + ')' if flags.get(one) else ''}" for one in made.experiments
    )
    since = "".join(f"- {one.tagged}, {one.id}\n" for one in made.since)
    since = f"\nOnly for hosts that have these images, whose layers are left out:\n\n{since}" if since else ""
    package = "'primus[sign]'" if signed else "primus"
    check = _CHECK.format(file=shlex.quote(name), key="team.pub", wheels=_WHEELS) if signed else ""
    return f"""# {name}

Images for training on AMD GPUs, the launcher that runs them, and experiments. Nothing of it needs a network.
{check}
```
tar -xf {shlex.quote(name)} wheels && python3 -m pip install --no-index --find-links wheels {package}
primus image load {shlex.quote(name)} --to {shlex.quote(folder)}
cd {shlex.quote(folder)} && primus run --offline --config {first}{extra}
```

| image | framework | accelerator | ID |
|---|---|---|---|
{images}
{since}
Experiments, to be run from the directory that has this file: what they read is in `data/`, by relative paths.

{listed or "None."}

`primus image load` checks every byte against `primus-bundle.json` first, and this against `primus-bundle.json.sha256`
(`sha256sum -c`). Unpacked with tar, the bundle is an OCI image layout.
"""


def size_of(files: Mapping[str, Path | bytes]) -> int:
    return sum(len(one) if isinstance(one, bytes) else one.stat().st_size for one in files.values())


def listed(files: Mapping[str, Path | bytes]) -> list[str]:
    """A line for each folder of the bundle's files: what --dry-run prints."""
    sizes: dict[str, list[int]] = {}
    for name, one in files.items():
        sizes.setdefault("/".join(name.split("/")[:2]), []).append(size_of({name: one}))
    return [f"{name}  {mb(sum(every))}" for name, every in sorted(sizes.items())]
