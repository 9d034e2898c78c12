"""Is an image what it says it is: its labels, its manifest, the lock, and what is really installed in it."""

from __future__ import annotations

import base64
import csv
import email.parser
import io
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from primus.image.content import Content, Entry
from primus.image.lock import Locked
from primus.image.manifest import IN_IMAGE

# Not installed in small images, or made anew by whoever is first: no promise of a package's.
_LEFT_OUT = re.compile(r"usr/share/(doc|doc-base|man|locale|info|lintian|bug|linda|groff)/|.*/__pycache__/|.*\.pyc$")
_OURS = "primus.pth"  # leads Python to the launcher
_MERGED = re.compile(r"(bin|sbin|lib|lib32|lib64|libx32)/")  # links to the same below usr/


@dataclass(frozen=True, kw_only=True)
class Check:
    """One question and its answer."""

    name: str
    state: str  # ok, warn or fail
    said: str
    hint: str = ""


def check(name: str, wrong: Iterable[str], right: str, hint: str) -> Check:
    """The answer: `right`, or what is wrong, the first of it and how much more there is."""
    found = list(wrong)
    if not found:
        return Check(name=name, state="ok", said=right)
    more = f", and {len(found) - 3} more" if len(found) > 3 else ""
    return Check(name=name, state="fail", said="; ".join(found[:3]) + more, hint=hint)


_ANEW = "do not run it: pull it again by digest, or build it anew"


def labels(said: Mapping[str, str], inside: Mapping[str, Any]) -> Check:
    """What the labels say, which the launcher goes by, against the manifest inside."""
    pairs = {
        "io.primus.framework": inside.get("framework"),
        "io.primus.accelerator": inside.get("accelerator"),
        "io.primus.gfx": ",".join(inside.get("gfx") or ()),
        "org.opencontainers.image.version": inside.get("version"),
    }
    wrong = [
        f"{name} is {said.get(name, '')!r}, and {IN_IMAGE} says {value!r}"
        for name, value in pairs.items()
        if said.get(name, "").replace(";", ",") != value
    ]
    return check("labels", wrong, f"the labels say what {IN_IMAGE} says", _ANEW)


def lock(about: Mapping[str, Any], inside: Mapping[str, Any], locked: Locked) -> Check:
    """The image against what was locked of it."""
    said = (about.get("Config") or {}).get("Labels") or {}
    pairs: tuple[tuple[str, Any, Any], ...] = (
        ("ID", locked.id if about["Id"] == locked.digest else about["Id"], locked.id),  # containerd's store: the digest
        ("commit", said.get("org.opencontainers.image.revision", ""), locked.revision),
        ("OS image", str(inside.get("base_image", "")), locked.base_image),
        ("sources", dict(inside.get("sources") or {}), dict(locked.sources)),
        ("sha256 of the packages' lock", str(inside.get("lock_sha256", "")), locked.lock_sha256),
    )
    if not (
        locked.base_image or locked.sources or locked.lock_sha256
    ):  # not read when it was locked; the ID has it all
        pairs = pairs[:2]
    wrong = [
        f"{name} is {value or 'not there'}, and locked is {wanted or 'none'}"
        for name, value, wanted in pairs
        if value != wanted
    ]
    digests = [one.partition("@")[2] for one in about.get("RepoDigests") or ()]
    if locked.digest and digests and locked.digest not in digests:
        wrong.append(f"its digests are {', '.join(digests)}, and locked is {locked.digest}")
    return check("lock", wrong, f"it is what is locked as {locked.tagged}", "primus image pull fetches what is locked")


def packages(content: Content, inside: Mapping[str, Any]) -> Check:
    """The Python packages that are installed, against those of the manifest."""
    stated = {_normal(name): str(version) for name, version in (inside.get("packages") or {}).items()}
    found: dict[str, set[str]] = {}
    for name, version, _ in installed(content):
        found.setdefault(_normal(name), set()).add(version)
    wrong = [f"{name} {version} is missing" for name, version in stated.items() if version not in found.get(name, ())]
    wrong += [
        f"{name} {'/'.join(sorted(versions))} is not in {IN_IMAGE}"
        for name, versions in found.items()
        if name not in stated
    ]
    return check("packages", wrong, f"{len(stated)} Python packages, as {IN_IMAGE} has them", _ANEW)


