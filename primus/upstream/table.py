"""Upstream Primus' launcher, word by word: what each option and variable of it is here, or why it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What becomes of one option. The first that is set counts, in this order."""

    as_here: tuple[str, ...] = ()  # values (ANY: all) that say what is so here anyway, or do nothing: left out
    why: str = ""  # refused, and why
    note: str = ""  # left out, and said
    to: str = ""  # our option for it; without one, it is handed on to Slurm or the engine
    only: str = ""  # a pattern: what the value must be for `to`
    hint: str = ""


ANY = "*"
_NUMBER = "[0-9]+"

LOG = Rule(note="the run directory keeps the logs; for a copy of what is shown, append 2>&1 | tee FILE")
DEBUG = Rule(note="there is no debug mode; --dry-run shows all that would run")
_LAUNCHERS_OWN = "is the launcher's own"
_IN_IMAGE = "nothing is installed, compiled or patched at launch: what a training needs is in its image"
_ONE_TASK = "one task runs on each node, and starts the processes of its GPUs"

# --- Slurm -----------------------------------------------------------------------------------------------------------

SLURM: Mapping[str, Rule] = {
    "nodes": Rule(to="--nodes", only=_NUMBER, hint="write one number of nodes"),
    "gpus-per-node": Rule(
        to="--gpus-per-node", only=_NUMBER, hint="write the number alone; --constraint or --gres can name the GPU"
    ),
    **{
        name: Rule(to=f"--{name}")
        for name in ("partition", "account", "qos", "time", "reservation", "nodelist", "dependency", "array")
    },
    **{name: Rule(to=f"--{name}") for name in ("job-name", "signal")},
    "gpus-per-task": Rule(to="--gpus-per-node", only=_NUMBER, hint="write the number alone"),  # one task on each node
    "cpus-per-task": Rule(to="--cpus-per-task", only=_NUMBER, hint="write one number of CPUs"),
    **dict.fromkeys(("output", "error"), Rule(note="the run's own directory keeps the logs; primus logs shows them")),
    "ntasks-per-node": Rule(as_here=("1",), why=_ONE_TASK, hint="leave it out"),
    **dict.fromkeys(
        ("ntasks-per-gpu", "ntasks-per-core", "ntasks-per-socket"), Rule(why=_ONE_TASK, hint="leave it out")
    ),
    "ntasks": Rule(why=f"is not the number of nodes: {_ONE_TASK}", hint="leave it out, and say --nodes"),
    "export": Rule(as_here=("ALL",), why="variables reach the training by name", hint="write --env NAME for each"),
    "requeue": Rule(why="does not say how often", hint="add --requeue N to the new form"),
    "chdir": Rule(why="relative paths are taken from where you type", hint="cd there first"),
    **dict.fromkeys(
        ("image", "volume", "mount", "env", "device", "cap-add", "clean", "log_file", "privileged", "ipc"),
        Rule(why="is an option of container, not of Slurm", hint="write it behind the --"),
    ),
    **dict.fromkeys(("no-requeue", "label", "disable-status", "kill-on-bad-exit"), Rule(as_here=(ANY,))),
    **{name: Rule(why=_LAUNCHERS_OWN, hint="leave it out") for name in ("wrap", "multi-prog", "parsable", "open-mode")},
    "jobid": Rule(why="a run is a job of its own", hint="leave it out; inside an allocation srun finds it by itself"),
    "overlap": Rule(why="a run is a job of its own", hint="leave it out"),
    **{
        name: Rule(why="Slurm's own containers are another engine", hint="add --engine pyxis to the new form")
        for name in (
            "container",
            "container-image",
            "container-mounts",
            "container-name",
            "container-env",
            "container-id",
        )
    },
}
SLURM_FLAGS = frozenset(
    (
        *("exclusive", "verbose", "quiet", "hold", "oversubscribe", "overcommit", "overlap", "no-kill"),
        *("label", "unbuffered", "contiguous", "spread-job", "use-min-nodes", "requeue", "no-requeue", "parsable"),
        *("test-only", "reboot", "multi-prog", "preserve-env", "ignore-pbs", "propagate"),
        *("disable-status", "exact", "pty", "no-allocate"),
    )
)

