"""Make what the examples of fine-tuning need: a tiny Llama, untrained, as Hugging Face has models, and tales to tell.

usage: make_tiny_llama.py DIRECTORY

Writes DIRECTORY/model (2 MB) and DIRECTORY/tales: the beginning of each tale, and how it goes on. Needs nothing but
Python; the same each time.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import sys
from array import array
from pathlib import Path

HERE = Path(__file__).parent
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "dtype": "float32",
}
HIDDEN, INNER, VOCABULARY, KEYS = 128, 352, 512, 64


def shapes() -> dict[str, tuple[int, ...]]:
    """The model's weights, by the names that Hugging Face gives them."""
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(2):
        parts = {
            "input_layernorm": (HIDDEN,),
            "self_attn.q_proj": (HIDDEN, HIDDEN),
            "self_attn.k_proj": (KEYS, HIDDEN),
            "self_attn.v_proj": (KEYS, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HIDDEN),
            "post_attention_layernorm": (HIDDEN,),
            "mlp.gate_proj": (INNER, HIDDEN),
            "mlp.up_proj": (INNER, HIDDEN),
            "mlp.down_proj": (HIDDEN, INNER),
        }
        found |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in parts.items()}
    return {**found, "model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}


def write_weights(path: Path) -> None:
    """A file of safetensors: the length of its header, the header, the numbers."""
    chance = random.Random(1234)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, shape in shapes().items():
        if len(shape) == 1:
            numbers = array("f", [1.0] * shape[0])
        else:
            numbers = array("f", (chance.gauss(0, 0.02) for _ in range(shape[0] * shape[1])))
        if sys.byteorder == "big":
            numbers.byteswap()
        start = len(data)
        data += numbers.tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_tales(folder: Path) -> None:
    lines = []
    for line in (HERE / "tales.jsonl").read_text(encoding="utf-8").splitlines():
        begin, _, rest = json.loads(line)["text"].partition(". ")
        lines.append(json.dumps({"input": f"{begin}.", "output": rest}, ensure_ascii=False) + "\n")
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("training", lines[:-100]), ("validation", lines[-100:-50]), ("test", lines[-50:])):
        (folder / f"{name}.jsonl").write_text("".join(part), encoding="utf-8")


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    model = Path(sys.argv[1]) / "model"
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n", encoding="utf-8")
    write_weights(model / "model.safetensors")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(HERE / "tokenizer" / name, model / name)
    write_tales(Path(sys.argv[1]) / "tales")


if __name__ == "__main__":
    main()
