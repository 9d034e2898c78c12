"""docker-bake.hcl says what the design promises, for every target and both accelerators."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from primus._version import __version__

BASES = {"torchtitan": "base-torch", "maxtext": "base-jax", "megatron": "base-torch", "maxdiffusion": "base-jax-torch"}
# What is on no package index: the repository at a full commit, and the hash of the commit's files.
SOURCES = {
    "maxdiffusion": {
        "git": "https://github.com/AI-Hypercomputer/maxdiffusion.git#68e069659f0af80694559e29939a17f879fe7f6a",
        "COMMIT": "68e069659f0af80694559e29939a17f879fe7f6a",
        "TREE": "937adf54f87c3c6e03ac3d01d7482805e685cf6b",
    }
}
GFX = {"rocm": "gfx942,gfx950", "cpu": ""}
ACCELERATORS = sorted(GFX)
# What buildx 0.13 knows; it and newer ones ignore a misspelt name without a word.
ATTRIBUTES = {
    "target": {"name", "matrix", "inherits", "context", "contexts", "dockerfile", "target", "args", "tags", "labels"}
    | {"secret", "network", "output"},
    "group": {"targets"},
    "variable": {"default"},
    "function": {"params", "result"},
}


def labels(name: str, accelerator: str) -> dict[str, str]:
    return {
        "org.opencontainers.image.title": f"primus-{name}",
        "org.opencontainers.image.version": __version__,
        "io.primus.accelerator": accelerator,
        "io.primus.gfx": GFX[accelerator],
    }


@pytest.mark.parametrize("accelerator", ACCELERATORS)
def test_a_backend_is_its_base_and_its_own_folder(bake: Any, framework: str, accelerator: str) -> None:
    target = bake(framework, ACCELERATOR=accelerator, BASE_IMAGE="os@sha256:0")["target"][framework]
    base = BASES[framework]
    source = SOURCES.get(framework, {})
    contexts = {"base-source": "target:base-source", f"{framework}-source": source["git"]} if source else {}
    assert target == {
        "context": ".",
        "contexts": {base: f"target:{base}", "launcher": "target:launcher", **contexts},
        "dockerfile": f"images/{framework}/Dockerfile",
        "args": {
            **{key: value for key, value in source.items() if key.isupper()},
            "ACCELERATOR": accelerator,
            "BASE_IMAGE": "os@sha256:0",
            "GFX": GFX[accelerator],
            "VERSION": __version__,
        },
        "labels": {**labels(framework, accelerator), "io.primus.framework": framework},
        "tags": [f"primus-{framework}:{__version__}-{accelerator}"],
    }


@pytest.mark.parametrize("accelerator", ACCELERATORS)
@pytest.mark.parametrize("base", ["base", "base-torch", "base-jax", "base-jax-torch"])
def test_the_bases_are_stages_of_one_file(bake: Any, base: str, accelerator: str) -> None:
    target = bake(base, ACCELERATOR=accelerator, BASE_IMAGE="os@sha256:0", APT_SNAPSHOT="now")["target"][base]
    assert target == {
        "context": ".",
        "dockerfile": "base/Dockerfile",
        "target": base,
        "args": {"ACCELERATOR": accelerator, "APT_SNAPSHOT": "now", "BASE_IMAGE": "os@sha256:0"},
        "labels": labels(base, accelerator),
        "tags": [f"primus-{base}:{__version__}-{accelerator}"],
    }


def test_the_default_is_every_backend_on_rocm(bake: Any, root: Path) -> None:
    plan = bake()
    assert plan["group"] == {"default": {"targets": sorted(BASES)}}
    assert sorted(BASES) == sorted(path.parent.name for path in root.glob("images/*/Dockerfile"))
    assert {target["args"]["ACCELERATOR"] for target in plan["target"].values() if "args" in target} == {"rocm"}


def test_the_os_image_is_pinned_by_digest_and_its_packages_by_date(bake: Any) -> None:
    for name, target in bake("base", "default")["target"].items():
        if name != "launcher":
            assert re.fullmatch(r"docker\.io/library/ubuntu:24\.04@sha256:[0-9a-f]{64}", target["args"]["BASE_IMAGE"])
    assert re.fullmatch(r"\d{8}T\d{6}Z", bake("base")["target"]["base"]["args"]["APT_SNAPSHOT"])


def test_jax_may_stand_on_another_os_image(bake: Any) -> None:
    plan = bake(BASE_IMAGE="one", BASE_IMAGE_JAX="other")["target"]
    seen = {name: target["args"]["BASE_IMAGE"] for name, target in plan.items() if "args" in target}
    torch = dict.fromkeys(
        ("base-torch", "torchtitan", "megatron", "maxdiffusion", "base-jax-torch", "base-source"), "one"
    )
    assert seen == {**torch, "maxtext": "other", "base-jax": "other"}


def test_registry_version_and_origin_are_variables(bake: Any) -> None:
    plan = bake("maxtext", REGISTRY="host:5000/team", VERSION="9", REVISION="abc", SOURCE="https://x")["target"]
    assert plan["maxtext"]["tags"] == ["host:5000/team/primus-maxtext:9-rocm"]
    assert plan["maxtext"]["labels"]["org.opencontainers.image.version"] == "9"
    assert plan["maxtext"]["labels"]["org.opencontainers.image.revision"] == "abc"
    assert plan["maxtext"]["labels"]["org.opencontainers.image.source"] == "https://x"


def test_what_a_build_needs_of_its_site_are_secrets_and_a_context(bake: Any, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("pip_conf", "apt_conf", "ca_bundle")}
    for path in files.values():
        path.touch()
    variables = {f"BUILD_{name.upper()}": str(path) for name, path in files.items()}
    plan = bake("torchtitan", BUILD_WHEELS=str(tmp_path), BUILD_NETWORK="none", **variables)["target"]
    for name in ("torchtitan", "base-torch"):
        target = plan[name]
        assert target.get("network", "none") == "none"  # buildx 0.13 heeds it but does not print it
        assert target["contexts"]["wheels"] == str(tmp_path)
        # Strings in buildx 0.13, objects in newer ones.
        secrets = [
            dict(part.split("=") for part in secret.split(",")) if isinstance(secret, str) else secret
            for secret in target["secret"]
        ]
        assert {(secret["id"], secret["src"]) for secret in secrets} == {(k, str(v)) for k, v in files.items()}
        assert str(tmp_path) not in str(target["args"]) + str(target["labels"])


@pytest.mark.parametrize("value", ["cuda", "", "ROCM"])
def test_another_accelerator_fails_and_says_which_there_are(bake: Any, value: str) -> None:
    with pytest.raises(ValueError, match=r"rocm = .*, cpu = .*\[ACCELERATOR\]"):
        bake(ACCELERATOR=value)


def test_every_attribute_is_one_that_bake_knows(root: Path) -> None:
    text = (root / "docker-bake.hcl").read_text(encoding="utf-8")
    blocks = [(kind, [name]) for kind, name in re.findall(r'^(\w+) +"\w+" +\{ (\w+) = .*$', text, re.MULTILINE)]
    for kind, body in re.findall(r'^(\w+) "\w+" \{\n(.*?)^\}$', text, re.MULTILINE | re.DOTALL):
        blocks.append((kind, re.findall(r"^  (\w+) +=", body, re.MULTILINE)))
    assert len(blocks) == len(re.findall(r"^\w.*\{", text, re.MULTILINE))
    for kind, names in blocks:
        assert names
        assert set(names) <= ATTRIBUTES[kind]
