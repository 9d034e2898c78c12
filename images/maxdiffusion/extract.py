"""MaxDiffusion's arguments: the keys of the two files that its trainers start from, WAN's before FLUX's.

The files have no types beside their values, no choices, and keys that neither trainer reads (renamed.json has those):
what else is known is from reading the trainers, and stands in FACTS.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import ast
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tables
import yaml

BASES = {"wan": "base_wan_1_3b.yml", "flux": "base_flux_dev.yml"}
# In both files, and read by one trainer.
ONLY = {
    **dict.fromkeys(("do_classifier_free_guidance", "lora_config", "mask_padding_tokens", "negative_prompt"), "wan"),
    **dict.fromkeys(("from_pt", "prompt_2", "split_head_dim"), "flux"),
}
COMPUTED = {"checkpoint_dir"}  # in WAN's file, and overwritten whatever it says
DTYPES = {"choices": ["bfloat16", "float16", "float32"]}
OPTIONAL = {"type": "int | null", "default": None}  # read if there is one; commented out in the files
FACTS: dict[str, dict[str, Any]] = {
    "activations_dtype": DTYPES,
    "weights_dtype": DTYPES,
    "adam_weight_decay": {"type": "float", "default": 0.0},  # written 0, and 1 below
    "attention": {"choices": ["dot_product", "flash", "cudnn_flash_te", "ring"]},
    "dataset_type": {"choices": ["tf", "tfrecord", "hf", "grain", "synthetic"]},
    "flux_name": {"choices": ["flux-dev", "flux-schnell"]},
    "hardware": {"choices": ["gpu"]},  # what our images are for, whatever the accelerator
    "model_name": {"choices": ["wan2.1"]},  # it trains no other
    "precision": {"choices": ["DEFAULT", "HIGH", "HIGHEST"]},
    "profiler": {"choices": ["", "nsys", "xplane"]},
    "remat_policy": {
        "choices": [
            *("NONE", "FULL", "MATMUL_WITHOUT_BATCH", "OFFLOAD_MATMUL_WITHOUT_BATCH", "CUSTOM"),
            "HIDDEN_STATE_WITH_OFFLOAD",
        ]
    },
    "synthetic_num_samples": OPTIONAL,
    **{f"synthetic_override_{name}": OPTIONAL | {"family": "wan"} for name in ("height", "num_frames", "width")},
}


def table(known: dict[str, Any], source: Path | None) -> dict[str, Any]:
    """The version is its commit, which no file of it knows: the table's own, or --commit."""
    package = source / "src" / "maxdiffusion" if source else installed()
    said = {
        family: yaml.safe_load((package / "configs" / name).read_text("utf-8-sig")) for family, name in BASES.items()
    }
    renamed = Path(__file__).parents[2] / "primus" / "backends" / "maxdiffusion" / "renamed.json"
    left_out = json.loads(renamed.read_text(encoding="utf-8"))
    keys = dict.fromkeys(key for values in said.values() for key in values)
    computed = assigned(package / "pyconfig.py") - keys.keys() | COMPUTED
    rows = []
    for key in keys:
        if key not in left_out and key not in computed:
            families = [family for family in BASES if key in said[family] and ONLY.get(key) in (None, family)]
            value = said[families[0]][key]
            more = {"family": families[0]} if len(families) == 1 else {}
            rows.append(tables.row(key, [type(value).__name__], value, **more))
    rows = tables.changed(rows, FACTS)
    return {"version": known["version"], "computed": sorted(computed), "arguments": rows}


def installed() -> Path:
    spec = find_spec("maxdiffusion")
    if spec is None or spec.submodule_search_locations is None:
        raise SystemExit("maxdiffusion is not installed; --source DIR is its repository")
    return Path(spec.submodule_search_locations[0])


def assigned(path: Path) -> set[str]:
    """The keys that MaxDiffusion's own code sets: raw_keys["NAME"] = ..."""
    return {
        target.slice.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assign)
        for part in node.targets
        for target in (part.elts if isinstance(part, ast.Tuple) else [part])
        if isinstance(target, ast.Subscript)
        and isinstance(target.value, ast.Name)
        and target.value.id == "raw_keys"
        and isinstance(target.slice, ast.Constant)
        and isinstance(target.slice.value, str)
    }
