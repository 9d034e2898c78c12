"""What MaxDiffusion at 68e06965 demands of the numbers of a run; file and function of each stand beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from primus.layout import Requirement, Said, Size, computed

_MESH = "maxdiffusion/max_utils.py create_device_mesh"
_BATCH = "maxdiffusion/pyconfig.py calculate_global_batch_sizes"
_LOADING = "maxdiffusion/multihost_dataloading.py _form_global_array"
_AXES = ("data", "fsdp", "context", "tensor")
# FLUX.1's trainer starts from a file of its own, base_flux_dev.yml; the table of arguments has WAN's defaults.
_FLUX = {
    "dcn_context_parallelism": 1,
    "dcn_fsdp_parallelism": -1,
    "ici_context_parallelism": 1,
    "ici_data_parallelism": -1,
}


def below(values: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """Defaults of FLUX.1's."""
    flux = _FLUX if values.get("flux_name") and not values.get("model_name") else {}
    return {name: (value, "of base_flux_dev.yml") for name, value in flux.items()}


def requirements(said: Said, size: Size | None) -> Iterator[Requirement]:
    """All of them; those about the number of devices where that is known."""
    for kind in ("ici", "dcn"):
        open_ = tuple(name for name in _names(kind) if said[name] == -1)
        if open_:
            one = computed("", 1, "axis that takes what is left")
            left = computed("axes that are -1:", len(open_), ", ".join(open_), keys=open_)
            yield Requirement(whole=(one,), parts=(left,), relation="at least", source=_MESH)
    if size is None:
        return
    # On GPUs each host is a slice (XLA, BuildGlobalTopology: by boot id); CPU devices have none, which is one.
    slices = 1 if said.accelerator == "cpu" else size.nodes
    axes = [_axes(said, "ici", size.world.value // slices, f"devices of a slice ({size}, slices: {slices})")]
    if slices > 1:  # with one, nobody looks at the others
        axes.append(_axes(said, "dcn", slices, f"slices ({size})"))
    yield from axes
    yield from _batch(said, size)


def _names(kind: str) -> list[str]:
    return [f"{kind}_{axis}_parallelism" for axis in _AXES]


def _axes(said: Said, kind: str, devices: int, what: str) -> Requirement:
    """The product of one kind's degrees is the number of devices, or divides it where one of them is -1."""
    numbers = [said.number(name) for name in _names(kind)]
    given = tuple(number for number in numbers if number.value != -1)
    name, _, note = what.partition(" (")
    whole = (computed(name, devices, note.rstrip(")")),)
    return Requirement(
        whole=whole, parts=given, relation="equal" if len(given) == len(numbers) else "multiple", source=_MESH
    )


def _batch(said: Said, size: Size) -> Iterator[Requirement]:
    """The batch of all devices is loaded in equal parts, and less than one for each is cut from one for each."""
    each = said["per_device_batch_size"]
    if not 0 < each < inf:
        return
    note = f"per_device_batch_size {each} on {size.world.value}"
    batch = computed("batch", int(size.world.value * each), note, keys=("per_device_batch_size",))
    if each < 1:
        yield Requirement(whole=(batch,), parts=(computed("", 1, "sample"),), relation="at least", source=_BATCH)
    else:
        yield Requirement(whole=(batch,), parts=(size.world,), source=_LOADING)


def precision(said: Said) -> str:
    return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(said["activations_dtype"], "")
