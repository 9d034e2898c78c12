"""Charts as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from math import ceil, floor, log10

from primus.record import Attempt

Point = tuple[int, float | None]
# Told apart by readers who do not see all colours, on white and on black; from the ninth on, by dashes.
COLOURS = ("#2b7fc4", "#d9640a", "#12946b", "#c25f97", "#b58900", "#7a5fc7", "#c0392b", "#6f7a86")
_WIDTH, _HEIGHT = 560, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 10, 34
_MOST = 800  # points of one line; of more, means are drawn


@dataclass(frozen=True, kw_only=True)
class Line:
    """One run's line in a chart."""

    name: str
    colour: str
    points: Sequence[Point]
    dashed: bool = False


def number(value: float) -> str:
    """As short as it can be read: 1,234  0.61  1.5e-06."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:.3g}"


def ticks(low: float, high: float, count: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers within low..high, about `count` of them."""
    rough = (high - low) / count
    if rough <= 0:
        return [low]
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    step = max(step, 1.0) if whole else step
    return [round(index * step, 12) for index in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def chart(title: str, lines: Sequence[Line], *, outliers: bool = True) -> str:
    """Lines over the steps. Without `outliers` most values make the scale, and not the first, which compile."""
    lines = [_thinned(line) for line in lines if line.points]
    steps = [step for line in lines for step, _ in line.points]
    skipped = 0 if outliers else 2  # of each line
    scale = [value for line in lines for _, value in line.points[skipped if len(line.points) > 4 else 0 :]]
    values = sorted(value for value in scale if value is not None)
    if not values:
        return ""
    rare = 0 if outliers else len(values) // 50
    values = values[rare : len(values) - rare]
    low, high = values[0], values[-1]
    margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    low, high = low - margin if low - margin >= 0 or low < 0 else 0.0, high + margin
    first, last = min(steps), max(max(steps), min(steps) + 1)

    def x(step: float) -> float:
        return _LEFT + (step - first) / (last - first) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        shown = min(max(value, low), high)
        return _TOP + (high - shown) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">']
    for value in ticks(low, high):
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        )
        parts.append(f'<text x="{_LEFT - 7}" y="{y(value) + 4:.1f}" text-anchor="end">{number(value)}</text>')
    for value in ticks(first, last, 7, whole=True):
        parts.append(f'<text x="{x(value):.1f}" y="{_HEIGHT - 16}" text-anchor="middle">{number(value)}</text>')
    parts.append(f'<text x="{(_LEFT + _WIDTH) / 2:.0f}" y="{_HEIGHT - 2}" text-anchor="middle">step</text>')
    for line in lines:
        dash = ' stroke-dasharray="5 3"' if line.dashed else ""
        pieces = [[(x(step), y(value)) for step, value in piece] for piece in _pieces(line.points)]
        path = " ".join("M" + " L".join(f"{a:.1f} {b:.1f}" for a, b in piece) for piece in pieces)
        parts.append(f'<path class="line" d="{path}" stroke="{line.colour}"{dash}/>')
        if len(line.points) <= 120 or len(pieces) > 1:
            parts += [_dot(line, step, value, x(step), y(value or low)) for step, value in line.points]
    return "".join([*parts, "</svg>"])


def _dot(line: Line, step: int, value: float | None, x: float, y: float) -> str:
    said = (
        f"<title>{escape(line.name)}\nstep {step}: {'not a finite number' if value is None else number(value)}</title>"
    )
    if value is None:
        return f'<text class="bad" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">&#215;{said}</text>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{line.colour}">{said}</circle>'


def _pieces(points: Sequence[Point]) -> list[list[tuple[int, float]]]:
    """The line, broken where a value is not finite."""
    pieces: list[list[tuple[int, float]]] = [[]]
    for step, value in points:
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((step, value))
    return [piece for piece in pieces if piece]


def _thinned(line: Line) -> Line:
    """Means of neighbours where there are more points than can be seen; what is not finite stays."""
    if len(line.points) <= _MOST:
        return line
    size = ceil(len(line.points) / _MOST)
    points: list[Point] = []
    for start in range(0, len(line.points), size):
        group = line.points[start : start + size]
        finite = [value for _, value in group if value is not None]
        if finite:
            points.append((group[len(group) // 2][0], sum(finite) / len(finite)))
        points += [(step, None) for step, value in group[:1] if value is None]
    return Line(name=line.name, colour=line.colour, points=points, dashed=line.dashed)


def timeline(attempts: Sequence[Attempt], now: str) -> str:
    """A bar for each node's share of each attempt; one that has not ended goes on until `now`."""
    if not attempts:
        return ""
    spans = [(_seconds(one.started), _seconds(one.ended or now)) for one in attempts]
    begin, end = min(start for start, _ in spans), max(end for _, end in spans)
    scale = 700 / max(end - begin, 1e-3)
    rows = sorted({one.rank for one in attempts})
    height = 26 * len(rows) + 22
    parts = [f'<svg class="timeline" viewBox="0 0 860 {height}" role="img" aria-label="time line">']
    for one, (start, stop) in zip(attempts, spans, strict=True):
        top, left = 26 * rows.index(one.rank), 130 + (start - begin) * scale
        kind = "running" if one.exit is None else "good" if one.exit == 0 else "bad"
        said = f"attempt {one.attempt + 1}, {stop - start:.0f} s, " + (
            "running" if one.exit is None else f"exit code {one.exit}"
        )
        parts.append(
            f'<rect class="{kind}" x="{left:.1f}" y="{top + 3}" width="{max((stop - start) * scale, 2):.1f}" '
            f'height="18" rx="3"><title>{escape(one.host)}: {said}</title></rect>'
        )
    for index, rank in enumerate(rows):
        host = next(one.host for one in attempts if one.rank == rank)
        parts.append(f'<text x="0" y="{26 * index + 16}">{rank}: {escape(host[:16])}</text>')
    parts.append(f'<text x="130" y="{height - 4}">0</text>')
    parts.append(f'<text x="830" y="{height - 4}" text-anchor="end">{end - begin:,.0f} s</text>')
    return "".join([*parts, "</svg>"])


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
