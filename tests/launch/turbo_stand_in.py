"""Primus-Turbo's two functions in plain PyTorch, to see that Megatron's layers call them as they are meant to.

Runs in a Python with Megatron that has neither Primus-Turbo nor Transformer Engine: their classes are stood in for.
"""

import functools
import sys
import types

import torch

from primus.backends.megatron import stand_ins, turbo

stand_ins.install()
from megatron.core.models.gpt import gpt_layer_specs  # noqa: E402
from megatron.core.transformer.enums import AttnMaskType  # noqa: E402
from megatron.core.transformer.moe.experts import GroupedMLPSubmodules  # noqa: E402


def flash_attn_func(q, k, v, softmax_scale=None, causal=False, deterministic=False):
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=softmax_scale, enable_gqa=True
    )
    return out.transpose(1, 2)


def grouped_gemm(a, b, group_lens, trans_b):
    assert (group_lens.dtype, trans_b) == (torch.int64, True)
    parts = torch.split(a, group_lens.tolist())
    return torch.cat([part @ weight.T for part, weight in zip(parts, b, strict=True)])


ops = types.ModuleType("primus_turbo.pytorch.ops")
ops.flash_attn_func, ops.grouped_gemm = flash_attn_func, grouped_gemm
sys.modules |= {"primus_turbo": ops, "primus_turbo.pytorch": ops, "primus_turbo.pytorch.ops": ops}


class Attention(torch.nn.Module):
    """What TEDotProductAttention does, in sequence, batch, head, size."""

    def __init__(self, config, softmax_scale=None):
        super().__init__()
        self.config, self.scale = config, softmax_scale

    def forward(self, query, key, value, attention_mask, attn_mask_type, bias=None, packed=None):
        heads = query.shape[2] // key.shape[2]
        key, value = (tensor.repeat_interleave(heads, 2) for tensor in (key, value))
        scores = torch.einsum("sbhd,tbhd->bhst", query, key) * (self.scale or query.shape[-1] ** -0.5)
        if attn_mask_type == AttnMaskType.causal:
            scores = scores.masked_fill(torch.ones_like(scores[0, 0]).triu(1).bool(), float("-inf"))
        return torch.einsum("bhst,tbhd->sbhd", scores.softmax(-1), value).flatten(2)


class Grouped(torch.nn.Module):
    """What TEGroupedLinear does."""

    num_gemms = 3

    def __init__(self):
        super().__init__()
        for expert in range(self.num_gemms):
            setattr(self, f"weight{expert}", torch.nn.Parameter(torch.randn(5, 4)))

    def forward(self, x, m_splits):
        parts = x.split(m_splits)
        return torch.cat([part @ getattr(self, f"weight{i}").T for i, part in enumerate(parts)]), None


torch.manual_seed(0)
config = types.SimpleNamespace(deterministic_mode=False)
plain, fast = Attention(config, softmax_scale=0.3), turbo.attention(Attention)(config, softmax_scale=0.3)
query = torch.randn(7, 2, 4, 8, requires_grad=True)
key, value = torch.randn(7, 2, 2, 8), torch.randn(7, 2, 2, 8)
for mask in (AttnMaskType.causal, AttnMaskType.no_mask):
    results = [layer(query, key, value, None, mask) for layer in (plain, fast)]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(torch.autograd.grad(result.square().sum(), query)[0] for result in results))

one, other = Grouped(), turbo.grouped_linear(Grouped)()
other.load_state_dict(one.state_dict())  # the parameters are the same, by name and shape
x, rows = torch.randn(6, 4), [2, 0, 4]
torch.testing.assert_close(one(x, rows)[0], other(x, rows)[0])
for layer in (one, other):
    layer(x, rows)[0].square().sum().backward()
for first, second in zip(one.parameters(), other.parameters(), strict=True):
    torch.testing.assert_close(first.grad, second.grad)

# A layer's whole specification, local here, with the same replacement as Transformer Engine's classes get.
spec = gpt_layer_specs.get_gpt_layer_local_spec()
attention = spec.submodules.self_attention.submodules
new = turbo.replaced(spec, {attention.core_attention: Attention})
changed = new.submodules.self_attention.submodules
assert changed.core_attention is Attention is not attention.core_attention
assert changed.linear_qkv is attention.linear_qkv
assert new.module is spec.module
experts = functools.partial(list, submodules=GroupedMLPSubmodules(linear_fc1=Grouped, linear_fc2=Attention))
assert turbo.replaced(experts, {Grouped: Attention}).keywords["submodules"].linear_fc1 is Attention
assert experts.keywords["submodules"].linear_fc1 is Grouped
print("done")
