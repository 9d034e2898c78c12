"""primus data prepare-megatron"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from primus import offline as network
from primus.cli import inside, note
from primus.cli.options import TARGET
from primus.command import Command
from primus.errors import ConfigError, Problem
from primus.experiment.paths import absent, absolute, exists
from primus.experiment.schema import schema
from primus.job import Mount, with_env, with_inputs

# Megatron's arguments that describe a tokenizer.
_TOKENIZER = (
    *("tokenizer_type", "tokenizer_model", "vocab_size", "vocab_file", "merge_file", "metadata_path", "special_tokens"),
    *("tiktoken_pattern", "tiktoken_num_special_tokens", "tokenizer_sentencepiece_legacy"),
    *("tokenizer_hf_no_use_fast", "tokenizer_hf_no_include_special_tokens", "trust_remote_code"),
    *("null_tokenizer_eod_id", "null_tokenizer_pad_id"),
)
# What a type cannot do without; Megatron would stop, or download a vocabulary.
_NEEDED = {
    "NullTokenizer": ("vocab_size",),
    "NullMultimodalTokenizer": ("vocab_size",),
    "GPT2BPETokenizer": ("vocab_file", "merge_file"),
    "BertWordPieceCase": ("vocab_file",),
    "BertWordPieceLowerCase": ("vocab_file",),
}
_ENDINGS = (".jsonl", ".json", ".txt")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def data() -> None:
    """Make the data files that a backend reads."""


def _tokenizer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Megatron's own arguments, by its table."""
    table = schema("megatron").arguments
    for name in reversed(_TOKENIZER):
        argument = table[name]
        kind: Any = click.Choice(argument.choices) if argument.choices else str
        if argument.type == "int":
            kind = click.IntRange(1 if name == "vocab_size" else -1, 2**31 - 1)  # an ID has 32 bits
        option: dict[str, Any] = {"is_flag": True} if argument.type == "bool" else {"type": kind}
        if argument.type.startswith("list"):
            option["multiple"] = True
        if name == "tokenizer_type":
            option |= {"required": True, "help": "Each of these is Megatron's argument of this name."}
        if name == "tokenizer_model":
            option["help"] = "A directory, a file, or a name on the Hugging Face hub."
        command = click.option(f"--{name.replace('_', '-')}", name, **option)(command)
    return command


@data.command("prepare-megatron", short_help="Text or JSON lines to Megatron's .bin and .idx files.")
@click.argument("sources", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--output", required=True, metavar="PREFIX", type=click.Path(path_type=Path), help="Without .bin, .idx.")
@click.option("--json-key", default="text", show_default=True, help="What holds the text in a line of JSON.")
@click.option("--append-eod", is_flag=True, help="End each document with the tokenizer's end-of-document token.")
@click.option("--overwrite", is_flag=True, help="Replace PREFIX.bin and PREFIX.idx.")
@click.option("--workers", type=click.IntRange(1, 1024), default=1, show_default=True, help="Processes that tokenize.")
@_tokenizer_options
@TARGET
def prepare_megatron(
    sources: tuple[Path, ...],
    output: Path,
    json_key: str,
    append_eod: bool,
    overwrite: bool,
    workers: int,
    accelerator: str,
    **options: Any,
) -> None:
    """Tokenize FILE... into PREFIX.bin and PREFIX.idx, for data_path: [PREFIX].

    A FILE is text (.txt, each line a document) or JSON lines (.jsonl, .json, each line an object), compressed (.gz)
    or not. It runs in the image, as a training does, and needs no GPU.
    """
    wanted, dry = inside.taken(options)  # what is left are the tokenizer's
    prefix = _prefix(output)
    files = tuple(absolute(source) for source in sources)
    experiment = inside.experiment(
        "megatron",
        "cpu",  # whatever the image is for: no device is needed
        stage="data",
        name=f"prepare-{prefix.name}",
        folder=prefix.parent,
        args={name: list(value) if isinstance(value, tuple) else value for name, value in options.items()},
    )
    mounts = (*wanted.mounts, *(Mount(source=file, target=file, read_only=True) for file in files if exists(file)))
    experiment = with_env(experiment, wanted.env)
    if wanted.offline:
        experiment, notes = network.switched(experiment, os.environ)
        for text in notes:
            note(text)
        if wanted.launcher != "direct":
            experiment, more = network.shown_cache(experiment, os.environ)
            mounts = (*mounts, *more)
    experiment, mounts, missing = with_inputs(experiment, mounts, offline=wanted.offline, environ=os.environ)
    needed = _NEEDED.get(options["tokenizer_type"], ("tokenizer_model",))
    lacking = [f"--{name.replace('_', '-')}" for name in needed if options[name] is None]
    wrong = (*_problems(files, wanted.mounts, prefix, overwrite=overwrite), *missing)
    if not json_key:
        wrong = (*wrong, Problem(message="--json-key: is empty", hint="name the key that holds the text"))
    if lacking:
        message = f"--tokenizer-type {options['tokenizer_type']} needs {' and '.join(lacking)}"
        wrong = (*wrong, Problem(message=message))
    if wrong and not (dry or wanted.offline):
        raise ConfigError(wrong)
    job = inside.planned(experiment, accelerator, wanted, prefix.parent, mounts, dry=dry)
    if wanted.offline and not dry:
        network.refuse(wrong, job.image, job.image_id, job.engine, wanted.launcher, os.environ, note)
    for problem in wrong:
        note(str(problem))
    switches = {
        "output": str(prefix),
        "json_key": json_key,
        "append_eod": append_eod,
        "overwrite": overwrite,
        "workers": workers,
        "bar": sys.stderr.isatty(),
    }
    program: Command = import_module("primus.backends.megatron.adapter").preparation(job.experiment, switches, files)
    inside.start(lambda _identity: program, job, wanted, dry=dry)


inside.as_in_run(prepare_megatron)


def _prefix(output: Path) -> Path:
    """The prefix, absolute. Raises ConfigError for what is no file's name: its directory is shown to the container."""
    prefix = absolute(output)
    if prefix.is_dir():
        raise ConfigError(f"--output {output}: is a directory", hint=f"add a name: --output {output / 'NAME'}")
    if prefix.parent == Path(prefix.anchor):
        raise ConfigError(f"--output {output}: lies in the root of all files", hint="name a directory of its own")
    return prefix


def _problems(files: tuple[Path, ...], mounts: tuple[Mount, ...], prefix: Path, *, overwrite: bool) -> list[Problem]:
    """What can be said before any image is touched."""
    found = [Problem(message=f"{file}: is named twice") for file in dict.fromkeys(files) if files.count(file) > 1]
    for file in files:
        if not file.name.removesuffix(".gz").endswith(_ENDINGS):
            message = f"{file}: is neither text nor JSON lines by its name"
            found.append(Problem(message=message, hint=f"it ends in {', '.join(_ENDINGS)}, or one of these and .gz"))
        elif not exists(file) and not any(file.is_relative_to(mount.target) for mount in mounts):
            found.append(Problem(message=f"{file}: {absent(file)} on this machine"))
        elif exists(file) and not file.is_file():
            found.append(Problem(message=f"{file}: is no file", hint="name the files: DIRECTORY/*.jsonl"))
    if prefix.suffix in (".bin", ".idx"):
        found.append(
            Problem(message=f"--output {prefix}: is a prefix", hint=f"write --output {prefix.with_suffix('')}")
        )
    for path in (Path(f"{prefix}.bin"), Path(f"{prefix}.idx")):
        if exists(path) and not overwrite:
            found.append(Problem(message=f"{path}: exists", hint="--overwrite replaces it"))
    return found
