"""Making a bundle (primus.image.bundle): the images' layers, the files beside them, and one tar of all."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from primus.errors import ImageError, LaunchError
from primus.image import bundle, gnutar
from primus.image.bundle import Image, Layer, Manifest, Member, blob_name
from primus.image.engine import Client
from primus.image.layers import hashed, saved
from primus.image.transfer import counter, mb

_PACKED = 0.45  # of a layer's size, measured on our images and rounded up: a third
_PIECE = 1 << 20

Say = Callable[[str], None]
Content = bytes | Path


def _nothing(_image: Image) -> Mapping[str, bytes]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What goes into a bundle."""

    images: tuple[Image, ...]  # their layers without blobs yet
    since: tuple[Image, ...] = ()
    files: Mapping[str, Content] = field(default_factory=dict)
    experiments: tuple[str, ...] = ()
    time: int
    # The places where more is added: members for each image, below images/<framework>-<accelerator>/, and the
    # manifest's detached signature.
    about: Callable[[Image], Mapping[str, bytes]] = _nothing
    sign: Callable[[bytes], bytes] | None = None


def write(plan: Plan, out: Path, client: Client, say: Say) -> Manifest:
    """Write the bundle, beside itself first; what a run that was killed had compressed already is used again."""
    if shutil.which("zstd") is None:
        raise LaunchError("zstd is not installed, and compresses the layers", hint="install it: apt install zstd")
    with _workplace(out) as work:
        images, blobs = _images(plan, work, client, say)
        files: dict[str, Content] = {**blobs, **plan.files, **_layout(images, blobs)}
        for image in images:
            folder = f"images/{image.framework}-{image.accelerator}"
            files |= {f"{folder}/{name}": content for name, content in plan.about(image).items()}
        members = {name: _member(content) for name, content in files.items()}
        made = Manifest(time=plan.time, images=images, since=plan.since, experiments=plan.experiments, members=members)
        _room(out.parent, beyond(members, {name for name, one in files.items() if _is_in(one, work)}), out)
        text = made.text()
        _assemble(bundle.head(text, plan.sign(text) if plan.sign else None), made, files, work / "tar", out, say)
    return made


def planned(client: Client, image: Image) -> Image:
    """The image with the layers that the engine says it has."""
    about = client.about(image.id) or {}
    digests = (about.get("RootFS") or {}).get("Layers") or []
    return replace(image, layers=tuple(Layer(diff_id=one, size=0) for one in digests))


def created(about: Mapping[str, Any]) -> int:
    """When the engine says that an image was made, in seconds since 1970; 0 if it does not."""
    text = str(about.get("Created") or "")[:19]
    with contextlib.suppress(ValueError):
        return max(0, int(datetime.fromisoformat(f"{text}+00:00").timestamp()))
    return 0


def estimate(client: Client, images: Iterable[Image]) -> int:
    """Bytes that the images' layers take in a bundle, about; those that several have, once."""
    sizes: dict[tuple[str, ...], int] = {}
    for image in images:
        words = (
            client.engine,
            "history",
            "--human=false",
            "--no-trunc",
            "--format={{.CreatedBy}}\t{{.Size}}",
            image.id,
        )
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        steps = list(reversed(done.stdout.splitlines()))
        for count, step in enumerate(steps, 1):
            size = step.rpartition("\t")[2]
            sizes[tuple(steps[:count])] = int(size) if size.isdigit() else 0
    return int(sum(sizes.values()) * _PACKED)


def check_room(out: Path, needed: int) -> None:
    """Raise LaunchError unless there is room for what the bundle needs more than an ended run has left of it."""
    folder = out.parent
    if not folder.is_dir():
        raise LaunchError(f"{folder} is no directory", hint="make it first: mkdir -p")
    _room(folder, needed - sum(one.stat().st_size for one in _parts(out).glob("*")), out)


def beyond(members: Mapping[str, Member], packed: Collection[str]) -> int:
    """Bytes that writing takes besides the packed parts: each of these goes when the bundle has it."""
    rest = sum(one.size for name, one in members.items() if name not in packed)
    return rest + max((members[name].size for name in packed), default=0)


def _is_in(content: Content, work: Path) -> bool:
    return isinstance(content, Path) and content.is_relative_to(work)


def _parts(out: Path) -> Path:
    return out.with_name(f".{out.name}.parts")


