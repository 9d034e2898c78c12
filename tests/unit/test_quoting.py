"""Arguments are lists from end to end: what is printed for a shell is split by it into the very same words."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from primus.command import Command
from primus.experiment import load_experiment
from primus.experiment.render import resolved_yaml
from primus.experiment.substitute import escaped, fill
from primus.experiment.yaml import dump, parse, untyped
from primus.job import Job
from primus.launchers import container, direct
from primus.node import Node

from .conftest import Experiment, Primus, Write

NASTY = [
    "sp ace",
    "#1",
    "a #1",
    "$HOME",
    "$(id)",
    "`id`",
    "(v2)",
    "a'b\"c",
    '"',
    "\\",
    "a\\ b",
    "!x",
    "a;b",
    "a&b|c>d",
    "*?[a]",
    "{a,b}",
    "~",
    "-x",
    "--x=y",
    "a=b",
    "a:b",
    "a,b",
    "日本 é",
    "%s",
    "^",
    "no",
    "007",
    "1e-5",
    "null",
    "<<",
]
MULTILINE = ["a\nb", "\ta", "a\r\nb", "\u0085", "\u2028"]


@pytest.mark.parametrize("word", [*NASTY, *MULTILINE, ""], ids=ascii)
def test_a_command_is_split_into_its_words(word: str) -> None:
    command = Command(argv=("program", word, f"--option={word}"), env={"B": word, "A": ""})
    assert shlex.split(str(command)) == ["env", "A=", f"B={word}", "program", word, f"--option={word}"]


def test_a_command_without_variables_is_only_its_words() -> None:
    assert str(Command(argv=("a", "b c"))) == "a 'b c'"


@pytest.mark.parametrize(
    ("framework", "word"), [*(("torchtitan", word) for word in NASTY), ("maxtext", " #$(a'\"b,é")], ids=ascii
)
def test_any_name_reaches_every_command_unchanged(
    experiment: Experiment, primus: Primus, framework: str, word: str
) -> None:
    experiment(framework=framework, top=dump({"env": {"A_VALUE": escaped(word)}}))
    path = Path(f"my exp {word} .yaml")
    path.write_text(f"extends: exp.yaml\n{dump(escaped({'exp_name': word, 'workspace': f'out {word}'}))}")
    found = load_experiment(path, environ={})
    job = Job(experiment=found, image=f"image {word}", run_dir=found.run_dir, engine_args=(f"--cpus={word}",))
    recorded = replace(job, record=found.run_dir / "RUN-ID")
    made = (*container.dry_run(recorded, {"NCCL_X": word}), *direct.dry_run(job, {"NCCL_X": word}))
    expected = [words(command) for _, command in made]
    assert f"--workdir={Path.cwd()}/out {word}/amd/root/{word}" in expected[0]
    assert f"A_VALUE={word}" in expected[-1]
    os.environ["NCCL_X"] = word
    given = ("--config", path, f"--image=image {word}", f"--engine-arg=--cpus={word}", "--dry-run")
    printed = [
        shlex.split(done.out.partition("\n\n# file: ")[0], comments=True)
        for done in (primus("run", *given, "--launcher=container"), primus("run", *given, "--launcher=direct"))
    ]
    names = [next(word for word in line if word.startswith("--name=")) for line in (printed[0], expected[0])]
    printed[0][printed[0].index(names[0])] = names[1]  # each container's name is its own
    assert printed == [[word for command in expected[:-1] for word in command], expected[-1]]


def words(command: Command) -> list[str]:
    """What a shell makes of the printed command; and that it is the command."""
    split = shlex.split(str(command))
    assert split[-len(command.argv) :] == list(command.argv)
    return split


@pytest.mark.parametrize("word", [*NASTY, *MULTILINE, "", "${", "$${", "$${X}"], ids=ascii)
def test_any_text_reaches_the_backend_unchanged(experiment: Experiment, write: Write, word: str) -> None:
    titan = experiment(dump(escaped({"job": {"description": word}, "checkpoint": {"exclude_from_loading": [word]}})))
    found = load_experiment(titan, environ={})
    assert found.args == {"job": {"description": word}, "checkpoint": {"exclude_from_loading": [word]}}
    again = load_experiment(write("resolved.yaml", resolved_yaml(found)), environ={})
    assert (again.args, resolved_yaml(again)) == (found.args, resolved_yaml(found))
    toml = files(Job(experiment=found, image="i", run_dir=Path("/run")))[Path("/run/torchtitan.toml")]
    if sys.version_info >= (3, 11):
        import tomllib

        assert fill(tomllib.loads(toml), {})["job"] == {"description": word, "dump_folder": "/run"}

    found = load_experiment(experiment(dump(escaped({"run_name": word})), framework="maxtext"), environ={})
    yaml = files(Job(experiment=found, image="i", run_dir=Path("/run")))[Path("/run/maxtext.yaml")]
    read = untyped(parse(yaml, file="", layer=""))
    assert fill(read, {}) == {"run_name": word, "base_output_directory": "/run", "jax_cache_dir": "/run/jax_cache"}


def files(job: Job) -> dict[Path, str]:
    return dict(direct.command(job, Node(), {}).files)


@pytest.mark.parametrize("key", ["exp_name", "work_group", "user_name", "workspace"])
@pytest.mark.parametrize("character", ["\n", "\t", "\x07", "\x7f"], ids=ascii)
def test_a_name_holds_no_control_character(
    experiment: Experiment, write: Write, primus: Primus, key: str, character: str
) -> None:
    experiment()
    path = write("top.yaml", f"extends: exp.yaml\n{dump({key: f'a{character}b'})}")
    done = primus("config", "check", path)
    assert done.code == 2
    assert re.search(f"{key}: .* cannot hold a control character", done.err)


def test_files_are_written_whole_and_only_when_they_change(tmp_path: Path) -> None:
    path = tmp_path / "a b" / "é.yaml"
    command = Command(argv=("true",), files={path: "é\n"})
    command.write()
    assert path.read_bytes() == "é\n".encode()
    before = path.stat().st_ino
    command.write()
    assert path.stat().st_ino == before
    path.write_bytes(b"\xff\xfe")  # what a previous run left need not be text
    command.write()
    assert path.read_bytes() == "é\n".encode()
    assert [item.name for item in path.parent.iterdir()] == ["é.yaml"]
