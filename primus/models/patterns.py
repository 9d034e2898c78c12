"""Which layers have something, as the text Megatron takes for it: ([0]*1+[1]*26)."""

from __future__ import annotations

import ast
from itertools import groupby
from typing import Any


def written(layers: tuple[bool, ...]) -> str:
    """The layers as a pattern: runs of the shortest part that repeats."""
    size = next(
        size
        for size in range(1, len(layers) + 1)
        if len(layers) % size == 0 and layers == layers[:size] * (len(layers) // size)
    )
    runs = "+".join(f"[{int(value)}]*{len(list(run))}" for value, run in groupby(layers[:size]))
    times = len(layers) // size
    return f"({runs})" if times == 1 else f"[{int(layers[0])}]*{times}" if size == 1 else f"({runs})*{times}"


def read(text: str) -> tuple[bool, ...]:
    """The layers of a pattern. Raises ValueError for what is none."""
    try:
        return tuple(bool(item) for item in _value(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError(f"{text!r} is no pattern of layers") from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value < 10_000:
        return node.value
    if isinstance(node, ast.List):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
        left, right = _value(node.left), _value(node.right)
        return left + right if isinstance(node.op, ast.Add) else left * right
    raise ValueError(f"{ast.unparse(node)!r} is no pattern of layers")
