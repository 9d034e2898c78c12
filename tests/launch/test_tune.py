"""hipBLASLt's tuning, with a stand-in for its tool, in a container to the end: stopped, gone on with, used, refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from primus.record import records
from tests.launch.support import EXAMPLES, ROOT, primus
from tests.unit.test_tune import line

pytestmark = pytest.mark.timeout(240)

CODE = f"--mount={ROOT}/primus:/opt/primus/primus:ro"  # also where the image is older


def test_tuning_goes_on_after_a_stop_and_is_used(tmp_path: Path, run_dir: Path, image: Callable[[str], str]) -> None:
    image("torchtitan")
    log, where = tmp_path / "node0-1.log", tmp_path / "results, all"
    log.write_text(f"{line(512)}\n{line(512)}\n{line(4242)}\n")
    where.mkdir()
    words = ["tune", "hipblaslt", "tune", str(log), "--framework=torchtitan", "--accelerator=cpu", CODE]
    words += [f"--bench={ROOT / 'tests/hipblaslt_bench.py'}", f"--results={where}"]
    # The second product waits while this file is there.
    (where / "hold").touch()
    stopped = subprocess.Popen([sys.executable, "-m", "primus", *words], cwd=ROOT)
    while not list(where.glob("*/products/*.txt")):
        assert stopped.poll() is None
        time.sleep(0.1)
    stopped.send_signal(signal.SIGINT)
    assert stopped.wait(60) in (130, 143)
    (where / "hold").unlink()
    (first,) = where.glob("*/products/*.txt")
    written = first.stat().st_mtime_ns
    result = first.parent.parent
    assert json.loads((result / "about.json").read_text())["tuned"] == 1
    done = primus(*words)
    assert done.code == 0, done.output
    assert "2 products, 1 of them tuned before" in done.output
    assert first.stat().st_mtime_ns == written
    assert str(result) in done.output.splitlines()
    rows = [text for text in (result / "tuning.txt").read_text().splitlines() if text.startswith("N,N,")]
    assert len(rows) == 2
    assert json.loads((result / "about.json").read_text())["tuned"] == 2
    assert (result / "tuning.txt").stat().st_uid == os.getuid()

    train = ["--accelerator=cpu", CODE, f"--config={EXAMPLES['torchtitan']}", f"--run-dir={run_dir}"]
    run = primus("tune", "hipblaslt", "use", str(where), *train, "training.steps=1")
    assert run.code == 0, run.output
    assert f"hipBLASLt uses the kernels of {result}" in run.output
    (record,) = records(run_dir)
    assert record.read("run.json")["hipblaslt_tuning"] == str(result / "tuning.txt")

    said = json.loads((result / "about.json").read_text())
    (result / "about.json").write_text(json.dumps(said | {"image": "sha256:another"}))
    refused = primus("run", f"--hipblaslt-tuning={result}", *train, "training.steps=1")
    assert refused.code == 2
    assert "sha256:another" in refused.output
    assert said["image"] in refused.output
    (result / "about.json").write_text(json.dumps(said | {"library": "9.9-abc"}))
    inside = primus("run", f"--hipblaslt-tuning={result}", *train, "training.steps=1")
    assert inside.code == 2
    assert "9.9-abc" in inside.output
