"""Runs inside the image, once and before any training: text becomes the .bin and .idx files that Megatron reads.

python -m primus.backends.megatron.prepare --output=PREFIX --json-key=text --tokenizer-... -- FILE...
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from primus.backends.megatron import stand_ins
from primus.backends.megatron.sources import Line, document, lines, published
from primus.cli import note, report
from primus.errors import ConfigError, PrimusError

stand_ins.install()

from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder  # noqa: E402
from megatron.core.tokenizers.utils.build_tokenizer import build_tokenizer  # noqa: E402
from megatron.training.arguments import _add_tokenizer_args  # noqa: E402

LABEL = "tokenizing"


class Encoder:
    """Lines to tokens; where there are several processes, each has its copy."""

    def __init__(self, tokenizer: Any, key: str, *, append_eod: bool) -> None:
        self.tokenizer, self.key = tokenizer, key
        self.end = [tokenizer.eod] if append_eod else []

    def __call__(self, line: Line) -> tuple[list[int], int]:
        """The document's tokens, none if it is empty; and the bytes reached."""
        tokens = self.tokenizer.tokenize(document(line, self.key))
        return ([*tokens, *self.end] if len(tokens) else []), line.reached


class _Terminal:
    """Standard error, when it ends in somebody's terminal that this process cannot see."""

    def isatty(self) -> bool:
        return True

    def __getattr__(self, name: str) -> object:
        return getattr(sys.stderr, name)


def write(prefix: Path, documents: Iterator[tuple[list[int], int]], total: int, dtype: type, *, bar: bool) -> int:
    """Write the documents at `prefix` and show how far it is. Returns their number, for the log also that of tokens."""
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
    file: Any = _Terminal() if bar else sys.stderr
    with click.progressbar(length=total, label=LABEL, file=file, width=40, update_min_steps=total // 1000) as progress:
        reached = empty = 0
        for tokens, now in documents:
            if tokens:
                builder.add_document(tokens, [len(tokens)])
            else:
                empty += 1
            if not bar:  # click shows a change of the label where it cannot show a bar
                progress.label = f"{LABEL}: {now * 10 // total * 10} %"
            progress.update(now - reached)
            reached = now
    builder.finalize(f"{prefix}.idx")
    if empty:
        note(f"{empty} empty documents left out")
    if builder.sequence_lengths:
        note(f"{len(builder.sequence_lengths)} documents, {sum(builder.sequence_lengths)} tokens")
    return len(builder.sequence_lengths)


def tokenizer_of(args: argparse.Namespace) -> Any:
    """Megatron's tokenizer, from its own arguments."""
    args.pad_vocab_size = False  # that is a model's matter
    try:  # each tokenizer's library has its own way to say no
        return build_tokenizer(args)
    except (
        OSError,
        ValueError,
        TypeError,
        RuntimeError,
        AssertionError,
    ) as error:
        said = str(error) or "its files are not what it reads"
        raise ConfigError(f"--tokenizer-type {args.tokenizer_type}: {said}") from error


def prepare(args: argparse.Namespace) -> None:
    tokenizer = tokenizer_of(args)
    if args.append_eod and tokenizer.eod is None:
        raise ConfigError(f"--append-eod: {args.tokenizer_type} has no end-of-document token")
    encode = Encoder(tokenizer, args.json_key, append_eod=args.append_eod)
    total = sum(Path(path).stat().st_size for path in args.sources)
    dtype = DType.optimal_dtype(tokenizer.vocab_size)
    with published(Path(args.output), overwrite=args.overwrite) as new:
        if args.workers == 1:
            found = write(new, map(encode, lines(args.sources)), total, dtype, bar=args.bar)
        else:
            with multiprocessing.Pool(args.workers, initializer=_unattended) as pool:
                documents = pool.imap(encode, lines(args.sources), chunksize=64)
                found = write(new, documents, total, dtype, bar=args.bar)
        if not found:
            raise ConfigError(f"{', '.join(args.sources)}: no document with any token")


def _unattended() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def main() -> None:
    parser = _add_tokenizer_args(argparse.ArgumentParser(allow_abbrev=False))
    for name, options in _OPTIONS.items():
        parser.add_argument(name, **options)
    args = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the processes are the parallelism
    stop: Callable[..., Any] = lambda number, _frame: sys.exit(128 + number)  # noqa: E731
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        prepare(args)
    except PrimusError as error:
        report(error)
        sys.exit(error.exit_code)
    print(args.output)


_OPTIONS: dict[str, dict[str, Any]] = {
    "--output": {"required": True},
    "--json-key": {"required": True},
    "--append-eod": {"action": "store_true"},
    "--overwrite": {"action": "store_true"},
    "--workers": {"type": int, "default": 1},
    "--bar": {"action": "store_true"},
    "sources": {"nargs": "+"},
}

if __name__ == "__main__":
    main()
