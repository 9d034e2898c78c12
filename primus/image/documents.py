"""What accompanies an image: its SBOM and its provenance; in a bundle as files, in a registry as referrers.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md#listing-referrers: a manifest with the image's as
its `subject` and, as older registries do not list those, an index under the tag sha256-<digest>.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from primus.image.content import Content
from primus.image.provenance import provenance
from primus.image.registry import OCI_MANIFEST, Found, Registry, digest_of
from primus.image.sbom import sbom
from primus.image.verification import inside_of

_INDEX = "application/vnd.oci.image.index.v1+json"
_EMPTY = "application/vnd.oci.empty.v1+json"
# The name of each document, and its media type.
KINDS = {"sbom.cdx.json": "application/vnd.cyclonedx+json", "provenance.json": "application/vnd.in-toto+json"}


@dataclass(frozen=True, kw_only=True)
class Document:
    """One document about an image."""

    name: str
    text: str

    @property
    def media_type(self) -> str:
        return KINDS[self.name]


def of(name: str, about: Mapping[str, Any], content: Content) -> tuple[Document, ...]:
    """The documents of a local image, from the engine's description of it and its content."""
    return (
        Document(name="sbom.cdx.json", text=sbom(name, about, content)),
        Document(name="provenance.json", text=provenance(name, about, inside_of(content))),
    )


def attach(there: Registry, image: Found, documents: tuple[Document, ...]) -> None:
    """Put the documents beside the image; those of the same kind that were there are replaced."""
    entries = [_attach(there, image, one) for one in documents]
    new = {one["artifactType"] for one in entries}
    tag = _tag(image.digest)
    kept = [one for one in there.index(tag) if one.get("artifactType") not in new]
    text = json.dumps({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [*kept, *entries]}).encode()
    there.put_manifest(tag, text, _INDEX)


def _attach(there: Registry, image: Found, document: Document) -> dict[str, Any]:
    content, empty = document.text.encode(), b"{}"
    layer = {
        "mediaType": document.media_type,
        "digest": there.upload(content),
        "size": len(content),
        "annotations": {"org.opencontainers.image.title": document.name},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": document.media_type,
        "config": {"mediaType": _EMPTY, "digest": there.upload(empty), "size": len(empty)},
        "layers": [layer],
        "subject": {"mediaType": image.media_type, "digest": image.digest, "size": len(image.content)},
    }
    text = json.dumps(manifest).encode()
    digest = digest_of(text)
    there.put_manifest(digest, text, OCI_MANIFEST)
    return {"mediaType": OCI_MANIFEST, "digest": digest, "size": len(text), "artifactType": document.media_type}


def fetch(there: Registry, digest: str, name: str) -> str:
    """A published document; empty if there is none."""
    for entry in there.index(_tag(digest)):
        if entry.get("artifactType") == KINDS[name]:
            found = there.manifest(str(entry["digest"]))
            if found is not None:
                return there.blob(str(found.layers[0]["digest"])).decode("utf-8")
    return ""


def _tag(digest: str) -> str:
    return digest.replace(":", "-")
