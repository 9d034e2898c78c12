"""What Megatron Bridge prints of a step: megatron/bridge/training/utils/train_utils.py training_log.

It prints samples, of which those of a fine-tuning have no length in common: no tokens/s follow from that.
"""

from primus.metrics import NUMBER, Printed

PRINTED = Printed(
    step=r"\biteration +(\d+)/ *\d+ \|",
    fields={
        "steps": r"\biteration +\d+/ *(\d+) \|",
        "loss": rf"\blm loss: {NUMBER}",
        "learning_rate": rf"\blearning rate: {NUMBER}",
        "grad_norm": rf"\bgrad norm: {NUMBER}",
        "milliseconds": rf"\belapsed time per iteration \(ms\): {NUMBER}",
        "tflops_per_device": rf"\bthroughput per GPU \(TFLOP/s/GPU\): {NUMBER}",
    },
    before={
        "tflops_per_device": rf"\bGPU utilization: {NUMBER}MODEL_TFLOP/s/GPU",
        "memory_gb": rf"\bmem-max-reserved-gigabytes: {NUMBER}",
    },
    last_node=True,
)
