"""primus examples"""

from __future__ import annotations

from pathlib import Path

import click

from primus import shipped
from primus._version import __version__
from primus.cli import note
from primus.cli.later import later
from primus.command import Command
from primus.errors import ConfigError
from primus.experiment.flatten import one_file
from primus.experiment.paths import absolute, exists, shown


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def examples() -> None:
    """The examples that come with Primus: their names, and a copy to edit."""


@examples.command("list")
@click.argument("words", nargs=-1, metavar="[WORD]...")
def list_(words: tuple[str, ...]) -> None:
    """List the examples that have each WORD in their names. primus config list says more of each."""
    found = [name for name in shipped.names() if all(word.lower() in name.lower() for word in words)]
    if found:
        click.echo("\n".join(found))
    else:
        note(f"no example has {' and '.join(words)} in its name" if words else "no examples came with this Primus")


@examples.command()
@click.argument("name", shell_complete=later("example_names"))
@click.argument("dest", required=False, default=".", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace what is there.")
def copy(name: str, dest: Path, force: bool) -> None:
    """Copy an example to DEST, a file or a directory, as one file that says all that the example says.

    What it extends is written into it, with the comments; presets stay the package's, and so does what it names in
    examples/data/, where there is no examples/. Prints the path.
    """
    name, source = shipped.find(name)
    target = absolute(dest)
    if dest.suffix not in (".yaml", ".yml"):
        target /= source.name
    if exists(target) and (target.is_dir() or not force):
        hint = "name a file" if target.is_dir() else "name another file, or --force replaces it"
        raise ConfigError(f"{shown(target)}: is there already", hint=hint)
    head = f"# primus examples copy {name}, of Primus {__version__}\n"
    Command(argv=(), files={target: head + one_file(source)}).write()
    click.echo(shown(target))
    note(f"primus run --config {shown(target)}")
