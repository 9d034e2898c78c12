"""Names, locks, channels, and what may be published: the half that acts on nothing."""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from primus.cli import image_publish
from primus.errors import ConfigError, ImageError
from primus.image import archive, bake, channels, credentials, lock, publish, transfer
from primus.image.channels import Move
from primus.image.engine import Client, digests_in
from primus.image.lock import Locked
from primus.image.manifest import Manifest
from primus.image.names import Reference, take_apart
from primus.image.registry import Found
from primus.record import Record

from .conftest import Experiment, Primus, Write

ONE, TWO = (f"sha256:{digit * 64}" for digit in "12")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ubuntu", Reference("docker.io", "library/ubuntu")),
        ("team/x:1", Reference("docker.io", "team/x", "1")),
        ("localhost/x:1-cpu", Reference("localhost", "x", "1-cpu")),
        ("host:5000/a/b", Reference("host:5000", "a/b")),
        (f"r.example.com/a/x_y:1@{ONE}", Reference("r.example.com", "a/x_y", "1", ONE)),
        (f"host:5000/a@{ONE}", Reference("host:5000", "a", "", ONE)),
    ],
)
def test_a_name_is_taken_apart(text: str, parts: Reference) -> None:
    assert take_apart(text) == parts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://host/x", "no scheme"),
        ("host:5000/Team/x", "its name"),
        ("host.x/x:a b", "its tag"),
        ("host.x/x@sha256:12", "its digest"),
        ("host.x/", "its name"),
    ],
)
def test_what_is_no_name_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        take_apart(text)


def moves(*words: str) -> tuple[Move, ...]:
    return tuple(Move(action=action, digest=digest) for action, digest in (word.split("=") for word in words))


@pytest.mark.parametrize(
    ("history", "stack"),
    [
        ((), []),
        (("promote=a",), ["a"]),
        (("promote=a", "promote=b", "promote=c", "rollback=b"), ["a", "b"]),
        (("promote=a", "promote=b", "promote=c", "rollback=b", "rollback=a"), ["a"]),
        (("promote=a", "promote=b", "rollback=a", "promote=c"), ["a", "c"]),
        (("promote=a", "promote=b", "promote=a", "rollback=b"), ["a", "b"]),
    ],
)
def test_a_rollback_takes_away_what_it_went_back_from(history: tuple[str, ...], stack: list[str]) -> None:
    assert [move.digest for move in channels.before(moves(*history))] == stack


@pytest.mark.parametrize("action", ["promote", "rollback"])
def test_a_move_that_was_noted_and_not_made_is_made_by_the_same_command(action: str) -> None:
    """Killed between the two; `present` is what the channel is still."""
    history = moves("promote=a", "promote=b") + (moves("promote=c") if action == "promote" else moves("rollback=a"))
    seen = channels.with_present(history, "b", "now")
    assert seen[-1] == Move(action="found", digest="b", at="now")
    if action == "rollback":
        assert channels.before(seen)[-2].digest == "a"
    else:
        assert channels.before((*seen, *moves("promote=c", "rollback=b")))[-1].digest == "b"
    assert channels.read(json.loads(json.dumps(channels.write(seen)))) == seen


@pytest.mark.parametrize("version", ["latest", "stable", "candidate", "id-1", "", "a b", "-1", "x" * 101])
def test_what_is_no_version(version: str) -> None:
    with pytest.raises(ConfigError):
        publish.check_version(version)


PINNED: dict[str, Any] = {
    "args": {"BASE_IMAGE": f"docker.io/library/ubuntu:24.04@{ONE}", "APT_SNAPSHOT": "20261003T000000Z", "GFX": ""},
    "contexts": {
        "base": "target:base",
        "sglang": f"docker-image://x@{ONE}",
        "source": f"https://host/x.git#{'a' * 40}",
        "inside": "images",
    },
}


