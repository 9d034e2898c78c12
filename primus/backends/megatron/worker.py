"""Runs inside the image, one per process: Megatron's own `pretrain`, on a GPU or, without one, on the CPU.

torchrun ... -m primus.backends.megatron.worker rocm|cpu --MEGATRON-FLAG ...
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from primus.backends.megatron import stand_ins, turbo

STARTED = time.time()
# At the top level, above Megatron's import and outside of main(), because saving a checkpoint spawns processes that
# import this module anew and nothing of main().
ON_CPU = stand_ins.install()

import megatron.training.training as training  # noqa: E402
from megatron.core import mpu  # noqa: E402
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder  # noqa: E402
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig, MockGPTDataset  # noqa: E402
from megatron.core.enums import ModelType  # noqa: E402
from megatron.core.rerun_state_machine import get_rerun_state_machine  # noqa: E402
from megatron.core.tokenizers.utils.build_tokenizer import build_tokenizer  # noqa: E402
from megatron.core.transformer.multi_token_prediction import mtp_on_this_rank  # noqa: E402
from megatron.core.utils import (  # noqa: E402
    get_attr_wrapped_model,
    get_batch_on_this_cp_rank,
    get_batch_on_this_tp_rank,
    get_model_config,
)
from megatron.training import get_args, get_timers, pretrain, set_startup_timestamps  # noqa: E402
from megatron.training.argument_utils import pretrain_cfg_container_from_args  # noqa: E402
from megatron.training.arguments import parse_and_validate_args  # noqa: E402
from megatron.training.utils import get_blend_and_blend_per_split, is_first_or_last_pipeline_stage  # noqa: E402

from primus.backends.megatron.models import model_config  # noqa: E402

# What a batch holds; the last four are for packed sequences, which this worker does not make.
SAMPLE = ("tokens", "labels", "loss_mask", "attention_mask", "position_ids")
PACKED = ("cu_seqlens", "cu_seqlens_padded", "max_seqlen", "local_cp_size")
# Arguments that ask for another kind of batch or model than the ones made here.
NOT_HERE = ("dataloader_inter_document_masking", "fim_data", "hybrid_context_parallel", "sft", "yaml_cfg")
SPIKE = 10  # a loss this many times the largest seen is one, for check_for_spiky_loss


def needs_batch(layout: object, mtp_num_layers: int | None, vp_stage: int | None) -> bool:
    """Whether this stage of the pipeline reads tokens or labels."""
    return is_first_or_last_pipeline_stage(vp_stage) or mtp_on_this_rank(
        layout=layout, mtp_num_layers=mtp_num_layers, ignore_virtual=False, vp_stage=vp_stage
    )


def get_batch(samples: Iterator[dict[str, torch.Tensor]], model: torch.nn.Module) -> list[torch.Tensor | None]:
    """This process's part of the next batch: each tensor of SAMPLE, or None where this stage does not read it."""
    args, config = get_args(), get_model_config(model)
    stage = get_attr_wrapped_model(model, "vp_stage")
    layout, predicted = config.pipeline_model_parallel_layout, config.mtp_num_layers
    if not needs_batch(layout, predicted, stage):
        return [None] * len(SAMPLE)
    rank = mpu.get_tensor_model_parallel_rank()
    batch: dict[str, torch.Tensor | None] = {}
    if rank == 0:
        batch = dict.fromkeys((*SAMPLE, *PACKED, "hybrid_cp_group"))
        batch |= {name: value.cuda(non_blocking=True) for name, value in next(samples).items()}
    batch = get_batch_on_this_tp_rank(
        batch,
        has_cu_seqlens=False,
        is_hybrid_cp=False,
        create_attention_mask_in_dataloader=args.create_attention_mask_in_dataloader,
        broadcast_src_rank=mpu.get_tensor_model_parallel_src_rank(),
        broadcast_group=mpu.get_tensor_model_parallel_group(),
        cp_size=args.context_parallel_size,
        tp_rank=rank,
        micro_batch_size=args.micro_batch_size,
        seq_length=args.seq_length,
        mtp_on_this_rank=mtp_on_this_rank(
            layout=layout, mtp_num_layers=predicted, ignore_virtual=False, vp_stage=stage
        ),
        pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        is_pipeline_first_stage=mpu.is_pipeline_first_stage(),
        is_pipeline_last_stage=mpu.is_pipeline_last_stage(),
    )
    batch = get_batch_on_this_cp_rank(batch, is_hybrid_cp=False, cp_group=mpu.get_context_parallel_group())
    return [batch[name] for name in SAMPLE]


