"""What is said of a failed run: the rank, the lines and the cause, from lines that real runs have printed."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from primus import failure
from primus.failure import CAUSES, WEAK, cause, explain, failed_rank, message, plain, useful
from primus.record import Attempt, Record

ROOT = Path(__file__).resolve().parents[2]
# torchrun's summary (torch 2.13), with the rank that failed first.
SUMMARY = """\
E1130 21:41:55.103000 8170 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 0
Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
primus.backends.torchtitan.worker FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-30_21:41:54
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : -15 (pid: 8211)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 8211
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_21:41:54
  host      : localhost
  rank      : {rank} (local_rank: {local})
  exitcode  : {code} (pid: 8209)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
TITAN = """\
primus: torchtitan in primus-torchtitan:0.1.0-cpu, results in /runs/a
[rank0]:[titan] 2026-11-30 21:41:54,845 - root - INFO - Peak FLOPS used for computing MFU: 3.120e+14
[rank1]:[rank1]: NotImplementedError: Optimizer Adagrad not added.
[rank0]:[rank0]: Traceback (most recent call last):
[rank0]:[rank0]:   File "/site-packages/torchtitan/train.py", line 275, in __init__
[rank0]:[rank0]:     self.optimizers = self.train_spec.build_optimizers_fn(
[rank0]:[rank0]:                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
[rank0]:[rank0]: NotImplementedError: Optimizer Adagrad not added.
[rank0]:[titan] 2026-11-30 21:41:54,846 - root - WARNING - Peak flops undefined for: cpu, fallback to A100
"""

LINES = {
    # ROCm/TheRock#1054
    "gpu memory": "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 16.00 GiB. GPU 0 has a total",
    # jax-ml/jax#22755
    "jax memory": "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
    # seen: torch 2.13
    "host memory": "RuntimeError: [enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you",
    # pytorch/ci-infra#490, pytorch/pytorch#108861
    "shm": "misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error",
    "loader": "RuntimeError: DataLoader worker (pid 46794) is killed by signal: Bus error. It is possible that",
    # PuLID#97
    "gated": "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-66f4b037)",
    # h2oai/h2o-llmstudio#1110
    "token": "httpx.LocalProtocolError: Illegal header value b'Bearer '",
    "no hub": "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file",
    # verl#5889, torchtune#1025
    "port": "The server socket has failed to listen on any local network address. port: 18071, code: -98, "
    "name: EADDRINUSE",
    "old port": "The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
    # marin#6940, aws-do-eks#51, #69
    "interface": "bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found",
    "gloo": "RuntimeError: [enforce fail at device.cc:84] ifa != nullptr. Unable to find address for: ^lo",
    "loopback": "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:152] "
    "timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:29",
    # ROCm/legacy-rocm-build#4208, #1530
    "gfx": "RuntimeError: HIP error: invalid device function",
    "old gfx": '"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"',
    "no gpu": "RuntimeError: No HIP GPUs are available",
    # NVIDIA/nccl-tests#206, openucx/ucx#8684
    "memlock": "misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
    "ucx": "UCX  ERROR mlx5_0: ibv_create_cq() failed: Cannot allocate memory. Please set max locked memory",
    # NVIDIA/Megatron-LM#878
    "disk": "OSError: [Errno 28] No space left on device",
    "files": "OSError: [Errno 24] Too many open files",
    # ROCm/legacy-rocm-build#2804
    "fault": "Memory access fault by GPU node-2 (Agent handle: 0x5640a8bb1980) on address 0x7feea09c5000. Reason: Page",
    "checkpoint": "RuntimeError: Missing key in checkpoint state_dict: layers.3.attention.wq.weight.",
    "peers": "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)",
    "file": "FileNotFoundError: [Errno 2] No such file or directory: '/data/x.jsonl'",
    "permission": "PermissionError: [Errno 13] Permission denied: '/data/x.jsonl'",
    "module": "ModuleNotFoundError: No module named 'transformer_engine'",
    # sgl-project/sglang#16242
    "abi": "libibverbs: Warning: Driver bnxt_re does not support the kernel ABI of 6 (supports 1 to 1) for device",
}
WHAT = {
    "gpu memory": "memory of a GPU",
    "jax memory": "memory of a GPU",
    "host memory": "memory of the host",
    "shm": "/dev/shm",
    "loader": "/dev/shm",
    "gated": "gated",
    "token": "token",
    "no hub": "cache",
    "port": "a port",
    "old port": "a port",
    "interface": "network interface",
    "gloo": "network interface",
    "loopback": "network interface",
    "gfx": "no code for this GPU",
    "old gfx": "no code for this GPU",
    "no gpu": "sees no GPU",
    "memlock": "memlock",
    "ucx": "memlock",
    "disk": "a disk is full",
    "files": "nofile",
    "fault": "a kernel on the GPU",
    "checkpoint": "another model's",
    "peers": "waited in vain",
    "file": "a file is not there",
    "permission": "read or written",
    "module": "does not have a module",
    "abi": "RDMA library",
}


