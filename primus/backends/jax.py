"""What both JAX backends' processes begin with: one for each node, their meeting place, and the GPUs' environment."""

from __future__ import annotations

from primus.node import Node

# name -> value; see docs/environment.md for the reasons.
ROCM = {
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": "1",
    "NVTE_FUSED_ATTN": "1",
    "NVTE_FUSED_ATTN_CK": "1",
    "NVTE_FUSED_ATTN_AOTRITON": "0",
    "NVTE_CK_USES_BWD_V3": "1",
    "NVTE_CK_USES_FWD_V3": "1",
    "NVTE_CK_IS_V3_ATOMIC_FP32": "0",
    "NVTE_CK_HOW_V3_BF16_CVT": "2",
    "GPU_MAX_HW_QUEUES": "2",
    "HIP_FORCE_DEV_KERNARG": "1",
    "HSA_FORCE_FINE_GRAIN_PCIE": "1",
}


def environment(accelerator: str, node: Node) -> dict[str, str]:
    """The variables a node's process gets for its devices and for meeting the others, below the user's own."""
    env = {}
    if accelerator == "rocm" and node.gfx == "gfx950":
        env["RCCL_WARP_SPEED_AUTO"] = "0"
    if accelerator == "cpu" and node.gpus > 1:
        env["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={node.gpus}"
    if node.nodes > 1:
        env |= {
            "JAX_COORDINATOR_IP": node.master_addr,
            "JAX_COORDINATOR_PORT": str(node.master_port),
            "NNODES": str(node.nodes),
            "NODE_RANK": str(node.rank),
        }
    return env
