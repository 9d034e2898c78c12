"""What the documents tell people to type exists: commands parse, files and targets are there, links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

from primus.cli import cli, settings
from primus.cli.run import run
from primus.experiment.schema import frameworks, schema

from .conftest import Primus, Write

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = sorted(
    path for pattern in ("*.md", "docs/*.md", "examples/*.md", "images/*/*.md") for path in ROOT.glob(pattern)
)
_BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, list[str]]]:
    """(document:line, words) of every command in a code block; a line that ends in a backslash goes on."""
    found = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for block in _BLOCK.finditer(text):
            first = text[: block.start(1)].count("\n") + 1
            for offset, line in enumerate(block[1].replace("\\\n", "\\ \b").split("\n")):
                words = shlex.split(line.replace("\\ \b", " "), comments=True)
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words.pop(0)
                if words:
                    found.append((f"{path.relative_to(ROOT)}:{first + offset}", words))
    return found


# Its commands work on what the ones before them wrote, so they are run, in order.
STEPS = "docs/adding-models.md"


def of(program: str) -> list[object]:
    found = [(where, words) for where, words in commands() if words[0] == program and not where.startswith(STEPS)]
    return [pytest.param(words[1:], id=where) for where, words in found]


def test_the_steps_of_adding_a_model_work(primus: Primus, write: Write) -> None:
    write("primus.yaml", "")
    published = ROOT / "tests" / "unit" / "huggingface"
    for model in (
        "TinyLlama--TinyLlama-1.1B-Chat-v1.0",
        "meta-llama--Llama-3.1-8B",
        "mistralai--Mixtral-8x7B-v0.1",
        "Qwen--Qwen3-8B",
    ):
        write(f"{model.partition('--')[2]}/config.json", (published / f"{model}.json").read_text(encoding="utf-8"))
    said = ""
    for where, words in commands():
        if where.startswith(STEPS) and words[0] == "primus":
            done = primus(*words[1:], *(["--dry-run"] if words[1] == "run" and "--dry-run" not in words else []))
            assert done.code == 0, f"{where}: {done.err}"
            said += done.err + done.out
    text = _BLOCK.sub("", (ROOT / STEPS).read_text(encoding="utf-8"))
    assert [line for line in re.findall(r"^    (\S.*|  \w.*)$", text, re.MULTILINE) if line not in said] == []
    assert len(list(Path().glob("examples/*/configs/MI300X/*.yaml"))) == 4
    for example in Path().glob("examples/*/configs/MI300X/*.yaml"):
        assert primus("config", "check", example).code == 0
        assert primus("config", "explain", example).code == 0


@pytest.mark.parametrize("words", of("primus"))
def test_primus_command_parses(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    words = [item for word in words for item in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, f"no command {words[0]}"
        command, words = found, words[1:]
    parsed = command.make_context(command.name, list(words))
    files = [parsed.params.get("config"), parsed.params.get("file")]
    files += [*parsed.params.get("files", ()), *parsed.params.get("configs", ())]
    ours = [Path(file) for file in files if file is not None and Path(file).suffix not in (".tar", ".bundle")]
    assert [file for file in ours if not file.exists()] == []


# What works from files alone; the others want an engine, a cluster or runs that were made, and are only parsed.
FROM_FILES = ("config", "examples", "run")


@pytest.mark.parametrize("document", sorted({where.partition(":")[0] for where, _ in commands()} - {STEPS}))
def test_commands_that_work_from_files_work_in_order(document: str, primus: Primus) -> None:
    Path("examples").symlink_to(ROOT / "examples")
    for where, words in commands():
        if where.partition(":")[0] != document or words[0] != "primus" or words[1] not in FROM_FILES:
            continue
        words = [item for word in words for item in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]
        done = primus(*words[1:], *(["--dry-run"] if words[1] == "run" and "--dry-run" not in words else []))
        assert done.code == 0, f"{where}: {done.err}"


@pytest.mark.parametrize("words", of("make"))
def test_make_target_exists(words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = [word for word in words if "=" not in word]
    assert [target for target in targets if not re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize("words", of("docker"))
def test_bake_target_exists(words: list[str]) -> None:
    assert words[:2] == ["buildx", "bake"]
    bake = (ROOT / "docker-bake.hcl").read_text(encoding="utf-8")
    targets = set(re.findall(r'^(?:target|group) "([\w-]+)"', bake, re.MULTILINE))
    targets |= set(re.findall(r'"(base[\w-]*)"', bake)) | {
        path.parent.name for path in ROOT.glob("images/*/Dockerfile")
    }
    assert [target for target in words[2:] if target[0] != "-" and target not in targets] == []


def test_there_are_no_other_commands() -> None:
    known = {"primus", "primus-cli", "make", "docker", "pip", "python3", "tar", "uv", "base64", "openssl"}
    yaml_or_output = re.compile(r"^[\w./-]+:|^[{-]|^[|<]|^extends|^modules|^error|^hint")
    unknown = [(where, words) for where, words in commands() if words[0] not in known]
    assert [item for item in unknown if not yaml_or_output.match(item[1][0])] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (path.parent / target).exists()] == []


def anchors(path: Path) -> set[str]:
    """What a link to a heading of this document may say, as the forge and the site make it."""
    headings = re.findall(r"^#+ (.+)$", _BLOCK.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_headings(path: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", path.read_text(encoding="utf-8"))
    targets = [((path.parent / target) if target else path, anchor) for target, anchor in links]
    assert [anchor for target, anchor in targets if anchor not in anchors(target)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_that_are_named_exist(path: Path) -> None:
    named = re.findall(r"`((?:primus|docs|examples|images|base|tests)/[\w./-]*\w/?)`", path.read_text(encoding="utf-8"))
    if path.name in ("differences.md", "migrating.md"):
        return  # they also name what is upstream's
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_yaml_is_an_experiment_or_settings(path: Path, primus: Primus, write: Write) -> None:
    examples = ROOT / "examples/torchtitan/configs/MI300X"
    Path("examples").symlink_to(ROOT / "examples")
    for block in re.findall(r"^```yaml\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        keys = re.findall(r"^(\w+):", block, re.MULTILINE)
        if "modules" in keys or "exp_name" in keys:
            if "modules" not in keys:  # one line of an experiment
                block = f"extends: llama3.1_8B-BF16-pretrain.yaml\n{block}"
            shutil.copy(examples / "llama3.1_8B-BF16-pretrain.yaml", ".")
            os.environ["SLURM_ARRAY_TASK_ID"] = "1"
            done = primus("config", "check", write("experiment.yaml", block))
            assert done.code == 0, done.err
        elif keys:
            assert settings.load(run, (write("settings.yaml", block),)), block


@pytest.mark.parametrize("framework", frameworks())
def test_the_guide_names_arguments_that_there_are(framework: str) -> None:
    text = (ROOT / "docs/pretraining.md").read_text(encoding="utf-8")
    table = re.search(rf"^\| {framework} \| arguments \|\n\|.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table is not None
    values = {"synthetic", "quantize.linear.float8"}
    known = schema(framework)
    names = set(re.findall(r"`([^`]+)`", table[1])) - values
    assert {name for name in names if name not in known.arguments and name not in known.sections} == set()


def test_every_backend_has_what_the_page_about_adding_one_lists() -> None:
    text = (ROOT / "docs/adding-a-backend.md").read_text(encoding="utf-8")
    files = re.findall(r"^\| `([\w.]+\.(?:py|json))` \| (?!optional)", text, re.MULTILINE)
    assert len(files) > 5
    for name in frameworks():
        assert [file for file in files if not (ROOT / "primus/backends" / name / file).exists()] == []
        adapter = (ROOT / "primus/backends" / name / "adapter.py").read_text(encoding="utf-8")
        needed = re.findall(r"^\| `(\w+)(?:\(.*\))?` \| (?!optional)", text, re.MULTILINE)
        assert [item for item in needed if not re.search(rf"^(?:def )?{item}\b", adapter, re.MULTILINE)] == []


def test_every_page_is_in_the_navigation(tmp_path: Path) -> None:
    from docs import build

    build.stage(tmp_path)
    home = (tmp_path / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^[\w./-]+$", home, re.MULTILINE))
    pages = {str(path.relative_to(tmp_path).with_suffix("")) for path in tmp_path.rglob("*.md")}
    assert pages - listed == {"index"}
    commands = (tmp_path / "reference/commands.md").read_text(encoding="utf-8")
    assert "## primus config check" in commands
    assert "`PRIMUS_LAUNCHER`" in commands
    for name in frameworks():
        text = (tmp_path / f"reference/{name}-parameters.md").read_text(encoding="utf-8")
        assert [argument for argument in schema(name).arguments if f"| `{argument}` |" not in text] == []