# --- docker, podman --------------------------------------------------------------------------------------------------

CONTAINER: Mapping[str, Rule] = {
    "device": Rule(as_here=("/dev/kfd", "/dev/dri", "/dev/infiniband")),
    "cap-add": Rule(as_here=("SYS_PTRACE", "CAP_SYS_PTRACE", "SYS_ADMIN", "CAP_SYS_ADMIN")),
    "network": Rule(as_here=("host",)),
    "net": Rule(as_here=("host",)),
    "ipc": Rule(as_here=("host",)),
    "shm-size": Rule(as_here=(ANY,)),  # with the host's IPC, which is so here, docker ignores it
    "privileged": Rule(as_here=(ANY,)),  # never: devices and their groups are given one by one
    "security-opt": Rule(as_here=("seccomp=unconfined",)),
    "group-add": Rule(as_here=("video", "render")),
    "ulimit": Rule(as_here=("nofile=1048576:1048576",)),
    "rm": Rule(as_here=(ANY,)),
    "init": Rule(as_here=(ANY,)),
    "interactive": Rule(as_here=(ANY,)),
    "name": Rule(
        as_here=("primus-training",),
        why="the launcher names its containers, to find them again",
        hint="leave it out",
    ),
    "pull": Rule(to="--pull", only="missing|always|never", hint="write missing, always or never"),
    "gpus": Rule(why="is for NVIDIA's GPUs", hint="add --gpus-per-node N to the new form"),
    "env-file": Rule(why="variables are passed on by name", hint="export them and write --env NAME"),
    "detach": Rule(why="a container ends with its launcher", hint="put & behind the command, or use Slurm"),
    "tty": Rule(why=_LAUNCHERS_OWN, hint="leave it out"),
    "entrypoint": Rule(why=_LAUNCHERS_OWN),
    "clean": Rule(note="it removes everybody's containers; ours end with their launcher, and nothing is left to clean"),
    "log_file": LOG,
    "log-file": LOG,
}
CONTAINER_FLAGS = frozenset(
    (
        *("privileged", "rm", "init", "interactive", "tty", "detach", "read-only", "publish-all"),
        *("no-healthcheck", "clean", "oom-kill-disable", "quiet"),
    )
)
CONTAINER_SHORT: Mapping[str, str] = {"v": "volume", "e": "env", "u": "user", "w": "workdir", "m": "memory"}
# Options that add up; of others the last counts.
REPEATABLE = frozenset(
    (
        *("device", "cap-add", "cap-drop", "volume", "mount", "env", "group-add", "ulimit"),
        *("security-opt", "label", "patch", "add-host", "tmpfs", "sysctl"),
    )
)

# --- direct ----------------------------------------------------------------------------------------------------------

_PROCESSES = "the backend decides: MaxText and MaxDiffusion run one process on a node, the others one for each GPU"
_UNREAD = "upstream does not read it either"
DIRECT: Mapping[str, Rule] = {
    "single": Rule(why=_PROCESSES, hint="leave it out; for one process, add --gpus-per-node 1 to the new form"),
    "script": Rule(as_here=("primus/cli/main.py",), why="only training is started", hint="run it with python itself"),
    "patch": Rule(why=_IN_IMAGE, hint="make it a patch of the image: images/<framework>/patches"),
    "log_file": LOG,
    "log-file": LOG,
    "numa": Rule(
        as_here=("auto", "false"),
        why="processes are not bound to NUMA nodes",
        hint="leave it out: off is upstream's default",
    ),
    "no-numa": Rule(as_here=(ANY,)),
    "silent": Rule(note="the output stays; for none, append > /dev/null"),
    # what only upstream's file of settings has
    "run_mode": Rule(as_here=("torchrun",), why=_PROCESSES, hint="leave it out"),
    "gpus_per_node": Rule(as_here=("8",), why=_UNREAD, hint="say gpus_per_node in primus.yaml"),
    "nnodes": Rule(as_here=("1",), why=_UNREAD, hint="export NNODES"),
    "master_addr": Rule(as_here=("localhost",), why=_UNREAD, hint="export MASTER_ADDR"),
    "master_port": Rule(as_here=("1234",), why=_UNREAD, hint="export MASTER_PORT"),
}
DIRECT_FLAGS = frozenset({"single", "numa", "no-numa", "silent"})

