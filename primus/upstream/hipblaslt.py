"""Upstream's PRIMUS_HIPBLASLT_TUNING, its _STAGE, and TE_HIPBLASLT_TUNING_*: what each stage is here."""

from __future__ import annotations

from primus.upstream.options import Out, is_on

SWITCH, STAGE, OVERRIDE = "PRIMUS_HIPBLASLT_TUNING", "PRIMUS_HIPBLASLT_TUNING_STAGE", "HIPBLASLT_TUNING_OVERRIDE_FILE"
# Stage 0: Transformer Engine tries kernels while it trains, with these where the user has none (upstream's
# prepare_experiment.sh). The second number is of candidates, the first of times each is measured.
ONLINE = {"TE_HIPBLASLT_TUNING_RUN_COUNT": "10", "TE_HIPBLASLT_TUNING_ALGO_COUNT": "50"}


def say(out: Out) -> None:
    """Add the words for what the variables ask for, or the reason why there are none."""
    if not is_on(out.environ.get(SWITCH, "")):
        return
    stage = out.environ.get(STAGE, "").strip() or "0"
    if is_on(out.environ.get("PRIMUS_DETERMINISTIC", "")):
        out.note(f"{SWITCH} is left out: PRIMUS_DETERMINISTIC is on, as upstream has it")
    elif stage == "0":
        out.words += [f"--env={name}={out.environ.get(name) or value}" for name, value in ONLINE.items()]
    elif stage == "1":
        out.words.append("--hipblaslt-dump")
    elif stage == "2":
        out.refuse(f"{STAGE}=2", "tuning is a command of its own", "run primus tune hipblaslt tune RUN")
    elif stage != "3":
        out.refuse(f"{STAGE}={stage}", "is no stage", "write 0, 1, 2 or 3")
    elif not out.environ.get(OVERRIDE):
        out.refuse(f"{STAGE}=3", f"{OVERRIDE} is not set", "or run primus tune hipblaslt use RESULT --config FILE")
