"""Each patch on the real source: its check fails before, and passes after.

pytest tests/upstream --source maxdiffusion=DIR [--source transformer_engine=DIR]: a git directory of
AI-Hypercomputer/maxdiffusion, an unpacked wheel of transformer_engine.  Needs .venv-maxdiffusion; ten minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, source

pytestmark = pytest.mark.timeout(900)

IMAGE = ROOT / "images/maxdiffusion"
FOLDERS = {path.name: path for path in (*IMAGE.glob("patches/*"), *ROOT.glob("base/patches/*"))}
PATCHES = sorted(f"{tree}/{path.name}" for tree, folder in FOLDERS.items() for path in folder.iterdir())
T5 = Path("transformers/models/t5")
SHARDING = Path("transformer_engine/jax/sharding.py")
Checks = Callable[[str], dict[str, str]]


def pin(name: str) -> str:
    """The commit or the tree of MaxDiffusion in docker-bake.hcl."""
    lines = (ROOT / "docker-bake.hcl").read_text(encoding="utf-8").partition("maxdiffusion = {\n")[2].splitlines()
    return next(line.split('"')[1] for line in lines if line.split()[0] == name)


def lay_out(output: Path, *words: str, patches: str = "") -> Path:
    """What images/source.py makes of a source."""
    with_patches = [f"--patches={FOLDERS[patches]}"] if patches else []
    program = [sys.executable, str(ROOT / "images/source.py"), f"--output={output}", *words, *with_patches]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="session")
def trees(
    request: pytest.FixtureRequest, maxdiffusion_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Path]]:
    """Each tree before our patches and after."""
    git = source(request, "maxdiffusion")
    place = tmp_path_factory.mktemp("trees")
    commit = (f"--source={git}", f"--commit={pin('commit')}", f"--tree={pin('tree')}")
    before = {"maxdiffusion": lay_out(place / "maxdiffusion", *commit)}
    after = {"maxdiffusion": lay_out(place / "maxdiffusion-patched", *commit, patches="maxdiffusion")}

    # transformers as its wheel has it: the environment's is patched.
    (site,) = (maxdiffusion_python.parent.parent / "lib").glob("python3*/site-packages")
    wheel = place / "wheel"
    shutil.copytree(site / T5, wheel / T5, ignore=shutil.ignore_patterns("__pycache__"))
    for patch in reversed([*FOLDERS["transformers"].iterdir()]):
        subprocess.run(["git", "apply", "--reverse", patch], cwd=wheel, capture_output=True, check=False)
    before["transformers"] = wheel
    after["transformers"] = lay_out(place / "transformers-patched", f"--source={wheel}", patches="transformers")

    if any(option.startswith("transformer_engine=") for option in request.config.getoption("--source")):
        engine = place / "engine" / SHARDING
        engine.parent.mkdir(parents=True)
        shutil.copy(source(request, "transformer_engine") / SHARDING, engine)
        before["transformer_engine"] = place / "engine"
        folder = f"--source={place / 'engine'}"
        after["transformer_engine"] = lay_out(place / "engine-patched", folder, patches="transformer_engine")
    return {"before": before, "after": after}


@pytest.fixture(scope="session")
def checks(trees: dict[str, dict[str, Path]], maxdiffusion_python: Path) -> Checks:
    """`checks("before")` gives the verdict of each check without our patches, `checks("after")` with them."""
    verdicts: dict[str, dict[str, str]] = {}

    def run(when: str) -> dict[str, str]:
        if when not in verdicts:
            tree = trees[when]
            named = [patch for patch in PATCHES if patch.split("/")[0] in tree]
            words = [f"--{name.replace('_', '-')}={folder}" for name, folder in tree.items() if name != "maxdiffusion"]
            done = subprocess.run(
                [maxdiffusion_python, "-B", IMAGE / "postconditions.py", *words, *named],
                env={**os.environ, "PYTHONPATH": str(tree["maxdiffusion"] / "src")},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            lines = [line.split() for line in done.stdout.splitlines() if line.startswith(("ok ", "failed "))]
            verdicts[when] = {line[1]: line[0] for line in lines if len(line) == 2 and line[1] in PATCHES}
            assert set(verdicts[when]) == set(named), done.stdout[-3000:]
        return verdicts[when]

    return run


@pytest.mark.parametrize("patch", PATCHES)
def test_a_patch_is_needed_and_does_what_it_is_for(
    patch: str, checks: Checks, trees: dict[str, dict[str, Path]]
) -> None:
    if patch.split("/")[0] not in trees["after"]:
        pytest.skip("transformer_engine: no --source transformer_engine=DIR")
    assert (checks("before")[patch], checks("after")[patch]) == ("failed", "ok")
