"""What every PyTorch backend's command begins with: torchrun, its rendezvous, logs and environment."""

from __future__ import annotations

from pathlib import Path

from primus.node import Node

# name -> value; see docs/environment.md for the reasons.
_ENV = {
    "cpu": {"OMP_NUM_THREADS": "1", "TORCH_COMPILE_DISABLE": "1"},
    "rocm": {
        "OMP_NUM_THREADS": "1",
        "GPU_MAX_HW_QUEUES": "2",
        "TORCH_NCCL_HIGH_PRIORITY": "1",
    },
}
_ENV_GFX = {
    "gfx942": {"HSA_NO_SCRATCH_RECLAIM": "1", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
}


def environment(accelerator: str, node: Node) -> dict[str, str]:
    """The variables each process gets, below the user's own."""
    return _ENV[accelerator] | _ENV_GFX.get(node.gfx, {})


def first_and_last(node: Node) -> str:
    """Local rank 0, which tells what it does, and the last, which alone knows the loss where there is a pipeline."""
    return "0" if node.gpus == 1 else f"0,{node.gpus - 1}"


def argv(node: Node, run_dir: Path, worker: str, *, shown: str) -> tuple[str, ...]:
    """torchrun with one process per GPU (or per CPU process), each running the module `worker`.

    `shown` names the local ranks whose output is shown; everyone's is below <run_dir>/logs.
    """
    return (
        *("python", "-m", "torch.distributed.run"),
        *_rendezvous(node),
        f"--nproc-per-node={node.gpus}",
        f"--local-ranks-filter={shown}",
        *("--role=rank", "--tee=3", f"--log-dir={run_dir / 'logs'}"),
        *("-m", worker),
    )


def _rendezvous(node: Node) -> tuple[str, ...]:
    if node.nodes == 1:
        # Its own free port, so that two runs on one machine do not meet; and loopback by address, since a
        # container without a network cannot look up its own name.
        return ("--standalone", "--local-addr=127.0.0.1")
    return (
        f"--nnodes={node.nodes}",
        f"--node-rank={node.rank}",
        f"--master-addr={node.master_addr}",
        f"--master-port={node.master_port}",
    )
