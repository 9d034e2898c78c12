"""The models that backends have by name: models.json says what the pinned backend's source says.

PRIMUS_UPDATE_GOLDEN=1 writes the tables anew.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from primus import layout
from primus.experiment.schema import schema
from primus.models import megatron, memory

ROOT = Path(__file__).resolve().parents[2]
UPDATE = os.environ.get("PRIMUS_UPDATE_GOLDEN") == "1"

# The experts' Triton kernels are not needed to read dimensions, and a CPU has no Triton.
_TORCHTITAN = """
import dataclasses, json, sys
from importlib import import_module
from importlib.metadata import version
from unittest import mock
sys.modules["torchtitan.models.moe.kernels"] = mock.MagicMock()
LEFT_OUT = {"_enforced", "eos_id", "depth_init", "attn_type", "attn_mask_type", "max_batch_size", "dtype",
            "expert_parallel_comm_backend", "use_grouped_mm", "load_balance_coeff", "_debug_force_load_balance"}
def facts(value):
    return {key: facts(item) if isinstance(item, dict) else item for key, item in value.items() if key not in LEFT_OUT}
models = {}
for name in ("deepseek_v3", "gpt_oss", "llama3", "llama4", "qwen3"):
    flavors = import_module(f"torchtitan.models.{name}").get_train_spec().model_args
    kept = [key for key in flavors if "debug" not in key or key == "debugmodel"]
    models[name] = {key: facts(dataclasses.asdict(flavors[key])) for key in kept}
print(json.dumps({"version": version("torchtitan"), "models": models}))
"""

_MAXTEXT = """
import json, yaml
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
configs = Path(find_spec("maxtext").submodule_search_locations[0]) / "configs"
KEYS = '''base_emb_dim base_num_query_heads base_num_kv_heads base_num_decoder_layers base_mlp_dim base_moe_mlp_dim
 head_dim mlp_activations vocab_size logits_via_embedding normalization_layer_epsilon decoder_block num_experts
 num_experts_per_tok shared_experts first_num_dense_layers routed_scaling_factor routed_score_func routed_bias
 n_routing_groups topk_routing_group norm_topk_prob attention_type attention_bias use_qk_norm q_lora_rank kv_lora_rank
 qk_nope_head_dim qk_rope_head_dim v_head_dim rope_type rope_max_timescale rope_factor beta_fast beta_slow mscale
 max_position_embeddings original_max_position_embeddings rope_truncate rope_attention_scaling
 sliding_window_size'''.split()
BLOCKS = {"llama2", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "deepseek", "gemma", "gemma2", "gpt_oss"}
def facts(path):
    said = yaml.safe_load(path.read_text())
    return {key: float(said[key]) if key == "normalization_layer_epsilon" else said[key] for key in KEYS if key in said}
def plain(path):
    keys = yaml.safe_load(path.read_text())
    return keys.get("decoder_block") in BLOCKS and not any("multimodal" in key or "indexer" in key for key in keys)
VARIANTS = ("test", "tiny", "custom", "2dfsdp", "batchsplit")
models = {path.stem: facts(path) for path in sorted((configs / "models").glob("*.yml"))
          if plain(path) and not path.stem.endswith(VARIANTS)}
print(json.dumps({"version": version("maxtext"), "defaults": facts(configs / "base.yml"), "models": models}))
"""


@pytest.mark.parametrize(("framework", "program"), [("torchtitan", _TORCHTITAN), ("maxtext", _MAXTEXT)])
def test_the_table_of_models_is_the_backends(framework: str, program: str, request: pytest.FixtureRequest) -> None:
    python = request.getfixturevalue(f"{framework}_python")
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    table = ROOT / "primus" / "backends" / framework / "models.json"
    if UPDATE:
        models = [f"  {json.dumps(name)}: {json.dumps(said)}" for name, said in found.pop("models").items()]
        head = [f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in found.items()]
        text = "{\n" + "".join(head) + ' "models": {\n' + ",\n".join(models) + "\n }\n}\n"
        table.write_text(text, encoding="utf-8")
    assert json.loads(table.read_text(encoding="utf-8")) == json.loads(done.stdout.splitlines()[-1])


def test_the_table_of_recipes_is_bridges(megatron_bridge_python: Path) -> None:
    """What each of its recipes sets of the numbers of a run, and whose model it takes."""
    program = ROOT / "tests/launch/bridge_recipes.py"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    words: list[str | Path] = [megatron_bridge_python, "-W", "ignore", program]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    table = ROOT / "primus/backends/megatron_bridge/recipes.json"
    if UPDATE:
        head = f' "version": {json.dumps(found["version"])}'
        parts = [f' "{name}": {{\n{_rows(found[name])}\n }}' for name in ("precisions", "flavors", "recipes")]
        table.write_text("{\n" + ",\n".join((head, *parts)) + "\n}\n", encoding="utf-8")
    assert json.loads(table.read_text(encoding="utf-8")) == found


def _rows(values: dict[str, Any]) -> str:
    return ",\n".join(f"  {json.dumps(name)}: {json.dumps(said)}" for name, said in values.items())


# Megatron's own report, as its source has it: importing megatron.training asks for a GPU.
_REPORT = """
import json, sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
root = Path(find_spec("megatron").submodule_search_locations[0])
source = (root / "training" / "theoretical_memory_usage.py").read_text()
space = {}
exec(source.replace("from .utils import is_hybrid_model, print_rank_0", ""), space)
for case in json.load(sys.stdin):
    args = SimpleNamespace(**case)
    weights = space["compute_weight_and_optimizer_memory"](args)
    print(json.dumps([weights, space["compute_activation_memory"](args, None)]))
