"""primus data: what it would run, and what it refuses before anything runs."""

from __future__ import annotations

import shlex

import pytest

from .conftest import Primus, Write

PREPARE = ("data", "prepare-megatron", "--tokenizer-type=NullTokenizer", "--vocab-size=9", "--output=out/x")


@pytest.fixture
def source(write: Write) -> str:
    return str(write("in/a b.jsonl", '{"text": "1 2"}\n'))


def test_the_container_sees_what_it_reads_and_nothing_else(primus: Primus, source: str, write: Write) -> None:
    model = write("model/tokenizer.json", "{}")
    words = (*PREPARE, source, f"--tokenizer-model={model.parent}", "--null-tokenizer-pad-id=0")
    done = primus(*words, "--append-eod", "--accelerator=rocm", "--engine=podman", "--offline", "--dry-run")
    assert (done.code, done.err) == (0, "")
    outer = shlex.split(done.out.splitlines()[1])
    assert outer[:2] == ["podman", "run"]
    assert "primus-megatron:0.1.0-rocm" in outer
    assert not [word for word in outer if word.startswith("--device")]  # any machine will do
    mounts = [
        dict(part.split("=") for part in word[8:].split(",") if "=" in part) for word in outer if word[:8] == "--mount="
    ]
    here = str(model.parent.absolute().parent)
    assert [mount["target"] for mount in mounts] == [f"{here}/out", f"{here}/in/a b.jsonl", f"{here}/model"]
    assert "--env=HF_HUB_OFFLINE=1" in outer
    inner = shlex.split(done.out.splitlines()[3])
    assert inner[inner.index("primus.backends.megatron.prepare") + 1 :] == [
        *("--append-eod", "--json-key=text", f"--output={here}/out/x", "--workers=1"),
        *("--null-tokenizer-pad-id=0", f"--tokenizer-model={here}/model", "--tokenizer-type=NullTokenizer"),
        *("--vocab-size=9", "--", f"{here}/in/a b.jsonl"),
    ]
    assert outer[-len(inner) + 6 :] == inner[6:]  # but for `env` and its five assignments


def test_all_that_is_wrong_is_said_at_once(primus: Primus, source: str, write: Write) -> None:
    write("out/x.idx", "")
    write("a.parquet", "")
    done = primus(*PREPARE, source, "nowhere.txt", "a.parquet", "in", "--tokenizer-model=./no")
    assert done.code == 2
    for said in ("nowhere.txt: does not", "a.parquet: is neither", "x.idx: exists", "tokenizer_model: "):
        assert said in done.err
    assert "--overwrite replaces it" in done.err
    done = primus(*PREPARE[:-1], source, "--output=out/x.bin")
    assert (done.code, "hint: write --output" in done.err) == (2, True)
    done = primus(*PREPARE, source, source, "--json-key=", "--overwrite")
    assert (done.code, "is named twice" in done.err, "--json-key: is empty" in done.err) == (2, True, True)
    done = primus(*PREPARE, source, "--vocab-size=-5")
    assert (done.code, "-5 is not in the range" in done.err) == (2, True)
    done = primus(*PREPARE, source, "--overwrite", "--launcher=direct")
    assert (done.code, "megatron is not installed" in done.err) == (4, True)


@pytest.mark.parametrize(
    ("kind", "needs"),
    [("HuggingFaceTokenizer", "--tokenizer-model"), ("GPT2BPETokenizer", "--vocab-file and --merge-file")],
)
def test_a_tokenizer_is_not_downloaded_for_want_of_its_files(
    primus: Primus, source: str, kind: str, needs: str
) -> None:
    done = primus("data", "prepare-megatron", f"--tokenizer-type={kind}", "--output=out/x", source)
    assert done.code == 2
    assert f"--tokenizer-type {kind} needs {needs}\n" in done.err


def test_offline_a_tokenizer_on_the_hub_must_be_in_the_cache(primus: Primus, source: str) -> None:
    done = primus(*PREPARE, source, "--tokenizer-model=some/where", "--offline")
    assert done.code == 2
    assert (
        "tokenizer_model: some/where is no path here, and not in this machine's cache of the Hugging Face hub"
        in done.err
    )


@pytest.mark.parametrize(
    ("output", "said"),
    [("", "is a directory"), ("in", "add a name: --output in/NAME"), ("/x", "the root of all files")],
)
def test_a_prefix_is_a_files_name_in_a_directory_of_its_own(
    primus: Primus, source: str, output: str, said: str
) -> None:
    done = primus(*PREPARE[:-1], f"--output={output}", source, "--dry-run")
    assert (done.code, done.out) == (2, "")
    assert said in done.err