@pytest.mark.parametrize("name", LINES)
def test_a_known_line_is_recognised_and_shown(name: str) -> None:
    log = f"[rank0]:starting\n[rank0]: {LINES[name]}\n" + SUMMARY.format(rank=0, local=0, code=1)
    found, _ = cause(log, 1)
    assert found is not None
    assert WHAT[name] in found.what
    said = message(log, exit_code=1, node=0, host="n1")
    assert LINES[name][:60] in said
    assert f"hint: {found.hint}" in said


def test_every_cause_has_a_line() -> None:
    assert {cause(line, 1)[0] for line in LINES.values()} == {*CAUSES, *WEAK}


def test_what_a_healthy_run_prints_is_no_cause() -> None:
    log = (
        "[titan] root - WARNING - Error running lspci: [Errno 2] No such file or directory: 'lspci', fallback to use\n"
        "step:  1  loss:  7.98200  grad_norm:  1.4401  memory:  0.60GiB(2.55%)  tps: 167\n"
        "using world size: 1, data-parallel size: 1 ... exit_on_missing_checkpoint ... False\n"
    )
    assert cause(log, 1) == (None, "")
    assert "cause:" not in message(log, exit_code=1, node=0, host="n1")


@pytest.mark.parametrize(
    ("code", "rank", "what"),
    [(137, None, "SIGKILL"), (1, -9, "SIGKILL"), (1, -7, "/dev/shm"), (135, None, "/dev/shm"), (1, 1, None)],
)
def test_a_signal_says_something_where_no_line_does(code: int, rank: int | None, what: str | None) -> None:
    log = "step 7\n" + (SUMMARY.format(rank=5, local=1, code=rank) if rank is not None else "")
    found, _ = cause(log, code)
    assert what in found.what if found and what else (found, what) == (None, None)
    if rank and rank < 0:
        assert f"first rank 5 (signal {-rank}) on node 1 (n2)" in message(log, exit_code=1, node=1, host="n2")


def test_the_first_line_is_the_cause_and_what_follows_from_it_is_not() -> None:
    log = f"{LINES['abi']}\n[rank1]: {LINES['gpu memory']}\n[rank0]: {LINES['peers']}\n[rank0]: {LINES['disk']}\n"
    found, line = cause(log, 1)
    assert found is not None
    assert (found, line) == (cause(LINES["gpu memory"], 1)[0], f"[rank1]: {LINES['gpu memory']}")


def test_of_the_failing_rank_the_end_of_its_exception_is_shown() -> None:
    log = TITAN + SUMMARY.format(rank=0, local=0, code=1)
    assert useful(log) == [
        "Traceback (most recent call last):",
        '  File "/site-packages/torchtitan/train.py", line 275, in __init__',
        "    self.optimizers = self.train_spec.build_optimizers_fn(",
        "NotImplementedError: Optimizer Adagrad not added.",
    ]
    assert message(log, exit_code=1, node=0, host="n1").splitlines()[0] == (
        "primus: failed with exit code 1, first rank 0 on node 0 (n1)"
    )


def test_what_is_shown_says_a_thing_once_and_leaves_out_pythons_own_importing() -> None:
    frames = "".join(f'  File "<frozen importlib._bootstrap>", line {line}, in _load\n' for line in range(5))
    trace = ("  ", 'File "/site-packages/titan/train.py", line 84, in __init__\n    importlib.import_module(name)')
    error = "ModuleNotFoundError: No module named 'nosuch'"
    log = f"Traceback (most recent call last):\n{''.join(trace)}\n{frames}{error}\n"
    summary = SUMMARY.format(rank=0, local=0, code=1) + f"  traceback : Traceback\n{frames}  {error}\n"
    assert useful(log + summary, f"  {error}") == [*log.splitlines()[:3], error]


