"""Tuning of hipBLASLt: logs to products, what a result is for, and the tool's stand-in to the end."""

from __future__ import annotations

import json
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from primus.cli.hipblaslt import dumping, finish, gather, heard, prepare, tuned
from primus.errors import ConfigError, LaunchError
from primus.experiment import load_experiment
from primus.tune import library, offline, results, shapes

from .conftest import Primus

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/torchtitan/configs/CPU/llama3_tiny-pretrain.yaml"
# The line is the one of hipBLASLt's documentation, with m and the solution free:
# https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/how-to/how-to-use-hipblaslt-offline-tuning.html
LINE = (
    "hipblaslt-bench --api_method c -m {m} -n 512 -k 1024 --lda 1024 --ldb 1024 --ldc 1024 --ldd 1024  --stride_a 0 "
    "--stride_b 0 --stride_c 0 --stride_d 0  --alpha 1.000000 --beta 1.000000 --transA N --transB N --batch_count 1  "
    "--a_type f16_r --b_type f16_r --c_type f16_r --d_type f16_r --scale_type f32_r --bias_type f32_r   "
    "--compute_type f32_r --algo_method index --solution_index {index}"
)


def line(m: int | str = 1024, index: int = 56073) -> str:
    return LINE.format(m=m, index=index)


def test_the_logs_of_all_processes_become_one_file_with_counts(tmp_path: Path) -> None:
    (tmp_path / "node0-11.log").write_text(f"{line()}\n{line(index=7)}\n{line(2048)}\n")
    (tmp_path / "node1-11.log").write_text(f"{line()}\n\n{line(2048)[:-40]}")
    file = gather(tmp_path)
    counts = [text.partition("\t")[0] for text in file.read_text().splitlines()]
    assert counts == ["3", "1"]
    assert "solution_index" not in file.read_text()
    assert shapes.read([file]) == shapes.Shapes(shapes.read(shapes.logs(tmp_path)).counts, {})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", ""),
        ("[Info] hello", ""),
        (line("many"), "-m is no number from 1"),
        (line().replace("-k 1024", ""), "lacks -k"),
        (line().replace("--a_type f16_r", "--a_type what"), "--a_type what is no type"),
        (line().replace("--transA N", "--transA Q"), "--transA or --transB is none of N, T, C"),
        (line() + " --grouped_gemm", "grouped: hipBLASLt's tuning file has no place for it"),
        (line() + " garbage here", "not a command line of hipblaslt-bench"),
    ],
    ids=["empty", "other", "no number", "lacks", "type", "transposed", "grouped", "garbage"],
)
def test_a_line_that_is_no_product_says_why(text: str, why: str) -> None:
    assert shapes.parse(text) == why


def test_the_end_of_a_log_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "node0-1.log"
    log.write_text(f"{line()}\n{line()[:-3]}")
    assert shapes.read([log]).left_out == {"cut off at the end of a file": 1}


def test_a_type_that_nobody_here_knows_is_left_to_the_tool() -> None:
    found = shapes.parse(line().replace("--a_type f16_r", "--a_type f3_new_r"))
    assert not isinstance(found, str)


def test_no_product_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "node0-1.log").write_text("nothing\n")
    with pytest.raises(ConfigError, match="no product was logged"):
        gather(tmp_path)


@pytest.mark.parametrize(("nodes", "rank"), [(1, "0"), (2, "${NODE_RANK}")])
def test_each_process_of_each_node_logs_to_a_file_of_its_own(tmp_path: Path, nodes: int, rank: str) -> None:
    made = dumping(load_experiment(EXAMPLE, environ={}), tmp_path, nodes=nodes)
    assert made.env["HIPBLASLT_LOG_FILE"] == f"{tmp_path}/hipblaslt/node{rank}-%i.log"
    assert made.env["HIPBLASLT_LOG_MASK"] == "32"


def test_what_silences_the_log_is_refused_or_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = load_experiment(EXAMPLE, environ={})
    environ = {"HIPBLASLT_LOG_LEVEL": "2", results.VARIABLE: "", "A": "b"}
    heard(environ, dump=True)
    assert environ == {"A": "b"}
    assert "HIPBLASLT_LOG_LEVEL is left out" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="would log no products"):
        dumping(replace(experiment, env={"HIPBLASLT_LOG_LEVEL": "2"}), tmp_path, nodes=1)
    with pytest.raises(ConfigError, match="direct launcher"):
        dumping(experiment, None, nodes=1)


ABOUT = {"image": "sha256:aaa", "manifest": "manifest:b", "gfx": "gfx942", "library": "1.2-abc", "tuned": 1}


