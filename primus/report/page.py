"""The page: everything in one file, nothing from a network, and nothing that runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

from primus.report.charts import COLOURS, Line, chart, number, timeline
from primus.report.runs import Run

# title, number of a step, whether its first values belong on the scale
CHARTS = (
    ("loss", "loss", True),
    ("tokens/s", "tokens_per_second", False),
    ("TFLOP/s per device", "tflops_per_device", False),
    ("seconds per step", "seconds", False),
    ("learning rate", "learning_rate", True),
    ("gradient norm", "grad_norm", False),
    ("memory, GiB", "memory_gib", True),
)
_RATES = {"tokens/s": "tokens_per_second", "TFLOP/s/device": "tflops_per_device", "s/step": "seconds"}
_STYLE = """
:root { color-scheme: light dark; --ink: #1d2127; --soft: #667080; --rule: #dfe3e8; --back: #fff; --card: #f7f8fa;
  --good: #12946b; --bad: #c0392b; --running: #2b7fc4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --soft: #98a2b0; --rule: #343a43; --back: #16191d;
  --card: #1e2227; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 28px 24px 60px; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 24px; margin: 0 0 2px; } h2 { font-size: 18px; margin: 38px 0 10px; }
h3 { font-size: 14px; margin: 0 0 6px; font-weight: 600; }
.soft, figcaption { color: var(--soft); font-size: 13px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(460px, 100%), 1fr)); gap: 16px; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 12px 14px; }
.wide { overflow-x: auto; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font-size: 11.5px; }
svg .grid { stroke: var(--rule); } svg .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
svg .bad { fill: var(--bad); font-size: 15px; } rect.good { fill: var(--good); } rect.bad { fill: var(--bad); }
rect.running { fill: var(--running); } .timeline { max-width: 900px; } .timeline text { font-size: 13px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; } .name { white-space: nowrap; }
td.n, th.n { text-align: right; white-space: nowrap; }
code, pre { font: 12.5px/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, monospace; }
td code { overflow-wrap: anywhere; } td:first-child code { white-space: nowrap; } pre { margin: 0; overflow-x: auto; }
details { margin-top: 8px; } summary { cursor: pointer; font-weight: 600; }
.chip { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 7px; }
.dash { border-radius: 50%; } .failed, .lost { color: var(--bad); } .completed { color: var(--good); }
.running { color: var(--running); }
@media print { details { display: none; } .card { break-inside: avoid; } }
"""


def title(runs: Sequence[Run]) -> str:
    """What the report is of: an experiment's name, or so many runs."""
    return str(runs[0].about.get("exp_name", runs[0].name)) if len(runs) == 1 else f"{len(runs)} runs"


def page(runs: Sequence[Run], *, now: str) -> str:
    """The report of one run, or of several side by side."""
    head = escape(title(runs))
    body = [
        f"<h1>{head}</h1>",
        f'<p class="soft">Primus {escape(str(runs[0].about.get("primus", "")))}, written {escape(_when(now))}</p>',
        _summary(runs),
        *_failures(runs),
        _charts(runs),
        _times(runs, now),
        *_differences(runs),
        *_configuration(runs),
        _environment(runs),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{head}: report</title><style>{_STYLE}</style></head>\n<body>"
        + "\n".join(part for part in body if part)
        + "</body></html>\n"
    )


def _colour(index: int) -> tuple[str, bool]:
    return COLOURS[index % len(COLOURS)], index >= len(COLOURS)


def _named(runs: Sequence[Run], index: int) -> str:
    colour, dashed = _colour(index)
    chip = f'<span class="chip{" dash" if dashed else ""}" style="background:{colour}"></span>'
    return f'<span class="name">{chip if len(runs) > 1 else ""}{escape(runs[index].name)}</span>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table of cells that are HTML already; `numbers` are the columns set to the right."""

    def line(cells: Sequence[str], tag: str) -> str:
        kinds = (' class="n"' if index in numbers else "" for index in range(len(cells)))
        return (
            "<tr>" + "".join(f"<{tag}{kind}>{cell}</{tag}>" for cell, kind in zip(cells, kinds, strict=True)) + "</tr>"
        )

    top = f"<thead>{line(head, 'th')}</thead>" if any(head) else ""
    return f'<div class="wide"><table>{top}<tbody>{"".join(line(row, "td") for row in rows)}</tbody></table></div>'


def _summary(runs: Sequence[Run]) -> str:
    rows = []
    for index, run in enumerate(runs):
        losses = [value for _, value in run.series("loss")]
        last = run.steps[-1] if run.steps else {}
        loss = "" if not losses else "not finite" if losses[-1] is None else number(losses[-1])
        of = f" of {last['steps']}" if "steps" in last else ""
        rows.append(
            (
                _named(runs, index),
                f'<span class="{escape(run.state.split()[0])}">{escape(run.state)}</span>',
                escape(f"{run.about.get('framework', '')}, {run.about.get('exp_name', '')}"),
                str(last.get("world_size", "")),
                f"{len(run.steps)}{of}" if run.steps else "none",
                loss,
                *(_short(run.middle(name)) for name in _RATES.values()),
                _lasted(run),
                f'<span class="name">{escape(_when(str(run.about.get("started", ""))))}</span>',
            )
        )
    head = ("run", "state", "what", "devices", "steps", "last loss", *_RATES, "time", "started")
    shown = [index for index in range(len(head)) if any(row[index] for row in rows)]
    numbers = [place for place, index in enumerate(shown) if 3 <= index <= 9]
    table = _table([head[index] for index in shown], [[row[index] for index in shown] for row in rows], numbers)
    note = "Rates are medians, without the first step. What a backend does not print is not there."
    return f'<h2>Runs</h2>{table}<p class="soft">{note}</p>'


