"""What MaxDiffusion prints of a step: maxdiffusion/train_utils.py write_metrics_to_tensorboard. Not of the last one."""

from primus.metrics import NUMBER, Printed

PRINTED = Printed(
    step=r"\bcompleted step: (\d+),",
    fields={
        "loss": rf", loss: {NUMBER}",
        "seconds": rf"\bseconds: {NUMBER}",
        "tflops_per_device": rf"\bTFLOP/s/device: {NUMBER}",
    },
    compiling=r"^Precompiling",
    first=0,
    steps="max_train_steps",
)
