"""docs/migrating.md says what the translation does, row by row."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from primus.errors import ConfigError
from primus.experiment.yaml import parse as read_yaml
from primus.experiment.yaml import untyped
from primus.upstream import settings
from primus.upstream.call import parse
from primus.upstream.translation import translate
from primus.upstream.variables import from_env

from .conftest import Write
from .test_docs import commands

DOCUMENT = "docs/migrating.md"
TEXT = (Path(__file__).resolve().parents[2] / DOCUMENT).read_text(encoding="utf-8")
TRAIN = "train pretrain --config X"


def rows() -> list[object]:
    """(section, upstream's code, what is said to become of it) of every row of a table."""
    found: list[object] = []
    section = ""
    for line in TEXT.splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("| `"):
            old, new = re.split(r" \| ", line.strip("| "), maxsplit=1)
            found.append(pytest.param(section, old.strip("`"), new, id=old.strip("`")))
    return found


def translated(text: str) -> list[str]:
    return list(translate(parse(shlex.split(text)), environ={"HOME": "/home/me"}, cwd="/here").words)


def becomes(section: str, old: str) -> list[str]:
    """The new words, of a whole command or of a part of one."""
    if section == "Variables":
        environ = dict(word.split("=", 1) for word in shlex.split(old))
        return list(from_env({"EXP": "X", **environ}, [], "/here").words)
    patterns = {
        "Commands": "{}",
        "Options of slurm": f"slurm sbatch {{}} -- {TRAIN}",
        "Options of container": f"container {{}} -- {TRAIN}",
        "Options of direct": f"direct {{}} -- {TRAIN}",
        "Words behind train": f"direct -- {TRAIN} {{}}",
    }
    return translated(patterns[section].format(old.removeprefix("primus-cli ")))


def expected(section: str, new: str) -> list[str]:
    words = shlex.split(new.removeprefix("primus "))
    if section == "Commands":
        return words
    launcher = {"Options of slurm": ["slurm"], "Options of container": ["container"]}.get(section, ["direct"])[0]
    head = [f"--launcher={launcher}"]
    if section == "Variables":
        head = ["--launcher=slurm", "--wait", "--exclusive"]
    options = [word for word in words if word.startswith("--")]
    rest = [word for word in words if word not in options and word != "X"]
    options = [word for word in options if word not in (*head, "--config")]
    return ["run", *head, *options, "--config", "X", *rest]


@pytest.mark.parametrize(("section", "old", "new"), [row for row in rows() if "The file" not in str(row)])
def test_a_row_is_what_happens(section: str, old: str, new: str) -> None:
    if new.startswith("refused"):
        with pytest.raises(ConfigError):
            becomes(section, old)
    else:
        code = "" if new.startswith("left out") else re.findall("`(.*?)`", new)[0]
        assert becomes(section, old) == expected(section, code)


@pytest.mark.parametrize(("section", "old", "new"), [row for row in rows() if "The file" in str(row)])
def test_a_row_of_settings_is_what_happens(section: str, old: str, new: str, write: Write) -> None:
    key, _, value = old.partition(": ")
    lines = [f"{'  ' * depth}{part}:" for depth, part in enumerate(key.split("."))]
    path = write("old.yaml", "\n".join(lines) + f" {value}\n")
    if new.startswith("refused"):
        with pytest.raises(ConfigError):
            settings.as_ours(settings.options(path))
    else:
        code = "" if new.startswith("left out") else new.strip("`")
        said = untyped(read_yaml(code, file="", layer="")) if code else {}
        assert settings.as_ours(settings.options(path))[0] == said


@pytest.mark.parametrize(
    "words", [pytest.param(words[1:], id=where) for where, words in commands() if words[0] == "primus-cli"]
)
def test_a_command_of_the_document_is_translated(words: list[str]) -> None:
    assert translate(parse(words), environ={}, cwd="/here").words[0] == "run"
