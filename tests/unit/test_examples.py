"""primus examples: a copy of an example is one file that says the same, wherever it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus import check_experiment, shipped
from primus.experiment import load_experiment
from primus.experiment.flatten import one_file

from .conftest import EXAMPLES, ROOT, Primus, Write

TINY = "torchtitan/CPU/llama3_tiny-pretrain"
DERIVED = "megatron/MI355X/qwen2.5_7B-FP8-pretrain"


def test_every_example_is_there() -> None:
    assert sorted(shipped.names().values()) == sorted(EXAMPLES)


def test_a_copy_says_what_the_example_says(example: Path, write: Write) -> None:
    text = one_file(example)
    copied = load_experiment(write("copy.yaml", text))
    original = load_experiment(example)
    for name in (
        "work_group",
        "user_name",
        "exp_name",
        "workspace",
        "framework",
        "stage",
        "accelerator",
        "args",
        "env",
    ):
        assert getattr(copied, name) == getattr(original, name), name
    assert "extends" not in text
    assert text.count("${") >= example.read_text(encoding="utf-8").count("${")


def test_comments_are_kept(write: Write) -> None:
    write("primus.yaml", "")
    write(
        "base.yaml",
        """\
        # the head of the base
        a: 1  # one
        b: 'x # y'  # two
        # about c
        c:
          # about d
          d: [1, "p, q", r]
          e: {f: true}
        """,
    )
    child = write("child.yaml", "# the child\nextends: base.yaml\n\na: 3   # three\nc: {d: [] , g: ''}\n")
    assert one_file(child) == (
        '# the child\na: 3   # three\nb: "x # y"  # two\n# about c\nc:\n  d: []\n  e:\n    f: true\n  g: ""\n'
    )


def test_copy(primus: Primus) -> None:
    done = primus("examples", "copy", DERIVED)
    assert (done.code, done.out) == (0, "qwen2.5_7B-FP8-pretrain.yaml\n")
    text = Path("qwen2.5_7B-FP8-pretrain.yaml").read_text(encoding="utf-8")
    assert text.startswith(f"# primus examples copy {DERIVED}, of Primus ")
    again = primus("examples", "copy", DERIVED)
    assert (again.code, "is there already" in again.err) == (2, True)
    Path("qwen2.5_7B-FP8-pretrain.yaml").write_text("mine", encoding="utf-8")
    assert primus("examples", "copy", DERIVED, "--force").code == 0
    assert Path("qwen2.5_7B-FP8-pretrain.yaml").read_text(encoding="utf-8") == text
    assert primus("run", "--config=qwen2.5_7B-FP8-pretrain.yaml", "--dry-run").code == 0
    assert primus("examples", "copy", f"examples/torchtitan/configs/{TINY[11:]}.yaml", "new/my.yaml").code == 0
    assert primus("config", "check", "new/my.yaml").code == 0


def test_data_is_the_package_s_where_there_is_none(primus: Primus, write: Write) -> None:
    assert primus("examples", "copy", "llama_tiny-dflash", "new").out == "new/llama_tiny-dflash.yaml\n"
    shown = primus("run", "--config=new/llama_tiny-dflash.yaml", "--dry-run")
    assert (shown.code, "does not exist" in shown.err) == (0, False)
    assert f"source={ROOT}/examples/data/dialogs.jsonl" in shown.out
    assert f"source={ROOT}/examples/data/target" in shown.out
    write("examples/mine.yaml", "")
    assert "does not exist" in primus("run", "--config=new/llama_tiny-dflash.yaml", "--dry-run").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["copy", "llama3_tiny-pretrian"], f"did you mean {TINY}?"),
        (["copy", "qwen2.5_7B-FP8-pretrain"], "which of megatron/MI300X/qwen2.5_7B-FP8-pretrain, megatron/MI325X"),
        (["copy", "zzz"], "primus examples list"),
        (["list", "torchtitan", "nothing"], "no example has torchtitan and nothing in its name"),
    ],
)
def test_what_is_not_there_is_said(words: list[str], said: str, primus: Primus) -> None:
    done = primus("examples", *words)
    assert said in done.err
    assert done.code == (2 if words[0] == "copy" else 0)
    assert list(Path().iterdir()) == []


def test_list(primus: Primus) -> None:
    assert len(primus("examples", "list").out.splitlines()) == len(EXAMPLES)
    assert primus("examples", "list", "TorchTitan", "cpu").out == f"{TINY}\n"


def test_examples_are_the_package_s_where_there_are_none(primus: Primus, write: Write) -> None:
    path = "examples/torchtitan/configs/CPU/llama3_tiny-pretrain.yaml"
    done = primus("config", "check", path)
    assert (done.code, f"{ROOT}/{path}: ok" in done.out) == (0, True)
    done = primus("run", "--dry-run", f"--config={path.replace('pretrain', 'pretrian')}")
    assert (done.code, f"did you mean {TINY} or" in done.err) == (2, True)
    done = primus("run", "--dry-run", f"--config={path}")
    assert (done.code, f"{path} is the one that came with Primus" in done.err) == (0, True)
    assert primus("config", "diff", path, path).out == "the same\n"
    assert primus("config", "list", "examples/torchtitan/configs/CPU").code == 0
    assert check_experiment(path) == ()
    write("examples/mine.yaml", "")
    assert "does not exist" in primus("run", "--dry-run", f"--config={path}").err


def test_a_name_is_no_file(primus: Primus) -> None:
    done = primus("run", "--config", TINY, "--dry-run")
    assert (done.code, f"primus examples copy {TINY} makes one" in done.err) == (2, True)


def test_an_installed_package_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "primus/examples/torchtitan/configs").mkdir(parents=True)
    assert shipped.examples(tmp_path / "primus") == tmp_path / "primus/examples"
    assert shipped.examples(tmp_path / "elsewhere/primus") is None
