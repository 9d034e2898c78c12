"""All checks of one machine."""

from __future__ import annotations

import re

from primus.doctor import engine, gpu, limits, network, services
from primus.doctor.machine import FAIL, OK, Asked, Machine, Row
from primus.doctor.network import Place
from primus.errors import LaunchError
from primus.launchers import task


def rows(machine: Machine, asked: Asked) -> list[Row]:
    """Every row, in the order in which a run needs the things."""
    place, wrong = _place(machine, asked)
    engine_rows, image = engine.rows(machine, asked)
    registry_rows, answer = services.registry(machine, asked)
    return [
        *gpu.rows(machine, asked, image),
        *engine_rows,
        *limits.rows(machine, asked),
        *wrong,
        *network.rows(machine, place),
        *services.slurm(machine),
        *registry_rows,
        *services.huggingface(machine),
        *services.clock(machine, answer),
    ]


def _place(machine: Machine, asked: Asked) -> tuple[Place, list[Row]]:
    """Where the nodes would meet: as srun says to one of its tasks, else as the variables do."""
    environ = dict(machine.environ)
    wrong = []
    if environ.get("SLURM_PROCID") and environ.get("SLURM_STEP_ID"):
        try:
            environ |= task.place(environ, lambda host: _address(machine, host))
            at = f"task of node {environ['NODE_RANK']} of {environ['NNODES']}"
            wrong = [Row("step", OK, at)]
        except LaunchError as error:
            (problem,) = error.problems
            wrong = [Row("step", FAIL, problem.message.removeprefix("--slurm-task: "), problem.hint)]
    numbers = {
        name: int(text)
        for name in ("NNODES", "NODE_RANK", "MASTER_PORT")
        if (text := environ.get(name, "")).isdecimal()
    }
    nodes = max(asked.nodes, numbers.get("NNODES", 1))
    place = Place(nodes, numbers.get("NODE_RANK", 0), environ.get("MASTER_ADDR", ""), numbers.get("MASTER_PORT", 0))
    return place, wrong


def _address(machine: Machine, host: str) -> str:
    """The node's name where it resolves, else the address that Slurm has for it, as a task of the launcher does."""
    if machine.resolve(host):
        return host
    found = re.search(r"\bNodeAddr=(\S+)", machine.say("scontrol", "show", "node", host, "--oneliner").out)
    return found[1] if found else host