"""
_GPT = {
    **{"num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "padded_vocab_size": 51200},
    **{"seq_length": 2048, "micro_batch_size": 2, "bf16": True, "use_distributed_optimizer": True},
    **{"add_bias_linear": False, "untie_embeddings_and_output_weights": True, "ffn_hidden_size": 16384},
    **{"sequence_parallel": True, "recompute_granularity": "selective", "max_position_embeddings": 2048},
}
_LLAMA = {**_GPT, "swiglu": True, "normalization": "RMSNorm", "position_embedding_type": "rope", "hidden_dropout": 0.0}
_MOE = {**_LLAMA, "num_experts": 8, "moe_ffn_hidden_size": 14336, "moe_router_topk": 2}
_SHARED = {**_MOE, "moe_shared_expert_intermediate_size": 4096}
_MLA = {**_MOE, "multi_latent_attention": True, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_layernorm": True}
CASES: dict[str, dict[str, Any]] = {
    "one GPU": {**_LLAMA},
    "distributed optimizer": {**_LLAMA, "world": 8},
    "grouped queries": {**_LLAMA, "world": 8, "group_query_attention": True, "num_query_groups": 8},
    "tensor": {**_LLAMA, "world": 16, "tensor_model_parallel_size": 4},
    "pipeline": {**_LLAMA, "world": 32, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4},
    "experts": {**_MOE, "world": 8, "expert_model_parallel_size": 8},
    "shared experts": {
        **_MOE,
        "world": 16,
        "expert_model_parallel_size": 4,
        "moe_shared_expert_intermediate_size": 4096,
    },
    "dense first": {**_MOE, "world": 8, "expert_model_parallel_size": 8, "moe_layer_freq": "([0]*1+[1]*31)"},
    "latent attention": {
        **_MOE,
        **_MLA,
        "world": 32,
        "pipeline_model_parallel_size": 4,
        "expert_model_parallel_size": 8,
    },
    "every optimizer whole": {**_LLAMA, "world": 8, "use_distributed_optimizer": False},
}
# Activations are compared for the plain GPT of the paper: Megatron's report knows no other.
ACTIVATIONS: dict[str, dict[str, Any]] = {
    "gpt": {**_GPT, "hidden_dropout": 0.1},
    "gpt tensor": {**_GPT, "hidden_dropout": 0.1, "world": 8, "tensor_model_parallel_size": 8},
}


def reports(python: Path, cases: dict[str, dict[str, Any]]) -> dict[str, tuple[memory.Memory, list[float]]]:
    """Our estimate of each case, and Megatron's two numbers."""
    defaults = {name: row.default for name, row in schema("megatron").arguments.items()}
    ours, theirs = [], []
    for case in cases.values():
        args = defaults | case
        world = args.pop("world", 1)
        model = megatron.architecture(args)
        said = layout.Said(values=args, table=schema("megatron"), accelerator="rocm")
        spread = layout.spread("megatron", said, model, world)
        ours.append(memory.estimate(model, spread))
        known = {
            "kv_channels": model.head_dim,
            "expert_tensor_parallel_size": spread.expert_tensor,
            "world_size": world,
        }
        parts = {"data_parallel_size": spread.data, "virtual_pipeline_model_parallel_size": None}
        theirs.append({**args, **known, **parts, "moe_layer_freq": [int(moe) for moe in model.moe_layers]})
    done = subprocess.run([python, "-c", _REPORT], input=json.dumps(theirs), capture_output=True, text=True, check=True)
    return dict(zip(cases, zip(ours, map(json.loads, done.stdout.splitlines()), strict=True), strict=True))


def test_weights_and_optimizer_need_what_megatron_says(megatron_python: Path) -> None:
    for name, (ours, (weights, _)) in reports(megatron_python, CASES).items():
        assert ours.parameters + ours.gradients + ours.optimizer == pytest.approx(weights, rel=0.002), name


def test_activations_of_a_gpt_need_what_megatron_says(megatron_python: Path) -> None:
    for name, (ours, (_, activations)) in reports(megatron_python, ACTIVATIONS).items():
        assert ours.activations == pytest.approx(activations, rel=0.01), name
