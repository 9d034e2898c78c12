"""SBOM and provenance beside published images."""

from __future__ import annotations

import json
import subprocess

from tests.registry.conftest import Project, docker
from tests.registry.server import Server
from tests.registry.test_publish import name


def test_what_is_published_has_its_documents(project: Project, registry: Server) -> None:
    published = project.publish("1.0")
    words = ("torchtitan", "--version=1.0")
    sbom = json.loads(project.image("sbom", *words).out)
    identifier = docker("image", "inspect", "--format={{.Id}}", f"{project.registry}/primus-torchtitan:1.0-cpu")
    assert sbom["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": identifier.partition(":")[2]}]
    statement = json.loads(project.image("provenance", *words).out)
    (commit,) = (
        one["digest"]["gitCommit"]
        for one in statement["predicate"]["buildDefinition"]["resolvedDependencies"]
        if one["name"] == "primus"
    )
    assert commit == project.git("rev-parse", "HEAD")

    # They hang on the digest: a channel has them too, and they are once there however often it is published.
    assert project.image("promote", "1.0", "candidate").code == 0
    assert json.loads(project.image("sbom", "torchtitan", "--version=candidate").out) == sbom
    assert project.publish("1.0") == published
    index = registry.index(name(project), published.partition("@")[2].replace(":", "-"))
    assert sorted(one["artifactType"] for one in index) == [
        "application/vnd.cyclonedx+json",
        "application/vnd.in-toto+json",
    ]
    # The image itself stays one manifest, and no list with a platform `unknown` in it, which older tools cannot read.
    address = f"docker://{registry.registry}/{name(project)}:1.0-cpu"
    inspect = ("skopeo", "inspect", "--raw", "--tls-verify=false", address)
    raw = json.loads(subprocess.run(inspect, capture_output=True, check=True).stdout)
    assert "manifests" not in raw
    assert raw["config"]["digest"] == identifier


def test_an_image_without_documents_says_so(project: Project) -> None:
    done = project.image("publish", "torchtitan", "--version=1.0", "--no-documents")
    assert done.code == 0, done.err
    done = project.image("sbom", "torchtitan", "--version=1.0")
    assert (done.code, done.out) == (3, "")
    assert "has no sbom.cdx.json beside it" in done.err
