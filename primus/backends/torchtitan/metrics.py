"""What TorchTitan prints of a step: components/metrics.py MetricsProcessor.log. TensorBoard has the learning rate."""

from primus.metrics import NUMBER, Printed

PRINTED = Printed(
    step=r"\bINFO - step: +(\d+) ",
    fields={
        "loss": rf"\bloss: +{NUMBER}",
        "grad_norm": rf"\bgrad_norm: +{NUMBER}",
        "memory_gib": rf"\bmemory: +{NUMBER}GiB",
        "tokens_per_second_per_device": rf"\btps: +{NUMBER}",
        "tflops_per_device": rf"\btflops: +{NUMBER}",
    },
    compiling=r"Compiling each|Compiling the loss|Training starts at step",
    steps="training.steps",
    last_node=True,  # where there is a pipeline, only its last stage knows the loss; without, all do
)
