"""Looks for what belongs to the build machine in everything an image is made of: layers, history, configuration.

Every layer is read as it is stored: what a later layer replaced or removed is still in what is shipped.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

_CHUNK = 4 << 20
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_KEY")
_ADDRESS = re.compile(r"PROXY$|INDEX_URL$|FIND_LINKS$|TRUSTED_HOST$|^GOPROXY$")
# What anybody's machine asks, and images may name.
_PUBLIC = re.compile(r"([\w-]+\.)*(debian\.org|ubuntu\.com|pypi\.org|pythonhosted\.org|pytorch\.org|radeon\.com)")
_LOCAL = re.compile(r"localhost|127\.[\d.]+|\[?::1\]?|0\.0\.0\.0")
# Tokens by their form, for a secret that is in no setting: Hugging Face's, GitHub's, GitLab's.
_FORMS = {
    b"hf_": re.compile(rb"(?<![A-Za-z0-9_])hf_[A-Za-z0-9]{34}(?![A-Za-z0-9_])"),
    b"ghp_": re.compile(rb"(?<![A-Za-z0-9_])ghp_[A-Za-z0-9]{36}(?![A-Za-z0-9_])"),
    b"glpat-": re.compile(rb"(?<![A-Za-z0-9_])glpat-[A-Za-z0-9_-]{20}(?![A-Za-z0-9_-])"),
}
# transformers' own tests have a token for a hub of theirs, in every copy on PyPI.
_PUBLISHED = re.compile(r".*/site-packages/transformers/(__pycache__/)?testing_utils\..*")
_OVERLAP = 4096


def of_machine(environ: Mapping[str, str], files: Sequence[Path] = ()) -> dict[bytes, str]:
    """What must be in no image, with the name of the setting it comes from: the value itself is never printed.

    `files` are settings of pip and apt: of them, the hosts and credentials of every address.
    """
    found: dict[bytes, str] = {}
    for name, value in environ.items():
        if _SECRET.search(name.upper()) and len(value) >= 8 and not value.startswith(("/", "$")):
            found[value.encode()] = name
        elif _ADDRESS.search(name.upper()):
            found.update(dict.fromkeys(_parts(value), name))
        elif name in ("BUILD_WHEELS", "BUILD_PIP_CONF", "BUILD_APT_CONF") and len(value) > 1:
            found[value.encode()] = name
    for path in files:
        if path.is_file():
            found.update(dict.fromkeys(_parts(path.read_text(encoding="utf-8", errors="replace")), str(path)))
    return found


def settings(environ: Mapping[str, str]) -> list[Path]:
    """The files that pip and apt of this machine, and its builds, are set up with."""
    found = [Path(environ[name]) for name in ("BUILD_PIP_CONF", "BUILD_APT_CONF") if environ.get(name)]
    found += [Path(name) for name in ("/etc/pip.conf", "/etc/apt/sources.list")]
    found += [Path.home() / name for name in (".config/pip/pip.conf", ".pip/pip.conf")]
    found += [*Path("/etc/apt/apt.conf.d").glob("*"), *Path("/etc/apt/sources.list.d").glob("*.list")]
    return [*found, *Path("/etc/apt/sources.list.d").glob("*.sources")]


def _parts(text: str) -> Iterator[bytes]:
    """The host, user and password of each address in the text, comments aside, unless everybody's."""
    said = re.sub(r"^\s*(#|//).*$", "", text, flags=re.MULTILINE)
    for word in re.findall(r"[a-z+]+://[^\s\"';,]+", said):
        try:
            address = urllib.parse.urlsplit(word)
            host, port = address.hostname or "", address.port
        except ValueError:
            continue
        if host and not _PUBLIC.fullmatch(host) and not _LOCAL.fullmatch(host):
            yield (f"{host}:{port}" if port and "." not in host else host).encode()
        for part in (address.username, address.password):
            if part and len(part) >= 6:
                yield part.encode()
                yield urllib.parse.unquote(part).encode()


def in_bytes(content: bytes, needles: Mapping[bytes, str]) -> set[str]:
    """The names of the settings whose value is in there, and the kinds of tokens."""
    found = {name for needle, name in needles.items() if needle in content}
    for start, form in _FORMS.items():
        # A placeholder of documentation is one letter again and again.
        if start in content and any(len(set(match[0])) > 12 for match in form.finditer(content)):
            found.add(f"a token {start.decode()}...")
    return found


def in_images(engine: str, images: Sequence[str], needles: Mapping[bytes, str]) -> list[str]:
    """`PLACE: NAME` for each find in the images, read as one archive: layers that they share are read once."""
    with subprocess.Popen((engine, "save", *images), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found = sorted(set(in_archive(process.stdout, needles)))
    assert process.returncode == 0, f"{engine} save: exit code {process.returncode}"
    return found


def in_archive(stream: IO[bytes], needles: Mapping[bytes, str]) -> Iterator[str]:
    """The finds in what `docker save` writes; raises AssertionError if that had no layer."""
    layers = 0
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else None
            if file is None:
                continue
            if member.size < _CHUNK:
                content = file.read()
                file = cast("Any", io.BytesIO(content))
                if _is_json(content):
                    yield from (f"{member.name}: {name}" for name in in_bytes(_plain(content), needles))
                    continue
            layers += 1
            yield from in_layer(member.name, cast("IO[bytes]", file), needles)
    assert layers, "the archive has no layer"


def _is_json(content: bytes) -> bool:
    return content[:1] in (b"{", b"[") and not content.startswith(b"{\0")


def _plain(content: bytes) -> bytes:
    """A document as it is and with its escapes undone: JSON writes & as \\u0026."""
    return content + b"\n" + json.dumps(json.loads(content), ensure_ascii=False).encode()


def in_layer(layer: str, stream: IO[bytes], needles: Mapping[bytes, str]) -> Iterator[str]:
    """The finds in one layer: names, links and contents."""
    try:
        with tarfile.open(fileobj=stream, mode="r|*") as tar:
            for member in tar:
                about = f"{member.name}\n{member.linkname}\n{member.uname}\n{member.pax_headers}"
                found = in_bytes(about.encode("utf-8", "surrogateescape"), needles)
                file = tar.extractfile(member) if member.isreg() else None
                last = b""
                while file is not None and (chunk := file.read(_CHUNK)):
                    found |= in_bytes(last + chunk, needles)
                    last = chunk[-_OVERLAP:]
                if _PUBLISHED.fullmatch(member.name):
                    found = {name for name in found if not name.startswith("a token ")}
                yield from (f"{layer}: /{member.name}: {name}" for name in found)
    except tarfile.ReadError as error:
        raise AssertionError(f"{layer}: is no layer: {error}") from None
