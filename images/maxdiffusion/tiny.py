"""Write random models of a few hundred thousand weights, in the layouts that MaxDiffusion reads, to train on a CPU.

usage: tiny.py DIR      DIR/primus-tiny/{wan2.1,flux.1,flux.1-clip,flux.1-t5}: the names that the CPU examples use

Runs where MaxDiffusion's dependencies are installed; the same files each time.  Widths that MaxDiffusion has in its
code are those of the real models: text 4096 and 768, 16 latent channels, 64 in a packed latent.
"""
# mypy: disable-error-code="import-not-found, import-untyped, attr-defined, no-untyped-call, no-any-unimported"

import json
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CLIPTextConfig,
    FlaxCLIPTextModel,
    FlaxT5EncoderModel,
    PreTrainedTokenizerFast,
    T5Config,
    UMT5Config,
    UMT5EncoderModel,
)

WIDTH, HEADS, LAYERS = 64, 2, 2
TEXT, POOLED, LATENT, PACKED = 4096, 768, 16, 64


class Weights(dict[str, Any]):
    """The tensors of one model, by PyTorch's names."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = np.random.default_rng(seed)

    def normal(self, name: str, *shape: int) -> None:
        fan_in = max(1, int(np.prod(shape[1:])))
        self[name] = (self.random.standard_normal(shape) / fan_in**0.5).astype(np.float32)

    def layer(self, name: str, out: int, *rest: int) -> None:
        """A linear layer or a convolution, with its bias."""
        self.normal(f"{name}.weight", out, *rest)
        self[f"{name}.bias"] = np.zeros(out, np.float32)

    def norm(self, name: str, *shape: int, bias: bool = False, of: str = "weight") -> None:
        self[f"{name}.{of}"] = np.ones(shape, np.float32)
        if bias:
            self[f"{name}.bias"] = np.zeros(shape, np.float32)


def write(path: Path, value: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def save(weights: Weights, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(weights, path, metadata={"format": "pt"})


def tokenizer(folder: Path) -> None:
    """Words <0> to <199>, and T5's special tokens."""
    words = ["<pad>", "</s>", "<unk>", *(f"<{number}>" for number in range(200))]
    core = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    fast.save_pretrained(folder)


def wan_transformer(folder: Path) -> None:
    text, frequencies, hidden = WIDTH, 32, 2 * WIDTH
    weights = Weights(0)
    weights.layer("patch_embedding", WIDTH, LATENT, 1, 2, 2)
    weights.normal("scale_shift_table", 1, 2, WIDTH)
    for name, first in (("time_embedder", frequencies), ("text_embedder", text)):
        weights.layer(f"condition_embedder.{name}.linear_1", WIDTH, first)
        weights.layer(f"condition_embedder.{name}.linear_2", WIDTH, WIDTH)
    weights.layer("condition_embedder.time_proj", 6 * WIDTH, WIDTH)
    for block in (f"blocks.{number}" for number in range(LAYERS)):
        weights.normal(f"{block}.scale_shift_table", 1, 6, WIDTH)
        for attention in (f"{block}.attn1", f"{block}.attn2"):
            for part in ("to_q", "to_k", "to_v", "to_out.0"):
                weights.layer(f"{attention}.{part}", WIDTH, WIDTH)
            weights.norm(f"{attention}.norm_q", WIDTH)
            weights.norm(f"{attention}.norm_k", WIDTH)
        weights.norm(f"{block}.norm2", WIDTH, bias=True)
        weights.layer(f"{block}.ffn.net.0.proj", hidden, WIDTH)
        weights.layer(f"{block}.ffn.net.2", WIDTH, hidden)
    weights.layer("proj_out", LATENT * 2 * 2, WIDTH)
    name = "diffusion_pytorch_model.safetensors"
    save(weights, folder / name)
    # The real one is in parts, and only a model in parts is read.
    write(folder / f"{name}.index.json", {"metadata": {}, "weight_map": dict.fromkeys(weights, name)})
    write(
        folder / "config.json",
        {
            "_class_name": "WanTransformer3DModel",
            "added_kv_proj_dim": None,
            "attention_head_dim": WIDTH // HEADS,
            "cross_attn_norm": True,
            "eps": 1e-6,
            "ffn_dim": hidden,
            "freq_dim": frequencies,
            "image_dim": None,
            "in_channels": LATENT,
            "num_attention_heads": HEADS,
            "num_layers": LAYERS,
            "out_channels": LATENT,
            "patch_size": [1, 2, 2],
            "pos_embed_seq_len": None,
            "qk_norm": "rms_norm_across_heads",
            "rope_max_seq_len": 64,
            "text_dim": text,
        },
    )


