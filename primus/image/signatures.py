"""Where a registry keeps the signatures of an image, and how they are added: as cosign does it."""

from __future__ import annotations

import json

from primus.image.registry import OCI_MANIFEST, Registry, digest_of
from primus.image.sign import ANNOTATION, MEDIA_TYPE, Signature, is_signed, tag


def of(there: Registry, digest: str) -> tuple[Signature, ...]:
    """Every signature that the repository has for the manifest."""
    found = there.manifest(tag(digest))
    if found is None:
        return ()
    return tuple(
        Signature(
            payload=there.blob(str(layer["digest"])).decode("utf-8", "replace"),
            signature=str((layer.get("annotations") or {}).get(ANNOTATION, "")),
        )
        for layer in found.layers
        if layer.get("mediaType") == MEDIA_TYPE
    )


def chosen(found: tuple[Signature, ...], public: bytes | None) -> Signature | None:
    """The one by the key, if there is one; else the first: it says by its failure that another key signed."""
    by_key = (one for one in found if public and is_signed(public, one.payload.encode(), one.signature))
    return next(by_key, next(iter(found), None))


def add(there: Registry, digest: str, new: Signature) -> None:
    """Put a signature beside those that are there, which stay as they are: cosign keeps more with them than we read.

    The same payload is not signed twice over.
    """
    content = new.payload.encode()
    found = there.manifest(tag(digest))
    kept = [layer for layer in found.layers if layer["digest"] != digest_of(content)] if found else []
    ours = {
        "mediaType": MEDIA_TYPE,
        "digest": there.upload(content),
        "size": len(content),
        "annotations": {ANNOTATION: new.signature},
    }
    layers = [*kept, ours]
    config = {
        **{"architecture": "", "os": "", "config": {}},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
    }
    about = {
        "mediaType": "application/vnd.oci.image.config.v1+json",
        "digest": there.upload(json.dumps(config).encode()),
        "size": len(json.dumps(config).encode()),
    }
    manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": about, "layers": layers}
    there.put_manifest(tag(digest), json.dumps(manifest).encode(), OCI_MANIFEST)
