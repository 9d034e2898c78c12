"""What models.json says of a backend's models is what the pinned backend says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.launch.support import ROOT

_TORCHTITAN = """
import dataclasses, json, sys, types
kernels = types.ModuleType("torchtitan.models.moe.kernels")  # Triton's, which a CPU does not have
kernels.generate_permute_indices = None
sys.modules[kernels.__name__] = kernels
from torchtitan.protocols.train_spec import get_train_spec
rows = []
for name in json.loads(sys.argv[1]):
    for flavor, args in get_train_spec(name).model_args.items():
        has = dataclasses.asdict(args)
        experts = has["moe_args"]["num_experts"] if "moe_args" in has and has.get("moe_enabled", True) else None
        rows.append({"name": name, "flavor": flavor, "layers": has["n_layers"], "heads": has["n_heads"],
                     "kv_heads": has.get("n_kv_heads"), "experts": experts})
print(json.dumps(rows))
"""
_MAXTEXT = """
import json, pathlib, sys, yaml
from importlib.util import find_spec
folder = pathlib.Path(list(find_spec("maxtext").submodule_search_locations)[0]) / "configs" / "models"
models = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(folder.glob("*.yml"))}
keys = json.loads(sys.argv[1])
print(json.dumps([{"name": name, **{key: model[key] for key in keys if key in model}}
                  for name, model in models.items() if "mesh_axes" not in model]))
"""


def said(framework: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((ROOT / f"primus/backends/{framework}/models.json").read_text("utf-8"))[
        "models"
    ]
    return rows


def answer(python: Path, program: str, argument: object) -> Any:
    words = [str(python), "-c", program, json.dumps(argument)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_torchtitan(torchtitan_python: Path) -> None:
    rows = said("torchtitan")
    assert answer(torchtitan_python, _TORCHTITAN, list(dict.fromkeys(row["name"] for row in rows))) == rows


def test_maxtext(maxtext_python: Path) -> None:
    rows = said("maxtext")
    assert (
        answer(maxtext_python, _MAXTEXT, list(dict.fromkeys(key for row in rows for key in row if key != "name")))
        == rows
    )
