"""What MaxDiffusion at 68e06965 demands of the numbers of a run; file and function of each stand beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, prod
from typing import Any

from primus.layout import Requirement, Said, Size, computed

_MESH = "maxdiffusion/max_utils.py create_device_mesh"
_SHARDING = "jax/_src/sharding.py IndivisibleError"
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
    if all(item.met for item in axes):
        yield from _batch(said, size, slices)


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


def _batch(said: Said, size: Size, slices: int) -> Iterator[Requirement]:
    """The batch of all devices is split along the axes of `data_sharding`."""
    each, sharding = said["per_device_batch_size"], said["data_sharding"]
    split = sharding[0] if sharding else ()
    if not isinstance(split, list) or not 0 < each < inf:
        return
    degrees = dict.fromkeys(_AXES, 1)
    for kind, devices in (("ici", size.world.value // slices), ("dcn", slices)):
        if kind == "dcn" and slices == 1:
            continue
        values = {axis: said[f"{kind}_{axis}_parallelism"] for axis in _AXES}
        rest = devices // prod(value for value in values.values() if value != -1)
        degrees = {axis: degrees[axis] * (rest if value == -1 else value) for axis, value in values.items()}
    batch = computed(
        "batch",
        int(size.world.value * each),
        f"per_device_batch_size {each} on {size.world.value}",
        keys=("per_device_batch_size",),
    )
    parts = tuple(
        computed(f"{axis} parallelism", degrees[axis], keys=(f"ici_{axis}_parallelism", f"dcn_{axis}_parallelism"))
        for axis in split
        if axis in degrees
    )
    if parts:
        yield Requirement(whole=(batch,), parts=parts, source=_SHARDING)


def precision(said: Said) -> str:
    return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(said["activations_dtype"], "")
