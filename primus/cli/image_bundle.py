"""primus image bundle | load"""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import click

from primus.cli import bundled, note
from primus.cli.image_lock import of_this_machine
from primus.cli.later import later
from primus.cli.locked import LOCK
from primus.cli.options import ACCELERATOR, ALLOW_UNKNOWN, COUNT, ENGINE, PRESET_DIR, REGISTRY, ExperimentFile
from primus.cli.registry import known
from primus.cli.settings import with_settings
from primus.cli.signing import SIGN_KEY, VERIFY_KEY, Signer, check_bundle, verify_key
from primus.cli.slurm import STEP
from primus.errors import ConfigError, ImageError, LaunchError, PrimusError
from primus.experiment import load_experiment
from primus.experiment.paths import absolute, shown
from primus.image import bundle as bundles
from primus.image import bundling, documents, load
from primus.image import content as contents
from primus.image import lock as locks
from primus.image.bundle import Image, Manifest
from primus.image.engine import Client, digests_in
from primus.image.lock import Locked
from primus.image.names import build_command, reference, take_apart
from primus.image.sbom import need
from primus.image.transfer import mb
from primus.job import Slurm, default_engine
from primus.launchers import on_nodes
from primus.plan import select


@click.command("bundle")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE")
@click.option("--framework", "names", multiple=True, metavar="FRAMEWORK", help="Have its image in it.")
@click.option(
    "--config",
    "configs",
    type=ExperimentFile(),
    shell_complete=later("config_file"),
    multiple=True,
    help="Have the experiment in it, what it reads, and the image it runs in.",
)
@ACCELERATOR
@REGISTRY
@LOCK
@click.option(
    "--since",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="LOCK",
    help="Leave out what the images of this lock have: for hosts that have them.",
)
@click.option(
    "--wheels",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="The launcher's wheels.  [default: they are made from this checkout]",
)
@SIGN_KEY
@click.option("--no-documents", is_flag=True, help="Leave the SBOM and the provenance of each image out.")
@ENGINE
@PRESET_DIR
@ALLOW_UNKNOWN
@click.option("--dry-run", is_flag=True, help="Say what would be in it, and make nothing.")
def bundle_(
    out: Path,
    names: tuple[str, ...],
    configs: tuple[Path, ...],
    accelerator: str | None,
    registry: str,
    lock: Path | None,
    since: Path | None,
    wheels: Path | None,
    sign_key: Path | None,
    no_documents: bool,
    engine: str | None,
    preset_dirs: tuple[Path, ...],
    allow_unknown: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Write images, experiments with what they read, and the launcher into one file, for hosts without a network.

    The images are those that primus run takes here: what is locked, else by their tag. Prints FILE.
    """
    if not (names or configs):
        raise ConfigError("nothing is named that it should hold", hint="--framework NAME, or --config FILE")
    out = absolute(out)
    signer = Signer(sign_key) if sign_key else None
    if not no_documents:
        need()
    client = Client(engine or default_engine())
    experiments = bundled.Experiments()
    wanted = {(name, accelerator or "rocm") for name in (known(names) if names else ())}
    for config in configs:
        experiment = load_experiment(
            config, preset_dirs=preset_dirs, accelerator=accelerator, allow_unknown=allow_unknown
        )
        experiments.add(experiment, os.environ, note)
        wanted.add((experiment.framework, experiment.accelerator))
    client.check()
    chosen = {key: _chosen(client, *key, registry, lock) for key in sorted(wanted)}
    images = tuple(bundling.planned(client, _image(key, one)) for key, one in chosen.items())
    had = _since(client, absolute(since)) if since else ()
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    time = int(epoch) if epoch.isdigit() else max(bundling.created(client.about(one.id) or {}) for one in images)
    made = Manifest(time=time, images=images, since=had, members={}, experiments=tuple(sorted(experiments.files)))
    files: dict[str, bundling.Content] = {
        **experiments.files,
        **experiments.data,
        locks.NAME: locks.text({key: _signed(one, signer) for key, one in chosen.items()}).encode(),
        "README.md": bundled.readme(out.name, made, experiments.flags, signed=signer is not None).encode(),
    }
    needed = bundling.estimate(client, images) + bundled.size_of(files)
    if dry_run:
        for image in images:
            left = bundles.shared(image.diff_ids, [one.diff_ids for one in had])
            click.echo(f"{image.tagged}  {image.id}  {len(image.layers) - left} of {len(image.layers)} layers")
        for line in bundled.listed(files):
            click.echo(line)
        note(f"{shown(out)} would take about {mb(needed)}, and the launcher's wheels")
        return
    bundling.check_room(out, needed)
    with tempfile.TemporaryDirectory() as scratch:
        files |= bundled.wheels(wheels and absolute(wheels), Path(scratch), time, note, signed=signer is not None)
        plan = bundling.Plan(
            images=images,
            since=had,
            files=files,
            experiments=made.experiments,
            time=time,
            about=(lambda image: {}) if no_documents else (lambda image: _documents(client, image)),
            sign=(lambda text: signer.sign(text).encode()) if signer else None,
        )
        bundling.write(plan, out, client, note)
    note(f"{shown(out)}: {mb(out.stat().st_size)}, {len(images)} images, {len(made.experiments)} experiments")
    click.echo(shown(out))


def _chosen(client: Client, framework: str, accelerator: str, registry: str, lock: Path | None) -> Locked:
    """The image that a run of the framework takes here, as a lock says it."""
    one, _ = select(lock, framework, accelerator, note)
    name = one.reference(registry, framework) if one else reference(framework, accelerator, registry=registry)
    about = client.about(name) or (client.about(one.id) if one else None)
    if about is None or (one and one.id != about["Id"]):
        raise ImageError(
            f"{name} is not on this machine"
            if about is None
            else f"{name} is {about['Id']} here, not {one and one.id}",
            hint=f"fetch it: primus image pull {framework}; or build it: {build_command(framework, accelerator)}",
        )
    if one:
        return one
    parts = take_apart(name)
    found = of_this_machine(client, name.removesuffix(f":{parts.tag}"), parts.tag)
    assert found is not None
    return replace(found, digest=next(iter(digests_in(parts.repository, about)), ""))


def _signed(one: Locked, signer: Signer | None) -> Locked:
    """What is locked, signed with our key where nobody has signed it: a digest that it has not got stays empty."""
    if signer is None or one.signature:
        return one
    return replace(one, signature=asdict(signer.image(one.name, one.digest, one.id)))


def _documents(client: Client, image: Image) -> dict[str, bytes]:
    note(f"{image.tagged}: SBOM and provenance ...")
    content = contents.of_image(client.engine, image.id)
    return {one.name: one.text.encode() for one in documents.of(image.tagged, client.about(image.id) or {}, content)}


def _image(key: tuple[str, str], one: Locked) -> Image:
    return Image(framework=key[0], accelerator=key[1], name=one.name, tag=one.tag, id=one.id, digest=one.digest)


def _since(client: Client, path: Path) -> tuple[Image, ...]:
    """The images of another lock, with their layers, which only an engine that has them can say."""
    found = tuple(bundling.planned(client, _image(key, one)) for key, one in sorted(locks.read(path).items()))
    if absent := [one for one in found if not one.layers]:
        names = ", ".join(f"{one.tagged} ({one.id[:19]})" for one in absent)
        raise ImageError(f"--since {shown(path)}: not on this machine: {names}", hint="fetch them: primus image pull")
    return found


@click.command("load")
@click.argument("bundle", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--framework", "names", multiple=True, metavar="FRAMEWORK", help="Load only its image.")
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where experiments, data, wheels and lock go.  [default: the bundle's name, in this directory]",
)
@VERIFY_KEY
@ENGINE
@click.option("--launcher", type=click.Choice(["slurm"]), help="Load the images on each node of a job; FILE is shared.")
@click.option("--nodes", type=COUNT, help="Of the job.  [default: those of the job that this is typed in]")
@STEP
@click.option("--slurm-task", is_flag=True, hidden=True)
@click.option("--manifest", default="", metavar="SHA256", hidden=True)
def load_(
    bundle: Path,
    names: tuple[str, ...],
    to: Path | None,
    engine: str | None,
    launcher: str | None,
    nodes: int | None,
    slurm_task: bool,
    manifest: str,
    **slurm_options: str | None,
) -> None:
    """Check every byte of a bundle, load its images into the engine, and put its files into a directory.

    What is there already is skipped. Prints the name of each image.
    """
    path = absolute(bundle)
    if slurm_task:
        _on_this_node(path, names, engine, manifest)
        return
    if launcher == "slurm":
        _on_each_node(path, names, to, engine or default_engine(), nodes, Slurm(**slurm_options))  # type: ignore[arg-type]
        return
    if nodes is not None or any(slurm_options.values()):
        raise ConfigError("--nodes, --partition, ... are for a job of Slurm's", hint="add --launcher slurm")
    client = Client(engine or default_engine())
    client.check()
    source = bundles.read(path)
    check_bundle(path, source.text, source.signature, verify_key())
    images = chosen_images(source, names)
    target = _target(path, to)
    load.check_room(source, target)
    load.check(source, note)
    for number, image in enumerate(images, 1):
        load.load(client, source, image, f"[{number}/{len(images)}] {image.tagged}", note)
        click.echo(image.tagged)
    load.unpack(source, target, note)
    note(f"experiments, data, wheels and lock: {shown(target)}")


def _target(path: Path, to: Path | None) -> Path:
    name = path.name.removesuffix(".tar")
    return absolute(to) if to else Path.cwd() / (name if name != path.name else f"{name}.files")


def _on_this_node(path: Path, names: tuple[str, ...], engine: str | None, sha256: str) -> None:
    """One task of a job: tells on stdout which node it is, and what became of it there.

    `sha256` is of the manifest whose signature was looked at: the file may be another one by now.
    """
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    try:
        client = Client(engine or default_engine())
        client.check()
        source = bundles.read(path)
        if hashlib.sha256(source.text).hexdigest() != sha256:
            raise ImageError(f"{path}: was replaced while it was loaded", hint="run the same command again")
        load.check(source, note)
        for image in chosen_images(source, names):
            load.load(client, source, image, f"{node}: {image.tagged}", note)
    except PrimusError as error:
        click.echo(f"{node}\t{error.problems[0].message}")
        raise
    click.echo(f"{node}\t")


def _on_each_node(
    path: Path, names: tuple[str, ...], to: Path | None, engine: str, nodes: int | None, slurm: Slurm
) -> None:
    source = bundles.read(path)
    check_bundle(path, source.text, source.signature, verify_key())
    images = chosen_images(source, names)
    load.check_room(source, _target(path, to))
    same = f"--manifest={hashlib.sha256(source.text).hexdigest()}"
    words = ("image", "load", str(path), f"--engine={engine}", *(f"--framework={name}" for name in names), same)
    found = on_nodes.run(on_nodes.argv(words, on_nodes.size(nodes, os.environ), slurm), note)
    for node, wrong in found.items():
        note(f"{node}: {wrong or 'loaded'}")
    count = on_nodes.size(nodes, os.environ)
    if len(found) < count or any(found.values()):
        good = sum(not wrong for wrong in found.values())
        raise LaunchError(
            f"{path.name} is loaded on {good} of {count} nodes", hint="the same command again skips what is there"
        )
    load.check(source, note)
    load.unpack(source, _target(path, to), note)
    for image in images:
        click.echo(image.tagged)


def chosen_images(source: bundles.Bundle, names: tuple[str, ...]) -> tuple[Image, ...]:
    found = tuple(one for one in source.manifest.images if not names or one.framework in names)
    if lacking := sorted({*names} - {one.framework for one in found}):
        has = ", ".join(one.framework for one in source.manifest.images)
        raise ConfigError(f"{source.path}: has no image of {', '.join(lacking)}", hint=f"it has {has}")
    return found


for _command in (bundle_, load_):
    with_settings(_command)
