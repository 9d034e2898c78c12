"""What Megatron prints of a step: megatron/training/training.py training_log. Rates are those since its last line."""

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
        "samples": r"\bglobal batch size: +(\d+)",
    },
    before={"memory_mb": rf"\bmemory \(MB\) \|.* max reserved: {NUMBER}"},
    sequence="seq_length",
    last_node=True,
)
