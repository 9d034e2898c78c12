"""images/arguments.py: what of a table differs is said by key and fact, and what an update adds or takes is kept."""

from __future__ import annotations

import enum
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from images import tables
from images.arguments import differences, updated, written
from primus.errors import ConfigError
from primus.experiment import load_experiment
from primus.experiment import schema as schemas

from .conftest import Experiment, Primus

ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted(ROOT.glob("primus/backends/*/arguments.json"))


def table(version: str = "1.0", **rows: Any) -> dict[str, Any]:
    """A table of these arguments: the default, or the facts."""
    said = {name: facts if isinstance(facts, dict) else {"default": facts} for name, facts in rows.items()}
    arguments = [{"name": name, "type": "int", **facts} for name, facts in said.items()]
    return {"backend": "b", "version": version, "arguments": arguments}


def choices(*names: str) -> dict[str, Any]:
    return {"type": "str", "default": "x", "choices": list(names)}


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.parent.name)
def test_a_table_is_written_as_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    said = json.loads(text)
    assert written(said) == text
    assert updated(said, {key: value for key, value in said.items() if key not in ("backend", "removed")}) == said


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (table(a=1), table(a=1), []),
        (table(a=1), table(a=2), ["a: default: 1 must be 2"]),
        (table(a=1), table(a=1.0), ["a: default: 1 must be 1.0"]),
        (table(a=0), table(a=False), ["a: default: 0 must be false"]),
        (table(a=1), table(a=None), ["a: default: 1 must be nothing"]),
        (table(a=1), table(a={"type": "float", "default": 1}), ['a: type: "int" must be "float"']),
        (table(a=1), table(a=1, b=2), ["added: b"]),
        (table(a=1, b=2), table(a=1), ["removed: b"]),
        (table(a=choices("x", "y")), table(a=choices("x", "z")),
         ["a: choices: 'z' is missing", "a: choices: 'y' is no more"]),
        (table(a=choices("x", "y")), table(a=choices("y", "x")), ['a: choices: ["x", "y"] must be ["y", "x"]']),
        (table(a=choices("x")), table(a={"type": "str", "default": "x"}), ['a: choices: ["x"] must be nothing']),
        (table(a=1), table(a={"default": 1, "flag": "--b"}), ['a: flag: nothing must be "--b"']),
        (table("1.0", a=1), table("1.1", a=1), ['version: "1.0" must be "1.1"']),
        (table(a=1) | {"computed": ["c"]}, table(a=1) | {"computed": ["d"]},
         ["computed: 'd' is missing", "computed: 'c' is no more"]),
    ],
)  # fmt: skip
def test_a_difference_names_the_key_and_the_fact(old: Any, new: Any, expected: list[str]) -> None:
    assert list(differences(old, new)) == expected


def test_an_update_of_the_backend_marks_what_is_new_and_keeps_what_is_gone() -> None:
    first = updated(table("1.0", a=1, b=2), table("1.1", c=3, a=1))
    assert first == {
        **{"backend": "b", "version": "1.1", "removed": {"b": "1.1"}},
        "arguments": [
            {"name": "a", "type": "int", "default": 1},
            {"name": "c", "type": "int", "default": 3, "since": "1.1"},
        ],
    }
    # Another update: what was said stays, what comes back is there again.
    second = updated(first, table("1.2", b=2, c=4))
    assert second["removed"] == {"a": "1.2"}
    assert [(row["name"], row.get("since")) for row in second["arguments"]] == [("b", "1.2"), ("c", "1.1")]


def test_a_better_extractor_is_no_update() -> None:
    again = updated(table("1.0", a=1, b=2), table("1.0", a=1, c=3))
    assert again == {**table("1.0", a=1, c=3)}


def test_what_an_extractor_finds_again_is_not_gone() -> None:
    again = updated(table("1.1", a=1) | {"removed": {"b": "1.1", "c": "1.1"}}, table("1.1", a=1, b=2))
    assert again["removed"] == {"c": "1.1"}


def test_an_argument_that_became_a_section_is_not_gone() -> None:
    assert "removed" not in updated(table("1.0", a=1), table("1.1", **{"a.b": 1}))


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("annotation", "words", "allowed"),
    [
        (int, "int", []),
        (None | str, "str | null", []),
        (Annotated[float | None, "x"], "float | null", []),
        (list[str] | str, "list[str] | str", []),
        (tuple[int, int] | None, "list[int] | null", []),
        (tuple[list[str], float], "list[any]", []),
        (list, "list[any]", []),
        (dict[str, int], "dict", []),
        (Any, "any", []),
        (Literal["a", "b"] | None, "str | null", ["a", "b"]),
        (Literal[0, 1], "int", [0, 1]),
        (Colour | None, "str | null", ["red", "blue"]),
        (Colour | str, "str", []),
        (list[Colour], "list[str]", []),
        (object, "", []),
        (list[object] | None, "null", []),
    ],
)
def test_an_annotation_in_a_tables_words(annotation: Any, words: str, allowed: list[Any]) -> None:
    assert " | ".join(tables.words(annotation)) == words
    assert tables.choices(annotation, lambda member: member.value) == allowed


def test_a_correction_that_is_of_no_use_any_more_is_refused() -> None:
    rows = [tables.row("a", ["int"], 1)]
    assert tables.changed(rows, {"a": {"default": 2}, "b": {"type": "str", "default": ""}}) == [
        {"name": "a", "type": "int", "default": 2},
        {"name": "b", "type": "str", "default": ""},
    ]
    with pytest.raises(SystemExit, match=r"a: the backend says {'default': 1} by itself; take it out"):
        tables.changed(rows, {"a": {"default": 1}})


def test_a_key_that_went_away_is_said_to(experiment: Experiment) -> None:
    with pytest.raises(ConfigError) as caught:
        load_experiment(experiment("rollout_tensor_parallelism: 2", framework="maxtext"), environ={})
    assert "exp.yaml:10:7: rollout_tensor_parallelism: was removed in maxtext 0.2.4" in str(caught.value)
    # It is no misspelling of a key that is like it; another key's name for the same thing is said all the same.
    with pytest.raises(ConfigError, match=r"grpo_beta: was removed in maxtext 0.2.4\nhint: leave it out"):
        load_experiment(experiment("grpo_beta: 2", framework="maxtext"), environ={})
    with pytest.raises(ConfigError, match="hint: maxtext calls it ici_context_parallelism"):
        load_experiment(experiment("context_parallel_size: 2", framework="maxtext"), environ={})


def test_a_section_that_went_away_is_said_key_by_key(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    real = schemas.schema
    gone = replace(real("torchtitan"), removed={"trainer.steps": "0.2.2", "trainer.old": "0.2.1"})
    monkeypatch.setattr(schemas, "schema", lambda name: gone if name == "torchtitan" else real(name))
    with pytest.raises(ConfigError) as caught:
        load_experiment(experiment("trainer: {steps: 5, old: 1}"), environ={})
    assert "trainer.steps: was removed in torchtitan 0.2.2\nhint: did you mean 'training.steps'?" in str(caught.value)
    assert "trainer.old: was removed in torchtitan 0.2.1" in str(caught.value)


def test_explain_says_since_when_there_is_a_key_and_since_when_no_more(experiment: Experiment, primus: Primus) -> None:
    path = experiment(framework="maxtext")
    assert "since    maxtext 0.2.4\n" in primus("config", "explain", path, "use_gmm_v2").out
    assert "was removed in maxtext 0.2.4" in primus("config", "explain", path, "rollout_tensor_parallelism").err
