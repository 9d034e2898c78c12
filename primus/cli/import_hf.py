"""primus config import-hf"""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import click

from primus.cli import note
from primus.cli.options import PRESET_DIR
from primus.errors import ConfigError
from primus.experiment import paths
from primus.models.gpus import SKUS

FRAMEWORKS = ("megatron", "torchtitan", "maxtext", "megatron_bridge")


@click.command("import-hf", short_help="Write the preset of a model from its Hugging Face config.json.")
@click.argument("source", type=click.Path(exists=True, path_type=Path), metavar="DIR|config.json")
@click.option("--framework", type=click.Choice(FRAMEWORKS), required=True)
@click.option("--name", required=True, help="The preset's name: models/<framework>/NAME.yaml.")
@click.option(
    "--output",
    metavar="DIR",
    help="A directory of presets, or - to print.  [default: the first --preset-dir, or this checkout's primus/configs]",
)
@click.option(
    "--example",
    type=click.Choice(tuple(SKUS), case_sensitive=False),
    metavar="SKU",
    help="Also an experiment on mock data for this GPU.",
)
@click.option("--force", is_flag=True, help="Write it although not everything in config.json can be said.")
@PRESET_DIR
def import_hf(
    source: Path,
    framework: str,
    name: str,
    output: str | None,
    example: str | None,
    force: bool,
    preset_dirs: tuple[Path, ...],
) -> None:
    """Write the preset of a model from its Hugging Face config.json, each value with where it comes from.

    What the file says and the backend cannot be told is listed, and nothing is written but with --force.

    \b
    primus config import-hf ~/models/TinyLlama-1.1B --framework megatron --name tinyllama_1.1B --example MI300X
    """
    # Here, so that the other commands of this group do not wait for what only this one needs.
    from primus.models import example as examples
    from primus.models import huggingface
    from primus.models.architecture import parameters
    from primus.models.name import billions, comparison
    from primus.models.preset import Preset, text

    name = name.removesuffix(".yaml")
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise ConfigError(f"--name {name!r}: is no name of a preset", hint="letters, digits and . _ + -")
    reading = huggingface.load(source)
    preset: Preset = import_module(f"primus.models.{framework}").preset(reading)
    file = str(source / "config.json" if source.is_dir() else source)
    problems = [replace(item, where=item.where or file) for item in (*reading.unsupported, *preset.unsupported)]
    if problems and not force:
        last = replace(problems[-1], hint=problems[-1].hint or "--force writes the preset without it")
        raise ConfigError([*problems[:-1], last])
    for problem in problems:
        note(f"--force: {problem.message}")
    model = reading.architecture
    counted = comparison(name, model)
    head = [f"{reading.name or name}, a model of type {reading.model_type}: {billions(parameters(model))} parameters."]
    head += ["Behind each value: the key of config.json that it comes from."]
    head += [f"Not said here: {problem.message}" for problem in problems]
    preset_text = text(head, preset.rows)
    experiment = examples.experiment(framework, name, model, sku=example, rows=preset.rows) if example else ""
    note(counted)
    if output == "-":
        click.echo(preset_text + (f"\n# file: {name}-pretrain.yaml\n{experiment}" if experiment else ""), nl=False)
        return
    folder = _folder(output, preset_dirs)
    files = {folder / "models" / framework / f"{name}.yaml": preset_text}
    if experiment:
        root = folder.parent.parent if folder.parts[-2:] == ("primus", "configs") else folder
        files[root / "examples" / framework / "configs" / str(example) / f"{name}-pretrain.yaml"] = experiment
    _write(files)
    if output is not None and folder != _default():
        note(f"read with --preset-dir {paths.shown(folder)}")


def _folder(output: str | None, preset_dirs: tuple[Path, ...]) -> Path:
    """The directory of presets to write to: the one that is read first."""
    if output is not None:
        if output.endswith((".yaml", ".yml")):
            raise ConfigError(
                f"--output {output}: is the name of a file, and a directory of presets is wanted",
                hint="--name names the file; --output - prints, for you to put it where you like",
            )
        return paths.absolute(output)
    if preset_dirs:
        return preset_dirs[0].absolute()
    if (default := _default()) is None:
        raise ConfigError(
            "there is no directory of presets here to write to",
            hint="name one: --output DIR, to be read with --preset-dir DIR; or --output - to print",
        )
    return default


def _default() -> Path | None:
    """The presets of the checkout or project that the current directory is in."""
    here = Path.cwd()
    for directory in (here, *here.parents):
        if (directory / "primus.yaml").is_file() or (directory / ".git").exists():
            return directory / "primus" / "configs"
    return None


def _write(files: dict[Path, str]) -> None:
    """Write the files that are not there as they should be; nothing at all if one is there and differs."""
    for path, content in files.items():
        if paths.exists(path) and (not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != content):
            raise ConfigError(
                "is there already, with other contents",
                where=paths.shown(path),
                hint="remove it, or choose another --name",
            )
    for path, content in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", where=paths.shown(path)) from None
        click.echo(paths.shown(path))
