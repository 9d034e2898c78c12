"""A ROCm launch as far as a machine without a GPU goes: stand-in device nodes reach the container."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from primus.experiment import load_experiment
from primus.image.names import reference
from primus.job import Job
from primus.launchers import container
from primus.launchers.host import Host
from primus.launchers.supervise import Container, supervise
from tests.launch.support import ROOT

MI300X = ROOT / "examples/torchtitan/configs/MI300X/llama3.1_8B-BF16-pretrain.yaml"
GROUPS = {"/dev/kfd": 993, "/dev/dri/renderD128": 109}  # names and numbers differ between distributions


@pytest.fixture
def devices() -> Iterator[None]:
    """/dev/kfd and /dev/dri/renderD128 as other names of /dev/null, for the time of the test."""
    if os.getuid() != 0:
        pytest.skip("root: device nodes must be made")
    if Path("/dev/kfd").exists() or Path("/dev/dri").exists():
        pytest.skip("devices: this machine has its own")
    Path("/dev/dri").mkdir()
    for name, group in GROUPS.items():
        os.mknod(name, stat.S_IFCHR | 0o660, os.makedev(1, 3))
        os.chown(name, 0, group)
        Path(name).chmod(0o660)  # whatever the umask
    yield
    for name in GROUPS:
        Path(name).unlink()
    Path("/dev/dri").rmdir()


def run_on_devices(run_dir: str) -> int:
    """What the launcher of the user 4242 would start for a ROCm experiment, with a look around as the training."""
    job = Job(
        experiment=load_experiment(MI300X),
        image=reference("base-torch", "cpu"),
        run_dir=Path(run_dir),
        dev=ROOT / "primus",
    )
    name = container.container_name(job)
    made = container.command(job, Host.look("docker")._replace(uid=4242, gid=4242), {}, name)
    made.write()
    # base-torch is no backend's image, as a launch from outside would expect.
    look = (
        "id -G; : < /dev/kfd && : < /dev/dri/renderD128 && echo open; ulimit -n; "
        'env -u PRIMUS_RUN_DIR_LOCKED python -m primus run --config="$0" --launcher=direct --run-dir=.'
    )
    inner = container.inner_argv(job)
    argv = (*made.argv[: -len(inner)], "sh", "-c", look, f"{run_dir}/experiment.yaml")
    return supervise(type(made)(argv=argv, files=made.files), Container("docker", name), secrets={}, grace=3)


def test_devices_and_their_groups_reach_the_container(
    image: Callable[[str], str], devices: None, run_dir: Path
) -> None:
    image("base-torch")
    program = "import sys; from tests.launch.test_devices import run_on_devices; sys.exit(run_on_devices(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(run_dir)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    groups, opened, files, *_ = [*done.stdout.splitlines(), "", "", ""]
    assert groups.split() == ["4242", "109", "993"], done.stderr
    assert opened == "open"
    assert int(files) >= 1024
    # The direct launcher finds the devices, may open them, and then sees that no GPU is behind them.
    assert done.returncode == 4
    assert "the driver shows no GPU" in done.stderr
