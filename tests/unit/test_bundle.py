"""Bundles: what is in one, that each of its bytes is checked, what a host needs for it."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from primus.cli.bundled import Experiments, readme
from primus.errors import ConfigError, ImageError, LaunchError
from primus.experiment import load_experiment
from primus.image import bundle, bundling, gnutar, load, oci
from primus.image.bundle import Image, Layer, Manifest, Member, blob_name
from primus.job import Slurm
from primus.launchers import on_nodes
from tests.unit.conftest import Experiment, Primus, Write

ROOT = Path(__file__).resolve().parents[2]


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


BOTTOM, TOP, CONFIG = b"bottom" * 200, b"top" * 300, b'{"config": {}}'
IMAGE = Image(
    framework="torchtitan",
    accelerator="cpu",
    name="primus-torchtitan",
    tag="1-cpu",
    id=digest(CONFIG),
    layers=(
        Layer(diff_id=digest(b"b"), size=1, blob=digest(BOTTOM)),
        Layer(diff_id=digest(b"t"), size=1, blob=digest(TOP)),
    ),
)
LONG = f"data/{'long/' * 30}tokens.bin"
FILES: Mapping[str, bundling.Content] = {
    "README.md": b"read me",
    "experiments/torchtitan/a.yaml": b"steps: 1\n",
    "wheels/primus-0.1.0-py3-none-any.whl": b"wheel" * 50,
    "data/empty": b"",
    LONG: b"12",
    **{blob_name(digest(one)): one for one in (BOTTOM, TOP, CONFIG)},
}


def made(*, image: Image = IMAGE, since: tuple[Image, ...] = (), sign: bytes | None = None) -> Path:
    """A bundle of toys, here."""
    members = {
        name: Member(size=len(content), sha256=digest(content).removeprefix("sha256:"))
        for name, content in FILES.items()
        if isinstance(content, bytes)
    }
    manifest = Manifest(time=1_700_000_000, images=(image,), since=since, members=members)
    path = Path("toy.tar").absolute()
    head = bundle.head(manifest.text(), sign)
    bundling._assemble(head, manifest, FILES, Path("part").absolute(), path, lambda _text: None)
    return path


def refused(path: Path) -> str:
    with pytest.raises(ImageError) as caught:
        bundle.check(bundle.read(path))
    return str(caught.value)


@pytest.mark.parametrize("signature", [None, b"signed"], ids=["unsigned", "signed"])
def test_a_bundle_is_a_tar_that_others_read_and_the_same_each_time(signature: bytes | None) -> None:
    first = made(sign=signature).read_bytes()
    source = bundle.read(made(sign=signature))
    bundle.check(source)
    assert source.path.read_bytes() == first
    assert source.signature == signature
    with tarfile.open(source.path) as tar:
        found = {member.name: member for member in tar}
        for name, content in FILES.items():
            stream = tar.extractfile(name)
            assert stream is not None
            assert stream.read() == content == b"".join(source.pieces(name))
    assert {(one.uid, one.mtime, one.mode) for one in found.values() if one.name != LONG} == {(0, 1_700_000_000, 0o644)}
    assert set(found) - FILES.keys() == {name for name, _ in source.head}


def test_each_header_is_counted_once_for_all_members(monkeypatch: pytest.MonkeyPatch) -> None:
    source = bundle.read(made())
    header = gnutar.header
    asked: list[str] = []

    def counted(name: str, size: int, time: int) -> bytes:
        asked.append(name)
        return header(name, size, time)

    monkeypatch.setattr(gnutar, "header", counted)
    for name in FILES:
        assert b"".join(source.pieces(name)) == FILES[name]
    assert len(asked) == len(source.head) + len(FILES)


def test_no_layer_is_read_for_each_image_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundling, "_member", lambda content: pytest.fail("it was read"))
    blobs = {name: content for name, content in FILES.items() if name.startswith("blobs/")}
    assert set(bundling._layout((IMAGE, IMAGE), blobs)) >= {"oci-layout", "index.json", "manifest.json"}


def test_a_file_larger_than_8_gib_has_a_header_that_others_read() -> None:
    member = tarfile.TarInfo.frombuf(gnutar.header("blobs/x", 9 << 30, 1), "utf-8", "strict")
    assert (member.name, member.size, member.mtime) == ("blobs/x", 9 << 30, 1)


def test_every_flipped_byte_is_found() -> None:
    path = made(sign=b"signed")
    whole = path.read_bytes()
    bundle.check(bundle.read(path))
    for at in [*range(0, len(whole), 61), len(whole) - 1]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        said = refused(path)
        assert said.startswith(f"{path}: "), at
        assert "hint: " in said


@pytest.mark.parametrize(
    "name",
    [
        *(bundle.MANIFEST, bundle.SIGNATURE, bundle.CHECKSUM, blob_name(digest(TOP)), blob_name(IMAGE.id)),
        *("wheels/primus-0.1.0-py3-none-any.whl", "experiments/torchtitan/a.yaml", "README.md", LONG),
    ],
)
@pytest.mark.parametrize("part", ["content", "header"])
def test_a_flipped_byte_is_named_by_its_member(name: str, part: str) -> None:
    path = made(sign=b"signed")
    with tarfile.open(path) as tar:
        member = tar.getmember(name)
    whole = bytearray(path.read_bytes())
    whole[member.offset_data if part == "content" else member.offset_data - 512 + 124] ^= 1
    path.write_bytes(whole)
    said = refused(path)
    assert name in said  # of the manifest and its checksum, nobody can say which of them is right
    assert f"{path}: {name}: " in said or name == bundle.CHECKSUM


@pytest.mark.parametrize("left", [0, 100, 511, 512, 2000, -1, -513, -1024, -1025])
def test_what_is_cut_off_is_refused(left: int) -> None:
    path = made()
    path.write_bytes(path.read_bytes()[:left])
    assert str(path) in refused(path)


def test_an_added_member_is_named() -> None:
    path = made()
    with tarfile.open(path, "a") as tar:
        member = tarfile.TarInfo("experiments/evil.yaml")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"evil"))
    assert "the end, behind all members" in refused(path)
    path.write_bytes(made().read_bytes() + gnutar.header("evil", 0, 0))
    assert "evil: was added" in refused(path)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../outside", "a/../b", "./a", bundle.MANIFEST], ids=lambda name: name.replace("/", "_")
)
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    text = replace(bundle.read(made()).manifest, members={name: Member(size=0, sha256="0" * 64)}, images=()).text()
    with pytest.raises(ImageError, match="cannot be a member's name"):
        bundle.manifest(text, "toy.tar")


def test_another_file_is_no_bundle(primus: Primus, write: Write) -> None:
    write("other.tar", "no tar at all, but long enough" * 40)
    assert "no bundle, or its header is damaged" in refused(Path("other.tar"))
    assert "No such file" in refused(Path("none.tar"))


def test_a_file_that_is_not_there_has_others_beside_it(write: Write) -> None:
    with pytest.raises(ImageError, match=r"site.tar: No such file.*\n.*primus image bundle --out wrote"):
        bundle.read(Path("site.tar").absolute())
    write("site-2026.12.tar", "")
    with pytest.raises(ImageError, match=r"site.tar: No such file.*\n.*beside it is site-2026.12.tar"):
        bundle.read(Path("site.tar").absolute())


def test_an_unpacked_bundle_is_checked_as_well() -> None:
    with tarfile.open(made()) as tar:
        for member in tar:
            stream = tar.extractfile(member)
            assert stream is not None
            Path("out", member.name).parent.mkdir(parents=True, exist_ok=True)
            Path("out", member.name).write_bytes(stream.read())
    bundle.check(bundle.read(Path("out")))
    Path("out/README.md").write_bytes(b"read it")
    assert "README.md: its content is not what" in refused(Path("out"))
    Path("out/README.md").unlink()
    assert "README.md: is missing" in refused(Path("out"))
    (source,) = oci.sources(Path("out"))
    assert source.manifest.images == (IMAGE,)


def test_files_are_put_in_whole_and_once() -> None:
    source = bundle.read(made())
    said: list[str] = []
    load.unpack(source, Path("to"), said.append)
    names = {str(path.relative_to("to")) for path in Path("to").rglob("*") if path.is_file()}
    assert names == {name for name in FILES if not name.startswith("blobs/")}
    Path("to/output").mkdir()  # of a run
    Path("to", LONG).unlink()
    load.unpack(source, Path("to"), said.append)
    assert Path("to", LONG).read_bytes() == b"12"
    load.unpack(source, Path("to"), said.append)
    assert said == ["to: is there already"]
    assert not list(Path().glob(".to*"))


def test_a_file_of_the_users_is_not_overwritten() -> None:
    Path("to").mkdir()
    Path("to/README.md").write_text("mine", encoding="utf-8")
    with pytest.raises(Exception, match=r"README.md: is there, and is not the bundle's"):
        load.unpack(bundle.read(made()), Path("to"), lambda _text: None)
    assert [path.name for path in Path("to").iterdir()] == ["README.md"]


@pytest.mark.parametrize("there", ["to", "to/data", "to/wheels"])
def test_what_is_in_the_way_of_a_directory_is_named_before_anything_is_written(there: str) -> None:
    source, place = bundle.read(made()), Path(there)
    place.parent.mkdir(exist_ok=True)
    place.write_text("mine")
    with pytest.raises(LaunchError, match=f"{there}: is there, and is no directory"):
        load.unpack(source, Path("to").absolute(), lambda _text: None)
    assert [path for path in (place.parent.rglob("*") if there != "to" else ()) if path != place] == []
    assert place.read_text() == "mine"


def test_what_is_damaged_never_reaches_its_place() -> None:
    path = made()
    source = bundle.read(path)
    whole = bytearray(path.read_bytes())
    whole[source.offsets["README.md"]] ^= 1
    path.write_bytes(whole)
    with pytest.raises(ImageError, match=r"README\.md"):
        load.unpack(source, Path("to"), lambda _text: None)
    assert not Path("to").exists()


def test_an_engine_gets_what_it_lacks_and_its_name_comes_last() -> None:
    source = bundle.read(made())
    for common, stand_ins, blobs in ((0, False, [CONFIG, BOTTOM, TOP]), (1, False, [CONFIG, TOP])):
        stream = io.BytesIO(b"".join(load.stream(source, IMAGE, common, stand_ins=stand_ins)))
        with tarfile.open(fileobj=stream) as tar:
            assert tar.getnames() == [*(blob_name(digest(one)) for one in blobs), "manifest.json"]
    stream = io.BytesIO(b"".join(load.stream(source, IMAGE, 1, stand_ins=True)))
    with tarfile.open(fileobj=stream) as tar:
        assert tar.getmember(blob_name(digest(BOTTOM))).size == 1024


@pytest.mark.parametrize(
    ("here", "lacking"),
    [([], 1), ([("b",)], 0), ([("b", "x")], 0), ([("x", "b")], 1), ([("b", "t")], 0)],
    ids=["nothing", "what is left out", "and another", "elsewhere", "all"],
)
def test_layers_that_are_left_out_must_be_on_the_host(here: list[tuple[str, ...]], lacking: int) -> None:
    bottom, top = IMAGE.layers
    image = replace(IMAGE, layers=(replace(bottom, blob=""), top))
    found = [tuple(digest(name.encode()) for name in one) for one in here]
    assert len(bundle.missing(image, found)) == lacking


def test_the_image_that_a_host_needs_is_named() -> None:
    first = replace(IMAGE, tag="0-cpu", layers=IMAGE.layers[:1])
    source = bundle.read(made(since=(first,)))
    assert "has primus-torchtitan:0-cpu (sha256:" in load._needs(source, IMAGE, IMAGE.layers[:1])


def test_an_image_of_an_oci_layout() -> None:
    sizes = {blob_name(digest(one)): len(one) for one in (BOTTOM, TOP, CONFIG)}
    said = bundling.oci_manifest(IMAGE, sizes)
    assert [one["digest"] for one in said["layers"]] == [digest(BOTTOM), digest(TOP)]
    left_out = bundling.oci_manifest(replace(IMAGE, layers=(replace(IMAGE.layers[0], blob=""),)), sizes)
    assert left_out["layers"][0] == {
        "mediaType": "application/vnd.oci.image.layer.v1.tar",
        "digest": digest(b"b"),
        "size": 1,
    }


def test_what_an_experiment_reads_comes_with_it(experiment: Experiment, write: Write) -> None:
    write("somewhere/tokenizer/tokenizer.json", "{}")
    Path("somewhere/tokenizer/again").symlink_to("../tokenizer")
    path = experiment("{model: {hf_assets_path: ./somewhere/tokenizer}}", top="env: {SECRET_TOKEN: '${SECRET_TOKEN}'}")
    found = Experiments()
    found.add(load_experiment(path, environ={"SECRET_TOKEN": "hidden"}), {}, lambda _text: None)
    ((name, text),) = found.files.items()
    assert name == "experiments/torchtitan/exp.yaml"
    assert b"./data/somewhere/tokenizer" in text
    assert b"hidden" not in text
    assert list(found.data) == ["data/somewhere/tokenizer/tokenizer.json"]
    found.add(load_experiment(path, environ={"SECRET_TOKEN": "hidden"}), {}, lambda _text: None)
    assert list(found.files)[1] == "experiments/torchtitan/exp-2.yaml"


def test_what_an_experiment_reads_must_be_here(experiment: Experiment) -> None:
    path = experiment("{model: {hf_assets_path: ./nowhere/tokenizer}}")
    with pytest.raises(ConfigError, match="nowhere/tokenizer does not exist"):
        Experiments().add(load_experiment(path), {}, lambda _text: None)


def test_data_that_cannot_be_read_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "set"
    (folder / "part").mkdir(parents=True)
    (folder / "part/a").write_text("a")
    (folder / "b").symlink_to("part/a")
    assert Experiments()._moved(folder) == f"./data/{tmp_path.name}/set"
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("part"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    with monkeypatch.context() as patch:  # root may read all
        patch.setattr(os, "scandir", refuse)
        with pytest.raises(ConfigError, match="set/part: cannot be read: Permission denied"):
            Experiments()._moved(folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: not str(path).endswith("a"))
        with pytest.raises(ConfigError, match="set/part/a: cannot be read: Permission denied"):
            Experiments()._moved(folder)
    (folder / "gone").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="set/gone: cannot be read: No such file"):
        Experiments()._moved(folder)


def test_parts_that_are_packed_need_no_second_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {name: Member(size=size, sha256="") for name, size in (("a", 50), ("b", 30), ("data", 7))}
    assert bundling.beyond(members, {"a", "b"}) == 50 + 7
    assert bundling.beyond(members, ()) == 87
    out = tmp_path / "x.tar"
    parts = tmp_path / ".x.tar.parts"
    parts.mkdir()
    (parts / "1.zst").write_bytes(bytes(60))
    (parts / "tar").write_bytes(bytes(20))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=20))
    bundling.check_room(out, 100)
    with pytest.raises(LaunchError, match="needs about"):
        bundling.check_room(out, 101)
    with bundling._workplace(out) as work:
        assert sorted(one.name for one in work.iterdir()) == ["1.zst", "lock"]


def test_the_readme_says_how_to_use_it() -> None:
    manifest = Manifest(time=0, images=(IMAGE,), members={}, experiments=("experiments/a.yaml",))
    text = readme("my bundle.tar", manifest, {"experiments/a.yaml": ("--allow-unknown=x",)}, signed=False)
    assert "openssl" not in text
    assert "--find-links wheels primus\n" in text
    assert "primus image load 'my bundle.tar' --to 'my bundle'" in text
    assert "--config experiments/a.yaml --allow-unknown=x" in text


def test_something_must_be_named(primus: Primus) -> None:
    run = primus("image", "bundle", "--out", "x.tar")
    assert run.code == 2
    assert "--framework NAME, or --config FILE" in run.err


def test_srun_loads_it_once_on_each_node() -> None:
    words = on_nodes.argv(("image", "load", "/shared/a.tar"), 3, Slurm(partition="main", time="30"))
    assert words == (
        *("srun", "--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--partition=main", "--time=30"),
        *("--job-name=primus-load", "--kill-on-bad-exit=0", "--wait=0"),
        *(sys.executable, "-m", "primus", "image", "load", "/shared/a.tar", "--slurm-task"),
    )


def test_each_node_is_told_of(primus: Primus, write: Write) -> None:
    write("bin/srun", "#!/bin/sh\nprintf 'n1\\t\\nn2\\tno room\\n'\n").chmod(0o755)
    os.environ["PATH"] = f"{Path('bin').absolute()}:/usr/bin:/bin"
    path = made()
    run = primus("image", "load", path, "--launcher=slurm", "--nodes=3")
    assert run.code == 4
    assert "n1: loaded" in run.err
    assert "n2: no room" in run.err
    assert "loaded on 1 of 3 nodes" in run.err
    assert not Path("toy").exists()
    write("bin/srun", "#!/bin/sh\nprintf 'n1\\t\\nn2\\t\\n'\n")
    run = primus("image", "load", path, "--launcher=slurm", "--nodes=2")
    assert (run.code, run.out) == (0, "primus-torchtitan:1-cpu\n")
    assert Path("toy/README.md").read_bytes() == b"read me"


def test_a_node_loads_no_other_bundle_than_the_one_that_was_checked(primus: Primus, write: Write) -> None:
    write("bin/docker", "#!/bin/sh\n").chmod(0o755)
    os.environ["PATH"] = f"{Path('bin').absolute()}:/usr/bin:/bin"
    path = made()
    was = hashlib.sha256(bundle.read(path).text).hexdigest()
    run = primus("image", "load", path, "--slurm-task", f"--manifest={'0' * 64}")
    assert run.code == 3
    assert f"{path.name}: was replaced while it was loaded" in run.out
    assert was in " ".join(sent(primus, path))


def sent(primus: Primus, path: Path) -> list[str]:
    """What srun is given to run."""
    Path("bin/srun").write_text("#!/bin/sh\necho $* > words\n")
    Path("bin/srun").chmod(0o755)
    primus("image", "load", path, "--launcher=slurm", "--nodes=1")
    return Path("words").read_text().split()


def test_how_many_nodes() -> None:
    assert on_nodes.size(None, {"SLURM_JOB_NUM_NODES": "4"}) == 4
    with pytest.raises(ConfigError, match="--nodes is missing"):
        on_nodes.size(None, {})
