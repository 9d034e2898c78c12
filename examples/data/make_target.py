"""Train the tiny Llama in target/ on tales.jsonl, and write dialogs.jsonl, questions to it with the tales as answers.

It is the target of SpecForge's CPU examples: a model small enough for a repository, and good enough at telling the
tales for a draft to have something to imitate. Needs `torch` and `transformers`: .venv-specforge/bin/python.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).parent
STEPS, BATCH, LENGTH = 1500, 16, 96
DIALOGS = 64
# As SpecForge's template "lfm" expects it: the shortest, without a system prompt.
CHAT = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
CONFIG = LlamaConfig(
    vocab_size=512,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    tie_word_embeddings=False,
    bos_token_id=0,
    eos_token_id=1,
    dtype="bfloat16",
)


def trained(tokens: torch.Tensor) -> LlamaForCausalLM:
    """The model after STEPS batches of random pieces of the text."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(CONFIG).float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=6e-3, total_steps=STEPS)
    for step in range(STEPS):
        starts = torch.randint(len(tokens) - LENGTH, (BATCH,))
        batch = torch.stack([tokens[start : start + LENGTH] for start in starts])
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    return model.bfloat16()


def dialog(number: int, tale: str) -> dict[str, object]:
    """A conversation as SpecForge reads it."""
    turns = [{"role": "user", "content": "Tell me a tale."}, {"role": "assistant", "content": tale}]
    return {"id": str(number), "conversations": turns}


def main() -> None:
    tales = [json.loads(line)["text"] for line in (HERE / "tales.jsonl").read_text(encoding="utf-8").splitlines()]
    tokenizer = Tokenizer.from_file(str(HERE / "tokenizer/tokenizer.json"))
    model = trained(torch.tensor([token for tale in tales for token in [*tokenizer.encode(tale).ids, 1]]))
    folder = HERE / "target"
    model.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)  # its writer lets nobody else read it
    (folder / "generation_config.json").unlink()
    # SpecForge finds the target's head through an index of its files, which a model of one file has none of.
    names = sorted(load_file(folder / "model.safetensors"))
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    (folder / "tokenizer.json").unlink(missing_ok=True)
    (folder / "tokenizer.json").symlink_to("../tokenizer/tokenizer.json")
    settings = json.loads((HERE / "tokenizer/tokenizer_config.json").read_text(encoding="utf-8"))
    settings["chat_template"] = CHAT
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    dialogs = "".join(json.dumps(dialog(number, tale)) + "\n" for number, tale in enumerate(tales[:DIALOGS]))
    (HERE / "dialogs.jsonl").write_text(dialogs, encoding="utf-8")


if __name__ == "__main__":
    main()
