"""The target's hidden states on disk, as SpecForge's trainers read them: captured on a CPU, and selected."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

SUFFIXES = (".ckpt", ".ckpt.gz")


def files(folder: Path) -> Iterator[Path]:
    """Every file of features below the folder, in the order in which SpecForge reads them."""
    return iter(sorted(path for path in folder.rglob("*") if path.name.endswith(SUFFIXES)))


def capture(options: dict[str, Any]) -> None:
    """What SpecForge's script writes through SGLang, through transformers: one record a conversation.

    The records are shared among the processes; those that are there already are left alone.
    """
    import torch.distributed as dist
    from datasets import Dataset
    from specforge.application import resolve_offline_capture
    from specforge.config import Config
    from specforge.data.preprocessing import build_eagle3_dataset, generate_vocab_mapping_file
    from specforge.utils import load_tokenizer, rank_0_priority, safe_conversations_generator
    from transformers import AutoConfig, AutoModelForCausalLM

    target, data, cache = options["target_model_path"], options["data_path"], Path(options["cache_dir"])
    trusted, length = options.get("trust_remote_code", False), options.get("max_length", 2048)
    template, count = options.get("chat_template", "llama3"), options.get("num_samples")
    output, group = Path(options["output_path"]), options.get("file_group_size", 2000)
    preformatted, processes = options.get("is_preformatted", False), options.get("build_dataset_num_proc", 1)
    draft = json.loads(Path(options["draft_model_config"]).read_text(encoding="utf-8"))

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    config = AutoConfig.from_pretrained(target, trust_remote_code=trusted)
    plan = resolve_offline_capture(
        Config(
            model={
                "target_model_path": target,
                "draft_model_config": options["draft_model_config"],
                "trust_remote_code": trusted,
            },
            data={"hidden_states_path": str(output), "max_length": length},
            training={"strategy": options["strategy"]},
        ),
        target_config=config,
    )
    key = hashlib.sha256(
        json.dumps([data, Path(data).stat().st_mtime, length, template, target, preformatted]).encode()
    )
    with rank_0_priority():
        dialogs = Dataset.from_generator(
            safe_conversations_generator, gen_kwargs={"file_path": data}, cache_dir=str(cache / "conversations")
        )
        samples = build_eagle3_dataset(
            dataset=dialogs,
            tokenizer=load_tokenizer(target, trust_remote_code=trusted),
            chat_template=template,
            max_length=length,
            cache_dir=str(cache / "samples"),
            cache_key=key.hexdigest(),
            is_preformatted=preformatted,
            num_proc=processes,
            loss_mask_filter=plan.loss_mask_filter,
        )
    # What is there already stays, so that a capture goes on: it must be of the same model and data.
    made_of, seen_as = output / ".made-of", f"{key.hexdigest()} {','.join(map(str, plan.capture_layers))}\n"
    if rank == 0:
        if made_of.exists() and made_of.read_text(encoding="utf-8") != seen_as:
            raise SystemExit(
                f"error: {output}: holds features of another model, or of other conversations\n"
                "hint: another --run-dir, or remove it"
            )
        output.mkdir(parents=True, exist_ok=True)
        made_of.write_text(seen_as, encoding="utf-8")
    if count is not None:
        samples = samples.select(range(min(count, len(samples))))
    if not len(samples):
        raise SystemExit(f"error: specforge_capture.data_path: no conversation in {data} can be trained on")
    if rank == 0:
        generate_vocab_mapping_file(
            dataset=samples,
            target_vocab_size=getattr(config, "text_config", config).vocab_size,
            draft_vocab_size=draft.get("draft_vocab_size", draft["vocab_size"]),
            cache_dir=str(output / "vocab_mapping"),
            cache_key="vocab_mapping",
        )
    model = AutoModelForCausalLM.from_pretrained(target, trust_remote_code=trusted, dtype=torch.float32).eval()
    for number in range(rank, len(samples), world):
        first = number // group * group
        path = (
            output / f"rows_{first}-{first + group}" / f"data_{number}.ckpt{'.gz' if options.get('compress') else ''}"
        )
        if path.exists():
            continue
        sample = {name: torch.as_tensor(samples[number][name]).view(1, -1) for name in ("input_ids", "loss_mask")}
        with torch.no_grad():
            seen = model.model(sample["input_ids"], output_hidden_states=True)
        # The first hidden state is the embedding, so that a layer's own is one further; the heads are bfloat16's.
        layers = torch.cat([seen.hidden_states[layer + 1] for layer in plan.capture_layers], dim=-1)
        record = plan.layout.materialize(
            {
                "input_ids": sample["input_ids"][0],
                "loss_mask": sample["loss_mask"][0],
                "aux_hidden_states": layers.bfloat16(),
                "last_hidden_states": seen.last_hidden_state.bfloat16(),
            }
        )
        _save(record, path)
    dist.barrier()
    if rank == 0:
        print(f"captured: {len(samples)} conversations, layers {list(plan.capture_layers)}, {output}", flush=True)
    dist.destroy_process_group()


def _save(record: dict[str, torch.Tensor], path: Path) -> None:
    """The whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with gzip.open(part, "wb") if path.suffix == ".gz" else part.open("wb") as file:
        torch.save(record, file)
    part.replace(path)


def select(source: Path, output: Path, *, block: int, least: int) -> None:
    """Leave in `output` the features with an answer to learn from: two tokens of it and a block after them.

    Truncated conversations may have lost theirs, and DFlash's trainer stops at such a one. Raises SystemExit if fewer
    than `least` are kept.
    """
    kept = dropped = 0
    for path in files(source):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            answer = torch.load(file, weights_only=True)["loss_mask"].flatten().bool()
        starts = answer[:-1] & answer[1:]
        place = output / path.relative_to(source)
        place.unlink(missing_ok=True)  # of an earlier capture
        if not starts[: max(len(answer) - block, 0)].any():
            dropped += 1
            continue
        kept += 1
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, place)  # the same file under two names: features are large
        except OSError:
            shutil.copyfile(path, place)
    if (source / "vocab_mapping").is_dir():
        shutil.copytree(source / "vocab_mapping", output / "vocab_mapping", dirs_exist_ok=True)
    print(f"kept: {kept} of {kept + dropped}, {output}", flush=True)
    if kept < least:
        raise SystemExit(f"error: {kept} of {kept + dropped} captured conversations have an answer of {block} tokens")
