"""primus image promote | rollback | channels"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import click

from primus.cli import note
from primus.cli.options import TARGET
from primus.cli.registry import PLAIN_HTTP, REGISTRY, known, open_registry
from primus.cli.settings import with_settings
from primus.errors import ConfigError, ImageError
from primus.image import channels, publish
from primus.image.channels import CHANNELS, Move
from primus.image.registry import Found, Registry


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("channel", metavar="TO", type=click.Choice(CHANNELS))
@click.argument("names", nargs=-1, metavar="[FRAMEWORK]...")
@TARGET
@REGISTRY
@PLAIN_HTTP
def promote(
    source: str, channel: str, names: tuple[str, ...], accelerator: str, registry: str, plain_http: bool
) -> None:
    """Have the channel TO (candidate or stable) name what FROM is: a version or another channel.

    No image is copied or built: the digest stays. Without FRAMEWORK, every image that FROM has. Prints NAME@DIGEST.
    """
    if source == channel:
        raise ConfigError(f"{source} {channel}: is the same channel", hint="promote a version, or candidate to stable")
    tag = channels.tag(source, accelerator)
    found: list[tuple[Registry, Found]] = []
    without = []
    for name in known(names):
        one = open_registry(registry, name, plain_http)
        image = one.manifest(tag)
        if image is not None:
            found.append((one, image))
        elif names:
            raise ImageError(f"{one.name}: has no tag {tag}", hint=publish.nearest(tag, one.tags()))
        else:
            without.append((name, one))
    if not found:
        tags = {tag for _, one in without for tag in one.tags()}
        raise ImageError(f"{registry}: no image has a tag {tag}", hint=publish.nearest(tag, tags))
    if without:
        note(f"without a tag {tag}, and left as they are: {', '.join(name for name, _ in without)}")
    for one, image in found:
        _move(one, channel, accelerator, image, Move(action="promote", digest=image.digest, tag=tag, at=_now()))
        click.echo(f"{one.name}@{image.digest}")


@click.command()
@click.argument("channel", type=click.Choice(CHANNELS), metavar="CHANNEL")
@click.argument("names", nargs=-1, required=True, metavar="FRAMEWORK...")
@TARGET
@REGISTRY
@PLAIN_HTTP
def rollback(channel: str, names: tuple[str, ...], accelerator: str, registry: str, plain_http: bool) -> None:
    """Have CHANNEL name what it was before the present; once more goes back one more. Prints NAME@DIGEST."""
    steps: list[tuple[Registry, Found]] = []
    for name in known(names):
        one = open_registry(registry, name, plain_http)
        moves = _history(one, channel, accelerator)
        stack = channels.before(moves)
        tag = channels.tag(channel, accelerator)
        if len(stack) < 2:
            what = "has never been anything else" if stack else "is not set"
            raise ImageError(f"{one.name}:{tag}: {what}", hint=f"primus image promote VERSION {channel} {name}")
        image = one.manifest(stack[-2].digest)
        if image is None:
            raise ImageError(
                f"{one.name}:{tag}: was {stack[-2].digest} ({stack[-2].tag}), which the registry has no more",
                hint=f"primus image promote VERSION {channel} {name}",
            )
        steps.append((one, image))
    for one, image in steps:
        _move(one, channel, accelerator, image, Move(action="rollback", digest=image.digest, at=_now()))
        click.echo(f"{one.name}@{image.digest}")


@click.command("channels")
@click.argument("names", nargs=-1, metavar="[FRAMEWORK]...")
@TARGET
@REGISTRY
@PLAIN_HTTP
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def channels_(names: tuple[str, ...], accelerator: str, registry: str, plain_http: bool, form: str) -> None:
    """List what each channel is and was, the present last."""
    from primus.cli.image import table

    rows: list[dict[str, Any]] = []
    for name in known(names):
        one = open_registry(registry, name, plain_http)
        for channel in CHANNELS:
            for move in _history(one, channel, accelerator):
                rows.append({"framework": name, "channel": channel, **vars(move)})
    if form == "json":
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        table(("framework", "channel", "action", "tag", "digest", "at"), rows)
    else:
        note(f"no channel of {registry} is set")


def _history(one: Registry, channel: str, accelerator: str) -> tuple[Move, ...]:
    """The channel's moves, and its present if something else set that."""
    moves = channels.read(one.document(channels.history_tag(channel, accelerator)))
    return channels.with_present(moves, one.digest(channels.tag(channel, accelerator)), _now())


def _move(one: Registry, channel: str, accelerator: str, image: Found, move: Move) -> None:
    """Note the move, then make it: killed in between, the same command completes it."""
    tag = channels.tag(channel, accelerator)
    moves = _history(one, channel, accelerator)
    stack = channels.before(moves)
    if move.action == "promote" and stack and stack[-1].digest == image.digest:
        note(f"{one.name}:{tag}: is that already")
        return
    history = channels.history_tag(channel, accelerator)
    one.put_document(history, channels.write((*moves, move)), channels.MEDIA_TYPE)
    one.put(tag, image)
    was = f", was {stack[-1].digest[:19]} ({stack[-1].tag or stack[-1].action})" if stack else ""
    note(f"{one.name}:{tag}: is {image.digest[:19]}{was}")


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


for _command in (promote, rollback, channels_):
    with_settings(_command)
