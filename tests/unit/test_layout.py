"""The arithmetic before the queue: what cannot start is refused with its numbers, and what can is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from primus import layout
from primus.experiment import load_experiment
from primus.experiment.schema import schema

from .conftest import EXAMPLES, ROOT, Primus, Write
from .conftest import Experiment as Write_experiment

MODELS = sorted(ROOT.glob("primus/backends/*/models.json"))
MEGATRON = ("num_layers=32", "num_attention_heads=32", "hidden_size=4096", "max_position_embeddings=8192",
            "seq_length=8192", "micro_batch_size=2", "global_batch_size=256")  # fmt: skip
GQA = ("group_query_attention=true", "num_query_groups=8")
MOE = ("num_experts=64",)
TITAN = ("model.name=llama3", "model.flavor=70B", "training.seq_len=8192", "training.local_batch_size=8")
TITAN_MOE = ("model.name=deepseek_v3", "model.flavor=16B", "training.seq_len=4096", "training.local_batch_size=8")
BRIDGE = ("recipe=llama.llama3", "flavor=llama31_70b_pretrain_config")  # TP 4, PP 4, VP 5, CP 2; 512 by 1
BRIDGE_SFT = ("recipe=qwen.qwen3", "flavor=qwen3_8b_sft_config", "train.global_batch_size=128")
BRIDGE_MOE = ("recipe=qwen.qwen3_moe", "flavor=qwen3_30b_a3b_peft_config", "model.tensor_model_parallel_size=1")
MAXTEXT = ("model_name=llama2-70b", "per_device_batch_size=4", "max_target_length=4096")


def wrong(
    experiment: Write_experiment, framework: str, words: tuple[str, ...], nodes: int | None, gpus: int = 8
) -> list[str]:
    trainer = "post_trainer" if any("_peft_" in word for word in words) else "pre_trainer"
    path = experiment(framework=framework, trainer=trainer)
    found = load_experiment(path, words, environ={}, accelerator="rocm")
    return [problem.message for problem in layout.problems(found, nodes=nodes, gpus=gpus)]


def parse(words: str) -> tuple[str, ...]:
    return tuple(words.split())


@pytest.mark.parametrize(
    ("words", "nodes", "expected"),
    [
        # what starts
        ("", 1, ""),
        ("tensor_model_parallel_size=8", 1, ""),
        ("tensor_model_parallel_size=2 pipeline_model_parallel_size=2 context_parallel_size=2", 1, ""),
        ("tensor_model_parallel_size=16", 2, ""),  # more than there are query groups, which then repeat
        ("expert_model_parallel_size=8 num_experts=64", 1, ""),
        ("expert_model_parallel_size=8 expert_tensor_parallel_size=2 num_experts=64", 2, ""),
        ("global_batch_size=250 decrease_batch_size_if_needed=true eval_global_batch_size=256", 1, ""),
        ("pipeline_model_parallel_size=8 num_layers=30 decoder_first_pipeline_num_layers=3 "
         "decoder_last_pipeline_num_layers=3", 1, ""),
        ("pipeline_model_parallel_size=2 num_layers=31 account_for_loss_in_pipeline_split=true", 1, ""),
        ("pipeline_model_parallel_size=4 num_virtual_stages_per_pipeline_rank=4", 1, ""),
        ("pipeline_model_parallel_size=4 num_layers=31 hybrid_layer_pattern=M*M*", 1, ""),
        ("pipeline_model_parallel_size=5 use_checkpoint_args=true", 5, ""),
        ("tensor_model_parallel_size=3 use_checkpoint_args=true use_mp_args_from_checkpoint_args=true", 1, ""),
        ("global_batch_size=null", 1, ""),
        ("sequence_parallel=true seq_length=8191", 1, ""),  # Megatron turns it off without tensor parallelism
        # what does not
        ("tensor_model_parallel_size=16", 1, "world size 8 (1 node x 8) is not a multiple of tensor_model"),
        ("tensor_model_parallel_size=4 pipeline_model_parallel_size=4", 1, "= 16"),
        ("tensor_parallel_num_weight_shards=16", 1, "tensor_parallel_num_weight_shards: 16"),
        ("expert_model_parallel_size=16 num_experts=64", 1, "is not a multiple of expert_model_parallel_size: 16"),
        ("expert_model_parallel_size=8 expert_tensor_parallel_size=2 num_experts=64", 1, "= 16"),
        ("expert_model_parallel_size=8 pipeline_model_parallel_size=2 num_experts=64", 1, "= 16"),
        ("global_batch_size=250", 1, "global_batch_size: 250"),
        ("global_batch_size=250 decrease_batch_size_if_needed=true", 1, "global_batch_size: 250"),
        ("eval_global_batch_size=250", 1, "eval_global_batch_size: 250"),
        ("global_batch_size=null eval_global_batch_size=100", 1, "eval_global_batch_size: 100"),
        ("global_batch_size=null eval_micro_batch_size=4", 1, "global batch size 16 (one micro batch"),
        ("global_batch_size=8", 1, "x data parallel size 8 = 16"),
        ("num_experts=60 expert_model_parallel_size=8", 1, "num_experts: 60"),
        ("pipeline_model_parallel_size=4 global_batch_size=192 num_layers=32 num_virtual_stages_per_pipeline_rank=2 "
         "micro_batch_size=32", 1, "is not a multiple of micro_batch_size"),
        # what never starts, on any number of nodes
        ("tensor_model_parallel_size=3 num_attention_heads=32", None, "num_attention_heads: 32"),
        ("tensor_model_parallel_size=12 num_attention_heads=48 hidden_size=6144 group_query_attention=true "
         "num_query_groups=8", None, "neither a multiple nor a divisor"),
        ("pipeline_model_parallel_size=5", None, "num_layers: 32"),
        ("pipeline_model_parallel_size=4 num_virtual_stages_per_pipeline_rank=3", None, "= 12"),
        ("pipeline_model_parallel_size=4 num_layers_per_virtual_pipeline_stage=3", None, "= 12"),
        ("num_virtual_stages_per_pipeline_rank=2", None, "is less than 2 (with virtual stages"),
        ("pipeline_model_parallel_size=2 num_virtual_stages_per_pipeline_rank=2 overlap_p2p_comm=false", None,
         "is less than 3"),
        ("pipeline_model_parallel_size=4 decoder_first_pipeline_num_layers=7", None, "layers of the middle stages 25"),
        ("pipeline_model_parallel_size=2 decoder_first_pipeline_num_layers=15 decoder_last_pipeline_num_layers=15",
         None, "layers of the middle stages 2"),
        ("pipeline_model_parallel_size=2 account_for_loss_in_pipeline_split=true", None, "layers 33"),
        ("context_parallel_size=2 seq_length=8190", None, "seq_length: 8190"),
        ("tensor_model_parallel_size=8 sequence_parallel=true seq_length=8188", None, "seq_length: 8188"),
        ("seq_length=8194", None, "max_position_embeddings: 8192"),
        ("num_attention_heads=36", None, "hidden_size: 4096"),
    ],
)  # fmt: skip
def test_megatron(experiment: Write_experiment, words: str, nodes: int | None, expected: str) -> None:
    found = wrong(experiment, "megatron", (*MEGATRON, *GQA, *parse(words)), nodes)
    assert any(expected in text for text in found) if expected else not found, found


@pytest.mark.parametrize(
    ("base", "words", "nodes", "expected"),
    [
        (TITAN, "", 1, ""),
        (TITAN, "parallelism.tensor_parallel_degree=8", 1, ""),
        (TITAN, "parallelism.data_parallel_shard_degree=4 parallelism.data_parallel_replicate_degree=2", 1, ""),
        (TITAN, "parallelism.pipeline_parallel_degree=8", 1, ""),
        (TITAN, "parallelism.pipeline_parallel_degree=2 parallelism.pipeline_parallel_layers_per_stage=41", 1, ""),
        (TITAN, "training.global_batch_size=128", 1, ""),
        (TITAN_MOE, "parallelism.expert_parallel_degree=8", 1, ""),
        (TITAN_MOE, "parallelism.tensor_parallel_degree=4 parallelism.expert_parallel_degree=8", 1, ""),
        (TITAN, "model.flavor=mine parallelism.tensor_parallel_degree=3", 3, "training.seq_len: 8192"),
        (TITAN, "parallelism.tensor_parallel_degree=3", 1, "world size 8 (1 node x 8)"),
        (TITAN, "parallelism.data_parallel_shard_degree=4", 1, "world size 8 (1 node x 8) is not parallelism"),
        (TITAN, "parallelism.data_parallel_shard_degree=4", 2, "world size 16 (2 nodes x 8) is not parallelism"),
        (TITAN, "training.global_batch_size=100", 1, "training.global_batch_size: 100"),
        (TITAN_MOE, "parallelism.expert_parallel_degree=16", 1, "is not a multiple of parallelism.expert"),
        (TITAN_MOE, "parallelism.tensor_parallel_degree=4 parallelism.expert_parallel_degree=4 "
                    "parallelism.expert_tensor_parallel_degree=2", 1, "is not parallelism.tensor_parallel_degree: 4"),
        (TITAN_MOE, "parallelism.expert_parallel_degree=128", None, "experts 64 (of deepseek_v3 16B"),
        (TITAN, "parallelism.tensor_parallel_degree=16", None, "kv_heads 8 (of llama3 70B"),
        (TITAN, "parallelism.tensor_parallel_degree=128", None, "heads 64 (of llama3 70B"),
        (TITAN, "training.seq_len=8191", None, "training.seq_len: 8191"),
        (TITAN, "parallelism.context_parallel_degree=2 training.seq_len=8190", None, "training.seq_len: 8190"),
        (TITAN, "parallelism.pipeline_parallel_degree=128", None, "layers 82"),
        (TITAN, "parallelism.pipeline_parallel_degree=16", None, "training.local_batch_size: 8"),
        (TITAN, "parallelism.pipeline_parallel_degree=2 parallelism.pipeline_parallel_microbatch_size=3", None,
         "is not a multiple of parallelism.pipeline_parallel_microbatch_size: 3"),
        (TITAN, "parallelism.pipeline_parallel_degree=2 parallelism.pipeline_parallel_layers_per_stage=10", None,
         "stages 9"),
        (TITAN, "parallelism.pipeline_parallel_degree=4 parallelism.pipeline_parallel_layers_per_stage=21 "
                "parallelism.pipeline_parallel_schedule=Interleaved1F1B", None, "is less than"),
    ],
)  # fmt: skip
def test_torchtitan(
    experiment: Write_experiment, base: tuple[str, ...], words: str, nodes: int | None, expected: str
) -> None:
    found = wrong(experiment, "torchtitan", (*base, *parse(words)), nodes)
    assert any(expected in text for text in found) if expected else not found, found


@pytest.mark.parametrize(
    ("base", "words", "nodes", "expected"),
    [
        (BRIDGE, "", 4, ""),
        (BRIDGE, "model.pipeline_model_parallel_size=1 model.virtual_pipeline_model_parallel_size=null", 1, ""),
        (BRIDGE_SFT, "model.tensor_model_parallel_size=16", 2, ""),  # more than there are query groups
        (BRIDGE_SFT, "hf_path=nobody/knows model.tensor_model_parallel_size=2", 1, ""),
        (BRIDGE_MOE, "model.expert_model_parallel_size=8", 1, ""),
        # what the recipe says counts as if it were written
        (BRIDGE, "", 1, "model.tensor_model_parallel_size: 4 (of llama31_70b_pretrain_config) x model.pipeline_model_"),
        (BRIDGE, "", 3, "= 32"),
        (BRIDGE, "train.global_batch_size=501", 8, "train.global_batch_size: 501"),
        (BRIDGE, "train.micro_batch_size=3", 4, "train.global_batch_size: 512 (of llama31_70b_pretrain_config)"),
        (BRIDGE, "model.virtual_pipeline_model_parallel_size=3", None, "model.num_layers: 80 (of meta-llama/"),
        (BRIDGE, "model.num_layers=82", None, "model.num_layers: 82"),
        (BRIDGE, "model.pipeline_model_parallel_size=1", None, "is less than"),
        (BRIDGE, "model.seq_length=8190", None, "model.seq_length: 8190"),
        (BRIDGE_SFT, "hf_path=Qwen/Qwen3-14B model.tensor_model_parallel_size=3", None, "40 (of Qwen/Qwen3-14B)"),
        (BRIDGE_SFT, "validation.eval_global_batch_size=101", 1, "validation.eval_global_batch_size: 101"),
        (BRIDGE_MOE, "model.expert_model_parallel_size=3", None, "model.num_moe_experts: 128 (of Qwen/Qwen3-30B-A3B)"),
        (BRIDGE_MOE, "model.expert_model_parallel_size=16", 1, "model.expert_model_parallel_size: 16"),
    ],
)  # fmt: skip
def test_megatron_bridge(
    experiment: Write_experiment, base: tuple[str, ...], words: str, nodes: int | None, expected: str
) -> None:
    found = wrong(experiment, "megatron_bridge", (*base, *parse(words)), nodes)
    assert any(expected in text for text in found) if expected else not found, found


SYNTHETIC = ("attention=dot_product", "dataset_type=synthetic", "eval_every=-1")


@pytest.mark.parametrize(
    ("words", "nodes", "gpus", "expected"),
    [
        ("model_name=wan2.1", 1, 8, ""),  # context parallelism takes what a node has, and the nodes
        ("model_name=wan2.1", 3, 8, ""),
        ("flux_name=flux-dev", 2, 8, ""),  # data parallelism a node's devices, fsdp the nodes
        ("flux_name=flux-dev ici_context_parallelism=4", 1, 8, ""),
        ("model_name=wan2.1 ici_context_parallelism=4 ici_fsdp_parallelism=2", 1, 8, ""),
        ("model_name=wan2.1 per_device_batch_size=0.5", 1, 8, ""),  # run on a CPU: 8 are loaded, 4 trained on
        ("model_name=wan2.1 dcn_data_parallelism=3", 1, 8, ""),  # with one slice nobody looks at it
        ("model_name=wan2.1 ici_context_parallelism=4", 1, 8, "devices of a slice 8 (1 node x 8, slices: 1) is not"),
        ("model_name=wan2.1 ici_fsdp_parallelism=3", 1, 8, "is not a multiple of ici_fsdp_parallelism: 3"),
        ("model_name=wan2.1 dcn_data_parallelism=3", 2, 8, "slices 2 (2 nodes x 8) is not a multiple of dcn_data"),
        ("model_name=wan2.1 ici_fsdp_parallelism=-1", None, 8, "ici_fsdp_parallelism, ici_context_parallelism"),
        ("flux_name=flux-dev ici_context_parallelism=-1", None, 8, "ici_data_parallelism, ici_context_parallelism"),
        ("model_name=wan2.1 per_device_batch_size=1.5", 1, 8, "batch 12 (per_device_batch_size 1.5 on 8"),
        ("model_name=wan2.1 per_device_batch_size=0.1", 1, 8, "batch 0 (per_device_batch_size 0.1 on 8"),
    ],
)  # fmt: skip
def test_maxdiffusion(experiment: Write_experiment, words: str, nodes: int | None, gpus: int, expected: str) -> None:
    found = wrong(experiment, "maxdiffusion", (*parse(words), *SYNTHETIC), nodes, gpus)
    assert any(expected in text for text in found) if expected else not found, found


USP = "training.attention_backend=usp training.sp_ulysses_size=2"


@pytest.mark.parametrize(
    ("words", "nodes", "gpus", "expected"),
    [
        ("", 1, 8, ""),
        ("", 5, 3, ""),
        ("deployment.trainer.nproc_per_node=4", 1, 8, ""),
        (USP, 1, 8, ""),
        ("specforge_mode=capture specforge_capture.tp_size=8", 1, 8, ""),
        ("specforge_mode=export", 1, 8, ""),
        (f"specforge_train_mode=online {USP} training.sp_ring_size=3", 1, 8, ""),  # its servers are not of this run
        (f"deployment.trainer.nproc_per_node=2 {USP} training.sp_ring_size=2", 1, 8, "world size 2 (1 node x 2; "),
        ("deployment.trainer.nproc_per_node=9", 1, 8, "GPUs of a node 8 is less than deployment.trainer.nproc"),
        ("deployment.trainer.nnodes=2", 1, 8, "nodes 1 is not deployment.trainer.nnodes: 2"),
        ("specforge_mode=capture specforge_capture.tp_size=3", 1, 8, "specforge_capture.tp_size: 3"),
        (f"specforge_mode=[capture,train] {USP} training.sp_ring_size=3", 1, 8, "training.sp_ring_size: 3"),
        (f"{USP} training.sp_ring_size=3", 1, 8, "training.sp_ulysses_size: 2"),
    ],
)  # fmt: skip
def test_specforge(experiment: Write_experiment, words: str, nodes: int | None, gpus: int, expected: str) -> None:
    found = wrong(experiment, "specforge", parse(words), nodes, gpus)
    assert any(expected in text for text in found) if expected else not found, found


@pytest.mark.parametrize(
    ("words", "nodes", "gpus", "expected"),
    [
        ("", 1, 8, ""),
        ("", 4, 8, ""),  # fsdp takes what a node has, data parallelism the nodes
        ("ici_fsdp_parallelism=8 dcn_fsdp_parallelism=2 dcn_data_parallelism=1", 2, 8, ""),
        ("ici_fsdp_parallelism=1 ici_tensor_parallelism=8", 1, 8, ""),
        ("num_slices=1 ici_fsdp_parallelism=16", 2, 8, ""),
        ("custom_mesh_and_rule=pure-fsdp ici_fsdp_parallelism=3", 1, 8, ""),
        ("ici_pipeline_parallelism=4 ici_fsdp_parallelism=2", 1, 8, ""),
        ("ici_fsdp_parallelism=4", 1, 8, "devices of a slice 8 (1 node x 8, slices: 1) is not ici_fsdp_parallelism: 4"),
        ("ici_tensor_parallelism=3", 1, 8, "is not a multiple of ici_tensor_parallelism: 3"),
        ("ici_fsdp_parallelism=16", 2, 8, "devices of a slice 8 (2 nodes x 8, slices: 2)"),
        ("dcn_data_parallelism=2", 1, 8, "slices 1 (1 node x 8) is less than dcn_data_parallelism: 2"),
        ("dcn_data_parallelism=2", 4, 8, "slices 4 (4 nodes x 8) is not dcn_data_parallelism: 2"),
        ("dcn_fsdp_parallelism=3", 4, 8, "slices 4 (4 nodes x 8) is not a multiple of dcn_fsdp_parallelism: 3"),
        ("ici_tensor_parallelism=16", 1, 16, "base_num_kv_heads 8 (of llama2-70b"),
        ("", 1, 6, "base_emb_dim 8192 (of llama2-70b"),
        ("model_name=mixtral-8x7b ici_expert_parallelism=16", 1, 16, "num_experts 8 (of mixtral-8x7b"),
        ("ici_context_parallelism=8 max_target_length=4092", 1, 8, "max_target_length: 4092"),
        ("per_device_batch_size=1.25", 1, 8, "batch 10"),
        ("ici_context_parallelism=-1", None, 8, "less than axes that are -1: 2 (ici_fsdp_parallelism, ici_context"),
        ("ici_pipeline_parallelism=3", None, 8, "layers in the pipeline 80"),
        ("ici_pipeline_parallelism=4 num_pipeline_repeats=3", None, 8, "is not"),
        ("ici_pipeline_parallelism=4 num_pipeline_microbatches=6", None, 8, "num_pipeline_microbatches: 6"),
    ],
)  # fmt: skip
def test_maxtext(experiment: Write_experiment, words: str, nodes: int | None, gpus: int, expected: str) -> None:
    found = wrong(experiment, "maxtext", (*MAXTEXT, *parse(words)), nodes, gpus)
    assert any(expected in text for text in found) if expected else not found, found


def test_on_a_cpu_maxtext_has_one_slice(experiment: Write_experiment) -> None:
    words = ("ici_fsdp_parallelism=2", "base_num_kv_heads=4")
    found = load_experiment(experiment(framework="maxtext"), words, environ={})
    assert layout.problems(found, nodes=2, gpus=1) == ()
    assert layout.problems(found, nodes=1, gpus=1) != ()


@pytest.mark.parametrize("value", ["0", "-1", "-3", "1" + "0" * 30, ".inf"])
@pytest.mark.parametrize(
    ("framework", "base", "names"),
    [
        ("megatron", MEGATRON, "tensor_model_parallel_size pipeline_model_parallel_size num_layers global_batch_size "
         "num_layers_per_virtual_pipeline_stage num_attention_heads context_parallel_size seq_length"),
        ("torchtitan", TITAN, "parallelism.pipeline_parallel_degree parallelism.pipeline_parallel_layers_per_stage "
         "parallelism.data_parallel_shard_degree training.local_batch_size training.global_batch_size"),
        ("maxtext", MAXTEXT, "ici_fsdp_parallelism dcn_fsdp_parallelism ici_pipeline_parallelism num_slices "
         "per_device_batch_size num_pipeline_microbatches max_target_length"),
        ("megatron_bridge", BRIDGE, "model.tensor_model_parallel_size model.pipeline_model_parallel_size "
         "model.virtual_pipeline_model_parallel_size model.num_layers train.global_batch_size model.seq_length "
         "model.num_attention_heads model.context_parallel_size model.num_query_groups train.micro_batch_size"),
        ("maxdiffusion", ("model_name=wan2.1",), "ici_fsdp_parallelism dcn_data_parallelism per_device_batch_size"),
        ("specforge", (), "training.tp_size deployment.trainer.nproc_per_node deployment.trainer.nnodes "
         "training.sp_ring_size training.batch_size"),
    ],
    ids=["megatron", "torchtitan", "maxtext", "megatron_bridge", "maxdiffusion", "specforge"],
)  # fmt: skip
def test_any_number_ends_with_a_message(
    experiment: Write_experiment, primus: Primus, framework: str, base: tuple[str, ...], names: str, value: str
) -> None:
    path = experiment(framework=framework)
    for name, other in zip(names.split(), names.split()[1:], strict=False):
        words = (*base, f"{name}={value}", f"{other}={value}")
        done = primus("run", "--dry-run", "--config", path, "--launcher", "direct", "--nodes", 1, *words)
        assert done.code in (0, 2), (name, other, done.err)


def test_near_a_huge_number_nothing_is_looked_for(primus: Primus, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> list[int]:
        raise AssertionError("thousands of numbers were tried")

    monkeypatch.setattr(layout, "_nearest", asked)
    path = ROOT / "examples/megatron_bridge/configs/MI300X/qwen3_32b_pretrain.yaml"
    done = primus("run", "--dry-run", f"--config={path}", f"model.context_parallel_size={10**18}")
    assert (done.code, f"context_parallel_size: {10**18}" in done.err) == (2, True)


REFERENCE = {  # nodes of 8 that upstream's own lists give, for each model that needs more than one
    "deepseek_v2": 4, "grok1": 4, "grok2": 4, "mixtral_8x22B_v0.1": 4, "llama3.1_405B": 8,
}  # fmt: skip


def test_every_example_starts_on_its_smallest_number_of_nodes(example: Path) -> None:
    found = load_experiment(example, environ={})
    gpus = 8 if found.accelerator == "rocm" else 1
    nodes = layout.smallest(found, gpus)
    assert nodes is not None
    assert layout.problems(found, nodes=None, gpus=gpus) == layout.problems(found, nodes=nodes, gpus=gpus) == ()
    if found.framework == "megatron" and example.parent.name == "MI300X":
        model = example.stem.rsplit("-", 2)[0]
        assert nodes == REFERENCE.get(model, 1)


def test_a_problem_names_the_place_and_the_nearest(write: Write, primus: Primus) -> None:
    write(
        "a.yaml",
        f"""\
        extends: {EXAMPLES[0].name}
        modules:
          pre_trainer:
            overrides:
              tensor_model_parallel_size: 3
        """,
    )
    source = ROOT / "examples/megatron/configs/MI300X/llama3_8B-BF16-pretrain.yaml"
    write(EXAMPLES[0].name, source.read_text(encoding="utf-8"))
    done = primus("config", "check", "a.yaml", "--nodes", 1)
    assert done.code == 2
    assert (
        "error: a.yaml:5:35: world size 8 (1 node x 8) is not a multiple of "
        "tensor_model_parallel_size: 3 (a.yaml:5:35)\n"
        "hint: nearest that fit: tensor_model_parallel_size: 2 or 4 [megatron/training/arguments.py validate_args]\n"
    ) in done.err


@pytest.mark.parametrize("launcher", ["direct", "container"])
def test_run_refuses_before_anything_else(launcher: str, primus: Primus) -> None:
    example = ROOT / "examples/megatron/configs/MI300X/llama3.1_405B-BF16-pretrain.yaml"
    for words in ((), ("--dry-run",)):
        done = primus("run", "--config", example, "--launcher", launcher, "--gpus-per-node", 8, *words)
        assert (done.code, done.out) == (2, "")
        assert "world size 8 (1 node x 8) is not a multiple of" in done.err
        assert "8 nodes" in done.err


@pytest.mark.parametrize("file", MODELS, ids=lambda file: file.parent.name)
def test_the_models_are_those_of_the_pin(file: Path) -> None:
    """Moving a pin means reading them anew, and going through the backend's layout.py."""
    assert json.loads(file.read_text(encoding="utf-8"))["version"] == schema(file.parent.name).version
