"""What MaxText prints of a step: maxtext/common/metric_logger.py. The learning rate is in its metrics_file only."""

from primus.metrics import NUMBER, Printed

PRINTED = Printed(
    step=r"\bcompleted (?:profiler activation/deactivation )?step: (\d+)",
    fields={
        "loss": rf", loss: {NUMBER}",
        "seconds": rf"\bseconds: {NUMBER}",
        "tflops_per_device": rf"\bTFLOP/s/device: {NUMBER}",
        "tokens_per_second_per_device": rf"\bTokens/s/device: {NUMBER}",
    },
    compiling=r"not restoring checkpoint|restoring from this run's directory|Memstats: After params initialized",
    first=0,
    steps="steps",
)
