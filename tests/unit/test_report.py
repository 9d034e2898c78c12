"""The page about runs: made of a record's files, whole, and without anything of anybody's that would be run."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from primus.record import Attempt
from primus.report.charts import Line, chart, number, ticks, timeline

from .conftest import Primus

NASTY = '<script>alert("1")</script> & \'"'


def record(
    run: str, *, steps: list[dict[str, Any]] | None = None, code: int = 0, lr: float = 0.001, **about: Any
) -> Path:
    """A record of one node's run, as the launcher writes it."""
    path = Path("output/amd/root/exp", run)
    path.mkdir(parents=True)
    origin = {"layer": "override", "file": "exp.yaml", "line": 12, "shadowed": []}
    attempt = {"rank": 0, "host": "host-a", "started": "2026-11-30T21:00:00.000+00:00", "attempt": 0, "job": ""}
    attempt |= {"image_id": "sha256:abc", "ended": "2026-11-30T21:01:30.000+00:00", "exit": code}
    files: dict[str, Any] = {
        "run.json": {"run_id": run, "exp_name": "exp", "framework": "maxtext", "image": "i:1", "nodes": 1, **about},
        "config.json": {
            **{"exp_name": "exp", "args": {"opt": {"lr": lr}, "empty": {}}, "env": {"HF_TOKEN": "${HF_TOKEN}"}},
            "origins": {"opt.lr": origin},
        },
        "node0.json": {"attempts": [attempt]},
        "end.json": {"exit": code, "attempt": 0},
    }
    for name, content in files.items():
        (path / name).write_text(json.dumps(content), encoding="utf-8")
    lines = [json.dumps({"world_size": 8, "steps": 20, "attempt": 0, **one}) for one in steps or ()]
    (path / "metrics.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    (path / "node0.log").write_text(f"first\n 0%\r 99%\r100%\n\x1b[31m{NASTY}\x1b[0m\n", encoding="utf-8")
    return path


ONE, OTHER = "20261130-210000-aaaa", "20261130-220000-bbbb"
STEPS = [{"step": step, "loss": 8 - step / 4, "tokens_per_second": 1000.0 + step, "seconds": 0.5} for step in range(20)]


class Page(HTMLParser):
    """Checks that tags fit together; keeps the text, the tags and every value of an attribute."""

    VOID = ("meta", "line", "rect", "path")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        text = self.get_starttag_text() or ""
        if tag != "meta" and not text.endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data


def written(primus: Primus, *words: Any) -> tuple[Page, str, str]:
    done = primus("report", *words)
    assert done.code == 0, done.err
    text = Path(done.out.strip()).read_text(encoding="utf-8")
    return Page(text), text, done.err


def test_one_run(primus: Primus) -> None:
    path = record(ONE, steps=STEPS)
    page, text, said = written(primus, "exp")
    assert (path / "report.html").exists()
    assert said == ""
    for part in (
        ONE,
        "completed",
        "20 of 20",
        "3.25",
        "1,010",
        "0:01:30",
        "opt.lr",
        "override, exp.yaml:12",
        "sha256:abc",
    ):
        assert part in page.text, part
    assert "${HF_TOKEN}" in page.text
    assert text.count('<svg class="chart"') == 3
    assert "What differs" not in page.text
    assert "100%" not in page.text  # the log of a run that did not fail


def test_nothing_is_fetched_or_run(primus: Primus) -> None:
    record(ONE, steps=STEPS, code=1, exp_name=NASTY, user=NASTY, image=NASTY)
    page, text, _ = written(primus, ONE)
    assert page.tags.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "a"})
    assert not [name for name, value in page.attributes if name.startswith("on") or name in ("src", "href")]
    assert not re.search(r"https?://|@import|url\(", text)
    assert NASTY in page.text


def test_a_failure_has_its_last_lines(primus: Primus) -> None:
    record(ONE, steps=STEPS[:3], code=137)
    page, _, _ = written(primus, ONE)
    assert "node 0, host-a failed first, exit code 137" in page.text
    assert f"first\n100%\n{NASTY}" in page.text
    assert "cause: it was killed (SIGKILL)" in page.text
    assert "hint: " in page.text


def test_a_run_that_was_stopped_is_no_failure(primus: Primus) -> None:
    record(ONE, steps=STEPS[:3], code=130)
    page, _, _ = written(primus, ONE)
    assert "cancelled" in page.text
    assert "failed first" not in page.text


def test_several_runs_are_compared(primus: Primus) -> None:
    record(ONE, steps=STEPS)
    record(OTHER, steps=STEPS[:10], lr=0.002)
    page, text, _ = written(primus, ONE, OTHER, ONE)
    assert Path("report.html").exists()
    assert "2 runs" in page.text
    differs = page.text.partition("What differs")[2].partition("Configuration")[0]
    assert "opt.lr0.0010.002" in re.sub(r"\s", "", differs)
    assert "exp_name" not in differs
    assert text.partition('aria-label="loss"')[2].partition("</svg>")[0].count('class="line"') == 2


def test_the_last_attempt_counts(primus: Primus) -> None:
    path = record(
        ONE, steps=[*STEPS[:5], {"step": 3, "loss": 1.5, "attempt": 1}, {"step": 4, "loss": None, "attempt": 1}]
    )
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')  # cut by a crash
    page, text, _ = written(primus, ONE)
    assert "5 of 20" in page.text
    assert "not finite" in page.text
    assert "step 3: 1.5" in text
    assert "step 3: 7.25" not in text


def test_a_run_without_steps(primus: Primus) -> None:
    record(ONE)
    page, _, said = written(primus, ONE)
    assert "No step was printed" in page.text
    assert f"{ONE}: no step is recorded" in said


def test_a_rate_too_small_to_print_is_no_rate(primus: Primus) -> None:
    record(ONE, steps=[{**one, "tflops_per_device": 0.0} for one in STEPS])
    primus("report", ONE, "-o", "page.html")
    text = Path("page.html").read_text(encoding="utf-8")
    assert ("TFLOP/s" in text, "tokens/s" in text) == (False, True)


@pytest.mark.parametrize("count", [1, 2])
def test_a_picture(count: int, primus: Primus, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("MPLCONFIGDIR", str(Path.cwd()))
    runs = (ONE, OTHER)[:count]
    for run in runs:
        record(run, steps=[*STEPS, {"step": 20, "loss": None}])
    done = primus("report", *runs, "--png", "picture.png")
    assert (done.code, done.out) == (0, f"{Path.cwd()}/picture.png\n")
    assert Path("picture.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert not [*Path().glob("**/*.html")]
    both = primus("report", *runs, "--png", "picture.png", "-o", "page.html")
    assert both.out.split() == [f"{Path.cwd()}/picture.png", f"{Path.cwd()}/page.html"]


def test_a_picture_needs_matplotlib_steps_and_a_place(primus: Primus, monkeypatch: pytest.MonkeyPatch) -> None:
    record(ONE, steps=STEPS)
    record(OTHER)
    assert "nowhere is no directory" in primus("report", ONE, "--png", "nowhere/a.png").err
    pytest.importorskip("matplotlib")
    assert "nothing to draw" in primus("report", OTHER, "--png", "a.png").err
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    done = primus("report", ONE, "--png", "a.png")
    assert (done.code, "pip install 'primus[png]'" in done.err) == (2, True)
    assert not Path("a.png").exists()


def test_what_is_not_there_is_said(primus: Primus) -> None:
    record(ONE)
    assert primus("report", "exq").code == 2
    done = primus("report", "exp", "--output", "no/such/report.html")
    assert done.code == 2
    assert "no/such" in done.err
    assert primus("report").code == 2


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (6.3, 7.9, [6.5, 7, 7.5]), (0, 0.0031, [0, 0.001, 0.002, 0.003]), (2, 2, [2])],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected


def test_numbers_are_short() -> None:
    assert [number(value) for value in (0, 1234.56, 0.61234, 7.705743, 1.5e-6, 2e9)] == [
        *("0", "1,235", "0.6123", "7.706", "1.5e-06", "2e+09")
    ]


def test_first_steps_do_not_make_the_scale() -> None:
    points = [(0, 90.0), (1, 40.0), *((step, 0.5 + step / 1000) for step in range(2, 50))]
    drawn = chart("seconds", [Line(name="a", colour="#000", points=points)], outliers=False)
    assert re.findall(r'text-anchor="end">([^<]*)<', drawn) == ["0.5", "0.52", "0.54"]


def test_long_runs_are_thinned_and_keep_what_is_not_finite() -> None:
    points = [(step, None if step == 40_000 else 1.0 * step) for step in range(100_000)]
    drawn = chart("loss", [Line(name="a", colour="#000", points=points)])
    assert len(drawn) < 150_000
    assert drawn.count("not a finite number") == 1


def test_one_point_and_equal_values_can_be_drawn() -> None:
    assert "<path" in chart("loss", [Line(name="a", colour="#000", points=[(5, 2.0)])])
    assert "<path" in chart("loss", [Line(name="a", colour="#000", points=[(1, 0.0), (2, 0.0)])])
    assert chart("loss", [Line(name="a", colour="#000", points=[(1, None)])]) == ""


def test_time_goes_on_until_now() -> None:
    one = Attempt(rank=0, host="h", started="2026-11-30T21:00:00.000+00:00")
    drawn = timeline([one], "2026-11-30T21:00:40.000+00:00")
    assert 'class="running"' in drawn
    assert "attempt 1, 40 s, running" in drawn


@pytest.mark.parametrize("odd", [None, 5, 1e400, True, "x", "", [1], {"a": 1}, [{"rank": "x"}], [None]], ids=str)
def test_a_record_that_somebody_has_changed_is_shown_as_far_as_it_goes(odd: Any, primus: Primus) -> None:
    path = record(ONE, steps=STEPS, code=1)
    (path / "slurm.json").write_text('{"job": "12"}', encoding="utf-8")
    (path / "image.json").write_text('{"gfx": ["gfx942"], "compiled": []}', encoding="utf-8")
    for file in (*path.glob("*.json"), path / "metrics.jsonl"):
        whole = file.read_text(encoding="utf-8")
        first = json.loads(whole.splitlines()[0])
        keys = first if file.name != "run.json" else {**first, "git": {}, "started": ""}
        for content in (odd, *({**first, key: odd} for key in keys), *_deeper(first, odd)):
            file.write_text(json.dumps(content) + "\n", encoding="utf-8")
            for words in (("runs", "output"), ("logs", str(path)), ("report", str(path), "--output=r.html")):
                assert primus(*words).code in (0, 2), (file, content, words)
        file.write_text(whole, encoding="utf-8")


def _deeper(content: dict[str, Any], odd: Any) -> list[dict[str, Any]]:
    """The content with the odd value in the place of each value that is in a dictionary or a list of it."""
    made: list[dict[str, Any]] = [{**content, "git": {name: odd}} for name in ("commit", "changed", "new")]
    for key, value in content.items():
        if isinstance(value, dict):
            made += [{**content, key: {**value, name: odd}} for name in value]
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            made += [{**content, key: [{**value[0], name: odd}]} for name in value[0]]
    return made
