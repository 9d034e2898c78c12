"""What Megatron imports or calls, and a machine may lack: for every worker that is built on Megatron."""

from __future__ import annotations

import sys
import types
import typing

import torch
import typing_extensions

from primus.backends.megatron import cuda_on_cpu


def install() -> bool:
    """Make up for what is not here, and say whether this is a CPU. Must run before Megatron is imported.

    A worker calls it at its top level, outside of main(): saving a checkpoint spawns processes that import the worker's
    module anew and nothing of its main().
    """
    on_cpu = not torch.cuda.is_available()
    if not hasattr(typing, "override"):  # Megatron wants Python 3.12; this is all it lacks in 3.11
        typing.override = typing_extensions.override
    if on_cpu:
        cuda_on_cpu.install()
        # Triton's kernels are imported whatever the device, and CPU builds of torch do not bring Triton.
        kernels = types.ModuleType("megatron.core.transformer.moe.ops.paged_stash")
        kernels.GLOBAL_BLOCK_SIZE = 1024
        kernels.paged_stash_copy_kernel = kernels.paged_stash_pop_kernel = None
        sys.modules[kernels.__name__] = kernels
    import megatron.core.datasets.utils as dataset_utils

    # The wheel holds this helper compiled, and not the Makefile that Megatron runs each time.
    dataset_utils.compile_helpers = lambda: None
    return on_cpu
