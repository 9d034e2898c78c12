"""On a vendor's image only what is missing is installed, and what was there is noticed when it changes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "images/specforge/vendor.py"
LOCK = """\
# a comment
one==1.0 \\
    --hash=sha256:11 \\
    --hash=sha256:12
    # via two
Two_Words==2.0 ; python_version > '3' \\
    --hash=sha256:2
old==3.0 ; python_version < '3' \\
    --hash=sha256:3
"""


@pytest.fixture
def vendor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script as a module, where nothing but `one` is installed and pip has one complaint."""
    spec = importlib.util.spec_from_file_location("vendor", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "NOTE", tmp_path / "vendor.json")
    monkeypatch.setattr(module, "installed", lambda: {"one": "0.9", "specforge": "0.2.0"})
    monkeypatch.setattr(module, "complaints", lambda: ["one is old", "specforge 0.2.0 wants torch"])
    return module


@pytest.mark.parametrize(
    ("there", "names"),
    [({}, ["one", "Two_Words"]), ({"one": "0.9"}, ["Two_Words"]), ({"one": "0.9", "two-words": "1"}, [])],
)
def test_only_what_is_missing_is_asked_for(
    vendor: ModuleType, tmp_path: Path, there: dict[str, str], names: list[str]
) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(LOCK)
    lines = list(vendor.missing(lock, there))
    assert [line.partition("==")[0] for line in lines] == names
    assert all("--hash=sha256:" in line for line in lines)


@pytest.mark.parametrize(
    ("packages", "complaints", "said"),
    [
        ({"one": "0.9"}, ["one is old"], None),
        ({"one": "1.0"}, ["one is old"], "one was 1.0, is 0.9"),
        ({"one": "0.9", "two": "2"}, ["one is old"], "two was 2, is gone"),
        ({"one": "0.9"}, [], "one is old"),
    ],
)
def test_a_change_to_the_vendors_packages_is_said(
    vendor: ModuleType, packages: dict[str, str], complaints: list[str], said: str | None
) -> None:
    vendor.NOTE.write_text(json.dumps({"packages": packages, "complaints": complaints}))
    if said is None:
        vendor.unchanged(known=("specforge 0.2.0 ",))
        return
    with pytest.raises(SystemExit) as caught:
        vendor.unchanged(known=("specforge 0.2.0 ",))
    assert str(caught.value) == said
