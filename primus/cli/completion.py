"""primus completion: click's scripts, made to leave the cursor behind KEY= and SECTION., and to know words with '='."""

from __future__ import annotations

import os

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    split_arg_string,
)

VARIABLE = "_PRIMUS_COMPLETE"  # primus.cli.main answers it


class Bash(BashComplete):
    """Its line is split at '=', too: the words are put together again, and what is said is what comes behind it."""

    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)", 'COMPREPLY+=("$value")\n            [[ $value == *[=./] ]] && compopt -o nospace'
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        words = split_arg_string(os.environ["COMP_WORDS"])
        place = int(os.environ["COMP_CWORD"])
        words = [*words[: place + 1], *([""] if place >= len(words) else [])]
        joined: list[str] = []
        for word in words:
            if joined and (word == "=" or joined[-1].endswith("=")) and joined[-1] != "=":
                joined[-1] += word
            else:
                joined.append(word)
        self._typed = joined[-1].rpartition("=")[0] + "=" if "=" in joined[-1] else ""
        return joined[1:-1], joined[-1]

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{str(item.value).removeprefix(self._typed)}"


class Zsh(ZshComplete):
    """KEY= and SECTION. are added without a space behind them."""

    source_template = ZshComplete.source_template.replace(
        "        compadd -U -V unsorted -a completions\n",
        "        local -a open=(${(M)completions:#*[=./]}) whole=(${completions:#*[=./]})\n"
        "        compadd -U -S '' -V unsorted -a open\n"
        "        compadd -U -V unsorted -a whole\n",
    )


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": Zsh, "fish": FishComplete}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("shell", type=click.Choice(tuple(SHELLS)))
def completion(shell: str) -> None:
    """Print what makes a SHELL complete primus' commands, options, examples, override keys and runs.

    \b
    bash, in ~/.bashrc:                  eval "$(primus completion bash)"
    zsh, in ~/.zshrc, after compinit:    eval "$(primus completion zsh)"
    fish:    primus completion fish > ~/.config/fish/completions/primus.fish
    """
    from primus.cli import cli

    made = SHELLS[shell](cli, {}, "primus", VARIABLE)
    click.echo(made.source_template % made.source_vars())


def answer(instruction: str) -> int:
    """What the script of a shell asks for, printed. Returns the exit code."""
    from primus.cli import cli

    shell, _, what = instruction.partition("_")
    if shell not in SHELLS or what != "complete":
        return 1
    click.echo(SHELLS[shell](cli, {}, "primus", VARIABLE).complete())
    return 0
