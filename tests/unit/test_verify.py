"""What an image holds against what it says, from small file systems; its SBOM, its provenance, its differences."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from primus.cli.image_verify import _locked_as, _signature
from primus.errors import ConfigError, ImageError
from primus.image import difference, sign, signatures, verification
from primus.image import lock as locks
from primus.image.content import Content, scan
from primus.image.lock import Locked
from primus.image.provenance import provenance
from primus.image.registry import digest_of
from primus.image.sbom import sbom
from primus.plan import Wanted, chosen, select

from .conftest import Experiment, Primus, Write

SITE = "opt/venv/lib/python3.11/site-packages"
INSIDE = {
    "framework": "torchtitan",
    "accelerator": "cpu",
    "version": "1.0",
    "gfx": [],
    "base_image": "debian:12@sha256:" + "a" * 64,
    "sources": {"maxdiffusion": "b" * 40},
    "patches": [{"tree": "patched", "name": "0001-x.patch", "sha256": "c" * 64}],
    "lock_sha256": "d" * 64,
    "packages": {"One_Thing": "1.2"},
}
ABOUT = {
    "Id": "sha256:" + "e" * 64,
    "Created": "2026-11-30T10:00:00.123456789Z",
    "RepoDigests": ["r.example/primus-torchtitan@sha256:" + "f" * 64],
    "Config": {
        "Labels": {
            "io.primus.framework": "torchtitan",
            "io.primus.accelerator": "cpu",
            "io.primus.gfx": "",
            "org.opencontainers.image.version": "1.0",
            "org.opencontainers.image.revision": "1" * 40,
        }
    },
}
LOCKED = Locked(
    name="r.example/primus-torchtitan",
    tag="1.0-cpu",
    id=str(ABOUT["Id"]),
    digest="sha256:" + "f" * 64,
    revision="1" * 40,
    base_image=str(INSIDE["base_image"]),
    sources={"maxdiffusion": "b" * 40},
    lock_sha256="d" * 64,
)


def files() -> dict[str, bytes]:
    code = b"print('one')\n"
    digest = base64.urlsafe_b64encode(hashlib.sha256(code).digest()).rstrip(b"=").decode()
    info = f"{SITE}/one_thing-1.2.dist-info"
    record = (
        f"one/__init__.py,sha256={digest},13\none/__pycache__/x.pyc,sha256=no,1\none_thing-1.2.dist-info/RECORD,,\n"
    )
    record += "one_thing-1.2.dist-info/METADATA,,\n../../../bin/one,,\n"
    status = "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36\n\n"
    status += "Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n"
    return {
        "etc/primus/image.json": json.dumps(INSIDE).encode(),
        "etc/os-release": b'ID=debian\nVERSION_ID="12"\n',
        f"{SITE}/one/__init__.py": code,
        f"{SITE}/one/__pycache__/x.pyc": b"compiled",
        f"{SITE}/primus.pth": b"/opt/primus\n",
        f"{info}/METADATA": b"Metadata-Version: 2.4\nName: One_Thing\nVersion: 1.2\nLicense-Expression: MIT\n\nText\n",
        f"{info}/RECORD": record.encode(),
        "opt/venv/bin/one": b"#!/bin/sh\n",
        "var/lib/dpkg/status": status.encode(),
        "var/lib/dpkg/info/libc6.md5sums": f"{hashlib.md5(b'libc').hexdigest()}  lib/libc.so\n"
        f"{hashlib.md5(b'x').hexdigest()}  usr/share/doc/libc6/changelog.gz\n".encode(),
        "usr/lib/libc.so": b"libc",
    }


def content(**changed: bytes | None) -> Content:
    """The file system, with files changed, added (`/` is `__`) or, for None, left out."""
    all_files: dict[str, bytes | None] = {**files(), **changed}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in all_files.items():
            if data is not None:
                member = tarfile.TarInfo(f"./{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("bin/sh")
        link.type, link.linkname = tarfile.SYMTYPE, "dash"
        tar.addfile(link)
    stream.seek(0)
    return scan(stream)


def states(found: list[verification.Check]) -> dict[str, str]:
    return {one.name: one.state for one in found}


def test_a_healthy_image() -> None:
    found = verification.everything(ABOUT, content(), LOCKED)
    assert states(found) == dict.fromkeys(("labels", "lock", "packages", "files", "debian"), "ok")
    assert states(verification.everything(ABOUT, content(), None))["lock"] == "warn"


@pytest.mark.parametrize(
    ("changed", "check", "said"),
    [
        ({f"{SITE}/one/__init__.py": b"print('two')\n"}, "files", f"/{SITE}/one/__init__.py was changed"),
        ({f"{SITE}/one/__init__.py": None}, "files", f"/{SITE}/one/__init__.py is missing"),
        ({f"{SITE}/evil.py": b"import os\n"}, "files", f"/{SITE}/evil.py belongs to no package"),
        ({"usr/lib/libc.so": b"libk"}, "debian", "/lib/libc.so was changed"),
        ({"usr/lib/libc.so": None}, "debian", "/lib/libc.so is missing"),
        (
            {f"{SITE}/two-3.dist-info/METADATA": b"Name: two\nVersion: 3\n", f"{SITE}/two-3.dist-info/RECORD": b""},
            "packages",
            "two 3 is not in /etc/primus/image.json",
        ),
        (
            {f"{SITE}/one_thing-1.2.dist-info/METADATA": b"Name: one-thing\nVersion: 1.3\n"},
            "packages",
            "one-thing 1.2 is missing",
        ),
        ({"etc/primus/image.json": b"{"}, "manifest", "it has no /etc/primus/image.json that can be read"),
    ],
)
def test_a_planted_fault_is_found(changed: dict[str, bytes | None], check: str, said: str) -> None:
    found = {one.name: one for one in verification.everything(ABOUT, content(**changed), LOCKED)}
    assert found[check].state == "fail"
    assert said in found[check].said
    assert found[check].hint


def test_a_planted_link_is_found() -> None:
    found = content()
    link = found.entries["bin/sh"]
    planted = Content(entries={**found.entries, f"{SITE}/evil.py": link}, kept=found.kept)
    assert f"/{SITE}/evil.py belongs to no package" in verification.files(planted, INSIDE).said


def test_a_file_that_a_patch_of_ours_changed_is_as_it_should_be() -> None:
    digest = base64.urlsafe_b64encode(b"0" * 32).decode()
    record = f"patched/x.py,sha256={digest},1\n".encode()
    found = content(**{f"{SITE}/patched/x.py": b"ours", f"{SITE}/patched-1.dist-info/RECORD": record})
    assert verification.files(found, INSIDE).state == "fail"  # RECORD itself belongs to no package
    assert "patched/x.py" not in verification.files(found, INSIDE).said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", "sha256:" + "0" * 64),
        ("digest", "sha256:" + "0" * 64),
        ("revision", "2" * 40),
        ("base_image", "other"),
        ("sources", {}),
        ("lock_sha256", ""),
    ],
)
def test_another_image_than_locked(name: str, value: Any) -> None:
    other = Locked(**{**vars(LOCKED), name: value})
    assert states(verification.everything(ABOUT, content(), other))["lock"] == "fail"


def test_a_label_that_lies() -> None:
    about = json.loads(json.dumps(ABOUT))
    about["Config"]["Labels"]["io.primus.accelerator"] = "rocm"
    (labels,) = (one for one in verification.everything(about, content(), LOCKED) if one.name == "labels")
    assert labels.said == "io.primus.accelerator is 'rocm', and /etc/primus/image.json says 'cpu'"


def test_an_sbom_names_what_is_installed_and_is_the_same_each_time() -> None:
    text = sbom("r.example/x:1", ABOUT, content())
    assert text == sbom("r.example/x:1", ABOUT, content())
    found = json.loads(text)
    assert {one["purl"] for one in found["components"]} == {
        "pkg:pypi/one-thing@1.2",
        "pkg:deb/debian/libc6@2.36?arch=amd64&distro=debian-12",
    }
    assert found["metadata"]["timestamp"] == "2026-11-30T10:00:00+00:00"
    properties = {one["name"]: one["value"] for one in found["metadata"]["component"]["properties"]}
    assert properties["primus:patch:patched/0001-x.patch"] == "sha256:" + "c" * 64
    (python,) = (one for one in found["components"] if one["name"] == "One_Thing")
    assert python["licenses"] == [{"license": {"id": "MIT"}}]


def test_provenance_names_every_input() -> None:
    statement = json.loads(provenance("x", ABOUT, INSIDE))
    inputs = {one["name"]: one["digest"] for one in statement["predicate"]["buildDefinition"]["resolvedDependencies"]}
    assert inputs == {
        "primus": {"gitCommit": "1" * 40},
        "debian:12": {"sha256": "a" * 64},
        "maxdiffusion": {"gitCommit": "b" * 40},
        "locks of Python packages": {"sha256": "d" * 64},
        "patched/0001-x.patch": {"sha256": "c" * 64},
    }


def test_what_differs() -> None:
    def lines(**changed: bytes | None) -> list[str]:
        return [
            f"{one.where}: {one.what}" for one in difference.difference(ABOUT, content(), ABOUT, content(**changed))
        ]

    assert lines() == []
    assert lines(**{"usr/lib/libc.so": b"libk"}) == ["/usr/lib/libc.so: content, of the same size"]
    assert lines(**{"usr/lib/libc.so": None, "new": b""}) == [
        "/new: only in the second",
        "/usr/lib/libc.so: only in the first",
    ]
    other = json.loads(json.dumps(ABOUT))
    other["Config"]["Labels"]["io.primus.gfx"] = "gfx942"
    (one,) = difference.difference(ABOUT, content(), other, content())
    assert (one.where, one.what) == ("Labels.io.primus.gfx", "'' and 'gfx942'")


@pytest.fixture
def keys() -> tuple[bytes, bytes]:
    return sign.new_key(b"sesame")


def test_a_signature_is_for_one_image_and_one_key(keys: tuple[bytes, bytes]) -> None:
    private, public = keys
    text = sign.payload("r.example/x", LOCKED.digest, LOCKED.id)
    good = sign.Signature(payload=text, signature=sign.signed(private, b"sesame", text.encode()))
    about = {"name": "x", "digest": LOCKED.digest, "identifier": LOCKED.id}
    sign.check_image(public, good, **about)
    sign.check_image(public, good, name="x", digest="", identifier=LOCKED.id)  # loaded from a file
    wrong: list[tuple[sign.Signature | None, dict[str, str], str]] = [
        (None, about, "is not signed"),
        (good, {**about, "digest": "sha256:" + "0" * 64}, "the signature is for sha256:ffff"),
        (good, {**about, "identifier": "sha256:" + "0" * 64}, "the signature is for image sha256:eeee"),
        (sign.Signature(payload=text + " ", signature=good.signature), about, "not by the key"),
        (sign.Signature(payload=text, signature="AAAA"), about, "not by the key"),
        (sign.Signature(payload=text, signature="no base64"), about, "not by the key"),
    ]
    for signature, said, message in wrong:
        with pytest.raises(ImageError, match=message):
            sign.check_image(public, signature, **said)
    _, others = sign.new_key(b"x")
    with pytest.raises(ImageError, match="not by the key"):
        sign.check_image(others, good, **about)


def locked_and_signed(keys: tuple[bytes, bytes], *, names_id: bool, **changed: Any) -> Locked:
    """What is locked, with a signature as ours, or as cosign's: that one names no ID. `changed`: by somebody else."""
    said = json.loads(sign.payload(LOCKED.name, LOCKED.digest, LOCKED.id))
    text = json.dumps(said if names_id else {**said, "optional": {}})
    signature = {"payload": text, "signature": sign.signed(keys[0], b"sesame", text.encode())}
    return replace(LOCKED, signature=signature, **changed)


