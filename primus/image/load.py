"""From a bundle into an engine and a directory: nothing has its name there before each of its bytes was checked."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

from primus.errors import ImageError, LaunchError
from primus.image import bundle, gnutar
from primus.image.archive import alone
from primus.image.bundle import Bundle, Image, blob_name
from primus.image.engine import Client
from primus.image.transfer import counter, mb, run

Say = Callable[[str], None]


def load(client: Client, source: Bundle, image: Image, title: str, say: Say) -> None:
    """Have the engine load the image, unless it has it, and give it its name. Raises ImageError, LaunchError."""
    with alone(image.id):
        if client.about(image.id) is None:
            _load(client, source, image, title, say)
        else:
            say(f"{title}: is here already")
        named = client.about(image.tagged)
        if named is None or named["Id"] != image.id:
            client.tag(image.id, image.tagged)


def _load(client: Client, source: Bundle, image: Image, title: str, say: Say) -> None:
    here = [tuple(one) for one in client.layers()]
    common = bundle.shared(image.diff_ids, here)
    if gone := bundle.missing(image, here):
        raise ImageError(f"{image.tagged}: {_needs(source, image, gone)}", hint=_FIRST)
    packed = sum(source.manifest.members[blob_name(layer.blob)].size for layer in image.layers[common:])
    needed = packed + sum(layer.size for layer in image.layers[common:])  # they arrive beside what is made of them
    free = client.free()
    if free and free[1] < needed:
        raise LaunchError(
            f"{image.tagged}: needs about {mb(needed)} in {free[0]}, and there is {mb(free[1])}",
            hint=f"make room: primus image prune, or {client.engine} system df",
        )
    feed = stream(source, image, common, stand_ins=client.engine == "podman")
    code, last = run((client.engine, "load"), f"{title}: loading {mb(packed)}", say, feed=feed)
    about = client.about(image.id)
    if code or about is None:
        said = last.splitlines()[-1] if last else f"exit code {code}"
        full = re.search("no space left", last, re.IGNORECASE)
        raise ImageError(
            f"{image.tagged}: {client.engine} cannot load it: {said}"
            if code
            else f"{image.tagged}: {client.engine} gave it another ID than {image.id}",
            hint="its disk is full: primus image prune, or system df, and then the same command again"
            if full
            else "run the same command again: what is here already is kept",
        )


_FIRST = "load a bundle that has it first, or make one without --since"


def _needs(source: Bundle, image: Image, gone: tuple[bundle.Layer, ...]) -> str:
    lacking = gone[-1].diff_id
    which = [one for one in source.manifest.since if lacking in one.diff_ids]
    names = " or ".join(f"{one.tagged} ({one.id[:19]})" for one in which) or "another image"
    return f"the bundle was made for a host that has {names}, and this one has not"


def stream(source: Bundle, image: Image, common: int, *, stand_ins: bool) -> Iterator[bytes]:
    """The image as docker save would write it, without its lowest `common` layers, which the engine has.

    podman reads a file for each layer, and does not use those of layers that it has. What names the image comes last,
    when all before it was checked.
    """
    given = list(dict.fromkeys((image.id, *(layer.blob for layer in image.layers[common:]))))
    for digest in given:
        name = blob_name(digest)
        size = source.manifest.members[name].size
        yield gnutar.header(name, size, 0)
        yield from bundle.verified(source, name)
        yield gnutar.padding(size)
    for name in dict.fromkeys(blob_name(layer.blob or layer.diff_id) for layer in image.layers[:common]):
        if stand_ins and name not in map(blob_name, given):
            yield gnutar.header(name, len(gnutar.END), 0) + gnutar.END
    layers = [blob_name(layer.blob or layer.diff_id) for layer in image.layers]
    text = json.dumps([{"Config": blob_name(image.id), "RepoTags": None, "Layers": layers}]).encode()
    yield gnutar.header("manifest.json", len(text), 0) + text + gnutar.padding(len(text)) + gnutar.END


def check(source: Bundle, say: Say) -> None:
    """Raise ImageError unless each byte of the bundle is right."""
    total = sum(one.size for one in source.manifest.members.values())
    title = f"checking {source.path.name}"
    say(f"{title}, {mb(total)} ...")
    bundle.check(source, counter(title, total, say))


def unpack(source: Bundle, to: Path, say: Say) -> None:
    """Put what is no image into a directory: experiments, data, wheels, lock, README.

    A file that is there as it should be stays; one that is there and differs is an error, before anything is written.
    """
    names = files(source)
    try:
        new = [name for name in names if not os.path.lexists(to / name)]
        for name in sorted({*names} - {*new}):
            if _digest(to / name) != source.manifest.members[name].sha256:
                raise LaunchError(f"{to / name}: is there, and is not the bundle's", hint="name another: --to DIR")
        if not new:
            say(f"{to}: is there already")
            return
        if wrong := next(_no_folders(to, new), None):
            raise LaunchError(f"{wrong}: is there, and is no directory", hint="name another: --to DIR")
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}.") as scratch:
            place = Path(scratch) / "new"
            for name in new:
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                with (place / name).open("wb") as file:
                    for piece in bundle.verified(source, name):
                        file.write(piece)
            if not to.exists():
                place.replace(to)
                return
            for name in new:
                (to / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).replace(to / name)
    except OSError as error:
        raise LaunchError(
            f"cannot write {to}: {error.strerror}",
            hint="what it has is whole, and the same command goes on; or name another: --to DIR",
        ) from error


def _no_folders(to: Path, names: Iterable[str]) -> Iterator[Path]:
    """What is in the way: other things where the names need directories."""
    folders = {to / parent for name in names for parent in PurePosixPath(name).parents}
    return (one for one in sorted(folders) if os.path.lexists(one) and not one.is_dir())


def check_room(source: Bundle, to: Path) -> None:
    """Raise LaunchError unless there is room for the files."""
    folder = next(one for one in (to, *to.parents) if one.is_dir())
    needed = sum(source.manifest.members[name].size for name in files(source) if not (to / name).exists())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise LaunchError(
            f"{to}: needs {mb(needed)}, and there is {mb(free)} in {folder}",
            hint="make room, or name another: --to DIR",
        )


def files(source: Bundle) -> tuple[str, ...]:
    """The members that --to gets."""
    return tuple(
        name for name in sorted(source.manifest.members) if name not in bundle.LAYOUT and not name.startswith("blobs/")
    )


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