@pytest.mark.parametrize(
    ("where", "name", "value", "said"),
    [
        ("args", "BASE_IMAGE", "ubuntu:24.04", "BASE_IMAGE=ubuntu:24.04: has no digest"),
        ("args", "BASE_IMAGE", "ubuntu@sha256:12", "has no digest"),
        ("args", "APT_SNAPSHOT", "", "APT_SNAPSHOT: is empty"),
        ("contexts", "sglang", "docker-image://x:1", "has no digest"),
        ("contexts", "source", "https://host/x.git#main", "names no full commit"),
        ("contexts", "source", "https://me:secret@host/x.git", "names no full commit"),
        ("contexts", "wheels", "/opt/wheels", "is a folder outside of the commit"),
    ],
)
def test_what_may_be_another_thing_tomorrow_is_named(where: str, name: str, value: str, said: str) -> None:
    plan = {key: dict(part) for key, part in PINNED.items()}
    assert publish.mutable({"target": {"x": plan}}, Path("/checkout")) == ()
    plan[where][name] = value
    (found,) = publish.mutable({"target": {"x": plan, "y": plan}}, Path("/checkout"))
    assert said in found
    assert "secret" not in found
    with pytest.raises(ImageError, match="--allow-mutable"):
        publish.check_mutable([found])


@pytest.mark.parametrize(
    ("status", "commit", "said"),
    [("", ONE, ""), (" M primus/a.py\n", ONE, "primus/a.py"), ("", TWO, "nothing was pushed")],
    ids=["as it was", "edited", "another commit"],
)
def test_a_checkout_that_changes_while_it_builds_is_not_published(
    primus: Primus, write: Write, monkeypatch: pytest.MonkeyPatch, status: str, commit: str, said: str
) -> None:
    write("docker-bake.hcl", "")
    git = {"status": "", "rev-parse": ONE, "log": "1"}

    def build(*_: object, **__: object) -> tuple[int, str]:
        git.update({"status": status, "rev-parse": commit})
        return 0, ""

    monkeypatch.setattr(image_publish, "_git", lambda root, *words: git[words[0]])
    monkeypatch.setattr(bake, "plan", lambda *_: {"group": {"default": {"targets": []}}, "target": {}})
    monkeypatch.setattr(Client, "check", lambda self: None)
    monkeypatch.setattr(transfer, "run", build)
    done = primus("image", "publish", "--registry=r.example.com/team", "--no-documents")
    assert (said in done.err, done.code) == (True, ImageError.exit_code if said else 0)


def found(identifier: str, digest: str = TWO) -> Found:
    return Found(digest=digest, media_type="x", content=b"", platform={"config": {"digest": identifier}, "layers": []})


def test_the_same_content_is_published_and_other_content_is_refused() -> None:
    assert not publish.is_published("x", ONE, None)
    assert publish.is_published("x", ONE, found(ONE))
    assert publish.is_published("x", TWO, found(ONE))  # containerd's store: the ID is the manifest's digest
    with pytest.raises(ImageError, match="other content"):
        publish.is_published("x", ONE, found(TWO))


@pytest.mark.parametrize(
    ("wanted", "tags", "said"),
    [
        ("0.1.O-cpu", ["0.1.0-cpu", "0.1.0-rocm", "id-1", "stable-cpu.history"], "did you mean 0.1.0-cpu"),
        ("zzz", ["1-cpu", "id-1", "stable-cpu.history"], "there is 1-cpu"),
        ("zzz", ["id-1"], "there is id-1"),
        ("zzz", [], "it has no tag at all"),
    ],
)
def test_the_nearest_tags_are_named(wanted: str, tags: list[str], said: str) -> None:
    assert publish.nearest(wanted, tags).startswith(said)


# Locks.

LOCKED = Locked(name="r.example.com/t/primus-torchtitan", tag="1-cpu", id=ONE, digest=TWO, size=5, sources={"a": "b"})