def result(path: Path, **changes: str) -> results.Results:
    path.mkdir(parents=True, exist_ok=True)
    (path / results.ABOUT).write_text(json.dumps(ABOUT | changes))
    (path / results.TUNING).write_text("Git Version: 0\n")
    return results.load(path)


@pytest.mark.parametrize(
    ("name", "here"),
    [("image", "sha256:zzz"), ("manifest", "manifest:z"), ("gfx", "gfx950"), ("library", "1.3-abc")],
)
def test_a_result_for_something_else_is_refused_with_both_names(tmp_path: Path, name: str, here: str) -> None:
    made = result(tmp_path)
    results.check(made, **{key: str(ABOUT[key]) for key in ("image", "manifest", "gfx", "library")})
    with pytest.raises(ConfigError) as caught:
        results.check(made, **{name: here})
    assert str(ABOUT[name]) in str(caught.value)
    assert here in str(caught.value)
    assert "tune again here" in caught.value.problems[0].hint


def test_a_result_is_found_by_its_directory_the_one_above_or_its_file(tmp_path: Path) -> None:
    made = result(tmp_path / "a")
    assert [results.load(path).path for path in (tmp_path, made.path, made.tuning)] == [made.path] * 3
    assert results.named({}, {results.VARIABLE: str(made.tuning)}) == made
    assert results.named({results.VARIABLE: "/mine.csv"}, {results.VARIABLE: str(made.tuning)}) is None
    result(tmp_path / "b")
    with pytest.raises(ConfigError, match="holds 2 results"):
        results.load(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"image": "x"}'])
def test_a_damaged_result_is_refused(tmp_path: Path, content: str) -> None:
    result(tmp_path)
    (tmp_path / results.ABOUT).write_text(content)
    with pytest.raises(ConfigError, match=r"about\.json"):
        results.load(tmp_path)


def test_a_result_beside_another_file_in_the_experiment_is_refused(tmp_path: Path) -> None:
    experiment = load_experiment(EXAMPLE, environ={})
    made = result(tmp_path)
    assert tuned(experiment, made).env[results.VARIABLE] == str(made.tuning)
    with pytest.raises(ConfigError, match="leave one out"):
        tuned(replace(experiment, env={results.VARIABLE: "/other"}), made)


def test_the_folder_says_image_gpu_and_library() -> None:
    assert results.folder("sha256:0123456789abcdef", "gfx942", "1.2-ab") == "0123456789ab-gfx942-1.2_ab"


def test_the_tool_and_the_library_are_found_through_rocm(tmp_path: Path) -> None:
    for root in ("rocm", "site/_rocm_sdk_devel"):
        tool = tmp_path / root / "bin" / library.TOOL
        tool.parent.mkdir(parents=True)
        tool.touch(0o755)
        (tmp_path / root / "lib").mkdir()
        (tmp_path / root / "lib/libhipblaslt.so.1.2.3").write_text(root)
    site, environ = [str(tmp_path / "site")], {"ROCM_PATH": str(tmp_path / "rocm"), "PATH": ""}
    assert library.bench(environ, site) == tmp_path / "rocm/bin/hipblaslt-bench"
    assert library.bench({"PATH": ""}, site) == tmp_path / "site/_rocm_sdk_devel/bin/hipblaslt-bench"
    assert library.version(library.library(environ, site)).startswith("1.2.3-")
    torch = tmp_path / "site/torch/lib/libhipblaslt.so"
    torch.parent.mkdir(parents=True)
    torch.write_text("torch's own")
    assert library.library(environ, site) == torch
    assert library.version(None) == "none"


def test_one_tuning_file_has_one_head_and_all_rows() -> None:
    assert offline.merged(["Git Version: 1\ntransA,transB,x\nN,N,1\n", "Git Version: 1\ntransA,transB,x\nT,N,2\n"]) == (
        "Git Version: 1\ntransA,transB,x\nN,N,1\nT,N,2\n"
    )


def test_the_tool_sees_no_other_setting_of_the_library(tmp_path: Path) -> None:
    given = {"HIPBLASLT_LOG_MASK": "32", "HIPBLASLT_TUNING_OVERRIDE_FILE": "", "A": "b"}
    assert offline.environment(given, tmp_path) == {"A": "b", "HIPBLASLT_TUNING_FILE": str(tmp_path)}