@pytest.mark.parametrize(("names_id", "vouched"), [(True, LOCKED.id), (False, "")])
def test_only_what_is_signed_of_a_lock_is_believed(
    write: Write, keys: tuple[bytes, bytes], names_id: bool, vouched: str
) -> None:
    changed = {} if names_id else {"id": "sha256:" + "0" * 64}
    one = locked_and_signed(keys, names_id=names_id, **changed)
    lock = write("lock.json", locks.text({("torchtitan", "cpu"): one}))
    found, _ = select(lock, "torchtitan", "cpu", lambda _text: None, keys[1])
    assert found is not None
    assert (found.id, found.digest) == (vouched, LOCKED.digest)


def test_an_engine_that_knows_no_ids_wants_a_digest(write: Write, keys: tuple[bytes, bytes]) -> None:
    one = locked_and_signed(keys, names_id=True, digest="")
    lock = write("lock.json", locks.text({("torchtitan", "cpu"): one}))
    wanted = Wanted(lock=lock, verify_key=keys[1])
    assert chosen("torchtitan", "cpu", wanted, "docker", dry=True, say=lambda _text: None).id == LOCKED.id
    with pytest.raises(ImageError, match="is signed by its ID, which apptainer cannot tell"):
        chosen("torchtitan", "cpu", wanted, "apptainer", dry=True, say=lambda _text: None)


