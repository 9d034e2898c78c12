"""Each backend's parameters as a page: its argument table, its rules, and what upstream's names became."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from docs.commands import cell, code
from primus.experiment.schema import Schema, frameworks, schema

ROOT = Path(__file__).resolve().parent.parent


def pages() -> Iterator[tuple[str, str]]:
    """(name, text) of each backend's page."""
    for name in frameworks():
        folder = ROOT / "primus" / "backends" / name
        rows = json.loads((folder / "arguments.json").read_text(encoding="utf-8"))["arguments"]
        rules = json.loads((folder / "rules.json").read_text(encoding="utf-8"))
        yield f"{name}-parameters", "\n".join(_page(schema(name), rows, rules))


def _page(table: Schema, rows: list[dict[str, Any]], rules: dict[str, Any]) -> Iterator[str]:
    yield f"# {table.framework} parameters\n"
    yield f"The {len(rows)} arguments of {table.framework} {table.version}, as the launcher checks them. They go under"
    yield "`overrides` of an experiment or behind `primus run`: [configuration](../docs/configuration.md).\n"
    bounds: dict[str, str] = {}
    for bound, names in rules.get("bounds", {}).items():
        bounds.update(dict.fromkeys(names, bound))
    for section, group in groupby(sorted(rows, key=lambda row: (_section(row), row["name"])), _section):
        yield f"## {section}\n"
        yield "| argument | type | default | |\n|---|---|---|---|"
        for row in group:
            default = code(json.dumps(row["default"], ensure_ascii=False))
            yield f"| {code(row['name'])} | {code(row['type'])} | {default} | {_remarks(row, bounds)} |"
        yield ""
    if rules.get("rules"):
        yield "## Combinations that are refused\n"
        yield "| where | why | instead |\n|---|---|---|"
        for rule in rules["rules"]:
            where = ", ".join(code(f"{key}: {_words(value)}") for key, value in rule.get("when", {}).items())
            only = f" (on {rule['accelerator']})" if "accelerator" in rule else ""
            yield f"| {where}{only} | {cell(rule.get('why', ''))} | {cell(rule.get('hint', ''))} |"
        yield ""
    for title, names in (("Computed", sorted(table.computed)), ("Gone", sorted(table.removed))):
        if names:
            why = "The backend derives these itself." if title == "Computed" else "Versions before had these."
            yield f"## {title}\n\n{why}\n\n{', '.join(map(code, names))}\n"
    if table.renamed:
        yield "## Names of upstream Primus\n"
        yield "| there | here |\n|---|---|"
        for name, instead in table.renamed.items():
            yield f"| {code(name)} | {cell(instead)} |"


def _section(row: dict[str, Any]) -> str:
    name: str = row["name"]
    return name.rpartition(".")[0].partition(".")[0] if "." in name else name[0].upper()


def _words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _remarks(row: dict[str, Any], bounds: dict[str, str]) -> str:
    remarks = []
    if "choices" in row:
        more = f" and {len(row['choices']) - 12} more" if len(row["choices"]) > 12 else ""
        remarks.append("one of " + ", ".join(code(choice) for choice in row["choices"][:12]) + more)
    if row["name"] in bounds:
        remarks.append(code(bounds[row["name"]]))
    if "family" in row:
        remarks.append(f"{cell(row['family'])} only")
    if "since" in row:
        remarks.append(f"since {cell(row['since'])}")
    return "; ".join(remarks)
