"""This machine's place in the job: sysfs, the visible devices and the variables of a multi-node run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from primus.errors import ConfigError
from primus.node import DEFAULT_PORT, Node, gfx_targets

Topology = Callable[..., Path]


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    """A KFD topology in which each number is a node's gfx_target_version."""

    def call(*versions: int) -> Path:
        root = tmp_path / "nodes"
        for number, version in enumerate(versions):
            (root / str(number)).mkdir(parents=True)
            text = f"cpu_cores_count 0\nsimd_count 1216\ngfx_target_version {version}\nvendor_id 4098\n"
            (root / str(number) / "properties").write_text(text)
        return root

    return call


def detect(
    environ: Mapping[str, str],
    *,
    topology: Path = Path("/nowhere"),
    accelerator: str = "rocm",
    nodes: int | None = None,
    gpus: int | None = None,
) -> Node:
    return Node.detect(accelerator=accelerator, nodes=nodes, gpus=gpus, environ=environ, topology=topology)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (90402, "gfx942"),
        (90500, "gfx950"),
        (90010, "gfx90a"),
        (90008, "gfx908"),
        (90006, "gfx906"),
        (110000, "gfx1100"),
        (120001, "gfx1201"),
        (100300, "gfx1030"),
        (91011, "gfx9ab"),  # none yet: minor and stepping are both hexadecimal
    ],
)
def test_the_architecture_is_decoded(topology: Topology, version: int, expected: str) -> None:
    assert gfx_targets(topology(0, version)) == (expected,)


def test_gpus_come_in_the_drivers_order(topology: Topology) -> None:
    assert gfx_targets(topology(0, *[90402] * 10, 90500)) == ("gfx942",) * 10 + ("gfx950",)


def test_no_driver_means_no_gpu() -> None:
    assert gfx_targets(Path("/nowhere")) == ()


@pytest.mark.parametrize(
    ("environ", "flag", "expected"),
    [
        ({}, None, 4),
        ({"ROCR_VISIBLE_DEVICES": "0,2"}, None, 2),
        ({"HIP_VISIBLE_DEVICES": "1"}, None, 1),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2"}, None, 3),
        ({"HIP_VISIBLE_DEVICES": ""}, None, 4),
        ({"ROCR_VISIBLE_DEVICES": "0,1,2", "HIP_VISIBLE_DEVICES": "0,1"}, None, 2),
        ({"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0,1"}, None, 1),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0,1"}, None, 1),
        ({"GPUS_PER_NODE": "2"}, None, 2),
        ({"GPUS_PER_NODE": "2", "HIP_VISIBLE_DEVICES": "1"}, None, 2),
        ({"GPUS_PER_NODE": "2"}, 3, 3),
        ({"HIP_VISIBLE_DEVICES": "1"}, 3, 3),
    ],
    ids=str,
)
def test_the_gpus_are_the_flags_then_the_variables_then_the_visible(
    topology: Topology, environ: Mapping[str, str], flag: int | None, expected: int
) -> None:
    node = detect(environ, topology=topology(0, 0, *[90402] * 4), gpus=flag)
    assert (node.gpus, node.gfx) == (expected, "gfx942")


def test_a_machine_without_gpus_shows_a_dry_run_of_eight() -> None:
    assert detect({}) == Node(gpus=8)


def test_a_cpu_node_has_one_process_and_no_architecture(topology: Topology) -> None:
    found = detect({}, accelerator="cpu", topology=topology(90402))
    assert (found.gpus, found.gfx) == (1, "")
    assert detect({"GPUS_PER_NODE": "2"}, accelerator="cpu").gpus == 2


MULTI = {"NNODES": "4", "NODE_RANK": "3", "MASTER_ADDR": "node-0"}


@pytest.mark.parametrize(
    ("environ", "nodes", "expected"),
    [
        ({}, None, Node(gpus=8)),
        (MULTI, None, Node(gpus=8, nodes=4, rank=3, master_addr="node-0")),
        ({**MULTI, "MASTER_PORT": "1234"}, 8, Node(gpus=8, nodes=8, rank=3, master_addr="node-0", master_port=1234)),
        ({"NNODES": " 1 "}, None, Node(gpus=8)),
        ({"NNODES": "", "NODE_RANK": "", "MASTER_PORT": "", "MASTER_ADDR": ""}, None, Node(gpus=8)),
    ],
    ids=["one node", "variables", "a flag beats them", "white space", "empty"],
)
def test_a_place_among_nodes(environ: Mapping[str, str], nodes: int | None, expected: Node) -> None:
    assert detect(environ, nodes=nodes) == expected


@pytest.mark.parametrize(
    ("environ", "nodes", "expected"),
    [
        ({"NODE_RANK": "1"}, None, r"NODE_RANK is 1 but the job has 1 node\(s\)"),
        ({"NODE_RANK": "2", "NNODES": "2", "MASTER_ADDR": "a"}, None, "NODE_RANK is 2 but the job has 2"),
        ({"NNODES": "2"}, None, "2 nodes need NODE_RANK"),
        ({}, 2, "2 nodes need NODE_RANK"),
        ({"NODE_RANK": "0"}, 2, "2 nodes need MASTER_ADDR"),
        ({"NNODES": "x"}, None, "NNODES is 'x', which is no number from 1"),
        ({"NNODES": "0"}, None, "NNODES is '0'"),
        ({"NNODES": "-1"}, None, "NNODES is '-1'"),
        ({"NNODES": "1.0"}, None, "NNODES is '1.0'"),
        ({"NNODES": "9" * 5000}, None, "NNODES is '99999999999999999999'"),
        ({"NNODES": "\u0663"}, None, "NNODES is"),
        ({"NODE_RANK": "a"}, None, "NODE_RANK is 'a', which is no number from 0"),
        ({"MASTER_PORT": "65536"}, None, "MASTER_PORT is '65536', which is no number from 1 to 65535"),
        ({"GPUS_PER_NODE": "0"}, None, "GPUS_PER_NODE is '0'"),
    ],
    ids=lambda item: ascii(item)[:40],
)
def test_numbers_that_do_not_fit_are_refused(environ: Mapping[str, str], nodes: int | None, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        detect(environ, nodes=nodes)


def test_the_port_is_below_the_ephemeral_range() -> None:
    assert DEFAULT_PORT < 32768


def test_a_gpu_of_another_job_does_not_count(topology: Topology) -> None:
    """Its properties cannot be read: the scheduler keeps this job off it."""
    folder = topology(90402, 90402)
    unreadable = folder / "0" / "properties"
    unreadable.unlink()
    unreadable.mkdir()  # as unreadable for root as a forbidden file is for others
    assert gfx_targets(folder) == ("gfx942",)
