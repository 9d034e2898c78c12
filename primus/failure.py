"""Why a run failed, as far as its logs tell: where first, the last lines that say something, and a known cause."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from primus.record import Attempt, Record

# Of a log, its end is read; of what is found there, so much is shown.
_TAIL, _LINES, _WIDTH = 1 << 20, 8, 300
# Codes that say that somebody wanted the end: SIGHUP, SIGINT, SIGTERM.
STOPPED = (0, 128 + 1, 128 + 2, 128 + 15)
_REFUSED = (2, 3, 4)  # by the launcher itself, whose words they are


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What a line in a log means, and what to do about it."""

    pattern: str
    what: str
    hint: str


_NIC = "primus doctor shows the interfaces and the one that is taken; --env NCCL_SOCKET_IFNAME=NAME (RCCL) and "
_NIC += "GLOO_SOCKET_IFNAME=NAME (gloo: a name, no pattern) choose"
_SHM = (
    "containers of primus run share the host's /dev/shm unless --engine-arg says otherwise; df -h /dev/shm, and remove "
)
_SHM += "nccl-* and torch_* of runs that are over"
# The line, what it means, what to do. Each pattern is of real lines, seen in the place that the comment names.
# The earliest in the log is the cause: what the other ranks say afterwards follows from it.
CAUSES = (
    Cause(  # ROCm/TheRock#1054, pytorch/pytorch#138002; jax-ml/jax#22755, mesh-transformer-jax#66
        pattern=r"(?:HIP|CUDA) out of memory|hipErrorOutOfMemory"
        r"|RESOURCE_EXHAUSTED: (?:Out of memory|[Ff]ailed to allocate)|Resource exhausted: (?:Out of|Failed to alloc)",
        what="the memory of a GPU is used up",
        hint="a smaller micro batch or sequence, more recomputation, or more GPUs to shard over; "
        "primus config explain FILE estimates what is needed, and other processes on the GPU take theirs",
    ),
    Cause(  # torch 2.13's own allocator, seen with Megatron on a CPU
        pattern=r"DefaultCPUAllocator: can't allocate memory|^MemoryError\b",
        what="the memory of the host is used up",
        hint="fewer data workers, a smaller model or batch on a CPU, or a job with more memory",
    ),
    Cause(  # NVIDIA/nccl#290, #525, nccl-tests#166; pytorch/pytorch#5040, NVIDIA/Megatron-LM#878
        pattern=r"failed to extend /dev/shm/|Error while creating shared memory segment|posix_fallocate failed"
        r"|killed by signal: Bus error|insufficient shared memory \(shm\)|/dev/shm/\S{1,99}.{0,80}No space left",
        what="/dev/shm is full, or too small",
        hint=_SHM,
    ),
    Cause(  # huggingface_hub: LlamaFactory#3403, PuLID#97, McGill-NLP/llm2vec#36
        pattern=r"GatedRepoError|Cannot access gated repo|trying to access a gated repo",
        what="the model is gated on Hugging Face, and the token may not read it or is not there",
        hint="ask for access on the model's page, and export HF_TOKEN of that account where you start the run",
    ),
    Cause(  # huggingface_hub's answers; h2o-llmstudio#1110
        pattern=r"Invalid user token|Illegal header value b'Bearer|huggingface\S{0,80} .{0,200}401 Client Error"
        r"|401 Client Error.{0,200}huggingface\.co|RepositoryNotFoundError",
        what="Hugging Face does not know the token, or there is no such model for it",
        hint="check the name, and HF_TOKEN (primus doctor says what is wrong with its form)",
    ),
    Cause(  # requests' and huggingface_hub's own lines
        pattern=r"OfflineModeIsEnabled|LocalEntryNotFoundError|couldn't connect to 'https://huggingface\.co'"
        r"|host='huggingface\.co'.{0,120}Max retries",
        what="a model, tokenizer or data set is not in the Hugging Face cache, and the hub is not reached",
        hint="download it where there is a network, and share it: HF_HOME=DIR; or name a directory in its place",
    ),
    Cause(  # meta-pytorch/torchtune#1025, vllm#39015
        pattern=r"EADDRINUSE|[Aa]ddress already in use",
        what="a port is in use: by another run on the node, or by a service",
        hint="--env MASTER_PORT=N with another on all nodes; primus doctor --nodes N names who has it",
    ),
    Cause(  # marin#6940, NVIDIA/nccl#1837; gloo: aws-do-eks#51, #69
        pattern=r"Bootstrap : no socket interface found|no NCCL_SOCKET_IFNAME interface"
        r"|Unable to find address for: |connecting to address\s+with family \d+ is neither"
        r"|connectFullMesh failed.{0,300}remote=\[(?:127\.|::1)",
        what="the nodes do not find one another: the wrong network interface, or a host name that means loopback",
        hint=_NIC,
    ),
    Cause(  # ROCm/legacy-rocm-build#4208, #1530
        pattern=r"HIP error: invalid device function|hipErrorNoBinaryForGpu|hipErrorInvalidDeviceFunction"
        r"|no kernel image is available",
        what="the image has no code for this GPU",
        hint="primus doctor --framework F compares the image's gfx with the machine's; build it for this one, and "
        "unset HSA_OVERRIDE_GFX_VERSION",
    ),
    Cause(  # torch's own words; pytorch/pytorch forum reports of a group that is missing
        pattern=r"No HIP GPUs are available|Unable to open /dev/kfd|hipErrorNoDevice|no ROCm-capable device",
        what="the process sees no GPU: no permission on /dev/kfd, or a *_VISIBLE_DEVICES that hides them all",
        hint="primus doctor on that node",
    ),
    Cause(  # NVIDIA/nccl-tests#206, NVIDIA/nccl#1191, openucx/ucx#8229
        pattern=r"ibv_(?:reg_mr|create_cq|create_qp)\w{0,20}.{0,60}(?:Cannot allocate memory|max locked memory)",
        what="RDMA may not lock memory: the limit memlock",
        hint="primus doctor on that node; docker's containers get it without bound from the launcher, a rootless "
        "podman's have the user's: ulimit -l unlimited, and Slurm must not pass on a smaller one",
    ),
    Cause(  # OSError 28 and 122 of any Python; Megatron-LM#878
        pattern=r"No space left on device|Disk quota exceeded",
        what="a disk is full, or your quota on it",
        hint="df -h of the run directory and of the cache; keep fewer checkpoints",
    ),
    Cause(  # any Python's EMFILE; torch's loaders
        pattern=r"Too many open files|received 0 items of ancdata",
        what="too many open files: the limit nofile",
        hint="ulimit -n 1048576 where the engine or the job starts, or fewer data workers",
    ),
    Cause(  # ROCm/legacy-rocm-build#2804
        pattern=r"Memory access fault by GPU",
        what="a kernel on the GPU read or wrote where it may not",
        hint="the same at every start: a kernel's bug, try without the newest fused one; on one node alone: its GPU",
    ),
    Cause(  # torch's error of a checkpoint of another model
        pattern=r"size mismatch for |Missing key in checkpoint state_dict|Unexpected key\(s\) in state_dict",
        what="the checkpoint in the run directory is another model's",
        hint="a new --run-dir, or the model that it was saved from",
    ),
)
# What may be in the log of a run that goes well, too: only the last counts, and only if there is none of the above.
WEAK = (
    Cause(  # torch 2's watchdog
        pattern=r"Watchdog caught collective operation timeout|DistBackendError|Connection closed by (?:remote )?peer",
        what="a rank waited in vain for the others: one of them hung or died before",
        hint="look at the other nodes' logs (primus logs --node N); with --env NCCL_DEBUG=INFO they say more",
    ),
    Cause(
        pattern=r"FileNotFoundError: .*|^\S{0,80}No such file or directory: .*",
        what="a file is not there",
        hint="paths are those in the container: --mount SRC[:DST] shows it one; relative ones are the run directory's",
    ),
    Cause(
        pattern=r"PermissionError: .*",
        what="a file may not be read or written",
        hint="the container runs as you: it must be yours, or your group's",
    ),
    Cause(
        pattern=r"ModuleNotFoundError: .*",
        what="the image does not have a module",
        hint="primus image inspect FRAMEWORK lists what it has; build or pull it anew if it is older than the launcher",
    ),
    Cause(  # sglang#16242, SoftRoCE/rxe-dev#74
        pattern=r"does not support the kernel ABI",
        what="the image's RDMA library is too old or too new for the host's driver, so RDMA is not used",
        hint="primus doctor names the device; mount the host's provider library into the container",
    ),
)
_KILLED = Cause(
    pattern="",
    what="it was killed (SIGKILL): nearly always by the kernel, for the memory of the host or of the job was used up",
    hint="dmesg on the node, or sacct -j JOB --format=MaxRSS; fewer data workers, or a job with more memory",
)
_BUS = Cause(pattern="", what="bus error: /dev/shm is full, or too small", hint=_SHM)