def wan_vae(folder: Path) -> None:
    base, multiples, temporal = 4, (1, 2, 4, 4), (False, True, True)
    weights = Weights(1)

    def resnet(name: str, width: int, out: int) -> None:
        weights.norm(f"{name}.norm1", width, 1, 1, 1, of="gamma")
        weights.layer(f"{name}.conv1", out, width, 3, 3, 3)
        weights.norm(f"{name}.norm2", out, 1, 1, 1, of="gamma")
        weights.layer(f"{name}.conv2", out, out, 3, 3, 3)
        if width != out:
            weights.layer(f"{name}.conv_shortcut", out, width, 1, 1, 1)

    def middle(name: str, width: int) -> None:
        weights.norm(f"{name}.attentions.0.norm", width, 1, 1, of="gamma")
        weights.layer(f"{name}.attentions.0.to_qkv", 3 * width, width, 1, 1)
        weights.layer(f"{name}.attentions.0.proj", width, width, 1, 1)
        resnet(f"{name}.resnets.0", width, width)
        resnet(f"{name}.resnets.1", width, width)

    down = [base, *(base * multiple for multiple in multiples)]
    weights.layer("encoder.conv_in", base, 3, 3, 3, 3)
    place = 0
    for level, (width, out) in enumerate(pairwise(down)):
        resnet(f"encoder.down_blocks.{place}", width, out)
        place += 1
        if level < len(temporal):
            weights.layer(f"encoder.down_blocks.{place}.resample.1", out, out, 3, 3)
            if temporal[level]:
                weights.layer(f"encoder.down_blocks.{place}.time_conv", out, out, 3, 1, 1)
            place += 1
    top = down[-1]
    middle("encoder.mid_block", top)
    weights.norm("encoder.norm_out", top, 1, 1, 1, of="gamma")
    weights.layer("encoder.conv_out", 2 * LATENT, top, 3, 3, 3)
    weights.layer("quant_conv", 2 * LATENT, 2 * LATENT, 1, 1, 1)

    weights.layer("post_quant_conv", LATENT, LATENT, 1, 1, 1)
    weights.layer("decoder.conv_in", top, LATENT, 3, 3, 3)
    middle("decoder.mid_block", top)
    width = top
    for level, out in enumerate(reversed(down[1:])):
        block = f"decoder.up_blocks.{level}"
        resnet(f"{block}.resnets.0", width, out)
        resnet(f"{block}.resnets.1", out, out)
        width = out // 2
        if level < len(temporal):
            weights.layer(f"{block}.upsamplers.0.resample.1", width, out, 3, 3)
            if temporal[::-1][level]:
                weights.layer(f"{block}.upsamplers.0.time_conv", 2 * out, out, 3, 1, 1)
    weights.norm("decoder.norm_out", base, 1, 1, 1, of="gamma")
    weights.layer("decoder.conv_out", 3, base, 3, 3, 3)

    save(weights, folder / "diffusion_pytorch_model.safetensors")
    write(
        folder / "config.json",
        {
            "_class_name": "AutoencoderKLWan",
            "attn_scales": [],
            "base_dim": base,
            "dim_mult": multiples,
            "dropout": 0.0,
            "latents_mean": [0.0] * LATENT,
            "latents_std": [1.0] * LATENT,
            "num_res_blocks": 1,
            "temperal_downsample": temporal,
            "z_dim": LATENT,
        },
    )