def _normal(name: str) -> str:
    """https://packaging.python.org/en/latest/specifications/name-normalization/"""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(content: Content) -> Iterator[tuple[str, str, str]]:
    """Name, version and folder of each installed Python package."""
    for path, text in content.kept.items():
        if path.endswith((".dist-info/METADATA", ".egg-info/PKG-INFO")):
            about = email.parser.HeaderParser().parsestr(text.decode("utf-8", "replace"))
            yield str(about["Name"]), str(about["Version"]), path.rsplit("/", 1)[0]


def files(content: Content, inside: Mapping[str, Any]) -> Check:
    """Every file of the Python packages against what its wheel said, and files that came with none.

    https://packaging.python.org/en/latest/specifications/recording-installed-packages/
    """
    patched = {str(one.get("tree")) for one in inside.get("patches") or ()}
    wrong: list[str] = []
    listed: set[str] = set()
    count = 0
    for path, text in content.kept.items():
        folder, _, name = path.rpartition("/")
        if name == "installed-files.txt":  # setuptools' own list, of a package without a RECORD
            listed.add(path)
            listed |= {posixpath.normpath(f"{folder}/{line}") for line in text.decode("utf-8", "replace").split("\n")}
        if name != "RECORD":
            continue
        root = folder.rpartition("/")[0]
        for row in csv.reader(io.StringIO(text.decode("utf-8", "replace"))):
            if len(row) < 2 or _LEFT_OUT.match(row[0]):
                continue
            place = posixpath.normpath(f"{root}/{row[0]}")
            listed.add(place)
            entry = content.entries.get(place)
            if entry is None:
                wrong.append(f"/{place} is missing")
            elif row[1] and entry.sha256 != _hex(row[1]) and row[0].partition("/")[0] not in patched:
                wrong.append(f"/{place} was changed")
            count += 1
    roots = {path.rsplit("/", 2)[0] for path in content.kept if path.endswith("/RECORD")}
    listed |= {f"{root}/{_OURS}" for root in roots}
    for path, entry in content.entries.items():
        below = any(path.startswith(f"{root}/") for root in roots)
        if below and entry.kind != "directory" and path not in listed and not _LEFT_OUT.match(path):
            wrong.append(f"/{path} belongs to no package")
    by_patches = f", but for what {len(inside.get('patches') or ())} patches change" if patched else ""
    return check("files", wrong, f"{count} files of Python packages, as their wheels had them{by_patches}", _ANEW)


def _hex(text: str) -> str:
    """sha256=<urlsafe base64 without padding> as hexadecimal."""
    kind, _, value = text.partition("=")
    return base64.urlsafe_b64decode(value + "==").hex() if kind == "sha256" else ""


def debian(content: Content) -> Check:
    """Every file of the Debian packages against the md5sums that came with them, as dpkg --verify does."""
    wrong: list[str] = []
    count = 0
    for name, text in content.kept.items():
        if not name.endswith(".md5sums"):
            continue
        for line in text.decode("utf-8", "replace").splitlines():
            stated, _, path = line.partition("  ")
            if _LEFT_OUT.match(path):
                continue
            entry = _unlinked(content, path) or _unlinked(content, f"usr/{path}" if _MERGED.match(path) else path)
            count += 1
            if entry is None:
                wrong.append(f"/{path} is missing")
            elif entry.kind != "file" or entry.md5 != stated:  # md5sums has no links
                wrong.append(f"/{path} was changed")
    return check("debian", wrong, f"{count} files of Debian packages, as they came", _ANEW)


def _unlinked(content: Content, path: str) -> Entry | None:
    """What is at the path; for a hard link, the file that it is another name of."""
    entry = content.entries.get(path)
    if entry is not None and entry.kind == "hardlink":
        return content.entries.get(entry.link.removeprefix("./").strip("/"), entry)
    return entry


def inside_of(content: Content) -> dict[str, Any]:
    """The manifest inside; empty if there is none that can be read."""
    try:
        found = json.loads(content.kept.get(str(IN_IMAGE).lstrip("/"), b"{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def everything(about: Mapping[str, Any], content: Content, locked: Locked | None) -> list[Check]:
    """All of it for one image, as the engine describes it."""
    inside = inside_of(content)
    if not inside:
        return [Check(name="manifest", state="fail", said=f"it has no {IN_IMAGE} that can be read", hint=_ANEW)]
    said = (about.get("Config") or {}).get("Labels") or {}
    found = [labels(said, inside)]
    found.append(
        lock(about, inside, locked)
        if locked
        else Check(name="lock", state="warn", said="nothing is locked for it", hint="primus image lock")
    )
    return [*found, packages(content, inside), files(content, inside), debian(content)]