_EXCEPTION = re.compile(r"^\s{0,2}(?!\S*ChildFailedError)[\w.]*(?:Error|Exception|Interrupt)\b(?::|$)")
_LAUNCH = re.compile(r"^(?:\d+: )?primus: \S+ in \S+, results in .*$", re.MULTILINE)
# Python's own importing is between an import and what it could not import.
_NOISE = re.compile(r"^[EWI]\d{4} \S+ \d+ torch/distributed/|^\s*[\^~]+\s*$|^\s*$|^\s*File \"<frozen importlib")
_SUMMARY = "Root Cause (first observed failure):"
_ROOT = re.compile(r"rank\s{0,9}: (\d+) \(local_rank: (\d+)\)\s+exitcode\s{0,9}: (-?\d+)")


@dataclass(frozen=True, kw_only=True)
class Rank:
    """The process that torchrun saw fail first."""

    rank: int
    local: int
    exit: int


def explain(record: Record, attempt: int | None = None) -> str:
    """What a user wants to know of a failed run, in a few lines; nothing if it did not fail, or was stopped."""
    attempts = record.attempts()
    number = attempt if attempt is not None else max((one.attempt for one in attempts), default=0)
    first = record.first_failure(number)
    if first is None or first.exit is None or first.exit in STOPPED:
        return ""
    path = record.log(first.rank)
    text = plain(tail(path))
    rank = failed_rank(text)
    logs = [path]
    if rank and not any(_EXCEPTION.match(line) for line in _of_rank(text, rank)):
        own = _own_log(record, first, rank)  # torchrun shows the first and the last local rank's output alone
        if own:
            logs.append(own)
            text = plain(tail(own)) + text
    return message(text, exit_code=first.exit, node=first.rank, host=first.host, logs=logs)


