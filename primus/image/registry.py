"""A registry's HTTP interface, as far as publishing needs it: https://github.com/opencontainers/distribution-spec

The standard library does it: setting a tag is one PUT of the very bytes that another tag has, so the digest stays, no
layer moves, and no other tool has to be installed (buildx 0.13's imagetools would wrap the image in a list, with a
digest of its own).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import re
import tarfile
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from primus.errors import ImageError
from primus.image.transport import Transport, json_of

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_ACCEPT = ", ".join((OCI_MANIFEST, "application/vnd.docker.distribution.manifest.v2+json", *_INDEXES))
_LARGEST = 32_000_000  # bytes of a layer that is read for a small file in it
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True, kw_only=True)
class Found:
    """An image as a registry has it."""

    digest: str  # of the manifest, or of the list of several platforms' manifests
    media_type: str
    content: bytes = field(repr=False)
    platform: Mapping[str, Any] = field(repr=False)  # the manifest for this machine's architecture

    @property
    def id(self) -> str:
        """The digest of the image's configuration: the engine's Image ID."""
        return str(self.platform["config"]["digest"])

    @property
    def layers(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.platform["layers"])

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(int(layer["size"]) for layer in self.layers)

    def is_image(self, identifier: str) -> bool:
        """Whether the engine's identifier is this one. With containerd's store, that is the manifest's digest."""
        return identifier in (self.id, self.digest)


