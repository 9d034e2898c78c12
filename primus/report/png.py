"""Loss and throughput as one picture, for where no browser is: slides, chats, mails. matplotlib draws it."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from math import nan

from primus.errors import ConfigError
from primus.report.charts import COLOURS
from primus.report.charts import number as number_text
from primus.report.runs import Run

# title, number of a step; of rates, the first steps do not make the scale
_PANELS = (("loss", "loss"), ("tokens/s", "tokens_per_second"))
_INSTEAD = ("s/step", "seconds")  # of backends that print no tokens/s
_SKIPPED = 2


def picture(title: str, runs: Sequence[Run]) -> bytes:
    """A PNG of the runs' curves, side by side. Raises ConfigError without matplotlib, or without a step to draw."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            "--png: matplotlib is not installed here", hint="pip install 'primus[png]', or print the page to PDF"
        ) from None
    if not any(run.steps for run in runs):
        raise ConfigError("--png: no step is recorded, so there is nothing to draw", hint="primus logs RUN says more")
    rated = any(run.series("tokens_per_second") for run in runs)
    figure = Figure(figsize=(11, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=12)
    for index, (name, key) in enumerate((_PANELS[0], _PANELS[1] if rated else _INSTEAD)):
        axes = figure.add_subplot(1, 2, index + 1)
        axes.set_title(name, fontsize=10, loc="left")
        axes.set_xlabel("step", fontsize=9)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.yaxis.set_major_formatter(lambda value, _place: number_text(value))
        shown: list[float] = []
        for number, run in enumerate(runs):
            points = run.series(key)
            values = [nan if value is None else float(value) for _, value in points]
            shown += [value for value in values[_SKIPPED if index and len(values) > 4 else 0 :] if value == value]
            axes.plot(
                [step for step, _ in points],
                values,
                color=COLOURS[number % len(COLOURS)],
                linestyle="--" if number >= len(COLOURS) else "-",
                linewidth=1.6,
                marker="o" if len(points) <= 60 else "",
                markersize=2.5,
                label=f"{run.name}, {run.about.get('framework', '')}",
            )
        if index and shown:
            margin = (max(shown) - min(shown)) * 0.08 or abs(shown[0]) * 0.1 or 1.0
            axes.set_ylim(max(0.0, min(shown) - margin), max(shown) + margin)
    if len(runs) > 1:  # below the curves, which may be anywhere
        names, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(names, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    content = BytesIO()
    figure.savefig(content, format="png", metadata={"Title": title})
    return content.getvalue()
