"""What SpecForge prints of a step of its training: specforge/training/assembly.py _logger."""

from primus.metrics import NUMBER, Printed

PRINTED = Printed(
    step=r"\bstep (\d+): \{.*'train/loss'",
    fields={
        "loss": rf"'train/loss': {NUMBER}",
        "learning_rate": rf"'train/lr': {NUMBER}",
        "grad_norm": rf"'train/grad_norm': {NUMBER}",
        "seconds": rf"'train/perf/optimizer_step_time_s': {NUMBER}",
    },
    steps="training.max_steps",
    processes="deployment.trainer.nproc_per_node",
)