def test_a_lock_is_read_as_it_was_written(write: Write) -> None:
    both = {("torchtitan", "cpu"): LOCKED, ("maxtext", "rocm"): Locked(name="primus-maxtext", tag="1-rocm", id=ONE)}
    path = write(lock.NAME, lock.text(both))
    assert lock.read(path) == both
    assert lock.text(lock.read(path)) == path.read_text()
    Path("below/this").mkdir(parents=True)
    assert lock.find(Path("below/this").absolute()) == path.absolute()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no JSON: .* line 1 column 1"),
        ("{", "is no JSON"),
        ("[" * 100000, "is nested too deeply|is no JSON"),
        ("[]", "is no lock of images"),
        ('{"images": {}}', "it has no version"),
        ('{"version": 9, "images": {}}', "version is 9"),
        ('{"version": 1}', "images: must be a mapping"),
        ('{"version": 1, "images": {"x": []}}', r"images\.x: must be a mapping"),
        ('{"version": 1, "images": {"x": {"cpu": 5}}}', r"images\.x\.cpu: must be a mapping"),
        ('{"version": 1, "images": {"x": {"cpu": {"name": "a", "nmae": "b"}}}}', "x.cpu.nmae: is no fact"),
        ('{"version": 1, "images": {"x": {"cpu": {"name": "a"}}}}', "x.cpu.tag: is missing"),
        ('{"version": 1, "images": {"x": {"cpu": {"name": "a", "tag": 1}}}}', "x.cpu.tag: 1 is of no type"),
        *(
            (f'{{"version": 1, "images": {{"x": {{"cpu": {{"name": "a", "tag": "b", {facts}}}}}}}}}', said)
            for facts, said in (
                (f'"id": "{ONE[:-1]}"', r"x\.cpu\.id: .* is no digest"),
                (f'"id": "{ONE}", "digest": "x"', r"x\.cpu\.digest: 'x' is no digest"),
                (f'"id": "{ONE}", "size": "5"', r"x\.cpu\.size: '5' is of no type"),
                (f'"id": "{ONE}", "sources": {{"a": 1}}', r"x\.cpu\.sources: must hold text"),
            )
        ),
    ],
)
def test_a_lock_that_is_none_is_named(write: Write, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        lock.read(write(lock.NAME, text))
    assert str(error.value).startswith(f"{lock.NAME}: ")
    assert "take it from git as it was, or delete it" in str(error.value)
    Path(lock.NAME).write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is no text"):
        lock.read(Path(lock.NAME))


@pytest.mark.parametrize(
    "secret",
    [{"id": "pip_conf", "src": "/etc/pip.conf"}, "id=pip_conf,src=/etc/pip.conf", "id=apt_conf,src=/etc/apt.conf"],
    ids=str,
)
def test_a_file_that_says_where_packages_come_from_is_no_commit(secret: Any) -> None:
    plan = {"target": {"x": {"secret": [secret, "id=ca_bundle,src=/etc/ca.crt"]}}}
    (found,) = publish.mutable(plan, Path("/checkout"))
    assert "_conf: /etc/" in found
    assert publish.mutable(plan, Path("/etc")) == ()


def test_other_commands_name_the_locked_image_too(primus: Primus, experiment: Experiment, write: Write) -> None:
    write("own.json", lock.text({("torchtitan", "cpu"): LOCKED, ("megatron", "cpu"): LOCKED}))
    show = ("config", "show", experiment(), "--format=json")
    assert json.loads(primus(*show).out)["image"] == "primus-torchtitan:0.1.0-cpu"
    assert json.loads(primus(*show, "--lock=own.json").out)["image"] == f"{LOCKED.name}@{TWO}"
    write("x.txt", "x")
    data = ("data", "prepare-megatron", "x.txt", "--output=x", "--tokenizer-type=NullTokenizer", "--vocab-size=9")
    more = ("--accelerator=cpu", "--dry-run")
    assert f" {LOCKED.name}@{TWO} -m primus" in primus(*data, *more, "--lock=own.json").out
    write(lock.NAME, Path("own.json").read_text())
    assert json.loads(primus(*show).out)["image"] == f"{LOCKED.name}@{TWO}"
    assert f" {LOCKED.name}@{TWO} -m primus" in primus(*data, *more).out
    assert " primus-megatron:0.1.0-cpu -m primus" in primus(*data, *more, "--no-lock").out


@pytest.mark.parametrize("where", ["settings", "variable"])
def test_a_runtime_without_images_in_the_settings_is_no_usage_error(primus: Primus, write: Write, where: str) -> None:
    if where == "settings":
        write("primus.yaml", "engine: apptainer\n")
    else:
        os.environ["PRIMUS_ENGINE"] = "pyxis"
    done = primus("image", "list")
    assert done.code == 4  # there is no docker here
    assert "keeps no images; docker or podman is asked" in done.err
    assert "docker is not installed" in done.err
    given = primus("image", "list", "--engine=apptainer")
    assert given.code == 2
    assert "pass --engine docker or --engine podman" in given.err


def test_the_first_node_adds_to_the_record_what_it_ran() -> None:
    record = Record(Path("run").absolute())
    record.identified(ONE, TWO)
    assert record.read("run.json") == {}  # nobody submitted it
    record.write("run.json", {"image_id": "", "image_digest": "", "user": "me"})
    record.identified(ONE, TWO)
    record.identified(TWO, "")
    assert record.read("run.json") == {"image_id": ONE, "image_digest": TWO, "user": "me"}


def test_a_run_takes_the_locked_digest(primus: Primus, experiment: Experiment, write: Write) -> None:
    write(lock.NAME, lock.text({("torchtitan", "cpu"): LOCKED}))
    words = ("run", "--config", experiment(), "--dry-run")
    assert f" {LOCKED.name}@{TWO} -m primus" in primus(*words).out
    # A mirror has the same digest under another name.
    assert f" mirror.x/y/primus-torchtitan@{TWO} -m primus" in primus(*words, "--registry=mirror.x/y").out
    assert " other:1 -m primus" in primus(*words, "--image=other:1").out
    assert " primus-torchtitan:0.1.0-cpu -m primus" in primus(*words, "--no-lock").out
    write("elsewhere.json", lock.text({("maxtext", "cpu"): LOCKED}))
    other = primus(*words, "--lock=elsewhere.json")
    assert " primus-torchtitan:0.1.0-cpu -m primus" in other.out
    assert "elsewhere.json has no image of torchtitan for cpu: it is taken by its tag" in other.err
    assert primus(*words, "--lock=nowhere.json").code == 2
    assert primus(*words, "--lock=elsewhere.json", "--image=x").code == 2


def test_a_slurm_job_names_the_digest(primus: Primus, experiment: Experiment, write: Write) -> None:
    write(lock.NAME, lock.text({("torchtitan", "cpu"): LOCKED}))
    done = primus("run", "--config", experiment(), "--launcher=slurm", "--dry-run")
    assert f"--image={LOCKED.name}@{TWO} --image-id={ONE}" in done.out


def test_the_lock_is_a_setting(primus: Primus, experiment: Experiment, write: Write) -> None:
    write("locks/images.json", lock.text({("torchtitan", "cpu"): LOCKED}))
    write("primus.yaml", "lock: locks/images.json\n")
    assert f"@{TWO}" in primus("run", "--config", experiment(), "--dry-run").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("publish", "--registry=https://host.x/team"), "an image's name has no scheme"),
        (("publish", "--registry=host.x/Team"), "its name is not one"),
        (("publish", "torchtitn", "--registry=host.x/team"), "did you mean torchtitan?"),
        (("promote", "1", "stable", "torchtitn", "--registry=host.x/team"), "did you mean torchtitan?"),
        (("promote", "stable", "stable", "--registry=host.x/team"), "is the same channel"),
        (("pull",), "nothing is locked for rocm"),
        (("prune", "--all-but-locked"), "there is no lock"),
    ],
)
def test_a_slip_is_named_before_anything_is_asked(primus: Primus, words: tuple[str, ...], said: str) -> None:
    done = primus("image", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


class Engine(Client):
    """Images by name, and what is fetched when it is pulled."""

    def __init__(self, **images: Manifest) -> None:
        super().__init__("docker")
        self.images = images

    def manifest(self, image: str) -> Manifest | None:
        return self.images.get(image)

    def _fetch(self, image: str, pull: str, after: float) -> Manifest:
        raise ImageError(f"{image} is fetched, {pull}")


def an_image(identifier: str, *digests: str) -> Manifest:
    return Manifest(framework="torchtitan", accelerator="cpu", id=identifier, digests=digests)


def test_a_locked_image_without_its_digest_is_found_by_its_id() -> None:
    engine = Engine(**{ONE: an_image(ONE)})
    assert engine.ensure(f"x@{TWO}", pull="missing", expected=ONE).id == ONE
    with pytest.raises(ImageError, match="is fetched, never"):
        engine.ensure(f"x@{TWO}", pull="never", expected=f"sha256:{'3' * 64}")


def test_an_image_that_is_not_the_locked_one_is_refused() -> None:
    with pytest.raises(ImageError, match="the lock says"):
        Engine(x=an_image(TWO)).ensure("x", pull="missing", expected=ONE)
    # containerd's store: the ID is not the configuration's, and the digest is right.
    assert Engine(**{f"x@{TWO}": an_image(TWO, TWO)}).ensure(f"x@{TWO}", pull="missing", expected=ONE).id == TWO


def test_a_digest_is_that_of_the_repository_that_was_named() -> None:
    about = {"RepoDigests": [f"r.x/other@{ONE}", f"r.x/mine@{TWO}", f"ubuntu@{ONE}"]}
    assert digests_in("r.x/mine", about) == (TWO,)
    assert digests_in(take_apart("docker.io/library/ubuntu").repository, about) == (ONE,)
    assert digests_in("r.x/none", about) == ()


@pytest.mark.parametrize(
    ("tags", "digests", "framework", "identifier", "tagged", "gone"),
    [
        ([], [], "torchtitan", TWO, False, True),
        (["a:1"], [], "torchtitan", TWO, False, False),
        ([], ["a@sha256:1"], "torchtitan", TWO, False, False),
        (["a:1"], [], "torchtitan", TWO, True, True),
        ([], [], "torchtitan", ONE, True, False),
        ([], [], "maxtext", TWO, True, False),
        ([], [], None, TWO, True, False),
    ],
    ids=["replaced", "tagged", "by digest", "all but locked", "locked", "another framework", "not ours"],
)
def test_what_is_pruned(
    tags: list[str], digests: list[str], framework: str | None, identifier: str, tagged: bool, gone: bool
) -> None:
    labels = {"io.primus.framework": framework} if framework else None
    about = {"Id": identifier, "RepoTags": tags, "RepoDigests": digests, "Config": {"Labels": labels}}
    assert lock.removable(about, {ONE}, ("torchtitan",), tagged=tagged) == gone


# Transfers and credentials.


def test_only_layers_that_no_image_has_are_fetched() -> None:
    layers = [{"size": 1}, {"size": 10}, {"size": 100}]
    here = [["a"], ["a", "b", "x"], ["c"]]
    assert transfer.to_fetch(layers, ["a", "b", "c"], here) == ({"size": 100},)
    assert transfer.to_fetch(layers, ["a", "b", "c"], []) == tuple(layers)
    assert transfer.room(layers) > 4.7 * 111


def test_a_failure_that_another_try_does_not_mend_is_not_tried_again() -> None:
    said: list[str] = []
    for text, tries in (("denied: no", 1), ("connection reset", 3)):
        said.clear()
        words = (sys.executable, "-c", f"print({text!r}); raise SystemExit(1)")
        assert transfer.run_again(words, "x", said.append, pauses=(0, 0)) == (1, text)
        assert len([line for line in said if line == "x ..."]) == tries


def auth(text: str) -> dict[str, str]:
    return {"auth": base64.b64encode(text.encode()).decode()}


@pytest.mark.parametrize(
    ("document", "host", "password"),
    [
        ({"auths": {"r.x": auth("me:a")}}, "r.x", "me:a"),
        ({"auths": {"https://r.x": auth("me:a")}}, "r.x", "me:a"),
        ({"auths": {"r.x": auth("me:a"), "r.x/team": auth("me:b")}}, "r.x", "me:b"),
        ({"auths": {"https://index.docker.io/v1/": auth("me:a")}}, "docker.io", "me:a"),
        ({"auths": {"other": auth("me:a")}}, "r.x", None),
        ({"auths": {"r.x": {}}}, "r.x", None),
        ({"auths": {"r.x": {"auth": "???"}}}, "r.x", None),
        ([], "r.x", None),
    ],
)
def test_credentials_are_found_where_docker_and_podman_keep_them(
    write: Write, document: Any, host: str, password: str | None
) -> None:
    write("home/.docker/config.json", json.dumps(document))
    found = credentials.find(host, "team/x", {"HOME": str(Path("home").absolute())})
    assert (base64.b64decode(found.basic).decode() if found else None) == password
    assert "basic" not in repr(found)


def test_a_helper_is_asked(write: Write) -> None:
    helper = write(
        "bin/docker-credential-test",
        '#!/bin/sh\nread key\necho "{\\"Username\\": \\"$key\\", \\"Secret\\": \\"s\\"}"\n',
    )
    helper.chmod(0o755)
    os.environ["PATH"] = f"{helper.parent.absolute()}:/usr/bin:/bin"
    write("config.json", json.dumps({"credHelpers": {"r.x": "test"}}))
    found = credentials.find("r.x", "team/x", {"DOCKER_CONFIG": str(Path.cwd())})
    assert found is not None
    assert (found.place, base64.b64decode(found.basic)) == ("docker-credential-test", b"r.x:s")


@pytest.mark.parametrize(("said", "refused"), [({"network": "none"}, False), ({}, True), ({"network": "host"}, True)])
def test_a_bake_that_takes_no_notice_of_the_network_is_refused(
    write: Write, monkeypatch: pytest.MonkeyPatch, said: dict[str, str], refused: bool
) -> None:
    docker = write("bin/docker", f"#!/bin/sh\necho '{json.dumps({'target': {'base': said}})}'\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent.absolute()}:/usr/bin:/bin")
    assert bake.plan((Path("docker-bake.hcl"),), ("base",), {}) == {"target": {"base": said}}
    monkeypatch.setenv("BUILD_NETWORK", "none")
    if refused:
        with pytest.raises(ImageError, match="BUILD_NETWORK=none: this buildx takes no notice of it"):
            bake.plan((Path("docker-bake.hcl"),), ("base",), {})
    else:
        bake.plan((Path("docker-bake.hcl"),), ("base",), {})


def test_without_a_home_nothing_is_cached(monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    made: list[Path] = []
    path = write("x.tar", "")
    monkeypatch.setattr(Path, "mkdir", lambda self, **_: made.append(self))
    monkeypatch.setattr("primus.image.archive._images", lambda _: [(ONE, [])])
    assert archive.identifier(path, "torchtitan", {}) == ONE
    assert made == []


def test_what_is_locked_is_kept_under_each_name_that_an_engine_has_for_it() -> None:
    of_here = Locked(name="primus-maxtext", tag="1-rocm", id=ONE)
    assert lock.identifiers({("torchtitan", "cpu"): LOCKED, ("maxtext", "rocm"): of_here}) == {ONE, TWO}


def test_a_build_takes_the_values_of_the_site(write: Write) -> None:
    for name in ("docker-bake.hcl", "other.hcl", "docker-bake.override.hcl"):
        write(name, "")
    found = bake.files(Path("docker-bake.hcl"))
    assert bake.command(found, ())[3:5] == ("--file=docker-bake.hcl", "--file=docker-bake.override.hcl")
    assert bake.files(Path("other.hcl")) == (Path("other.hcl"),)
