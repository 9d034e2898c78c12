"""Build the documentation as a site: python docs/build.py OUTPUT. Any warning is an error.

The documents keep the folders they have in the repository, so that a link between them is right in both. Beside them
stand pages that no one writes: the commands, from click, and each backend's parameters, from its argument table.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the launcher, which need not be installed

from docs import commands, parameters  # noqa: E402

# What the pages are called in the navigation is their own title; a page that is not there is left out.
NAVIGATION = {
    "Start": ("docs/quickstart", "docs/pretraining", "examples/README", "docs/troubleshooting"),
    "Use": (
        *("docs/configuration", "docs/adding-models", "docs/running", "docs/slurm", "docs/runtimes", "docs/watching"),
        *("docs/environment", "docs/tuning"),
    ),
    "Images": ("docs/images", "docs/operations", "docs/air-gap", "images/*/README"),
    "Reference": ("docs/api", "reference/commands", "reference/settings", "reference/*-parameters"),
    "From upstream": ("docs/migrating", "docs/differences"),
    "Development": ("CONTRIBUTING", "docs/adding-a-backend", "CHANGELOG"),
}
_LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)]*)?\))")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def documents() -> list[Path]:
    """Every document of the repository that is a page."""
    patterns = ("*.md", "docs/*.md", "examples/*.md", "images/*/*.md")
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def stage(folder: Path) -> int:
    """Put all pages, and the files they link to, into `folder`; returns how many pages there are."""
    for path in documents():
        place = folder / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        for _, target, _ in _LINK.findall(_FENCE.sub("", text)):
            linked = (path.parent / target).resolve()
            if linked.is_file() and linked.suffix != ".md":
                (copy := folder / linked.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(linked, copy)
        place.write_text(_LINK.sub(_home, text), encoding="utf-8")
    (folder / "README.md").rename(folder / "index.md")
    reference = folder / "reference"
    reference.mkdir()
    for name, text in (*commands.pages(), *parameters.pages()):
        (reference / f"{name}.md").write_text(text, encoding="utf-8")
    with (folder / "index.md").open("a", encoding="utf-8") as home:
        home.write("".join(_toctrees(folder)))
    shutil.copy(ROOT / "docs" / "conf.py", folder)
    shutil.copytree(ROOT / "docs" / "static", folder / "static")
    return len(list(folder.rglob("*.md")))


def _home(link: re.Match[str]) -> str:
    """The repository's README is the site's first page."""
    target = re.sub(r"^((?:\.\./)*)README\.md$", r"\1index.md", link[2]) if link[2].startswith("../") else link[2]
    return f"{link[1]}{target}{link[3]}"


def _toctrees(folder: Path) -> Iterator[str]:
    for caption, patterns in NAVIGATION.items():
        pages = [path for pattern in patterns for path in sorted(folder.glob(f"{pattern}.md"))]
        names = "\n".join(str(path.relative_to(folder).with_suffix("")) for path in pages)
        yield f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{names}\n```\n"


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/build.py OUTPUT")
    output = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        source, fresh = Path(scratch, "source"), Path(scratch, "site")
        source.mkdir()
        pages = stage(source)
        command = [
            sys.executable,
            "-m",
            "sphinx",
            "-b",
            "html",
            "-q",
            "-W",
            "--keep-going",
            "-d",
            f"{scratch}/doctrees",
        ]
        done = subprocess.run([*command, str(source), str(fresh)])
        if done.returncode:
            return done.returncode
        shutil.rmtree(output, ignore_errors=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(fresh, output)
    print(f"{output / 'index.html'}: {pages} pages", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