# --- what stands behind the last -- ----------------------------------------------------------------------------------

TRAIN: Mapping[str, Rule] = {
    "backend_path": Rule(why="the backend is in the image", hint="build an image with yours, and name it with --image"),
    "export_config": Rule(why="is a command of its own", hint="write primus config show FILE > OUTPUT"),
}
# subcommand -> why it is refused, and what to do
COMMANDS: Mapping[str, tuple[str, str]] = {
    "benchmark": ("Primus has no benchmarks", "run hipblaslt-bench, rocblas-bench or rccl-tests themselves"),
    "preflight": (
        "Primus has no check of nodes yet",
        "primus config check FILE checks an experiment, primus run --dry-run shows what it would start",
    ),
    "node_smoke": (
        "Primus has no check of nodes yet",
        "a training on mock data is one: primus run with an example of MI300X, and few steps",
    ),
    "projection": (
        "Primus projects no performance",
        "primus config explain FILE estimates the memory, for --nodes N",
    ),
    "data": ("Primus prepares no images", "for Megatron's text there is primus data prepare-megatron"),
    "deps": (
        "there is nothing to fetch: the backends are in the images",
        "docker buildx bake FRAMEWORK builds one",
    ),
}

# --- variables -------------------------------------------------------------------------------------------------------

# Set to anything but nothing, 0, false or no, these change what upstream does, and cannot here: why, and what to do.
SWITCHES: Mapping[str, tuple[str, str]] = {
    **{
        name: (_IN_IMAGE, f"unset {name}")
        for name in (
            *("REBUILD_PRIMUS_TURBO", "REBUILD_BNXT", "REBUILD_UEP", "PATCH_TE_FLASH_ATTN", "PRIMUS_AUTO_INSTALL"),
            *("PRIMUS_INSTALL_EMERGING_OPTIMIZERS", "SDMA_ALL_GATHER", "ENABLE_SDMA_ALLGATHER"),
        )
    },
    "PRIMUS_PATCHES": ("an image has its patches, all of them", "unset it"),
    "USING_AINIC": (
        "AINIC's libraries are not in the images",
        "set USING_AINIC=0, and your network's NCCL_* variables yourself",
    ),
    "USING_UEP": ("UCCL is not in the images", "set USING_UEP=0"),
    "DUMP_HLO": ("XLA has a flag for it", "unset it, and write --env XLA_FLAGS=--xla_dump_to=DIR"),
    "SKIP_TRAIN": ("nothing would be left to do", "unset it"),
    "PRIMUS_SKIP_MAIN_LAUNCH": ("nothing would be left to do", "unset it"),
    **{
        name: ("the backend is in the image", f"unset {name}; an image with yours is named with --image")
        for name in ("BACKEND_PATH", "MEGATRON_PATH", "TORCHTITAN_PATH", "MAXTEXT_PATH", "MAXDIFFUSION_PATH")
    },
    "VENV_ACTIVATE": ("the Python is the one that runs primus", "unset it, and call that environment's primus"),
}
# PRIMUS_DETERMINISTIC=1, as upstream's base_env.sh spells it out.
DETERMINISTIC: Mapping[str, str] = {
    "NCCL_ALGO": "Ring",
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0",
    "ROCBLAS_DEFAULT_ATOMICS_MODE": "0",
    "TORCH_COMPILE_DISABLE": "1",
    "PRIMUS_TURBO_AUTO_TUNE": "0",
}
# Upstream's images hold all backends or another's, and no launcher of ours: the framework's own takes their place.
UPSTREAM_IMAGE = (
    r"(docker\.io/)?(rocm/(primus|jax-training|megatron-lm|megatron|pytorch-training)|tasimage/primus[\w-]*)([:@].*)?"
)
