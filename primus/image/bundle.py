"""A bundle: one tar file that takes images, the launcher and experiments to where no network leads.

Its first member, primus-bundle.json, says all the others with their sizes and digests; the next has the first's own
digest. The tar around them has nothing that does not follow from that: each byte is either content with a digest, or
what primus.image.gnutar gives. So every byte can be checked, and one that is wrong lies in a member with a name.

Unpacked, it is an OCI image layout: https://github.com/opencontainers/image-spec/blob/main/image-layout.md; and with
manifest.json what docker load and podman load read.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Any

from primus.errors import ImageError
from primus.image import gnutar
from primus.image.names import DIGEST

MANIFEST = "primus-bundle.json"
SIGNATURE = "primus-bundle.json.sig"  # of the manifest, detached; the only member that the manifest does not name
CHECKSUM = "primus-bundle.json.sha256"  # of these two, as sha256sum writes and reads it
LAYOUT = ("oci-layout", "index.json", "manifest.json")  # and blobs/: what the engines read, and --to does not get
_FORMAT = 1
_PIECE = 1 << 20
_MOST = 1 << 28  # bytes of a manifest
AGAIN = "copy it again from where it was made, or make it again: primus image bundle"


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer by the digest of its unpacked content; its blob is empty where the bundle was made without it."""

    diff_id: str
    size: int  # bytes, unpacked
    blob: str = ""  # the digest of its compressed content


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image, from the bottom layer up."""

    framework: str
    accelerator: str
    name: str
    tag: str
    id: str  # the digest of its configuration, which is a blob
    digest: str = ""  # in the registry that it is from
    layers: tuple[Layer, ...] = ()

    @property
    def tagged(self) -> str:
        return f"{self.name}:{self.tag}"

    @property
    def diff_ids(self) -> tuple[str, ...]:
        return tuple(layer.diff_id for layer in self.layers)


@dataclass(frozen=True, kw_only=True)
class Member:
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """primus-bundle.json."""

    time: int  # seconds since 1970: every member's
    images: tuple[Image, ...]
    members: Mapping[str, Member]
    experiments: tuple[str, ...] = ()
    since: tuple[Image, ...] = field(default=())  # images that the host must have: of their layers none is here

    def text(self) -> bytes:
        return (json.dumps({"version": _FORMAT, **asdict(self)}, indent=1, sort_keys=True) + "\n").encode()


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A bundle that can be read: a file, or the directory of an unpacked one."""

    path: Path
    manifest: Manifest
    text: bytes  # the manifest, as it was read
    signature: bytes | None = None

    @property
    def head(self) -> tuple[tuple[str, bytes], ...]:
        """The members that the manifest does not name."""
        return head(self.text, self.signature)

    def pieces(self, name: str) -> Iterator[bytes]:
        """A member's content. Raises ImageError where it is cut off."""
        member = self.manifest.members[name]
        if self.path.is_dir():
            with _open(self.path / name) as file:
                yield from _exactly(file, member.size, name, self.path)
            return
        with _open(self.path) as file:
            file.seek(self.offsets[name])
            yield from _exactly(file, member.size, name, self.path)

    @cached_property
    def offsets(self) -> Mapping[str, int]:
        """Where in the file each member's content begins: counted once, as a bundle may have many thousands."""
        at, found = 0, {}
        for name, content in self.head:
            at += len(gnutar.header(name, len(content), self.manifest.time)) + gnutar.padded(len(content))
        for name, member in sorted(self.manifest.members.items()):
            at += len(gnutar.header(name, member.size, self.manifest.time))
            found[name] = at
            at += gnutar.padded(member.size)
        return found


def head(text: bytes, signature: bytes | None) -> tuple[tuple[str, bytes], ...]:
    """The first members: the manifest, its signature if it has one, and the checksum of both."""
    signed = ((MANIFEST, text), *(((SIGNATURE, signature),) if signature is not None else ()))
    lines = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in signed)
    return (*signed, (CHECKSUM, lines.encode()))


