"""Runs inside the image, one per process: TorchTitan's own trainer, with our datasets and, without a GPU, on the CPU.

torchrun ... -m primus.backends.torchtitan.worker rocm|cpu --job.config_file=FILE
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import types
from pathlib import Path

import torch

from primus.experiment.substitute import fill

SYNTHETIC, TEXT = "synthetic", "text"


def use_cpu() -> None:
    """Make TorchTitan take the CPU as its device. Must run before anything else imports torchtitan.

    TorchTitan asks torch for the accelerator once, at import, and falls back to "cuda"; everything else takes the
    answer from there. torch.cpu lacks the memory statistics and the device properties that its metrics read.
    """
    import torch._utils as detection

    device = types.ModuleType("primus_cpu_device")
    device.__dict__.update({name: getattr(torch.cpu, name) for name in dir(torch.cpu) if not name.startswith("__")})
    device.get_device_name = lambda device=None: "cpu"
    device.get_device_properties = lambda device=None: types.SimpleNamespace(
        name="cpu", total_memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    )
    device.current_device = lambda: 0  # torch.cpu says "cpu", a barrier wants a number
    device.empty_cache = lambda: None
    device.reset_peak_memory_stats = lambda device=None: None
    device.memory_stats = lambda device=None: {
        "active_bytes.all.peak": _peak_bytes(),
        "reserved_bytes.all.peak": _peak_bytes(),
        "num_alloc_retries": 0,
        "num_ooms": 0,
    }

    # The MoE kernels are Triton's, which CPU builds of torch do not bring; nothing calls them there.
    kernels = types.ModuleType("torchtitan.models.moe.kernels")
    kernels.generate_permute_indices = _no_moe_on_cpu
    sys.modules["torchtitan.models.moe.kernels"] = kernels

    stock = detection._get_available_device_type, detection._get_device_module
    detection._get_available_device_type = lambda: "cpu"
    detection._get_device_module = lambda kind: device if kind == "cpu" else stock[1](kind)
    try:
        import torchtitan.tools.utils as utils
    finally:
        detection._get_available_device_type, detection._get_device_module = stock
    if utils.device_module is not device:
        raise RuntimeError("torchtitan was imported before the CPU became its device")
    _sum_on_gloo()


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _no_moe_on_cpu(*_args: object, **_options: object) -> None:
    raise NotImplementedError("TorchTitan's mixture-of-experts kernels need a GPU")


def _sum_on_gloo() -> None:
    """Gloo cannot average while it reduces; TorchTitan divides by itself, so that a plain sum is the same."""
    from torch.distributed.fsdp import FSDPModule

    stock = FSDPModule.set_gradient_divide_factor

    def set_gradient_divide_factor(module: FSDPModule, factor: float) -> None:
        stock(module, factor)
        module.set_force_sum_reduction_for_comms(True)

    FSDPModule.set_gradient_divide_factor = set_gradient_divide_factor


class NumberTokenizer:
    """Reads what `synthetic` writes, numbers; so that a run on made-up data needs no tokenizer's files."""

    bos_id, eos_id = 0, 0

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def encode(self, text: str, *_args: object, **_options: object) -> list[int]:
        return [int(word) % self.vocab_size for word in text.split()]

    def decode(self, ids: list[int], *_args: object, **_options: object) -> str:
        return " ".join(map(str, ids))

    def get_vocab_size(self) -> int:
        return self.vocab_size


def _synthetic(_path: str) -> object:
    """Counting: 256 samples of 512 numbers that go up by one, from seeded starts. A model learns it in some steps."""
    from datasets import Dataset

    starts = random.Random(0)
    samples = []
    for _ in range(256):
        first = starts.randrange(1, 1000)
        samples.append(" ".join(str(first + step % 64) for step in range(512)))
    return Dataset.from_dict({"text": samples})


def read_text(path: str) -> list[str]:
    """The documents in a .txt file (split at blank lines), a .jsonl file (its "text"s), or a directory of them."""
    source = Path(path)
    inside = sorted(item for item in source.rglob("*") if item.suffix in (".txt", ".jsonl"))
    files = inside if source.is_dir() else [source]
    documents: list[str] = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".jsonl":
            documents += [json.loads(line)["text"] for line in text.splitlines() if line.strip()]
        else:
            documents += [part for part in text.split("\n\n") if part.strip()]
    if not documents:
        raise ValueError(f"training.dataset_path: no .txt or .jsonl text in {path!r}")
    return documents


def _text(path: str) -> object:
    from datasets import Dataset

    return Dataset.from_dict({"text": read_text(path)})


def add_datasets() -> None:
    """Register `synthetic` and `text` beside TorchTitan's own datasets, and the tokenizer that `synthetic` needs."""
    from torchtitan.hf_datasets import DatasetConfig
    from torchtitan.hf_datasets.text_datasets import DATASETS

    def text_of(sample: dict[str, str]) -> str:
        return sample["text"]

    DATASETS[SYNTHETIC] = DatasetConfig(path=SYNTHETIC, loader=_synthetic, sample_processor=text_of)
    DATASETS[TEXT] = DatasetConfig(path="", loader=_text, sample_processor=text_of)

    import torchtitan.protocols.train_spec as specs
    import torchtitan.train as train

    stock = specs.get_train_spec

    def get_train_spec(name: str) -> object:
        spec = stock(name)
        build = spec.build_tokenizer_fn

        def build_tokenizer(config: object) -> object:
            if config.training.dataset == SYNTHETIC:
                return NumberTokenizer(spec.model_args[config.model.flavor].vocab_size)
            return build(config)

        spec.build_tokenizer_fn = build_tokenizer
        return spec

    specs.get_train_spec = train.train_spec_module.get_train_spec = get_train_spec


def fill_secrets() -> None:
    """Secrets are names in the file the launcher wrote; give TorchTitan their values, in memory only."""
    from torchtitan.config import ConfigManager

    stock = ConfigManager._maybe_load_toml
    ConfigManager._maybe_load_toml = lambda self, args: fill(stock(self, args), os.environ)


def _no_gpu() -> str:
    """torch's own reason."""
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return str(error)
    return "no device"


def main() -> None:
    accelerator = sys.argv.pop(1)
    if accelerator == "cpu":
        use_cpu()
    elif not torch.cuda.is_available():  # never a large model on the CPU by mistake
        sys.exit(f"torch {torch.__version__} sees no GPU here: {_no_gpu()}")
    add_datasets()
    fill_secrets()
    from torchtitan.train import Trainer
    from torchtitan.train import main as train

    train(Trainer)


if __name__ == "__main__":
    main()
