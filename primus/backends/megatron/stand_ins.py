"""What Megatron wants when it is imported, and this Python or machine does not have."""

from __future__ import annotations

import sys
import types
import typing

import torch
import typing_extensions

from primus.backends.megatron import cuda_on_cpu


def install() -> bool:
    """Make up for it, before Megatron is imported; say whether the CPU stands in for a GPU from now on."""
    if not hasattr(typing, "override"):  # Megatron wants Python 3.12; this is all it lacks in 3.11
        typing.override = typing_extensions.override
    if torch.cuda.is_available():
        return False
    cuda_on_cpu.install()
    # Triton's kernels are imported whatever the device, and CPU builds of torch do not bring Triton.
    kernels = types.ModuleType("megatron.core.transformer.moe.ops.paged_stash")
    kernels.GLOBAL_BLOCK_SIZE = 1024
    kernels.paged_stash_copy_kernel = kernels.paged_stash_pop_kernel = None
    sys.modules[kernels.__name__] = kernels
    return True
