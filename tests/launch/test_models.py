"""The models that backends have by name: models.json says what the pinned backend's source says.

PRIMUS_UPDATE_GOLDEN=1 writes the tables anew.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

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
    models[name] = {key: facts(dataclasses.asdict(value)) for key, value in flavors.items() if "debug" not in key}
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
