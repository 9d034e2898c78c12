"""primus data prepare-megatron"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from primus import offline as network
from primus.cli import note
from primus.cli.given import checkout, clean_environment, print_commands, refuse_secrets, take_env
from primus.cli.locked import LOCKS
from primus.cli.options import REGISTRY, TARGET
from primus.cli.run import run
from primus.cli.settings import with_settings
from primus.cli.signing import verify_key
from primus.command import Command
from primus.errors import ConfigError, Problem
from primus.experiment import Experiment
from primus.experiment.paths import absolute, exists
from primus.experiment.schema import schema
from primus.image import manifest
from primus.image.names import reference
from primus.job import Job, Mount, default_engine, with_env, with_inputs
from primus.plan import image_of, select

# Options of `primus run` that mean the same here: the same objects.
_AS_IN_RUN = ("launcher", "image", "engine", "pull", "offline", "mounts", "env", "engine_args", "dev", "dry_run")
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
        kind: Any = click.Choice(argument.choices) if argument.choices else int if argument.type == "int" else str
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
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes that tokenize.")
@_tokenizer_options
@TARGET
@REGISTRY
@LOCKS
def prepare_megatron(
    sources: tuple[Path, ...],
    output: Path,
    json_key: str,
    append_eod: bool,
    overwrite: bool,
    workers: int,
    accelerator: str,
    registry: str,
    lock: Path | None,
    no_lock: bool,
    image_id: str,
    launcher: str | None,
    image: str | None,
    engine: str | None,
    pull: str,
    offline: bool,
    mounts: tuple[str, ...],
    env: tuple[str, ...],
    engine_args: tuple[str, ...],
    dev: bool,
    dry_run: bool,
    **tokenizer: Any,
) -> None:
    """Tokenize FILE... into PREFIX.bin and PREFIX.idx, for data_path: [PREFIX].

    A FILE is text (.txt, each line a document) or JSON lines (.jsonl, .json, each line an object), compressed (.gz)
    or not. It runs in the image, as a training does, and needs no GPU.
    """
    passed = take_env(env)
    refuse_secrets(engine_args)
    for text in clean_environment():
        note(text)
    prefix = absolute(output)
    files = tuple(absolute(source) for source in sources)
    experiment = Experiment(
        work_group="data",
        user_name=_user(),
        exp_name=f"prepare-{prefix.name}",
        workspace=str(prefix.parent),
        framework="megatron",
        stage="data",
        accelerator="cpu",  # whatever the image is for: no device is needed
        args={name: list(value) if isinstance(value, tuple) else value for name, value in tokenizer.items()},
        env={},
        origins={},
        source=Path(),
    )
    given = tuple(Mount.parse(text) for text in mounts)
    shown = (*given, *(Mount(source=file, target=file, read_only=True) for file in files if exists(file)))
    experiment = with_env(experiment, passed)
    chosen = launcher or ("direct" if manifest.IN_IMAGE.exists() else "container")
    if offline:
        experiment, notes = network.switched(experiment, os.environ)
        for text in notes:
            note(text)
        if chosen != "direct":
            experiment, more = network.shown_cache(experiment, os.environ)
            shown = (*shown, *more)
    experiment, shown, missing = with_inputs(experiment, shown, offline=offline, environ=os.environ)
    needed = _NEEDED.get(tokenizer["tokenizer_type"], ("tokenizer_model",))
    options = [f"--{name.replace('_', '-')}" for name in needed if tokenizer[name] is None]
    lacking = [Problem(message=f"--tokenizer-type {tokenizer['tokenizer_type']} needs {' and '.join(options)}")]
    wrong = (*_problems(files, given, prefix, overwrite=overwrite), *(lacking if options else ()), *missing)
    runtime = engine or default_engine()
    locked = (
        None if image or no_lock or chosen == "direct" else select(lock, "megatron", accelerator, note, verify_key())[0]
    )
    by_tag = reference("megatron", accelerator, registry=registry)
    name = image or (locked.reference(registry, "megatron") if locked else by_tag)
    identifier = locked.id if locked else image_id
    if wrong and not (dry_run or offline):
        raise ConfigError(wrong)
    if offline and not dry_run:
        network.refuse(wrong, name, identifier, runtime, chosen, os.environ, note)
    for problem in wrong:
        note(str(problem))
    job = Job(
        experiment=experiment,
        image=image_of(name, runtime, chosen, dry=dry_run, say=note),
        image_id=identifier,
        run_dir=prefix.parent,
        mounts=tuple(mount for mount in dict.fromkeys(shown) if mount.target != prefix.parent),
        env_names=passed,
        engine=runtime,
        engine_args=engine_args,
        pull=pull if (registry or image or (locked and locked.digest)) and not offline else "never",
        dev=checkout() if dev else None,
    )
    switches = {
        "output": str(prefix),
        "json_key": json_key,
        "append_eod": append_eod,
        "overwrite": overwrite,
        "workers": workers,
        "bar": sys.stderr.isatty(),
    }
    inner: Command = import_module("primus.backends.megatron.adapter").preparation(job.experiment, switches, files)
    module = import_module(f"primus.launchers.{chosen}")
    if dry_run:
        print_commands(module.dry_run_other(inner, job, dict(os.environ)))
        return
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)  # as the user, before the engine could as root
    except OSError as error:
        raise ConfigError(f"cannot write to {prefix.parent}: {error.strerror}") from error
    sys.exit(module.run(inner, job))


prepare_megatron.params.extend(option for option in run.params if option.name in _AS_IN_RUN)
with_settings(prepare_megatron)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name
        return str(os.getuid())


def _problems(files: tuple[Path, ...], mounts: tuple[Mount, ...], prefix: Path, *, overwrite: bool) -> list[Problem]:
    """What can be said before any image is touched."""
    found = []
    for file in files:
        if not file.name.removesuffix(".gz").endswith(_ENDINGS):
            message = f"{file}: is neither text nor JSON lines by its name"
            found.append(Problem(message=message, hint=f"it ends in {', '.join(_ENDINGS)}, or one of these and .gz"))
        elif not exists(file) and not any(file.is_relative_to(mount.target) for mount in mounts):
            found.append(Problem(message=f"{file}: does not exist on this machine"))
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