def _short(value: float | None) -> str:
    """Empty for a rate of nothing, too: it was too small for the digits that the backend prints."""
    return number(value) if value else ""


def _lasted(run: Run) -> str:
    ends = [one.ended for one in run.attempts if one.ended]
    if not run.attempts or not ends or not all(one.ended for one in run.attempts):
        return ""
    begin, end = (datetime.fromisoformat(text) for text in (min(one.started for one in run.attempts), max(ends)))
    return str(end - begin).split(".", maxsplit=1)[0]


def _when(text: str) -> str:
    return text[:19].replace("T", " ") + (" UTC" if text else "")


def _charts(runs: Sequence[Run]) -> str:
    cards = []
    for title, name, outliers in CHARTS:
        lines = [
            Line(name=run.name, colour=_colour(index)[0], points=run.series(name), dashed=_colour(index)[1])
            for index, run in enumerate(runs)
        ]
        told = [line for line in lines if outliers or any(value for _, value in line.points)]
        if drawn := chart(title, told, outliers=outliers):
            cards.append(f'<figure class="card" style="margin:0"><h3>{title}</h3>{drawn}</figure>')
    if not cards:
        return '<h2>Curves</h2><p class="soft">No step was printed.</p>'
    return f'<h2>Curves</h2><div class="charts">{"".join(cards)}</div>'


def _times(runs: Sequence[Run], now: str) -> str:
    cards = [
        f'<div class="card" style="margin-bottom:12px"><h3>{_named(runs, index)}</h3>{drawn}</div>'
        for index, run in enumerate(runs)
        if (drawn := timeline(run.attempts, now))
    ]
    return f"<h2>Attempts, by node</h2>{''.join(cards)}" if cards else ""


def _failures(runs: Sequence[Run]) -> Iterable[str]:
    for index, run in enumerate(runs):
        if run.failed and run.state.startswith(("failed", "running", "lost")):
            code = run.end.get("exit", "")
            head = f"{_named(runs, index)}: {escape(run.failed)} failed first{f', exit code {code}' if code else ''}"
            why = "".join(f"<p>{escape(line)}</p>" for line in run.why.splitlines())
            yield f'<h2 class="failed">{head}</h2>{why}<div class="card"><pre>{escape(run.tail)}</pre></div>'


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _differences(runs: Sequence[Run]) -> Iterable[str]:
    """The values that are not the same in all runs; what one does not say is its backend's default."""
    if len(runs) < 2:
        return
    all_values = [run.values() for run in runs]
    keys = dict.fromkeys(key for values in all_values for key in values)
    rows = []
    for key in keys:
        said = [_text(values[key][0]) if key in values else None for values in all_values]
        if len(set(said)) > 1:
            cells = (
                '<span class="soft">not said</span>' if text is None else f"<code>{escape(text)}</code>"
                for text in said
            )
            rows.append((f"<code>{escape(key)}</code>", *cells))
    yield "<h2>What differs</h2>"
    yield (
        _table(("key", *(_named(runs, index) for index in range(len(runs)))), rows)
        if rows
        else "<p>Nothing: the experiments say the same.</p>"
    )


def _configuration(runs: Sequence[Run]) -> Iterable[str]:
    yield "<h2>Configuration, and where it is said</h2>"
    for index, run in enumerate(runs):
        rows = [
            (
                f"<code>{escape(key)}</code>",
                f"<code>{escape(_text(value))}</code>",
                f'<span class="soft">{escape(at)}</span>',
            )
            for key, (value, at) in run.values().items()
        ]
        opened = " open" if len(runs) == 1 and len(rows) <= 60 else ""
        table = _table(("key", "value", "said by"), rows)
        yield f"<details{opened}><summary>{_named(runs, index)}: {len(rows)} values</summary>{table}</details>"


def _environment(runs: Sequence[Run]) -> str:
    facts = [_facts(run) for run in runs]
    names = dict.fromkeys(name for fact in facts for name in fact)
    rows = [
        (escape(name), *(f"<code>{escape(fact.get(name, ''))}</code>" for fact in facts))
        for name in names
        if any(fact.get(name) for fact in facts)
    ]
    return f"<h2>Image and environment</h2>{_table(('', *(_named(runs, i) for i in range(len(runs)))), rows)}"


def _facts(run: Run) -> dict[str, str]:
    git: Mapping[str, Any] = run.about.get("git") or {}
    changed = "".join(
        f", {len(git[kind])} files {kind}"
        for kind in ("changed", "new")
        if isinstance(git.get(kind), list) and git[kind]
    )
    ids = dict.fromkeys(one.image_id for one in run.attempts if one.image_id)
    hosts = dict.fromkeys(one.host for one in run.attempts)
    return {
        "image": str(run.about.get("image", "")),
        "image id": ", ".join(ids),
        "built for": ", ".join(map(str, run.image.get("gfx") or ())) or str(run.image.get("accelerator", "")),
        "compiled modules": ", ".join(map(str, run.image.get("compiled") or ())),
        "accelerator": str(run.about.get("accelerator", "")),
        "nodes": f"{run.about.get('nodes', '')}: {', '.join(hosts)}",
        "launcher": str(run.about.get("launcher", "")),
        "experiment": str(run.about.get("config", "")),
        "commit": f"{git['commit']}{changed}" if git.get("commit") else "",
        "by": f"{run.about.get('user', '')} on {run.about.get('host', '')}",
        "record": str(run.path),
    }