def loss_of(mask: torch.Tensor, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """The summed loss, the number of tokens in it, and both for the log."""
    args = get_args()
    weights = mask.view(-1).float()
    loss = torch.sum(output.view(-1).float() * weights)
    tokens = weights.sum().detach().to(torch.int)
    # Megatron's guard: a loss that is no number ends the run, and a rerun can tell a bad GPU from bad data.
    check = get_rerun_state_machine()
    if args.check_for_nan_in_loss_and_grad:
        for wrong, what in ((torch.isnan, "NaN"), (torch.isinf, "infinite")):
            check.validate_result(
                result=loss, rejection_func=wrong, message=f"the local loss is {what}", tolerance=0.0, fatal=True
            )
    if args.check_for_spiky_loss:
        spiky = functools.partial(check.is_unexpectedly_large, threshold=SPIKE, context="loss")
        check.validate_result(result=loss, rejection_func=spiky, message="the loss jumps", tolerance=0.0, fatal=False)
    return loss, tokens, {"lm loss": torch.cat([loss.detach().view(1), tokens.view(1)])}


def forward_step(
    samples: Iterator[dict[str, torch.Tensor]], model: torch.nn.Module, return_schedule_plan: bool = False
):
    """One forward pass, and what turns its output into the loss."""
    timers = get_timers()
    timers("batch-generator", log_level=2).start()
    tokens, labels, mask, attention, positions = get_batch(samples, model)
    timers("batch-generator").stop()
    # A plan is asked for where the schedule overlaps the communication of experts with computation.
    run = model.build_schedule_plan if return_schedule_plan else model
    output = run(tokens, positions, attention, labels=labels, loss_mask=mask)
    return output, functools.partial(loss_of, mask)


def datasets(samples: list[int], vp_stage: int | None = None) -> object:
    """The data to train, validate and test on: made up with `mock_data`, else .bin/.idx files."""
    args = get_args()
    config = model_config(args).transformer
    layout, predicted = config.pipeline_model_parallel_layout, config.mtp_num_layers
    blend, blend_per_split = get_blend_and_blend_per_split(args)
    counts = args.per_dataset_sequences_path
    settings = GPTDatasetConfig(
        random_seed=args.seed,
        sequence_length=args.seq_length,
        blend=blend,
        blend_per_split=blend_per_split,
        split=args.split,
        multiple_validation_sets=args.multiple_validation_sets,
        full_validation=args.full_validation,
        num_dataset_builder_threads=args.num_dataset_builder_threads,
        path_to_cache=args.data_cache_path,
        mmap_bin_files=args.mmap_bin_files,
        tokenizer=build_tokenizer(args),
        mid_level_dataset_surplus=args.mid_level_dataset_surplus,
        allow_ambiguous_pad_tokens=args.allow_ambiguous_pad_tokens,
        fast_cache_load=args.dataloader_fast_cache_load,
        defer_npy_index_mmap=args.dataloader_defer_npy_index_mmap,
        reset_position_ids=args.reset_position_ids,
        reset_attention_mask=args.reset_attention_mask,
        eod_mask_loss=args.eod_mask_loss,
        create_attention_mask=args.create_attention_mask_in_dataloader,
        object_storage_cache_path=args.object_storage_cache_path,
        sequences_per_dataset=json.loads(Path(counts).read_text(encoding="utf-8")) if counts else None,
        context_parallel_size=args.context_parallel_size,
    )

    def is_built_here() -> bool:
        return mpu.get_tensor_model_parallel_rank() == 0 and needs_batch(layout, predicted, vp_stage)

    kind = MockGPTDataset if args.mock_data else GPTDataset
    return BlendedMegatronDatasetBuilder(kind, samples, is_built_here, settings).build()


datasets.is_distributed = True  # every process builds its own; else those with a tensor-parallel rank above 0 wait


def main() -> None:
    entered = time.time()
    if sys.argv.pop(1) == "rocm" and ON_CPU:  # never a large model on the CPU by mistake
        raise SystemExit(f"torch {torch.__version__} sees no GPU here")
    if ON_CPU:
        training.initialize_megatron = functools.partial(training.initialize_megatron, allow_no_cuda=True)
    set_startup_timestamps(program_start=STARTED, main_entry=entered)
    args = parse_and_validate_args(turbo.add_arguments)
    if asked := [name for name in NOT_HERE if getattr(args, name, None)]:
        raise SystemExit(f"error: {', '.join(asked)}: not supported by primus.backends.megatron.worker")
    settings = pretrain_cfg_container_from_args(args, model_config(args))
    pretrain(settings, datasets, ModelType.encoder_or_decoder, forward_step)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
