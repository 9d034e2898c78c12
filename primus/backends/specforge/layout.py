"""What SpecForge 0.2.0 demands of the numbers of a run; file and function of each stand beside it."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from primus.layout import Number, Requirement, Said, Size, computed

_WORLD = "specforge/config/schema.py Config.validate_world_size"
_DISTRIBUTED = "specforge/distributed.py init_distributed"
_TORCHRUN = "torch/distributed/run.py"


def requirements(said: Said, size: Size | None) -> Iterator[Requirement]:
    """All of them; those about the number of processes where that is known."""
    mode = said["specforge_mode"]
    steps = mode if isinstance(mode, list) else [mode]
    # A file of SpecForge's own may say what is missing here, and its servers are none of these processes.
    train = "train" in steps and not said["specforge_config"] and said["specforge_train_mode"] != "online"
    if size is None:
        return
    if "capture" in steps:
        world = yield from _processes(said, "specforge_capture", size)
        yield Requirement(whole=(world,), parts=(said.number("specforge_capture.tp_size"),), source=_DISTRIBUTED)
    if train:
        world = yield from _processes(said, "deployment.trainer", size)
        yield Requirement(whole=(world,), parts=_split(said), source=_WORLD)


def _processes(said: Said, section: str, size: Size) -> Generator[Requirement, None, Number]:
    """The processes of a step, which is what the experiment says of it, or one for each GPU; returns their number."""
    nodes = computed("nodes", size.nodes)
    if f"{section}.nnodes" in said.values:
        yield Requirement(whole=(nodes,), parts=(said.number(f"{section}.nnodes"),), relation="equal", source=_TORCHRUN)
    gpus = computed("GPUs of a node", size.gpus)
    each = said.values.get(f"{section}.nproc_per_node") or size.gpus
    if each != size.gpus:
        number = said.number(f"{section}.nproc_per_node")
        yield Requirement(whole=(gpus,), parts=(number,), relation="at least", source=_TORCHRUN)
        keys: tuple[str, ...] = (number.name,)
    else:
        keys = ()
    return computed("world size", size.nodes * each, f"{size.nodes} node{'s' * (size.nodes > 1)} x {each}", keys=keys)


def _split(said: Said) -> tuple[Number, Number]:
    return said.number("training.sp_ulysses_size"), said.number("training.sp_ring_size")


def precision(said: Said) -> str:
    return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(said["model.torch_dtype"], "")
