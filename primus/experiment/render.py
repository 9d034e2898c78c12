"""An experiment as text: the resolved file that nodes read, and what `primus config show` prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

from primus.experiment.substitute import escaped
from primus.experiment.types import STAGES, Experiment, Provenance
from primus.experiment.yaml import dump


def resolved_yaml(experiment: Experiment) -> str:
    """The experiment as a file of the same grammar with nothing left to resolve; secrets stay `${NAME}`.

    A comment at its head names what was let through although the backend is not known to take it.
    """
    module = next(name for name, stage in STAGES.items() if stage == experiment.stage)
    document: dict[str, Any] = {
        "work_group": experiment.work_group,
        "user_name": experiment.user_name,
        "exp_name": experiment.exp_name,
        "workspace": experiment.workspace,
        "accelerator": experiment.accelerator,
        "env": dict(experiment.env),
        "modules": {module: {"framework": experiment.framework, "overrides": dict(experiment.args)}},
    }
    head = [f"# --allow-unknown {json.dumps(key)}: not known to {experiment.framework}\n" for key in experiment.unknown]
    return "".join(head) + dump(escaped(document))


def as_json(experiment: Experiment, *, image: str, origins: bool) -> str:
    """One JSON object; with `origins`, also dotted key -> layer, file, line, shadowed."""
    document: dict[str, Any] = {
        "work_group": experiment.work_group,
        "user_name": experiment.user_name,
        "exp_name": experiment.exp_name,
        "workspace": experiment.workspace,
        "framework": experiment.framework,
        "stage": experiment.stage,
        "accelerator": experiment.accelerator,
        "image": image,
        "args": experiment.args,
        "env": experiment.env,
    }
    if experiment.unknown:
        document["unknown"] = list(experiment.unknown)
    if origins:
        document["origins"] = {key: _provenance(value) for key, value in experiment.origins.items()}
    return json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    """JSON has no infinity and no NaN: they become YAML's words for them."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return dump(value).split()[0] if isinstance(value, float) and not isfinite(value) else value


def _provenance(value: Provenance) -> dict[str, Any]:
    return {
        "layer": value.origin.layer,
        "file": value.origin.file,
        "line": value.origin.line,
        "shadowed": [
            {"value": shadowed, "layer": at.layer, "file": at.file, "line": at.line} for shadowed, at in value.shadowed
        ],
    }
