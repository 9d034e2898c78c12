"""YAML 1.2's core schema with positions, read with libyaml and without."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml as pyyaml

from primus.errors import ConfigError
from primus.experiment import yaml
from primus.experiment.yaml import Map, dump, parse, read, untyped


class _Pure(pyyaml.SafeLoader):
    def resolve(self, kind: type, value: Any, implicit: Any) -> str:
        return ""


@pytest.fixture(autouse=True, params=["libyaml", "python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(yaml, "_Loader", _Pure)


def value(text: str) -> Any:
    return untyped(parse(text, file="f.yaml", layer="experiment"))


def error(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, file="f.yaml", layer="experiment")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("tRue", "tRue"),
        ("false", False),
        ("yes", "yes"),
        ("no", "no"),
        ("NO", "NO"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("1e-5", 1e-5),
        ("5e-6", 5e-6),
        ("3e4", 3e4),
        ("163.0e12", 163e12),
        (".5", 0.5),
        ("5.", 5.0),
        ("-.5", -0.5),
        ("+1.5", 1.5),
        ("1e", "1e"),
        (".", "."),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("inf", "inf"),
        ("nan", "nan"),
        ("12", 12),
        ("-12", -12),
        ("+12", 12),
        ("017", 17),
        ("0o17", 15),
        ("0x1f", 31),
        ("0b1", "0b1"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("22:22:22", "22:22:22"),
        ("2024-01-01", "2024-01-01"),
        ("1.2.3", "1.2.3"),
        ("null", None),
        ("Null", None),
        ("~", None),
        ("none", "none"),
        ("None", "None"),
        ("=", "="),
        ('"12"', "12"),
        ("'true'", "true"),
        ("''", ""),
        ("|\n  12\n", "12\n"),
        ("\u0661\u0662", "\u0661\u0662"),  # Arabic digits are no number
    ],
    ids=lambda item: repr(item),
)
def test_a_scalar_has_the_type_of_yaml_1_2(text: str, expected: Any) -> None:
    found = value(f"a: {text}")["a"]
    assert (type(found), found) == (type(expected), expected)


def test_nan_is_a_float() -> None:
    assert math.isnan(value("a: .nan")["a"])


@pytest.mark.parametrize("key", ["on", "no", "1", "1.0", "null", "2024-01-01"])
def test_a_key_is_its_own_text(key: str) -> None:
    assert list(value(f"{key}: x")) == [key]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3:1: duplicate key 'a', first on line 1"),
        ("x:\n  a: 1\n  'a': 3\n", "f.yaml:3:3: duplicate key 'a', first on line 2"),
        ("x: {a: 1, a: 2}\n", "f.yaml:1:11: duplicate key 'a', first on line 1"),
        ("a:\n\tb: 1\n", "f.yaml:2:1: not YAML"),
        ("a:\tb\n", "f.yaml:1:3: "),
        ("é: x\nb: {c: 1,\t d: 2}\n", "f.yaml:2:10: "),
        ("a: !foo x\n", "f.yaml:1:4: unknown tag !foo"),
        ("a: !!python/object:os.system x\n", "f.yaml:1:4: unknown tag tag:yaml.org,2002:python/object:os.system"),
        ("a: !!int x\n", "f.yaml:1:4: unknown tag tag:yaml.org,2002:int"),
        ("a: !!str 5\n", "f.yaml:1:4: unknown tag tag:yaml.org,2002:str"),
        ("a: !!set {b}\n", "f.yaml:1:4: unknown tag tag:yaml.org,2002:set"),
        ("a: *x\n", "f.yaml:1:4: not YAML: found undefined alias"),
        ("a: &x [*x]\n", "f.yaml:1:4: an anchor that contains itself"),
        ("a: &x {b: {c: *x}}\n", "f.yaml:1:4: an anchor that contains itself"),
        ("a: &x {<<: *x}\n", "f.yaml:1:4: an anchor that contains itself"),
        ("a: {<<: 1}\n", "f.yaml:1:9: '<<' takes a mapping or a list of mappings"),
        ("a: {<<: [1]}\n", "f.yaml:1:9: '<<' takes a mapping or a list of mappings"),
        ("? [a]\n: b\n", "f.yaml:1:3: a key must be plain text"),
        ("a: [1\n", "not YAML"),
        ("a: b: c\n", "f.yaml:1:5: not YAML"),
        ("a: 'x\n", "not YAML"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: not YAML"),
        ('a: "x\\0y"\n', "f.yaml:1:4: a NUL character"),
        ('"x\\0y": a\n', "f.yaml:1:1: a NUL character"),
        ("a: \x07\n", "f.yaml: not YAML"),
        ("a: " + "[" * 200 + "]" * 200, "nested too deeply"),
        ("".join(" " * depth + "a:\n" for depth in range(1500)), "deep"),
    ],
    ids=lambda text: ascii(text)[:40],
)
def test_what_is_wrong_is_said_with_its_position(text: str, expected: str) -> None:
    said = error(text)
    assert expected in said or (expected == "deep" and "nesting depth" in said)


def test_anchors_may_not_expand_beyond_ten_thousand_values() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 9):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    assert "more than 10,000 values" in error("\n".join(lines))


def test_a_tab_beside_an_anchor_bomb_does_not_hang() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 12):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    assert "more than 10,000 values" in error("\n".join([*lines, "b: 'x\ty'"]))


def test_ordinary_anchors_work() -> None:
    assert value("a: &x {b: [1, 2]}\nc: *x\n") == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{<<: *b, y: 9}", {"x": 1, "y": 9}),
        ("{y: 9, <<: *b}", {"x": 1, "y": 9}),
        ("{<<: [*c, *b]}", {"x": 3, "y": 2}),
        ("{'<<': 5}", {"<<": 5}),
    ],
    ids=["before", "after", "the earlier of several", "quoted is a key"],
)
def test_merge_keys_give_way_to_the_mappings_own(text: str, expected: dict[str, Any]) -> None:
    assert value(f"b: &b {{x: 1, y: 2}}\nc: &c {{x: 3}}\na: {text}")["a"] == expected


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("env: {a: ${X}}", '"${VARIABLE}"'),
        ("a: [${X}, b]", '"${VARIABLE}"'),
        ("a:\n\tb: 1", "use spaces"),
        ("a:\tb", "use spaces"),
    ],
)
def test_a_common_mistake_gets_a_hint(text: str, hint: str) -> None:
    assert hint in error(text)


@pytest.mark.parametrize(
    "text",
    ["a: v  # c\tc\n", "# c\tc\na: v\n", "a: v # it's\tc\n"],
    ids=["after a value", "a line", "with a quote"],
)
def test_a_tab_that_is_no_syntax_is_fine(text: str) -> None:
    assert value(text) == {"a": "v"}


def test_a_tab_inside_a_value_is_kept() -> None:
    assert value('a: "x\ty"\nb: |\n  p\tq\n') == {"a": "x\ty", "b": "p\tq\n"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: rocm/primus:v1  # pinned\n", "rocm/primus:v1"),
        ("a: x#y\n", "x#y"),
        ("a: 'x # y'  # z\n", "x # y"),
        ("a: # nothing\n", None),
    ],
)
def test_a_comment_is_no_part_of_a_value(text: str, expected: Any) -> None:
    assert value(text)["a"] == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a: x\r\nb: /dev/null\r\n", {"a": "x", "b": "/dev/null"}),
        (b"a: |\r\n  x\r\n  y\r\n", {"a": "x\ny\n"}),
        (b"\xef\xbb\xbfa: x\n", {"a": "x"}),
        ("a: café\n".encode(), {"a": "café"}),
        (b"a: x", {"a": "x"}),
        (b"%YAML 1.1\n---\na: no\n...\n", {"a": "no"}),
        (b"", {}),
        (b"# only a comment\n", {}),
        (b"null\n", {}),
        (b"\xef\xbb\xbf", {}),
    ],
    ids=[
        "CRLF",
        "CRLF in a block",
        "BOM",
        "UTF-8",
        "no newline",
        "directive",
        "empty",
        "comment",
        "null",
        "only a BOM",
    ],
)
def test_a_file_is_read(data: bytes, expected: dict[str, Any]) -> None:
    Path("f.yaml").write_bytes(data)
    assert untyped(read(Path("f.yaml"), "experiment")) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a: x\nb: caf\xe9\n", "f.yaml:2: is not UTF-8"),
        ("a: x".encode("utf-16"), "f.yaml:1: is not UTF-8"),
        (b"a: \xed\xa0\x80\n", "f.yaml:1: is not UTF-8"),
        (b"- a\n", "f.yaml:1:1: the file must be a mapping"),
        (b"just text\n", "f.yaml:1:1: the file must be a mapping"),
        (b"'null'\n", "f.yaml:1:1: the file must be a mapping"),
    ],
    ids=["latin-1", "UTF-16", "surrogate", "list", "text", "quoted null"],
)
def test_a_file_that_is_no_utf8_mapping_is_refused(data: bytes, expected: str) -> None:
    Path("f.yaml").write_bytes(data)
    with pytest.raises(ConfigError, match="^" + expected):
        read(Path("f.yaml"), "experiment")


@pytest.mark.parametrize(("name", "expected"), [("nope.yaml", "cannot read"), (".", "is a directory")])
def test_what_cannot_be_read_is_said(name: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        read(Path(name), "experiment")


def test_positions_count_from_one_and_in_characters() -> None:
    node = parse("é:\n  ü: [1, éé, x]\n", file="f.yaml", layer="experiment")
    assert isinstance(node, Map)
    inner = node.items["é"]
    assert isinstance(inner, Map)
    assert [str(inner.keys["ü"]), str(inner.items["ü"].at)] == ["f.yaml:2:3", "f.yaml:2:6"]


def test_files_are_utf8_whatever_the_locale() -> None:
    Path("f.yaml").write_bytes("a: café\n".encode())
    program = (
        "from pathlib import Path; from primus.experiment.yaml import read, untyped\n"
        "assert untyped(read(Path('f.yaml'), '')) == {'a': 'caf\\xe9'}"
    )
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", program], env=env, check=True)


NASTY = [
    *("no", "on", "yes", "true", "null", "~", "", " ", "1e-5", "007", "0o17", "0x1f", "1_000", "1:30", "2024-01-01"),
    *(".inf", ".nan", ".5", "-", "- a", "a: b", "a:", ":", "# x", "x # y", "a#b", "?", "? a", "|", ">", "%x", "@x"),
    *("`x", "&x", "*x", "!x", "!!int", "<<", "{", "}", "[", "]", "{a: b}", "[a]", ",", "'", '"', "''", "a'b\"c", "\\"),
    *("a\nb", "a\n", "\n", "\na", " a", "a ", "a\tb", "\t", "a\r\nb", "a\rb", "\u2028", "\u0085", "\ufeff", "\x07"),
    *("${", "$${", "$$${", "${X}", "$X", "$(x)", "é", "日本", "😀", "---", "...", "--- a", "x" * 20_000, "a " * 9_000),
]


@pytest.mark.parametrize("text", NASTY, ids=lambda text: ascii(text)[:20])
def test_dumped_text_is_read_back_as_it_was(text: str) -> None:
    document = {"value": text, "list": [text], text: {"nested": text}}
    assert value(dump(document)) == document


@pytest.mark.parametrize(
    "number", [0, -1, 10**100, 10**3990, 0.1, 1e-5, 1e300, 5e-324, -0.0, math.inf, -math.inf, True, False, None]
)
def test_dumped_numbers_keep_type_and_value(number: Any) -> None:
    found = value(dump({"a": number}))["a"]
    assert (type(found), repr(found)) == (type(number), repr(number))


@pytest.mark.parametrize("text", ["9" * 5000, "0x" + "f" * 5000, "0o" + "7" * 5000], ids=["decimal", "hex", "octal"])
def test_a_number_too_long_to_print_is_none(text: str) -> None:
    assert not isinstance(value(f"a: {text}")["a"], int)