@pytest.mark.parametrize(
    ("names_id", "about", "state", "said"),
    [
        (True, {}, "ok", "signed with the key"),
        (True, {"RepoDigests": []}, "ok", "signed with the key"),
        (False, {}, "ok", "signed with the key"),
        (False, {"RepoDigests": []}, "fail", "it is for sha256:ffff"),
        (True, {"Id": "sha256:" + "0" * 64, "RepoDigests": []}, "fail", "it is for sha256:eeee"),
        (True, {"Config": {}}, "fail", "is not signed"),
    ],
)
def test_what_is_verified_is_the_signed_image(
    keys: tuple[bytes, bytes], names_id: bool, about: dict[str, Any], state: str, said: str
) -> None:
    described = {**ABOUT, **about}
    one = _locked_as(described, {("torchtitan", "cpu"): locked_and_signed(keys, names_id=names_id)})
    (found,) = _signature(one, keys[1], described)
    assert (found.state, said in found.said) == (state, True)


@pytest.mark.parametrize(
    ("key", "password", "message"),
    [
        (lambda keys: keys[0], None, "password is missing"),
        (lambda keys: keys[0], b"wrong", "another password"),
        (lambda keys: b"no key", b"x", "no private key in PEM"),
        (lambda keys: b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----", b"x", "cosign's own format"),
    ],
)
def test_a_key_that_cannot_sign(
    keys: tuple[bytes, bytes], key: Callable[[tuple[bytes, bytes]], bytes], password: bytes | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        sign.signed(key(keys), password, b"x")


def test_a_public_key_that_is_none(keys: tuple[bytes, bytes]) -> None:
    with pytest.raises(ConfigError, match="it is no PEM"):
        sign.is_signed(b"x", b"x", "AAAA")
    assert not sign.is_signed(keys[1], b"x", "AAAA")


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--config=exp.yaml"),
        ("data", "prepare-megatron", "in.txt", "--tokenizer-type=NullTokenizer", "--vocab-size=9", "--output=x"),
        ("tune", "hipblaslt", "tune", "shapes.txt", "--framework=torchtitan"),
    ],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--image=x/primus-torchtitan:1-cpu",), "verify_key is set: an image must be signed"),
        (("--no-lock",), "verify_key is set: an image must be signed"),
        ((), "that no lock names: is not signed"),
        (("--lock=lock.json",), "is not signed, and"),
    ],
)
def test_every_command_that_runs_an_image_wants_it_signed(
    primus: Primus,
    write: Write,
    experiment: Experiment,
    keys: tuple[bytes, bytes],
    words: tuple[str, ...],
    options: tuple[str, ...],
    said: str,
) -> None:
    experiment()
    write("in.txt", "1 2")
    product = "-m 1 -n 1 -k 1 --transA N --transB N --a_type f16_r --b_type f16_r --c_type f16_r --d_type f16_r"
    write("shapes.txt", f"hipblaslt-bench {product} --compute_type f32_r\n")
    public = write("team.pub", keys[1].decode())
    write("primus.yaml", f"verify_key: {public.absolute()}\naccelerator: cpu\n")
    locked = {(name, "cpu"): replace(LOCKED, signature={}) for name in ("torchtitan", "megatron")}
    write("lock.json", locks.text(locked))
    done = primus(*words, *options, "--dry-run")
    assert done.code in (2, 3)
    assert said in done.err