def _room(folder: Path, needed: int, out: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise LaunchError(
            f"{out} needs about {mb(needed)} in {folder}, and there is {mb(free)}",
            hint="make room there, or write it elsewhere: --out",
        )


@contextlib.contextmanager
def _workplace(out: Path) -> Iterator[Path]:
    """A directory beside the file, which stays if we are ended: the next run goes on from it."""
    work = _parts(out)
    try:
        work.mkdir(exist_ok=True)
        lock = os.open(work / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LaunchError(f"{work}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LaunchError(f"{out} is being written by another process", hint="wait for that one") from None
        (work / "tar").unlink(missing_ok=True)  # an ended run's: room for this one
        yield work
        shutil.rmtree(work)
    finally:
        os.close(lock)


def _images(plan: Plan, work: Path, client: Client, say: Say) -> tuple[tuple[Image, ...], dict[str, Content]]:
    """The images with their layers' blobs, and these with the configurations as files."""
    had = [image.diff_ids for image in plan.since]
    packed: dict[str, Layer] = {}
    blobs: dict[str, Content] = {}
    found = []
    for number, image in enumerate(plan.images, 1):
        title = f"[{number}/{len(plan.images)}] {image.tagged}"
        left_out = {*image.diff_ids[: bundle.shared(image.diff_ids, had)]}
        for layer, path in saved(client, image, left_out, packed, work, title, say):
            packed[layer.diff_id] = layer
            if layer.blob:
                blobs[blob_name(layer.blob)] = path
        config = work / image.id.removeprefix("sha256:")
        blobs[blob_name(image.id)] = config.read_bytes()
        layers = (packed[one] for one in image.diff_ids)
        found.append(
            replace(image, layers=tuple(replace(one, blob="") if one.diff_id in left_out else one for one in layers))
        )
    used = {blob_name(layer.blob) for image in found for layer in image.layers if layer.blob}
    return tuple(found), {name: one for name, one in blobs.items() if name in used or isinstance(one, bytes)}


def _member(content: Content) -> Member:
    if isinstance(content, bytes):
        return Member(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    with content.open("rb") as file:
        digest, size = hashed(file)
    return Member(size=size, sha256=digest)


def _layout(images: Sequence[Image], blobs: Mapping[str, Content]) -> dict[str, Content]:
    """What makes an OCI image layout of the blobs, and what docker load and podman load read."""
    files: dict[str, Content] = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}\n'}
    sizes = {name: len(one) if isinstance(one, bytes) else one.stat().st_size for name, one in blobs.items()}
    listed = []
    for image in images:
        text = _json(oci_manifest(image, sizes))
        digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
        files[blob_name(digest)] = text
        listed.append(
            {
                **{"mediaType": _OCI.format("manifest"), "digest": digest, "size": len(text)},
                "annotations": {"org.opencontainers.image.ref.name": image.tagged},
            }
        )
    files["index.json"] = _json({"schemaVersion": 2, "mediaType": _OCI.format("index"), "manifests": listed})
    files["manifest.json"] = _json([bundle_entry(image, [image.tagged]) for image in images])
    return files


# https://github.com/opencontainers/image-spec/blob/main/media-types.md
_OCI = "application/vnd.oci.image.{}.v1+json"
_TAR = "application/vnd.oci.image.layer.v1.tar"


def oci_manifest(image: Image, sizes: Mapping[str, int]) -> Mapping[str, Any]:
    """The image's manifest; a layer that is left out is said as what the host has of it: unpacked."""
    config = {"mediaType": _OCI.format("config"), "digest": image.id, "size": sizes[blob_name(image.id)]}
    layers = [
        {"mediaType": f"{_TAR}+zstd", "digest": layer.blob, "size": sizes[blob_name(layer.blob)]}
        if layer.blob
        else {"mediaType": _TAR, "digest": layer.diff_id, "size": layer.size}
        for layer in image.layers
    ]
    return {"schemaVersion": 2, "mediaType": _OCI.format("manifest"), "config": config, "layers": layers}


def bundle_entry(image: Image, names: Sequence[str] | None) -> Mapping[str, Any]:
    """An entry of docker's manifest.json: https://github.com/moby/docker-image-spec has it."""
    layers = [blob_name(layer.blob or layer.diff_id) for layer in image.layers]
    return {"Config": blob_name(image.id), "RepoTags": names, "Layers": layers}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _assemble(
    head: Iterable[tuple[str, bytes]], made: Manifest, files: Mapping[str, Content], part: Path, out: Path, say: Say
) -> None:
    total = sum(one.size for one in made.members.values())
    say(f"writing {out.name}, {mb(total)} ...")
    count = counter(f"writing {out.name}", total, say)
    try:
        with part.open("wb") as file:
            for name, content in (*head, *sorted(files.items())):
                member = made.members.get(name) or _member(content)
                file.write(gnutar.header(name, member.size, made.time))
                digest = hashlib.sha256()
                for piece in _pieces(content):
                    digest.update(piece)
                    file.write(piece)
                    count(len(piece))
                if digest.hexdigest() != member.sha256:
                    raise ImageError(f"{content!s}: was changed while it was read", hint="run the same command again")
                file.write(gnutar.padding(member.size))
                if isinstance(content, Path) and _is_in(content, part.parent):
                    content.unlink()  # the disk need not hold all of it twice
            file.write(gnutar.END)
            file.flush()
            os.fsync(file.fileno())
        part.replace(out)
    except OSError as error:
        raise LaunchError(f"cannot write {out}: {error.strerror}") from error


def _pieces(content: Content) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece
