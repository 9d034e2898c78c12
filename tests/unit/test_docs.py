"""What the documents tell people to type exists: commands parse, files and targets are there, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from primus.cli import cli

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
    files = [parsed.params.get("config"), parsed.params.get("file"), *parsed.params.get("files", ())]
    assert [file for file in files if file is not None and not Path(file).exists()] == []


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
    known = {"primus", "primus-cli", "make", "docker", "pip", "uv"}
    yaml_or_output = re.compile(r"^[\w./-]+:|^[{-]|^[|<]|^extends|^modules|^error|^hint")
    unknown = [(where, words) for where, words in commands() if words[0] not in known]
    assert [item for item in unknown if not yaml_or_output.match(item[1][0])] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (path.parent / target).exists()] == []