def test_without_an_exception_the_last_words_are_shown() -> None:
    assert useful("\n".join(f"line {number}" for number in range(20)))[0] == "line 12"


def test_colours_and_control_characters_are_left_out() -> None:
    assert plain("\x1b[31mred\x1b[0m \x07bell\rover\x1b]0;title\x07\n") == "red bell\nover]0;title\n"


def test_an_earlier_attempt_in_the_same_log_does_not_count() -> None:
    marker = "primus: torchtitan in image, results in /runs/a\n"
    assert cause(plain(f"{marker}{LINES['disk']}\n{marker}{LINES['port']}\n"), 1)[1] == LINES["port"]


def record(path: Path, log: str, *, code: int = 1, rank: int = 0, started: str = "2026-11-30T21:00:00+00:00") -> Record:
    found = Record(path / "20261130-210000-1a2b")
    found.path.mkdir()
    found.write("run.json", {"run_dir": str(path)})
    attempt = Attempt(rank=rank, host="n7", started=started, ended="2026-11-30T21:05:00+00:00", exit=code)
    found.close(attempt)
    found.log(rank).write_text(log, encoding="utf-8")
    return found


def test_a_rank_that_is_not_shown_is_looked_up_where_torchrun_keeps_it() -> None:
    here = Path.cwd()
    found = record(here, "[rank0]:step 1\n" + SUMMARY.format(rank=13, local=5, code=1), rank=1)
    for folder, text in (("a", "[rank5]: RuntimeError: mine not\n"), ("b", f"[rank13]: {LINES['gpu memory']}\n")):
        own = here / "logs" / f"none_{folder}" / "attempt_0" / "5" / "stderr.log"
        own.parent.mkdir(parents=True)
        own.write_text(text, encoding="utf-8")
        os.utime(own, (4e9, 4e9))
    said = explain(found)
    assert "first rank 13 on node 1 (n7)" in said
    assert "cause: the memory of a GPU" in said
    assert said.splitlines()[-2:] == [f"log: {found.log(1)}", f"log: {here}/logs/none_b/attempt_0/5/stderr.log"]


@pytest.mark.parametrize("code", [0, 130, 143, 129])
def test_nothing_is_said_of_a_run_that_ended_well_or_was_stopped(code: int) -> None:
    assert explain(record(Path.cwd(), LINES["disk"], code=code)) == ""


def test_what_the_launcher_refused_says_so_itself() -> None:
    log = "error: the image is for megatron\nhint: use another\n"
    said = explain(record(Path.cwd(), log, code=3))
    assert said.splitlines()[1:3] == ["  | error: the image is for megatron", "  | hint: use another"]
    assert "cause" not in said


def test_a_record_without_logs_is_no_error() -> None:
    found = record(Path.cwd(), "")
    found.log(0).unlink()
    assert explain(found).startswith("primus: failed with exit code 1, first on node 0 (n7)")
    (found.path / "node0.json").write_text(json.dumps({"attempts": 3}), encoding="utf-8")
    assert explain(found) == ""


def test_a_long_log_is_read_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("log")
    path.write_text("x" * 5000 + "end", encoding="utf-8")
    assert failure.tail(path, 5) == "xxend"
    assert failed_rank("") is None


def documented() -> list[tuple[str, str]]:
    """The lines and causes of docs/troubleshooting.md."""
    text = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8").partition("| line | cause |")[2]
    rows = re.findall(r"^\| (.+) \| (.+) \|$", text, re.MULTILINE)
    return [(line, what) for lines, what in rows for line in re.findall(r"`([^`]+)`", lines)]


@pytest.mark.parametrize(("line", "what"), documented())
def test_what_the_document_says_of_a_line_is_what_is_said(line: str, what: str) -> None:
    found, _ = cause(line, 1)
    assert found is not None
    assert found.what.startswith(what)


def test_the_document_has_every_cause() -> None:
    assert {cause(line, 1)[0] for line, _ in documented()} == {*CAUSES, *WEAK}
