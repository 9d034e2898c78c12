"""An experiment's values, flat and as text: what the config commands show."""

from __future__ import annotations

import json
from typing import Any

from primus.experiment import Experiment, flat
from primus.experiment.schema import schema


def values(experiment: Experiment) -> dict[str, Any]:
    """Everything that was said, by dotted key: the head of the file, env.NAME, and the backend's arguments."""
    top = {
        name: getattr(experiment, name)
        for name in ("work_group", "user_name", "exp_name", "workspace", "framework", "accelerator")
    }
    return {
        **top,
        **{f"env.{name}": value for name, value in experiment.env.items()},
        **flat(experiment.args, schema(experiment.framework)),
    }


def text(value: Any) -> str:
    """The value as one line."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