def manifest(text: bytes, where: Path | str) -> Manifest:
    """The manifest in the text of primus-bundle.json. Raises ImageError for a text that is none, or one not ours."""
    try:
        said = json.loads(text)
        if said.pop("version") != _FORMAT:
            raise ImageError(f"{where}: {MANIFEST}: is of another version", hint="load it with the launcher inside it")
        found = Manifest(
            time=said["time"],
            images=tuple(map(_image, said["images"])),
            since=tuple(map(_image, said["since"])),
            experiments=tuple(said["experiments"]),
            members={name: Member(**one) for name, one in said["members"].items()},
        )
        for name, one in found.members.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or str(path) != name or name in (MANIFEST, SIGNATURE, CHECKSUM):
                raise ValueError(f"{name!r} cannot be a member's name")
            if not (isinstance(one.size, int) and one.size >= 0 and DIGEST.fullmatch(f"sha256:{one.sha256}")):
                raise ValueError(f"{name}: its size or digest is none")
        for image in found.images:
            for blob in (image.id, *(layer.blob for layer in image.layers if layer.blob)):
                if blob_name(blob) not in found.members:
                    raise ValueError(f"{image.tagged}: {blob} is not in it")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ImageError(f"{where}: {MANIFEST}: is no bundle's: {error}", hint=AGAIN) from None
    return found


def _image(said: Mapping[str, Any]) -> Image:
    return Image(**{**said, "layers": tuple(Layer(**layer) for layer in said["layers"])})


