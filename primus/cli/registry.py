"""What the commands of a registry share."""

from __future__ import annotations

import click

from primus.cli import note
from primus.errors import ConfigError
from primus.experiment.schema import frameworks
from primus.image.names import repository, take_apart
from primus.image.registry import Registry

REGISTRY = click.option(
    "--registry",
    required=True,
    metavar="HOST[:PORT]/PATH",
    envvar="PRIMUS_REGISTRY",
    show_envvar=True,
    help="Where the images are published.",
)
PLAIN_HTTP = click.option(
    "--plain-http", is_flag=True, help="The registry speaks no https. (Loopback is tried without it anyway.)"
)


def open_registry(registry: str, framework: str, plain_http: bool = False) -> Registry:
    """The repository of a framework's image."""
    name = take_apart(repository(framework, registry=registry))
    return Registry(name.host, name.path, plain_http=plain_http, say=note)


def known(names: tuple[str, ...]) -> tuple[str, ...]:
    """The frameworks named, or all. Raises ConfigError for another."""
    from primus.cli.image import known as suggestion

    for name in names:
        if name not in frameworks():
            raise ConfigError(f"{name}: there is no such image", hint=suggestion(name))
    return names or tuple(frameworks())
