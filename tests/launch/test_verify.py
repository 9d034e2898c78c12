"""primus image verify on a real image: all is well; and each planted fault is found."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.launch.support import primus

FAULTS = """\
FROM {image}
RUN cd /opt/venv/lib/python3*/site-packages && echo '#' >> click/core.py && rm click/utils.py && touch evil.py
RUN echo x >> /usr/bin/gzip
LABEL io.primus.accelerator=rocm
"""


@pytest.fixture
def damaged(image: Callable[[str], str]) -> Iterator[str]:
    name = "primus-verify-test:1-cpu"
    words = ("docker", "buildx", "build", "--quiet", "--load", f"--tag={name}", "-")
    subprocess.run(words, input=FAULTS.format(image=image("torchtitan")).encode(), capture_output=True, check=True)
    yield name
    subprocess.run(("docker", "rmi", name), capture_output=True, check=False)


def test_a_healthy_image_and_one_with_faults(image: Callable[[str], str], damaged: str) -> None:
    healthy = primus("image", "verify", f"--image={image('torchtitan')}", "--format=json")
    assert healthy.code == 0, healthy.output
    found = primus("image", "verify", f"--image={damaged}", "--format=json")
    assert found.code == 3
    text = found.output[found.output.index("{") : found.output.rindex("}") + 1]
    checks = {one["name"]: one for one in json.loads(text)[damaged]}
    failed = {name for name, one in checks.items() if one["state"] == "fail"}
    assert failed == {"labels", "files", "debian"}
    assert "io.primus.accelerator is 'rocm'" in checks["labels"]["said"]
    for said in ("click/core.py was changed", "click/utils.py is missing", "evil.py belongs to no package"):
        assert said in checks["files"]["said"]
    assert "/bin/gzip was changed" in checks["debian"]["said"]