def test_a_key_that_is_none_is_said_at_once(primus: Primus, write: Write, experiment: Experiment) -> None:
    experiment()
    write("team.pub", "no key")
    done = primus("run", "--config=exp.yaml", "--verify-key=team.pub", "--dry-run")
    assert done.code == 2
    assert "team.pub: the public key cannot be read: it is no PEM" in done.err


def test_files_to_pull_from_must_be_there(primus: Primus) -> None:
    done = primus("image", "pull", "--from", "nope")
    assert done.code == 2
    assert "--from nope: does not exist" in done.err


@pytest.mark.parametrize(
    ("kind", "link", "state"),
    [
        ("link", "/tmp/evil", "fail"),
        ("hardlink", "tmp/evil", "fail"),
        ("hardlink", "gone", "fail"),
        ("directory", "", "fail"),
        ("hardlink", "./usr/lib/same.so", "ok"),
    ],
)
def test_a_debian_file_stays_a_file(kind: str, link: str, state: str) -> None:
    found = content(**{"tmp/evil": b"evil", "usr/lib/same.so": b"libc"})
    planted = replace(found.entries["usr/lib/libc.so"], kind=kind, link=link, sha256="", md5="")
    changed = Content(entries={**found.entries, "usr/lib/libc.so": planted}, kept=found.kept)
    assert verification.debian(changed).state == state