def test_two_gpus_share_the_products_and_a_failure_stops_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))  # the stand-in's python3
    log, parts = tmp_path / "log", tmp_path / "products"
    parts.mkdir()
    log.write_text("".join(f"{line(m)}\n" for m in (1, 2)) + line().replace("--a_type f16_r", "--a_type f3_r") + "\n")
    found = list(shapes.read([log]).counts)

    def tuning() -> offline.Tuning:
        return offline.Tuning(ROOT / "tests/hipblaslt_bench.py", found, parts, 1, ABOUT)

    made = tuning()
    made.run((0, 1), threading.Event())
    assert made.write() == 2
    assert [why.partition(":")[0] for why in made.failed.values()] == ["exit code 2"]
    assert "[3/3] GPU" in capsys.readouterr().err
    assert results.load(tmp_path).about["tuned"] == 2
    assert len(results.load(tmp_path).tuning.read_text().splitlines()) == 4
    assert tuning().total == 1


@pytest.fixture
def many(tmp_path: Path) -> offline.Tuning:
    """Ten products to tune, by a tool that does not matter."""
    log, parts = tmp_path / "log", tmp_path / "products"
    parts.mkdir()
    log.write_text("".join(f"{line(m)}\n" for m in range(1, 11)))
    return offline.Tuning(Path("tool"), list(shapes.read([log]).counts), parts, 1, ABOUT)


def test_a_save_that_fails_ends_the_work(many: offline.Tuning, monkeypatch: pytest.MonkeyPatch) -> None:
    save, failed = threading.Event(), threading.Event()

    def full() -> int:
        failed.set()
        raise LaunchError("the disk is full")

    def tune(shape: shapes.Shape, device: int) -> str:
        if save.is_set() or failed.is_set():
            failed.wait(20)
        return "tuned"

    monkeypatch.setattr(many, "write", full)
    monkeypatch.setattr(many, "_one", tune)
    with pytest.raises(LaunchError, match="full"):
        many.run((0,), save)
    assert (many.stopped, many.waiting) == (signal.SIGTERM, [])


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no text")], ids=["disk", "text"]
)
def test_a_result_that_cannot_be_kept_fails_alone(
    many: offline.Tuning, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def tune(shape: shapes.Shape, device: int) -> str:
        if shape == many.shapes[0]:
            raise error
        return "tuned"

    monkeypatch.setattr(many, "_one", tune)
    many.run((0,), threading.Event())
    assert list(many.failed) == [many.shapes[0].line]
    assert many.waiting == []


def test_products_that_are_left_are_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").write_text(f"{line()}\n")
    monkeypatch.setattr(offline.Tuning, "run", lambda *_: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    words = [f"--shapes={tmp_path / 'log'}", f"--output={tmp_path}", "--iters=1", f"--bench={tmp_path / 'log'}"]
    assert offline.main(words) == LaunchError.exit_code


def test_a_directory_of_logs_needs_no_run(tmp_path: Path, primus: Primus) -> None:
    (tmp_path / "node0-1.log").write_text(f"{line()}\n")
    words = ("tune", "hipblaslt", "tune", str(tmp_path), "--dry-run")
    assert "add --framework" in primus(*words).err
    assert not (tmp_path / shapes.FILE).exists()
    planned = primus(*words, "--framework=torchtitan", "--accelerator=cpu")
    assert planned.code == 0, planned.err
    assert f"--shapes={tmp_path / shapes.FILE}" in planned.out


def test_a_dump_ends_with_one_file_and_the_exit_code_of_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(tmp_path)
    with pytest.raises(SystemExit) as ended:
        finish(7, tmp_path)
    assert ended.value.code == 7
    with pytest.raises(ConfigError, match="no product was logged"):
        finish(0, tmp_path)
    (tmp_path / "hipblaslt/node0-1.log").write_text(f"{line()}\n")
    with pytest.raises(SystemExit) as ended:
        finish(0, tmp_path)
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{tmp_path}/hipblaslt/shapes.txt\n"


def test_under_slurm_each_node_logs_by_its_rank_and_gets_the_result(tmp_path: Path, primus: Primus) -> None:
    made = result(tmp_path / "tuned")
    base = ["--launcher=slurm", "--nodes=2", "--accelerator=cpu", "--dry-run", f"--config={EXAMPLE}"]
    dumped = primus("tune", "hipblaslt", "dump", *base)
    assert "/hipblaslt/node${NODE_RANK}-%i.log" in dumped.out
    used = primus("tune", "hipblaslt", "use", str(made.path), *base)
    assert f"--mount={made.path}:{made.path}:ro" in used.out
    assert f"{results.VARIABLE}: {made.tuning}" in used.out
    assert f"hipBLASLt uses the kernels of {made.path}" in used.err