def message(text: str, *, exit_code: int, node: int, host: str, logs: Iterable[Path] = ()) -> str:
    """The message for a log's `text`."""
    rank = failed_rank(text)
    signal = f" (signal {-rank.exit})" if rank and rank.exit < 0 else ""
    where = f"first rank {rank.rank}{signal} on" if rank else "first on"
    lines = [f"primus: failed with exit code {exit_code}, {where} node {node} ({host})"]
    if exit_code in _REFUSED and (said := re.findall(r"^(?:\d+: )?((?:error|hint): .*)$", text, re.MULTILINE)):
        lines += [f"  | {line[:_WIDTH]}" for line in said[-_LINES:]]
    else:
        why, line = cause(text, exit_code)
        lines += [f"  | {shown}" for shown in useful(text, line)]
        lines += [f"cause: {why.what}", f"hint: {why.hint}"] if why else []
    return "\n".join([*lines, *(f"log: {path}" for path in logs)])


def tail(path: Path, size: int = _TAIL) -> str:
    """The end of a file; nothing if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def plain(text: str) -> str:
    """The last attempt's part of a log, without what colours it and without control characters."""
    text = re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", text).replace("\r\n", "\n").replace("\r", "\n")
    text = "".join(char for char in text if char in "\n\t" or char.isprintable())
    starts = [match.end() for match in _LAUNCH.finditer(text)]
    return text[starts[-1] :] if starts else text


