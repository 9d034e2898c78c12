"""--engine-arg: what no runtime may be given, whichever it is. Each runtime's module says what else it cannot take."""

from __future__ import annotations

from collections.abc import Iterable

from primus.errors import ConfigError
from primus.experiment.substitute import looks_secret
from primus.launchers.environment import secret


def check(arguments: Iterable[str]) -> None:
    """Raises ConfigError for what is no option, and would be taken for the image, and for what holds a credential.

    The arguments are seen by everyone who can list processes or inspect the container.
    """
    for word in arguments:
        if not word.startswith("-"):
            raise ConfigError(
                f"--engine-arg={word!r}: is no option" if word else "--engine-arg is empty",
                hint="write each as --engine-arg=--NAME=VALUE, or leave it out",
            )
        option, _, rest = word.partition("=")
        name, _, value = rest.partition("=")
        if looks_secret(word) or (option in ("--env", "-e") and value and secret(name, value)):
            raise ConfigError(
                f"--engine-arg {option}={name}: holds a credential" if value else f"--engine-arg {option}: holds one",
                hint="export it under its name and write --env NAME: then nothing shows it",
            )
