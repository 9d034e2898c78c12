"""The command line: parse, call, print. Each command's module is imported when that command is used."""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from primus._version import __version__
from primus.errors import LaunchError, PrimusError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# name -> (where it lives, its line in the list): the list must not cost the import of what it lists.
_COMMANDS = {
    "run": ("primus.cli.run:run", "Train: in a container, or directly inside the image."),
    "runs": ("primus.cli.runs:runs", "List runs and how they stand."),
    "logs": ("primus.cli.runs:logs", "Print what a run printed, or follow it."),
    "report": ("primus.cli.reports:report", "Write a page about one run, or several side by side."),
    "config": ("primus.cli.config:config", "Show, check, list and compare experiments, without running anything."),
    "examples": ("primus.cli.examples:examples", "List the examples, and copy one to edit."),
    "data": ("primus.cli.data:data", "Make the data files that a backend reads."),
    "tune": ("primus.cli.tune:tune", "Find the fastest kernels for a training's matrix products."),
    "image": ("primus.cli.image:image", "Build, publish, lock and fetch the images."),
    "doctor": ("primus.cli.doctor:doctor", "Look for what keeps a training from running on this machine."),
    "completion": ("primus.cli.completion:completion", "Print what makes a shell complete primus' command lines."),
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [CompletionItem(name, help=line) for name, (_, line) in _COMMANDS.items() if name.startswith(incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], _COMMANDS, 1, 0.5)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="primus", message="%(prog)s %(version)s")
def cli() -> None:
    """Train models on AMD GPUs, each backend in its own image.

    \b
    primus run --config examples/torchtitan/configs/CPU/llama3_tiny-pretrain.yaml
    primus config check examples/maxtext/configs/MI300X/*.yaml
    docker buildx bake maxtext
    """


def main() -> None:
    """The console script. Exit codes: 0 ok, 2 usage or configuration, 3 image, 4 launch, else the training's own."""
    try:
        Path.cwd()
    except FileNotFoundError:
        sys.exit("error: the current directory does not exist any more")
    if asked := os.environ.get("_PRIMUS_COMPLETE"):
        from primus.cli.completion import answer

        sys.exit(answer(asked))
    try:
        cli(prog_name="primus")
    except PrimusError as error:
        report(error)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.filename is None and error.errno not in _OUTPUT_LOST:
            raise
        report(LaunchError(f"{error.filename or 'cannot write what is printed'}: {error.strerror}"))
        if sys.stdout is sys.__stdout__:  # else Python tries once more at its end, and says so
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(LaunchError.exit_code)


_OUTPUT_LOST = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def report(error: PrimusError) -> None:
    """Say what is wrong, each problem with its hint, on stderr."""
    for problem in error.problems:
        where = f"{problem.where}: " if problem.where else ""
        click.echo(click.style("error: ", fg="red", bold=True) + where + problem.message, err=True)
        if problem.hint:
            click.echo(click.style("hint: ", fg="cyan") + problem.hint, err=True)


def note(text: str) -> None:
    """Something the user should know, on stderr."""
    click.echo(f"primus: {text}", err=True)
