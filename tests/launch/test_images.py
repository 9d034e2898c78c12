"""primus image, against the engine."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.launch.support import ROOT, primus


def test_list_and_inspect(image: Callable[[str], str]) -> None:
    name = image("torchtitan")
    rows = json.loads(primus("image", "list", "--format=json").output)
    (row,) = [row for row in rows if row["image"] == name]
    assert (row["framework"], row["accelerator"]) == ("torchtitan", "cpu")
    found = json.loads(primus("image", "inspect", "torchtitan", "--accelerator=cpu").output)
    assert found["image"] == name
    assert found["manifest"]["packages"]["torchtitan"] == "0.2.2"
    assert found["labels"]["io.primus.framework"] == found["manifest"]["framework"] == "torchtitan"


def test_build_prints_its_plan_without_an_engine(docker: str) -> None:
    run = primus("image", "build", "--print", "maxtext", "--accelerator=cpu", env={"DOCKER_HOST": "unix:///no/engine"})
    plan = json.loads(run.output)
    assert plan["target"]["maxtext"]["tags"] == ["primus-maxtext:0.1.0-cpu"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("build", "torchtitn"), 2, "did you mean torchtitan?"),
        (("inspect", "torchtitn"), 3, "did you mean torchtitan?"),
        (("inspect", "maxtext", "--registry=localhost:1/none"), 3, "docker buildx bake maxtext"),
        (("build", "--file=no.hcl"), 2, "no.hcl: no such file"),
    ],
    ids=["unknown target", "unknown image", "not built", "no file"],
)
def test_what_is_not_there_is_said(docker: str, words: tuple[str, ...], code: int, said: str) -> None:
    run = primus("image", *words)
    assert run.code == code, run.output
    assert said in run.output
    assert "Traceback" not in run.output


def test_no_engine_is_said(docker: str) -> None:
    run = primus("image", "list", env={"DOCKER_HOST": f"unix://{ROOT}/no.sock"})
    assert run.code == 4
    assert "no docker engine answers" in run.output