def test_an_engine_that_counts_by_manifests_has_the_locked_image() -> None:
    assert states(verification.everything({**ABOUT, "Id": LOCKED.digest}, content(), LOCKED))["lock"] == "ok"


def test_signatures_of_others_stay_as_they_are() -> None:
    theirs = [
        {
            "mediaType": sign.MEDIA_TYPE,
            "digest": "sha256:1",
            "size": 1,
            "annotations": {"dev.sigstore.cosign/bundle": "x"},
        },
        {"mediaType": "application/other", "digest": "sha256:2", "size": 2},
    ]
    put: list[bytes] = []

    class There:
        def manifest(self, _: str) -> Any:
            return SimpleNamespace(layers=tuple(theirs))

        def upload(self, content: bytes) -> str:
            return digest_of(content)

        def put_manifest(self, _: str, content: bytes, __: str) -> None:
            put.append(content)

    signatures.add(cast("Any", There()), LOCKED.digest, sign.Signature(payload="p", signature="s"))
    layers = json.loads(put[0])["layers"]
    assert layers[:2] == theirs
    assert [layer["annotations"] for layer in layers[2:]] == [{sign.ANNOTATION: "s"}]


def test_what_could_not_be_read_when_it_was_locked_is_not_compared() -> None:
    unread = replace(LOCKED, base_image="", sources={}, lock_sha256="")
    assert states(verification.everything(ABOUT, content(), unread))["lock"] == "ok"
    other = replace(unread, id="sha256:" + "0" * 64)
    assert states(verification.everything(ABOUT, content(), other))["lock"] == "fail"
