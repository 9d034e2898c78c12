"""docker-bake.hcl says what the design promises, for every target and both accelerators."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from primus._version import __version__
from primus.image import manifest

BASES = {
    "torchtitan": "base-torch",
    "maxtext": "base-jax",
    "maxdiffusion": "base-jax-torch",
    "megatron": "base-torch",
    "megatron_bridge": "megatron-build",
    "specforge": "base-torch",
}
# What is on no package index: on ROCm, kernels to compile; and sources, with the hash of their files.
KERNELS = {"megatron": {"transformer-engine", "primus-turbo"}, "jax": {"transformer-engine-jax"}}
MODULES = {"megatron": "transformer_engine primus_turbo mamba_ssm causal_conv1d", "jax": "transformer_engine"}
# Whose kernels a backend has.
COMPILED = {"megatron": "megatron", "megatron_bridge": "megatron", "maxtext": "jax", "maxdiffusion": "jax"}
SOURCES = {
    "maxdiffusion": {
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
    if (framework, accelerator) == ("specforge", "rocm"):
        return  # the next test
    variables = {"ACCELERATOR": accelerator, "BASE_IMAGE": "os@sha256:0", "APT_SNAPSHOT": "now"}
    plan = bake(framework, "megatron-build", **variables)["target"]
    target = plan[framework]
    base = BASES[framework]
    below = COMPILED.get(framework, "") if accelerator == "rocm" else ""
    compiled = commits(plan, below)
    source = SOURCES.get(framework, {})
    url = target["contexts"].pop(f"{framework}-source", "")
    assert re.fullmatch(rf"https://github\.com/[\w./-]+\.git#{source['COMMIT']}", url) if source else not url
    contexts = {base: f"target:{base}", "launcher": "target:launcher"}
    if below == "jax":
        contexts["jax-kernels"] = "target:jax-kernels"
    own = compiled if framework == below else {}
    for name in own:
        target["contexts"].pop(f"{name}-source")
    if source or own:
        contexts["base-source"] = "target:base-source"
    mark = {"io.primus.compiled": MODULES[below]} if below else {}
    assert target == {
        "context": ".",
        "contexts": contexts,
        "dockerfile": f"images/{framework}/Dockerfile",
        "args": {
            **source,
            **{f"{name.upper().replace('-', '_')}_COMMIT": commit for name, commit in own.items()},
            "ACCELERATOR": accelerator,
            "APT_SNAPSHOT": "now",
            "BASE_IMAGE": "os@sha256:0",
            "GFX": GFX[accelerator],
            "KERNELS": " ".join(f"--source={name}={commit}" for name, commit in sorted(compiled.items())),
            "VERSION": __version__,
        },
        "labels": {**labels(framework, accelerator), "io.primus.framework": framework, **mark},
        "tags": [f"primus-{framework}:{__version__}-{accelerator}"],
    }


def commits(plan: Any, compiled: str) -> dict[str, str]:
    """What is compiled for the backends of one kind, and the commit of each, as the target that compiles it says."""
    if not compiled:
        return {}
    contexts = plan[{"megatron": "megatron-build", "jax": "jax-kernels"}[compiled]]["contexts"]
    found = {name: contexts[f"{name}-source"] for name in KERNELS[compiled]}
    assert all(re.fullmatch(r"https://github\.com/[\w./-]+\.git#[0-9a-f]{40}", url) for url in found.values())
    return {name: url.partition("#")[2] for name, url in found.items()}


def test_specforge_on_rocm_is_the_vendors_image_and_a_script(bake: Any) -> None:
    target = bake("specforge", SGLANG_IMAGE="sglang@sha256:0", SGLANG_GFX="gfx942", APT_SNAPSHOT="now")["target"]
    contexts, args = target["specforge"]["contexts"], target["specforge"]["args"]
    repository, _, commit = contexts["specforge-source"].partition("#")
    assert repository == "https://github.com/sgl-project/SpecForge.git"
    assert re.fullmatch("[0-9a-f]{40}", commit)
    assert re.fullmatch("[0-9a-f]{40}", args["TREE"])
    assert contexts == {
        "base-sglang": "docker-image://sglang@sha256:0",
        "base-source": "target:base-source",
        "launcher": "target:launcher",
        "specforge-source": contexts["specforge-source"],
    }
    assert args == {
        "ACCELERATOR": "rocm",
        "APT_SNAPSHOT": "now",
        "BASE_IMAGE": "sglang@sha256:0",
        "COMMIT": commit,
        "GFX": "gfx942",
        "KERNELS": "",
        "TREE": args["TREE"],
        "VERSION": __version__,
    }
    assert target["specforge"]["labels"]["io.primus.gfx"] == "gfx942"
    pinned = bake("specforge")["target"]["specforge"]
    assert re.fullmatch(r"docker\.io/lmsysorg/sglang:[\w.-]+mi35x@sha256:[0-9a-f]{64}", pinned["args"]["BASE_IMAGE"])
    assert pinned["args"]["GFX"] == pinned["labels"]["io.primus.gfx"] == "gfx950"


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


@pytest.mark.parametrize("accelerator", ACCELERATORS)
def test_a_backend_may_stand_on_a_stage_of_another(bake: Any, accelerator: str) -> None:
    """A stage below the launcher: else a change to the launcher would install the packages above it anew."""
    plan = bake("megatron_bridge", "megatron", ACCELERATOR=accelerator, APT_SNAPSHOT="now")["target"]
    contexts = {name: value for name, value in plan["megatron"]["contexts"].items() if name != "launcher"}
    assert plan["megatron-build"] == {
        "context": ".",
        "contexts": contexts,
        "dockerfile": "images/megatron/Dockerfile",
        "target": accelerator,
        "args": {
            **{name: value for name, value in plan["megatron"]["args"].items() if name.endswith("_COMMIT")},
            "ACCELERATOR": accelerator,
            "APT_SNAPSHOT": "now",
            "GFX": GFX[accelerator],
        },
    }


def test_the_launcher_knows_every_module_that_is_compiled() -> None:
    assert {*manifest.COMPILED} == {*" ".join(MODULES.values()).split()}


def test_both_backends_on_jax_have_the_same_kernels_which_are_compiled_once(bake: Any) -> None:
    plan = bake("maxtext", "maxdiffusion", "jax-kernels", APT_SNAPSHOT="now")["target"]
    target = plan["jax-kernels"]
    (commit,) = commits(plan, "jax").values()
    del target["contexts"]["transformer-engine-jax-source"]
    assert target == {
        "context": ".",
        "contexts": {"base-jax": "target:base-jax", "base-source": "target:base-source"},
        "dockerfile": "base/jax-kernels.Dockerfile",
        "target": "kernels",
        "args": {"APT_SNAPSHOT": "now", "GFX": GFX["rocm"], "TRANSFORMER_ENGINE_JAX_COMMIT": commit},
    }
    on_cpus = bake("maxtext", "maxdiffusion", ACCELERATOR="cpu")["target"]
    assert "jax-kernels" not in on_cpus
    assert "jax-kernels" not in str(on_cpus)


def test_what_is_validated_is_every_source_and_every_patch(bake: Any, root: Path) -> None:
    plan = bake("validate")["target"]
    files = {name: target["dockerfile"] for name, target in plan.items() if name.startswith("validate-")}
    assert files == {
        "validate-jax": "base/jax-kernels.Dockerfile",
        **{f"validate-{name}": f"images/{name}/Dockerfile" for name in ("maxdiffusion", "megatron", "specforge")},
    }
    texts = "".join((root / file).read_text(encoding="utf-8") for file in files.values())
    for tree in (*root.glob("images/*/patches/*"), *root.glob("base/patches/*")):
        assert f"source={tree.relative_to(root)},target=/build/patches" in texts
    for target in files:
        assert plan[target]["target"] == "validate"


def test_the_default_is_every_backend_on_rocm(bake: Any, root: Path) -> None:
    plan = bake()
    assert plan["group"] == {"default": {"targets": sorted(BASES)}}
    assert sorted(BASES) == sorted(path.parent.name for path in root.glob("images/*/Dockerfile"))
    assert {target["args"].get("ACCELERATOR") for target in plan["target"].values() if "args" in target} <= {
        "rocm",
        None,
    }


def test_the_os_image_is_pinned_by_digest_and_its_packages_by_date(bake: Any) -> None:
    for name, target in bake("base", "default")["target"].items():
        if name not in ("megatron-build", "jax-kernels", "specforge"):  # no OS, but for the last: its own
            assert re.fullmatch(r"docker\.io/library/ubuntu:24\.04@sha256:[0-9a-f]{64}", target["args"]["BASE_IMAGE"])
    assert re.fullmatch(r"\d{8}T\d{6}Z", bake("base")["target"]["base"]["args"]["APT_SNAPSHOT"])


def test_jax_may_stand_on_another_os_image(bake: Any) -> None:
    plan = bake(ACCELERATOR="cpu", BASE_IMAGE="one", BASE_IMAGE_JAX="other")["target"]
    seen = {
        name: target["args"]["BASE_IMAGE"] for name, target in plan.items() if "BASE_IMAGE" in target.get("args", {})
    }
    own = {"maxtext", "base-jax"}
    torch = dict.fromkeys((*BASES.keys() - own, "base-torch", "base-jax-torch", "base-source", "launcher"), "one")
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
        assert target.get("network", "none") == "none"  # buildx 0.13 neither heeds nor prints it
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
    for kind, body in re.findall(r'^(\w+) "[\w-]+" \{\n(.*?)^\}$', text, re.MULTILINE | re.DOTALL):
        blocks.append((kind, re.findall(r"^  (\w+) +=", body, re.MULTILINE)))
    assert len(blocks) == len(re.findall(r"^\w.*\{", text, re.MULTILINE))
    for kind, names in blocks:
        assert names
        assert set(names) <= ATTRIBUTES[kind]