class Registry:
    """One repository of a registry."""

    def __init__(self, host: str, path: str, **options: Any) -> None:
        """`options` are Transport's."""
        self.host = host
        self._way = Transport(host, path, **options)
        self.name = self._way.name

    @property
    def plain(self) -> bool:
        """Whether it speaks http, as far as is known."""
        return self._way.plain

    def manifest(self, tag_or_digest: str) -> Found | None:
        """The image under a tag or digest; None if there is none. Its bytes are held against the digest."""
        answer = self._way.ask("GET", f"manifests/{tag_or_digest}", accept=_ACCEPT, ok=(200, 404))
        if answer.status == 404:
            return None
        digest = digest_of(answer.body)
        if tag_or_digest.startswith("sha256:") and digest != tag_or_digest:
            raise ImageError(
                f"{self.name}@{tag_or_digest}: the registry sent something else ({digest})",
                hint="a proxy between here and there may be in the way; try again",
            )
        document = json_of(answer.body, "manifest", self.name)
        media = document.get("mediaType") or answer.headers.get_content_type()
        return Found(digest=digest, media_type=media, content=answer.body, platform=self._platform(document, media))

    def _platform(self, document: Mapping[str, Any], media: str) -> Mapping[str, Any]:
        if media not in _INDEXES:
            config, layers = document.get("config"), document.get("layers")
            if not (isinstance(config, dict) and "digest" in config and isinstance(layers, list)):
                raise ImageError(f"{self.name}: what is there is no image", hint="is it the right repository?")
            return document
        # An image with attestations is a list, too: they are for the platform `unknown`.
        wanted = _ARCHITECTURE.get(platform.machine(), platform.machine())
        for one in document.get("manifests", ()):
            if (one.get("platform") or {}).get("architecture") == wanted:
                found = self.manifest(one["digest"])
                if found is not None:
                    return found.platform
        raise ImageError(f"{self.name}: the image is for other machines than {wanted}")

    def index(self, tag: str) -> tuple[Mapping[str, Any], ...]:
        """The entries of a list of manifests; none if there is no such tag."""
        answer = self._way.ask("GET", f"manifests/{tag}", accept=_INDEXES[0], ok=(200, 404))
        return tuple(json_of(answer.body, "list", self.name).get("manifests", ())) if answer.status == 200 else ()

    def digest(self, tag: str) -> str:
        """The digest that a tag has; empty if there is no such tag. No image is fetched, or counted as fetched."""
        answer = self._way.ask("HEAD", f"manifests/{tag}", accept=_ACCEPT, ok=(200, 404))
        if answer.status == 404:
            return ""
        said = answer.headers.get("Docker-Content-Digest")
        if said:
            return str(said)
        found = self.manifest(tag)
        return found.digest if found else ""

    def put(self, tag: str, found: Found) -> None:
        """Have the tag name an image that the repository has, with the same digest."""
        self.put_manifest(tag, found.content, found.media_type)

    def put_document(self, tag: str, document: Mapping[str, Any], media_type: str) -> None:
        """Keep a small document of our own under a tag, as the configuration of a manifest without layers."""
        content = json.dumps(document, sort_keys=True).encode()
        config = {"mediaType": media_type, "digest": self.upload(content), "size": len(content)}
        manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": []}
        self.put_manifest(tag, json.dumps(manifest).encode(), OCI_MANIFEST)

    def document(self, tag: str) -> dict[str, Any]:
        """The document under the tag; empty if there is none."""
        found = self.manifest(tag)
        return self.config(found) if found else {}

    def put_manifest(self, tag: str, content: bytes, media_type: str) -> None:
        """Have the tag name a manifest of which every blob is there."""
        answer = self._way.ask("PUT", f"manifests/{tag}", body=content, content_type=media_type, ok=(200, 201, 202))
        said = answer.headers.get("Docker-Content-Digest") or digest_of(content)
        if said != digest_of(content):
            raise ImageError(f"{self.name}:{tag}: the registry made {said} of {digest_of(content)}")

    def config(self, found: Found) -> dict[str, Any]:
        """The image's configuration: labels, and the layers' digests as the engine has them."""
        return json_of(self.blob(found.id), "configuration", self.name)

    def blob(self, digest: str) -> bytes:
        answer = self._way.ask("GET", f"blobs/{digest}", ok=(200, 404))
        if answer.status == 404 or digest_of(answer.body) != digest:
            is_gone = answer.status == 404
            raise ImageError(
                f"{self.name}: {digest} is {'not there' if is_gone else 'damaged'} in the registry",
                hint="publish the image again: its layers are checked, and sent where they are missing",
            )
        return answer.body

    def file(self, found: Found, path: str) -> bytes:
        """A small file of the image, from the uppermost small layer that has it; empty if none has."""
        for layer in reversed(found.layers):
            if int(layer["size"]) > _LARGEST or "zstd" in str(layer.get("mediaType")):
                continue
            content = self.blob(str(layer["digest"]))
            if content[:2] == b"\x1f\x8b":
                content = gzip.decompress(content)
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                for member in archive:
                    if member.name.lstrip("./") == path and member.isfile():
                        file = archive.extractfile(member)
                        return file.read() if file else b""
        return b""

    def upload(self, content: bytes) -> str:
        """Store bytes; gives their digest."""
        digest = digest_of(content)
        if self._way.ask("HEAD", f"blobs/{digest}", ok=(200, 404), actions="pull,push").status == 200:
            return digest
        where = self._begin_upload()
        url = f"{where}{'&' if '?' in where else '?'}digest={urllib.parse.quote(digest)}"
        self._way.ask("PUT", url, body=content, content_type="application/octet-stream", ok=(201, 204))
        return digest

    def may_push(self) -> None:
        """Raise ImageError unless we may write here: an upload is begun and given up again."""
        where = self._begin_upload()
        self._way.ask("DELETE", where, ok=tuple(range(200, 600)), actions="pull,push")

    def _begin_upload(self) -> str:
        answer = self._way.ask("POST", "blobs/uploads/", body=b"", ok=(202,))
        return self._way.url(str(answer.headers.get("Location", "")))

    def tags(self) -> tuple[str, ...]:
        """Every tag, as the registry lists them; none if it does not know the repository."""
        found: list[str] = []
        where, read = "tags/list?n=1000", set()
        while where and where not in read:
            read.add(where)
            answer = self._way.ask("GET", where, ok=(200, 404))
            if answer.status == 404:
                break
            found += json_of(answer.body, "list of tags", self.name).get("tags") or ()
            link = re.match(r"<([^>]+)>", answer.headers.get("Link", ""))
            where = self._way.url(link[1]) if link else ""
        return tuple(found)
