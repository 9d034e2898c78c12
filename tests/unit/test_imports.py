"""Who may import whom, and what the list of commands must not cost."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# These run in the image, with the backend.
INSIDE = {
    "worker.py",
    "cuda_on_cpu.py",
    "stand_ins.py",
    "prepare.py",
    "models.py",
    "turbo.py",
    "hub.py",
    "recipe.py",
    "features.py",
}
MODULES = sorted(path for path in (ROOT / "primus").rglob("*.py") if path.name not in INSIDE)

_PURE = {"errors", "experiment"}
# part of the package -> the parts it may import besides itself
ALLOWED = {
    "_version": set[str](),
    "errors": set[str](),
    "command": {"errors"},
    "node": {"errors"},
    "job": {*_PURE, "shipped"},
    "layout": _PURE,
    "offline": {*_PURE, "image", "job"},
    "experiment": {"errors"},
    "models": {*_PURE, "layout"},
    "image": {"errors", "_version"},
    "metrics": {*_PURE, "node"},
    "backends": {*_PURE, "command", "node", "layout", "models", "metrics"},
    "record": {*_PURE, "_version", "command", "job"},
    "failure": {"record"},
    "launchers": {*_PURE, "command", "node", "job", "image", "record", "failure", "metrics", "tune"},
    "shipped": {"errors"},
    "plan": {*_PURE, "layout", "offline", "image", "job", "node", "record"},
    "api": {*_PURE, "shipped", "command", "image", "job", "launchers", "layout", "node", "plan", "record"},
    "report": {"record", "errors"},
    "doctor": {"errors", "node", "image", "launchers", "models"},
    "upstream": {*_PURE, "launchers"},
    "tune": {"errors", "command", "node", "image"},
    "cli": {
        *_PURE,
        "models",
        "layout",
        "offline",
        "_version",
        "command",
        "node",
        "job",
        "image",
        "launchers",
        "record",
        "failure",
        "doctor",
        "metrics",
        "plan",
        "shipped",
        "report",
        "upstream",
        "tune",
    },
    "__init__": {"_version", "api", "command", "errors", "experiment", "record"},
    "__main__": {"cli"},
}
# what is no part of the standard library -> who may import it
OUTSIDE = {
    "yaml": {"experiment/yaml.py"},
    "click": {f"cli/{path.name}" for path in MODULES if path.parent.name == "cli"},
    "matplotlib": {"report/png.py"},
    "tomli_w": {"backends/torchtitan/adapter.py"},
    "cryptography": {"image/sign.py"},
    "cyclonedx": {"image/sbom.py"},
    "packageurl": {"image/sbom.py"},
}

# what only an extra brings: imported where it is used, and not before
EXTRAS = {"cryptography", "cyclonedx", "matplotlib", "packageurl"}


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every module the file imports, and whether that happens when it is imported itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    later = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) not in later
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            if node.module == "primus":
                for alias in node.names:
                    yield f"primus.{alias.name}", id(node) not in later
            else:
                yield str(node.module), id(node) not in later


def part(path: Path) -> str:
    return path.relative_to(ROOT / "primus").parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_the_design_allows(path: Path) -> None:
    mine = part(path)
    name = str(path.relative_to(ROOT / "primus"))
    for module, at_once in imports(path):
        top, _, rest = module.partition(".")
        if top == "primus":
            other = rest.split(".")[0]
            assert other == mine or other in ALLOWED[mine], f"{name} imports {module}"
            whose = rest.split(".")[1:2]  # of primus.backends.<whose>
            assert mine != other or mine != "backends" or whose in ([], [path.parent.name]), f"{name}: {module}"
        elif top not in sys.stdlib_module_names:
            assert name in OUTSIDE.get(top, set()), f"{name} imports {module}"
            assert top not in EXTRAS or not at_once, f"{name} imports {module} at once"


def modules_after(*words: str) -> set[str]:
    program = (
        "import sys\nsys.argv = ['primus', *sys.argv[1:]]\nfrom primus.cli import main\n"
        "try:\n    main()\nexcept SystemExit as error:\n    assert not error.code, error.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.split())


HEAVY = {"torch", "jax", "numpy", "pydantic", "rich", "transformers", "requests", *EXTRAS}


@pytest.mark.parametrize(
    ("words", "without"),
    [
        (["--help"], {*HEAVY, "yaml", "tomli_w", "difflib"}),
        (["--version"], {*HEAVY, "yaml", "tomli_w", "difflib"}),
        (["run", "--help"], HEAVY),
        (["config", "--help"], HEAVY),
        (["config", "check", str(ROOT / "examples/torchtitan/configs/CPU/llama3_tiny-pretrain.yaml")], HEAVY),
        (["run", "--dry-run", "--config", str(ROOT / "examples/maxtext/configs/CPU/llama2_tiny-pretrain.yaml")], HEAVY),
    ],
    ids=["help", "version", "run help", "config help", "check", "dry run"],
)
def test_a_command_does_not_import_what_it_does_not_need(words: list[str], without: set[str]) -> None:
    assert not {name.partition(".")[0] for name in modules_after(*words)} & without


def test_errors_and_command_need_the_standard_library_only() -> None:
    program = "import sys, primus.command; print(*(set(sys.modules) & {'yaml', 'click', 'tomli_w'}))"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
