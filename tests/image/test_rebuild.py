"""A build repeats nothing, and a change to the launcher rebuilds the launcher's layers alone."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.conftest import NEED_A_SOURCE
from tests.image.conftest import copy_checkout


def built(
    checkout: Path, framework: str, settings: Mapping[str, str], sources: list[str]
) -> subprocess.CompletedProcess[str]:
    """A build that leaves no image."""
    return subprocess.run(
        ["docker", "buildx", "bake", "--progress=plain", "--set=*.output=type=cacheonly", *sources, framework],
        cwd=checkout,
        env=dict(settings),
        capture_output=True,
        text=True,
        check=False,
    )


def executed(checkout: Path, framework: str, settings: Mapping[str, str], sources: list[str]) -> set[str]:
    """The instructions that a build ran rather than took from the cache."""
    done = built(checkout, framework, settings, sources)
    assert done.returncode == 0, done.stderr
    steps = dict(re.findall(r"^#(\d+) \[[^\]]+ \d+/\d+\] ((?:RUN|COPY) .*)$", done.stderr, re.MULTILINE))
    assert steps
    return {step for number, step in steps.items() if f"\n#{number} CACHED\n" not in done.stderr}


@pytest.fixture
def sources(framework: str, request: pytest.FixtureRequest) -> list[str]:
    """Where the sources that are on no package index are, as `--source NAME=DIR` says."""
    given = [option.split("=", 1) for option in request.config.getoption("--source")]
    if framework in NEED_A_SOURCE and framework not in dict(given):
        pytest.skip(f"{framework}: no --source {framework}=DIR")
    return [f"--set=*.contexts.{name}-source={Path(path).resolve()}" for name, path in given]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return copy_checkout(tmp_path / "checkout")


def test_a_second_build_runs_nothing(
    checkout: Path, framework: str, image: str, settings: Any, sources: list[str]
) -> None:
    executed(checkout, framework, settings, sources)
    assert executed(checkout, framework, settings, sources) == set()


def test_a_change_to_the_launcher_rebuilds_no_dependency(
    checkout: Path, framework: str, image: str, settings: Any, sources: list[str]
) -> None:
    executed(checkout, framework, settings, sources)
    with (checkout / "primus/__init__.py").open("a", encoding="utf-8") as file:
        file.write(f"# {uuid4()}\n")  # not what an earlier run of this test has cached
    (checkout / "primus/__pycache__").mkdir(exist_ok=True)
    (checkout / "primus/__pycache__/x.pyc").touch()  # the build does not see these
    ran = executed(checkout, framework, settings, sources)
    assert ran
    own = r"RUN --mount=type=bind,source=primus,target=\S+ .*|COPY .*--?from=launcher\S* .*"
    assert all(re.fullmatch(own, step) for step in ran), ran


def test_a_table_that_is_not_the_backends_fails_the_build(checkout: Path, settings: Any, docker: str) -> None:
    """Tried with one backend; that each build looks is in test_files.py."""
    path = checkout / "primus/backends/torchtitan/arguments.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    row = next(row for row in table["arguments"] if row["type"] == "bool")
    right = json.dumps(row)
    row["default"] = not row["default"]
    path.write_text(path.read_text(encoding="utf-8").replace(right, json.dumps(row)), encoding="utf-8")
    done = built(checkout, "torchtitan", settings, [])
    assert done.returncode != 0
    said = f"torchtitan: {row['name']}: default: {json.dumps(row['default'])} must be {json.dumps(not row['default'])}"
    assert said in done.stderr
    assert f"arguments.json is not what torchtitan {table['version']} takes" in done.stderr
