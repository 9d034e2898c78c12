"""Channels: tags that move, candidate-<accelerator> and stable-<accelerator>, and what each one was before.

The history is kept in the registry itself, as a small document under the tag <channel>-<accelerator>.history: whoever
rolls back need not be who promoted, nor sit at the same machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

CHANNELS = ("candidate", "stable")
MEDIA_TYPE = "application/vnd.primus.channel.v1+json"


@dataclass(frozen=True, kw_only=True)
class Move:
    """One change of a channel: `promote`, `rollback`, or `found`, a change that something else made."""

    action: str
    digest: str
    tag: str = ""  # that the digest was promoted from
    at: str = ""


def tag(name: str, accelerator: str) -> str:
    """The tag of a channel or version for an accelerator."""
    return f"{name}-{accelerator}"


def history_tag(channel: str, accelerator: str) -> str:
    return f"{tag(channel, accelerator)}.history"


def read(document: Mapping[str, Any]) -> tuple[Move, ...]:
    return tuple(Move(**one) for one in document.get("moves", ()))


def write(moves: Iterable[Move]) -> dict[str, Any]:
    return {"moves": [asdict(move) for move in moves]}


def before(moves: Iterable[Move]) -> tuple[Move, ...]:
    """What the channel has been, the present last: a rollback takes away what it went back from."""
    stack: list[Move] = []
    for move in moves:
        if move.action == "rollback":
            stack = stack[:-1]
        else:
            stack.append(move)
    return tuple(stack)


def with_present(moves: tuple[Move, ...], digest: str, at: str) -> tuple[Move, ...]:
    """The history, with the channel as it was found, where something else than we moved it."""
    stack = before(moves)
    if not digest or (stack and stack[-1].digest == digest):
        return moves
    return (*moves, Move(action="found", digest=digest, at=at))
