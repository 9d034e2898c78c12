"""The options of `primus run` that are Slurm's."""

from __future__ import annotations

from typing import Any

import click

from primus.cli.options import stack


def _text(name: str, metavar: str, help: str) -> Any:
    return click.option(f"--{name}", metavar=metavar, envvar=f"PRIMUS_{name.upper()}", show_envvar=True, help=help)


STEP = stack(
    _text("partition", "NAME", "Slurm's, as are all that follow."),
    _text("account", "NAME", "Whom the job is charged to."),
    _text("qos", "NAME", "Quality of service."),
    _text("time", "TIME", "Time limit: minutes, or [days-]hours:minutes:seconds."),
    _text("reservation", "NAME", "Use a reservation's nodes."),
    click.option("--nodelist", metavar="HOSTS", help="Use these nodes."),
)
SLURM = stack(
    STEP,
    click.option("--dependency", metavar="LIST", help="Start when these jobs are so far, e.g. afterok:1234."),
    click.option("--job-name", metavar="NAME", help="[default: the experiment's exp_name]"),
    click.option("--signal", metavar="SIG[@SECONDS]", help="Have the training sent a signal before the time limit."),
    click.option("--cpus-per-task", type=click.IntRange(1), help="CPUs on each node."),
    click.option(
        "--exclusive/--no-exclusive",
        default=None,
        help="Whole nodes, with all their CPUs and memory.  [default: for GPUs, unless --gpus-per-node says how many]",
    ),
    click.option("--array", metavar="IDS[%N]", help="One job for each number, which is ${SLURM_ARRAY_TASK_ID} in it."),
    click.option(
        "--requeue",
        type=click.IntRange(0),
        default=0,
        metavar="N",
        help="After a failure, go on from the last checkpoint, up to N times.  [default: 0]",
    ),
    click.option("--wait", is_flag=True, help="Run in the foreground (srun) instead of submitting (sbatch)."),
    click.option("--sbatch-arg", "sbatch_args", multiple=True, metavar="ARG", help="Another option of sbatch's."),
    click.option(
        "--sbatch-omit", multiple=True, metavar="NAME", help="Leave a directive out that the site refuses: mem, qos ..."
    ),
)
NAMES = (
    *("partition", "account", "qos", "time", "reservation", "nodelist", "dependency", "job_name", "signal"),
    *("cpus_per_task", "exclusive", "array", "requeue", "wait", "sbatch_args", "sbatch_omit"),
)
