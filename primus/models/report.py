"""The memory that an experiment needs of each GPU, beside what its GPUs have."""

from __future__ import annotations

from dataclasses import dataclass, replace

from primus import layout
from primus.experiment import Experiment
from primus.models.architecture import Architecture, active_parameters, parameters
from primus.models.gpus import BY_GFX, SKUS
from primus.models.memory import GIB, Layout, Memory, estimate
from primus.models.name import billions

MOST_LAYERS = 10_000
MOST_NODES = 1024


@dataclass(frozen=True, kw_only=True)
class Report:
    """An experiment's model, layout and memory; `sku` is "" where the GPU is not known."""

    model: Architecture
    layout: Layout
    memory: Memory
    sku: str
    unit: str  # what each share is for: a GPU, or on cpu a process

    @property
    def shares(self) -> str:
        """How many there are, in words."""
        count = self.layout.gpus
        return f"{count} {self.unit}{'' if count == 1 else 's' if self.unit == 'GPU' else 'es'}"

    @property
    def has(self) -> int:
        """GiB of the GPU, or 0 where it is not known."""
        return SKUS.get(self.sku, 0)

    @property
    def exceeds(self) -> bool:
        """Whether more is needed than there is."""
        return bool(self.has) and self.memory.total > self.has * GIB


def report(experiment: Experiment, *, gpus: int = 8, gfx: str = "") -> Report:
    """The report on so many GPUs, or on the fewest that the layout takes if that is more.

    Raises ValueError, saying why, where the experiment's model or layout is not understood.
    """
    said = layout.Said.of(experiment)
    # A null stands for the default, unless the default is null or the experiment has one of its own.
    rows = said.table.arguments
    default = {name for name, value in said.values.items() if value is None and name in rows and name not in said.below}
    default = {name for name in default if rows[name].default is not None}
    said = replace(said, values={name: value for name, value in said.values.items() if name not in default})
    try:
        model: Architecture = layout.architecture(experiment.framework, said)
        if not 0 < model.layers < MOST_LAYERS:
            raise ValueError(f"{model.layers} layers")
        spread: Layout = layout.spread(experiment.framework, said, model, gpus)
        memory = estimate(model, spread)
    except (ZeroDivisionError, IndexError) as error:  # a size of zero, or below
        raise ValueError("one of its sizes is not above zero") from error
    sku = experiment.source.absolute().parent.name if experiment.accelerator == "rocm" else ""
    return Report(
        model=model,
        layout=spread,
        memory=memory,
        sku=sku if sku in SKUS else BY_GFX.get(gfx, ""),
        unit="GPU" if experiment.accelerator == "rocm" else "process",
    )


def fewest(experiment: Experiment, nodes: int, gpus: int) -> int | None:
    """The fewest nodes of `gpus` on which the experiment's model is estimated to fit, of 1, 2, 4, ... times `nodes`;
    0 if that many do not help, None where it or the GPU's memory is not known."""
    try:
        while nodes <= MOST_NODES:
            if layout.starts(experiment, nodes=nodes, gpus=gpus):
                found = report(experiment, gpus=nodes * gpus)
                if not found.has:
                    return None
                if not found.exceeds:
                    return nodes
            nodes *= 2
    except ValueError:
        return None
    return 0


def rows(found: Report) -> list[tuple[str, str]]:
    """The report as lines of a name and a text."""
    model, spread, memory = found.model, found.layout, found.memory
    count, active = parameters(model), active_parameters(model)
    ways = [("tensor", spread.tensor), ("pipeline", spread.pipeline), ("context", spread.context)]
    ways += [("expert", spread.expert), ("data", spread.data // spread.context)]
    recompute = {"none": "nothing is recomputed", "full": "all is recomputed", "selective": "recomputing "}
    recompute["products"] = "recomputing all but attention's output and some products"
    said = recompute[spread.recompute] + (", ".join(spread.modules) if spread.recompute == "selective" else "")
    if spread.adapter:
        said += f"; adapters of rank {spread.adapter} train, the model does not"
    unknown = " (the vocabulary is not known: without the embedding)" if not model.vocab else ""
    has = f" of {found.has} GiB on an {found.sku}" if found.has else ""
    return [
        ("model", f"{billions(count)} parameters{f', {billions(active)} active' if active != count else ''}{unknown}"),
        ("layout", f"{found.shares}: {', '.join(f'{name} {size}' for name, size in ways if size > 1) or 'alone'}"),
        ("batch", f"{spread.batch} x {spread.length} tokens at a time, {said}"),
        (
            f"memory {'per GPU' if found.unit == 'GPU' else 'of each'}",
            "an estimate, without fragmentation and communication buffers",
        ),
        ("  parameters", gib(memory.parameters)),
        ("  gradients", gib(memory.gradients)),
        ("  optimizer", gib(memory.optimizer)),
        ("  activations", gib(memory.activations)),
        ("  total", gib(memory.total) + has),
    ]


def gib(size: float) -> str:
    """Bytes as GiB."""
    return f"{size / GIB:.1f} GiB"
