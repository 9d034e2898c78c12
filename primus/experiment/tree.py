"""Files on top of files: `extends`, deep merge, and the record of what each layer replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from primus.errors import ConfigError
from primus.experiment import paths
from primus.experiment.substitute import expand
from primus.experiment.types import COMMAND_LINE, Origin
from primus.experiment.yaml import Map, Node, Scalar, Seq, read, scalar_value

Key = tuple[str, ...]
Shadowed = dict[Key, list[Node]]  # what was said before at a key, the lowest layer first

EMPTY = Map(items={}, keys={}, at=Origin(layer="", file="", line=0))


def load(path: Path, *, layer: str, root: Path, environ: Mapping[str, str], shadowed: Shadowed) -> Map:
    """The file on top of what it extends, with variables replaced. `root` is the directory no path may leave."""
    return _load(paths.real(path), layer, paths.real(root), environ, shadowed, ())


def _load(
    real: Path, layer: str, root: Path, environ: Mapping[str, str], shadowed: Shadowed, chain: tuple[Path, ...]
) -> Map:
    if real in chain:
        cycle = _shown((*chain[chain.index(real) :], real))
        raise ConfigError(f"extends makes a cycle: {cycle}", where=paths.shown(real))
    own = expand(read(real, layer), environ)
    assert isinstance(own, Map)
    result = EMPTY
    for name, at in extended(own):
        parent = _inside(real.parent / name, root, at, (*chain, real))
        inner: Shadowed = {}
        loaded = _load(parent, layer, root, environ, inner, (*chain, real))
        result = merge(result, loaded, shadowed)
        append(shadowed, inner)
    items = {key: value for key, value in own.items.items() if key != "extends"}
    return replace(merge(result, Map(items=items, keys=own.keys, at=own.at), shadowed), at=own.at)


def extended(node: Map) -> list[tuple[str, Origin]]:
    """The files that one extends, as it names them."""
    value = node.items.get("extends")
    if value is None:
        return []
    items = value.items if isinstance(value, Seq) else (value,)
    names = []
    for item in items:
        if not isinstance(item, Scalar) or not item.text or scalar_value(item) is None:
            raise ConfigError("extends takes a file name or a list of file names", where=str(value.at))
        names.append((item.text, item.at))
    return names


def _inside(path: Path, root: Path, at: Origin, chain: tuple[Path, ...]) -> Path:
    real = paths.real(path)
    if not real.is_relative_to(root):
        raise ConfigError(
            f"extends leaves {paths.shown(root)}: {_shown(chain)} -> {real}",
            where=str(at),
            hint="extend files of the same tree; an empty primus.yaml marks the root of a tree of configurations",
        )
    if not paths.is_file(real):
        why = "is no file" if paths.exists(real) else paths.absent(real)
        raise ConfigError(f"extends {_shown(chain)} -> {paths.shown(real)}, which {why}", where=str(at))
    return real


def _shown(chain: tuple[Path, ...]) -> str:
    return " -> ".join(paths.shown(file) for file in chain)


def merge(base: Map, top: Map, shadowed: Shadowed, at: Key = ()) -> Map:
    """`top` over `base`: mappings merge, everything else replaces, and what was replaced goes to `shadowed`."""
    items, keys = dict(base.items), dict(base.keys)
    for key, value in top.items.items():
        below, here = items.get(key), (*at, key)
        if isinstance(below, Map) and isinstance(value, Map):
            value = merge(below, value, shadowed, here)
        elif below is not None:
            for path, leaf in leaves(below, here):
                shadowed.setdefault(path, []).append(leaf)
        items[key], keys[key] = value, top.keys[key]
    return Map(items=items, keys=keys, at=top.at if top.items else base.at)


def append(shadowed: Shadowed, above: Shadowed) -> None:
    """Add what was shadowed inside a tree that has been merged over the rest."""
    for key, nodes in above.items():
        shadowed.setdefault(key, []).extend(nodes)


def leaves(node: Node, at: Key = ()) -> list[tuple[Key, Node]]:
    """Every scalar and list below the node, with its key."""
    if not isinstance(node, Map) or not node.items:
        return [(at, node)]
    return [leaf for key, value in node.items.items() for leaf in leaves(value, (*at, key))]


def nest(dotted: str, value: Node, at: Origin) -> Map:
    """{a: {b: value}} for "a.b"."""
    node: Node = value
    for part in reversed(dotted.split(".")):
        node = Map(items={part: node}, keys={part: at}, at=at)
    assert isinstance(node, Map)
    return node


def unfold(node: Map, sections: frozenset[str]) -> Map:
    """What stands in the `sections`, dotted keys too, as if it stood beside them: {s: {a.b: 1}} is {a: {b: 1}}."""
    items = {key: value for key, value in node.items.items() if key not in sections or not isinstance(value, Map)}
    result = Map(items=items, keys=node.keys, at=node.at)
    for name in sections:
        section = node.items.get(name)
        if isinstance(section, Map):
            for key, value in section.items.items():
                result = merge(result, nest(key, value, section.keys[key]), {})
    return result


def command_line(number: int) -> Origin:
    """The origin of the number-th override (from 1)."""
    return Origin(layer=COMMAND_LINE, file=COMMAND_LINE, line=number)