def failed_rank(text: str) -> Rank | None:
    """The rank that failed first, as torchrun's summary has it; None if there is no such summary."""
    _, said, rest = text.rpartition(_SUMMARY)
    found = _ROOT.search(rest[:2000]) if said else None
    return Rank(rank=int(found[1]), local=int(found[2]), exit=int(found[3])) if found else None


def cause(text: str, exit_code: int) -> tuple[Cause | None, str]:
    """The known cause, and the line that shows it."""
    found = [(_start(text, match), one) for one in CAUSES if (match := re.search(one.pattern, text, re.MULTILINE))]
    if found:
        at, one = min(found, key=lambda item: item[0])  # on one line, the table's first
        return one, _line(text, at)
    rank = failed_rank(text)
    code = rank.exit if rank else exit_code
    if code in (-9, 128 + 9):
        return _KILLED, ""
    if code in (-7, 128 + 7):
        return _BUS, ""
    weak = [(_start(text, match), one) for one in WEAK for match in re.finditer(one.pattern, text, re.MULTILINE)]
    if weak:
        at, one = max(weak, key=lambda item: item[0])
        return one, _line(text, at)
    return None, ""


def useful(text: str, line: str = "") -> list[str]:
    """The lines to show: the end of the failing rank's last exception, or its last words; and `line` among them."""
    rank = failed_rank(text)
    words = [word for word in _of_rank(text, rank) if not _NOISE.match(word)]
    last = max((index for index, word in enumerate(words) if _EXCEPTION.match(word)), default=None)
    if last is None:
        shown = words[-_LINES:]
    else:
        trace = max((index for index in range(last) if words[index].startswith("Traceback")), default=0)
        shown = words[max(trace, last - 4) : last + 1]
    line = _bare(line).strip()  # torchrun's summary indents its copy
    if line and not any(word.strip().startswith(line[:100]) for word in shown):
        shown = [line, *shown[-_LINES + 1 :]]
    return [word[:_WIDTH] for word in shown]


def _of_rank(text: str, rank: Rank | None) -> list[str]:
    """What the failing rank printed; of a log that does not tell ranks apart, all but torchrun's own trace."""
    lines = text.split("\n")
    mine = [_bare(line) for line in lines if rank and line.startswith(f"[rank{rank.rank}]:")]
    if mine:
        return mine
    own = next(
        (index for index, line in enumerate(lines) if re.match(r"E\d{4} .*torch/distributed/elastic/", line)), None
    )
    return [_bare(line) for line in lines[:own]]


def _bare(line: str) -> str:
    """A line without the ranks, or srun's number of the task, in front."""
    return re.sub(r"^(?:\d+: )?(?:\[rank\d+\]: ?)*", "", line).rstrip()


def _start(text: str, match: re.Match[str]) -> int:
    return text.rfind("\n", 0, match.start()) + 1


def _line(text: str, at: int) -> str:
    return text[at : at + 4 * _WIDTH].partition("\n")[0]


def _own_log(record: Record, attempt: Attempt, rank: Rank) -> Path | None:
    """The file that torchrun keeps of one rank's stderr: of this attempt, and where nodes share them, of this rank."""
    directory = Path(record.read("run.json").get("run_dir") or record.path.parent)
    since = datetime.fromisoformat(attempt.started).timestamp()
    found = [
        (f"[rank{rank.rank}]:" in tail(path), path.stat().st_mtime, path)
        for path in directory.glob(f"logs/*/attempt_*/{rank.local}/stderr.log")
        if path.stat().st_mtime >= since and path.stat().st_size
    ]
    return max(found)[2] if found else None