def wan(folder: Path) -> None:
    wan_transformer(folder / "transformer")
    wan_vae(folder / "vae")
    torch.manual_seed(0)
    UMT5EncoderModel(
        UMT5Config(vocab_size=256, d_model=WIDTH, d_kv=16, d_ff=WIDTH, num_layers=1, num_heads=HEADS)
    ).save_pretrained(folder / "text_encoder")
    tokenizer(folder / "tokenizer")
    write(
        folder / "scheduler/scheduler_config.json",
        {
            "_class_name": "UniPCMultistepScheduler",
            "flow_shift": 3.0,
            "num_train_timesteps": 1000,
            "prediction_type": "flow_prediction",
            "solver_order": 2,
            "use_flow_sigmas": True,
        },
    )
    write(folder / "model_index.json", {"_class_name": "WanPipeline"})


def flux_transformer(folder: Path) -> None:
    """The weights in one file by Black Forest Labs' names, the configuration by Diffusers'."""
    weights = Weights(2)
    weights.layer("img_in", WIDTH, PACKED)
    weights.layer("txt_in", WIDTH, TEXT)
    for name, first in (("time_in", 256), ("vector_in", POOLED), ("guidance_in", 256)):
        weights.layer(f"{name}.in_layer", WIDTH, first)
        weights.layer(f"{name}.out_layer", WIDTH, WIDTH)
    for block in (f"double_blocks.{number}" for number in range(LAYERS)):
        for stream in ("img", "txt"):
            weights.layer(f"{block}.{stream}_mod.lin", 6 * WIDTH, WIDTH)
            weights.layer(f"{block}.{stream}_attn.qkv", 3 * WIDTH, WIDTH)
            weights.layer(f"{block}.{stream}_attn.proj", WIDTH, WIDTH)
            weights.norm(f"{block}.{stream}_attn.norm.query_norm", WIDTH // HEADS, of="scale")
            weights.norm(f"{block}.{stream}_attn.norm.key_norm", WIDTH // HEADS, of="scale")
            weights.layer(f"{block}.{stream}_mlp.0", 4 * WIDTH, WIDTH)
            weights.layer(f"{block}.{stream}_mlp.2", WIDTH, 4 * WIDTH)
    for block in (f"single_blocks.{number}" for number in range(LAYERS)):
        weights.layer(f"{block}.linear1", 7 * WIDTH, WIDTH)
        weights.layer(f"{block}.linear2", WIDTH, 5 * WIDTH)
        weights.layer(f"{block}.modulation.lin", 3 * WIDTH, WIDTH)
        weights.norm(f"{block}.norm.query_norm", WIDTH // HEADS, of="scale")
        weights.norm(f"{block}.norm.key_norm", WIDTH // HEADS, of="scale")
    weights.layer("final_layer.linear", PACKED, WIDTH)
    weights.layer("final_layer.adaLN_modulation.1", 2 * WIDTH, WIDTH)
    save(weights, folder / "flux1-dev.safetensors")
    write(
        folder / "transformer/config.json",
        {
            "_class_name": "FluxTransformer2DModel",
            "attention_head_dim": WIDTH // HEADS,
            "axes_dims_rope": [8, 12, 12],
            "guidance_embeds": True,
            "in_channels": PACKED,
            "joint_attention_dim": TEXT,
            "num_attention_heads": HEADS,
            "num_layers": LAYERS,
            "num_single_layers": LAYERS,
            "patch_size": 1,
            "pooled_projection_dim": POOLED,
        },
    )


def flux_vae(folder: Path) -> None:
    width, levels = 8, 4
    weights = Weights(3)

    def resnets(name: str, numbers: Sequence[int]) -> None:
        for resnet in (f"{name}.resnets.{number}" for number in numbers):
            for part in ("1", "2"):
                weights.norm(f"{resnet}.norm{part}", width, bias=True)
                weights.layer(f"{resnet}.conv{part}", width, width, 3, 3)

    for side, channels in (("encoder", (3, 2 * LATENT)), ("decoder", (LATENT, 3))):
        weights.layer(f"{side}.conv_in", width, channels[0], 3, 3)
        weights.norm(f"{side}.conv_norm_out", width, bias=True)
        weights.layer(f"{side}.conv_out", channels[1], width, 3, 3)
        resnets(f"{side}.mid_block", (0, 1))
        weights.norm(f"{side}.mid_block.attentions.0.group_norm", width, bias=True)
        for part in ("to_q", "to_k", "to_v", "to_out.0"):
            weights.layer(f"{side}.mid_block.attentions.0.{part}", width, width)
    for level in range(levels):
        resnets(f"encoder.down_blocks.{level}", (0,))
        resnets(f"decoder.up_blocks.{level}", (0, 1))
        if level < levels - 1:
            weights.layer(f"encoder.down_blocks.{level}.downsamplers.0.conv", width, width, 3, 3)
            weights.layer(f"decoder.up_blocks.{level}.upsamplers.0.conv", width, width, 3, 3)
    save(weights, folder / "diffusion_pytorch_model.safetensors")
    write(
        folder / "config.json",
        {
            "_class_name": "AutoencoderKL",
            "act_fn": "silu",
            "block_out_channels": [width] * levels,
            "down_block_types": ["DownEncoderBlock2D"] * levels,
            "in_channels": 3,
            "latent_channels": LATENT,
            "layers_per_block": 1,
            "norm_num_groups": 4,
            "out_channels": 3,
            "sample_size": 32,
            "scaling_factor": 0.3611,
            "shift_factor": 0.1159,
            "up_block_types": ["UpDecoderBlock2D"] * levels,
            "use_post_quant_conv": False,
            "use_quant_conv": False,
        },
    )


def flux(folder: Path) -> None:
    flux_transformer(folder)
    flux_vae(folder / "vae")
    write(
        folder / "scheduler/scheduler_config.json",
        {
            "_class_name": "FlowMatchEulerDiscreteScheduler",
            "base_image_seq_len": 256,
            "base_shift": 0.5,
            "max_image_seq_len": 4096,
            "max_shift": 1.15,
            "num_train_timesteps": 1000,
            "shift": 3.0,
            "use_dynamic_shifting": True,
        },
    )
    write(folder / "model_index.json", {"_class_name": "FluxPipeline"})


def clip(folder: Path) -> None:
    special = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>"}
    words = {"a": 0, **{word: index for index, word in enumerate(special.values(), start=1)}, "a</w>": 3}
    FlaxCLIPTextModel(
        CLIPTextConfig(
            vocab_size=64,
            hidden_size=POOLED,
            intermediate_size=WIDTH,
            num_hidden_layers=1,
            num_attention_heads=4,
            projection_dim=POOLED,
            bos_token_id=words["<|startoftext|>"],
            eos_token_id=words["<|endoftext|>"],
        )
    ).save_pretrained(folder)
    write(folder / "vocab.json", words)
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    others = dict.fromkeys(("unk_token", "pad_token"), special["eos_token"])
    write(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, **special, **others},
    )


def t5(folder: Path) -> None:
    FlaxT5EncoderModel(
        T5Config(
            vocab_size=256,
            d_model=TEXT,
            d_kv=8,
            d_ff=16,
            num_layers=1,
            num_heads=HEADS,
            feed_forward_proj="gated-gelu",
        )
    ).save_pretrained(folder)
    tokenizer(folder)


MODELS = {"wan2.1": wan, "flux.1": flux, "flux.1-clip": clip, "flux.1-t5": t5}


def main() -> None:
    for name, make in MODELS.items():
        make(Path(sys.argv[1], "primus-tiny", name))


if __name__ == "__main__":
    main()