def blob_name(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def read(path: Path) -> Bundle:
    """The bundle in a file or directory, its manifest checked against its own checksum. Raises ImageError."""
    if path.is_dir():
        signed = path / SIGNATURE
        contents = {name: _whole(path / name) for name in (MANIFEST, CHECKSUM)}
        text, signature = contents[MANIFEST], _whole(signed) if signed.exists() else None
        checksum = contents[CHECKSUM]
    else:
        with _open(path) as file:
            text = _member(file, MANIFEST, path)
            place = file.tell()
            named = file.read(100).rstrip(b"\0")
            file.seek(place)
            signature = _member(file, SIGNATURE, path) if named == SIGNATURE.encode() else None
            checksum = _member(file, CHECKSUM, path)
    expected = head(text, signature)[-1][1]
    if checksum != expected:
        lines = expected.splitlines()
        wrong = next((line for line in lines if line not in checksum.splitlines()), b"  " + CHECKSUM.encode())
        name = wrong.partition(b"  ")[2].decode()
        raise _damaged(path, name, f"is not what {CHECKSUM} says" if name != CHECKSUM else "is not as it was written")
    return Bundle(path=path, manifest=manifest(text, path), text=text, signature=signature)


def _member(file: IO[bytes], name: str, path: Path) -> bytes:
    """A member that must be the next, whatever its time."""
    block = file.read(gnutar.BLOCK)
    said = block[:100].rstrip(b"\0")
    if said != name.encode():
        none = name == MANIFEST
        what = "is not its first member: no bundle, or its header is damaged" if none else "is not where it should be"
        raise _damaged(path, name, what, none)
    try:
        size, time = int(block[124:135], 8), int(block[136:147], 8)
    except ValueError:
        raise _damaged(path, name, "its header is damaged, or this is no bundle") from None
    if block != gnutar.header(name, size, time) or size > _MOST:
        raise _damaged(path, name, "its header is damaged, or this is no bundle")
    content = file.read(size)
    if len(content) < size or file.read(len(gnutar.padding(size))) != gnutar.padding(size):
        raise _damaged(path, name, "is cut off, or what follows it is damaged")
    return content


def check(bundle: Bundle, say: Callable[[int], None] = lambda _size: None) -> None:
    """Raise ImageError, naming the member, unless each byte is what it was when the bundle was written.

    `say` is told how many bytes were looked at, as they are.
    """
    if bundle.path.is_dir():
        for name in sorted(bundle.manifest.members):
            if not (bundle.path / name).is_file():
                raise _damaged(bundle.path, name, "is missing")
            if (bundle.path / name).stat().st_size != bundle.manifest.members[name].size:
                raise _damaged(bundle.path, name, "has another size")
            for _ in verified(bundle, name, say):
                pass
        return
    with _open(bundle.path) as file:
        for name, content in bundle.head:
            _expect(file, gnutar.header(name, len(content), bundle.manifest.time), name, bundle.path)
            _expect(file, content + gnutar.padding(len(content)), name, bundle.path)
        for name, member in sorted(bundle.manifest.members.items()):
            _expect(file, gnutar.header(name, member.size, bundle.manifest.time), name, bundle.path)
            digest = hashlib.sha256()
            for piece in _exactly(file, member.size, name, bundle.path):
                digest.update(piece)
                say(len(piece))
            if digest.hexdigest() != member.sha256:
                raise _damaged(bundle.path, name, f"its content is not what {MANIFEST} says")
            _expect(file, gnutar.padding(member.size), name, bundle.path)
        _expect(file, gnutar.END, "the end, behind all members", bundle.path)
        if more := file.read(gnutar.BLOCK):
            name = more[:100].rstrip(b"\0").decode(errors="replace") or "something without a name"
            raise _damaged(bundle.path, name, f"was added: {MANIFEST} does not name it")


def verified(bundle: Bundle, name: str, say: Callable[[int], None] = lambda _size: None) -> Iterator[bytes]:
    """A member's content once more; what is at its end another than the manifest says raises ImageError."""
    digest = hashlib.sha256()
    for piece in bundle.pieces(name):
        digest.update(piece)
        say(len(piece))
        yield piece
    if digest.hexdigest() != bundle.manifest.members[name].sha256:
        raise _damaged(bundle.path, name, f"its content is not what {MANIFEST} says")


def missing(image: Image, here: Iterable[tuple[str, ...]]) -> tuple[Layer, ...]:
    """The layers that the image needs and neither the bundle nor an image of the host has, from the bottom up."""
    common = shared(image.diff_ids, here)
    return tuple(layer for layer in image.layers[common:] if not layer.blob)


def shared(layers: tuple[str, ...], others: Iterable[tuple[str, ...]]) -> int:
    """How many of the layers, from the bottom up, one of the others has as well: an engine finds them only so."""
    most = 0
    for other in others:
        count = next((at for at, pair in enumerate(zip(layers, other, strict=False)) if pair[0] != pair[1]), None)
        most = max(most, min(len(layers), len(other)) if count is None else count)
    return most


def _damaged(path: Path, name: str, what: str, none: bool = False) -> ImageError:
    return ImageError(f"{path}: {name}: {what}", hint="primus image bundle makes one" if none else AGAIN)


def _exactly(file: IO[bytes], size: int, name: str, path: Path) -> Iterator[bytes]:
    left = size
    while left:
        piece = file.read(min(left, _PIECE))
        if not piece:
            raise _damaged(path, name, f"the file ends {left} bytes too early")
        left -= len(piece)
        yield piece


def _expect(file: IO[bytes], wanted: bytes, name: str, path: Path) -> None:
    found = file.read(len(wanted))
    if found != wanted:
        cut = len(found) < len(wanted)
        raise _damaged(path, name, "the file ends here" if cut else "what is around its content is damaged")


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        beside = sorted(one.name for one in path.parent.glob("*.tar")) if not path.exists() else []
        near = ", ".join(difflib.get_close_matches(path.name, beside, 3, 0.3))
        hint = f"beside it is {near}" if near else "name the file that primus image bundle --out wrote"
        raise ImageError(f"{path}: {error.strerror}", hint=hint) from error


def _whole(path: Path) -> bytes:
    with _open(path) as file:
        return file.read()
