"""A CPU that answers to the name of "cuda", for code that knows no other device.

Megatron names CUDA in more than a hundred places; torch is where they all pass. Nothing here may run where there is a
GPU, and `torch.cuda.is_available()` stays false, so that what asks first still gets the truth.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
import types
from collections.abc import Callable, Mapping

import torch
from torch.overrides import TorchFunctionMode

_CPU = torch.device("cpu")


def install() -> None:
    """Make "cuda" mean the CPU in this process, for good. Must run before what uses it is imported."""
    if torch.cuda.is_available():
        raise RuntimeError("there is a GPU: nothing may stand in for it")
    vars(torch.cuda).update(_functions())
    for name in ("get_rng_state", "set_rng_state", "manual_seed", "manual_seed_all"):
        setattr(torch.cuda.random, name, getattr(torch.cuda, name))
    for name in ("range_push", "range_pop", "mark"):
        setattr(torch.cuda.nvtx, name, lambda *_args, **_options: None)
    _Devices().__enter__()  # never left: it holds for the whole process


class _Devices(TorchFunctionMode):
    """Every mention of a CUDA device in a call of torch becomes the CPU."""

    def __torch_function__(
        self, func: Callable[..., object], kinds: object, args: tuple = (), kwargs: Mapping | None = None
    ) -> object:
        kwargs = dict(kwargs or {})
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if func is torch.Tensor.record_stream:
            return None
        if func is torch.device and (isinstance(args[0], int) or _is_cuda(args[0])):
            return _CPU  # an index alone is a device of whatever accelerator there is
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            return func(*args).replace("torch.", "torch.cuda.", 1)  # Megatron compares it with torch.cuda.FloatTensor
        device = kwargs.get("device")
        if _is_cuda(device) or (isinstance(device, int) and not isinstance(device, bool)):
            kwargs["device"] = _CPU
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return func(*(_CPU if _is_cuda(arg) else arg for arg in args), **kwargs)


def _is_cuda(value: object) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


def _nothing(*_args: object, **_options: object) -> None:
    pass


class _Stream:
    """The one order in which a CPU does things."""

    device = _CPU
    cuda_stream = 0
    wait_stream = wait_event = synchronize = _nothing

    def __init__(self, *_args: object, **_options: object) -> None:
        pass

    def query(self) -> bool:
        return True

    def record_event(self, event: _Event | None = None) -> _Event:
        event = event or _Event()
        event.record()
        return event

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


class _Event:
    """A time."""

    wait = synchronize = _nothing

    def __init__(self, *_args: object, **_options: object) -> None:
        self.at = 0.0

    def record(self, *_args: object, **_options: object) -> None:
        self.at = time.perf_counter()

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: _Event) -> float:
        return (end.at - self.at) * 1e3


def _functions() -> dict[str, object]:
    """torch.cuda's functions, with the meaning they have on a CPU."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    properties = types.SimpleNamespace(name="cpu", major=0, minor=0, multi_processor_count=1, total_memory=memory)
    generator = torch.default_generator
    stream = _Stream()

    def statistics(device: object = None) -> dict[str, int]:
        kinds = [f"{what}_bytes.all.{when}" for what in ("allocated", "reserved", "active") for when in _WHEN]
        counts = ("allocation.all.current", "num_ooms", "num_alloc_retries")
        return dict.fromkeys(kinds, _peak()) | dict.fromkeys(counts, 0)

    # A function of its own for each name: torch's compiler keeps a table of them by identity.
    nothing = ("set_device", "set_stream", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats")
    functions: dict[str, object] = {name: lambda *_args, **_options: None for name in (*nothing, "_lazy_init")}
    memories = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    functions |= {name: lambda device=None: _peak() for name in memories}
    functions |= {name: lambda device=None: stream for name in ("current_stream", "default_stream")}
    functions |= {name: lambda number: generator.manual_seed(number) for name in ("manual_seed", "manual_seed_all")}
    return functions | {
        "Event": _Event,
        "Stream": _Stream,
        "stream": lambda stream: contextlib.nullcontext(),
        "current_device": lambda: 0,
        "device_count": lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        "get_device_name": lambda device=None: "cpu",
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (0, 0),
        "mem_get_info": lambda device=None: (memory, memory),
        "memory_stats": statistics,
        # The generator of a "CUDA device" is the CPU's own.
        "default_generators": (generator,),
        "get_rng_state": lambda device=None: generator.get_state(),
        "set_rng_state": lambda state, device=None: generator.set_state(state),
        "_lazy_call": lambda call, **_options: call(),
    }


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


_WHEN = ("current", "peak", "allocated", "freed")
