"""How an image was made: an in-toto statement with SLSA's predicate, from what the image itself records.

https://slsa.dev/spec/v1.0/provenance: the commit, the OS image, the sources' commits, the locks and the patches. No
address that the build machine reached something at is in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def provenance(name: str, about: Mapping[str, Any], inside: Mapping[str, Any]) -> str:
    """The statement, as JSON, of the image that the engine describes so; `inside` is its /etc/primus/image.json."""
    labels = (about.get("Config") or {}).get("Labels") or {}
    base, _, digest = str(inside.get("base_image", "")).partition("@sha256:")
    inputs: list[dict[str, Any]] = [
        _input("primus", gitCommit=labels.get("org.opencontainers.image.revision", "")),
        _input(base, sha256=digest),
        *(_input(source, gitCommit=commit) for source, commit in (inside.get("sources") or {}).items()),
        _input("locks of Python packages", sha256=inside.get("lock_sha256", "")),
        *(_input(f"{one['tree']}/{one['name']}", sha256=one["sha256"]) for one in inside.get("patches") or ()),
    ]
    document = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": about["Id"].removeprefix("sha256:")}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:primus:docker-buildx-bake",
                "externalParameters": {
                    key: inside[key] for key in ("framework", "version", "accelerator", "gfx") if key in inside
                },
                "resolvedDependencies": [one for one in inputs if one["name"]],
            },
            "runDetails": {
                "builder": {"id": "urn:primus:image-publish"},
                "metadata": {"finishedOn": about.get("Created", "")},
            },
        },
    }
    return json.dumps(document, indent=1) + "\n"


def _input(name: str, **digest: object) -> dict[str, Any]:
    found = {kind: value for kind, value in digest.items() if value}
    return {"name": name, **({"digest": found} if found else {})}
