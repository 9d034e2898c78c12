"""Is primus/backends/<framework>/arguments.json what the installed backend takes?  Run in the backend's own Python.

usage: arguments.py FRAMEWORK --check | --write [--commit COMMIT] [--source DIR]

--check says what differs, and fails; every image's build runs it.  --write writes the table anew: a key that is new
with the backend's version keeps it as `since`, one that went away goes to `removed`.  images/<framework>/extract.py
asks the backend; what its answer lacks, and what is ours, stands there too.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Table = dict[str, Any]
FACTS = ("type", "default", "choices", "true", "false", "flag", "family")


def written(table: Table) -> str:
    """The table as its file has it: one argument a line, so that a difference reads well."""
    rows = [f"    {json.dumps(row, ensure_ascii=False)}" for row in table["arguments"]]
    parts = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in table.items() if key != "arguments"]
    return "{\n" + ",\n".join([*parts, '  "arguments": [\n' + ",\n".join(rows) + "\n  ]"]) + "\n}\n"


def updated(old: Table, found: Table) -> Table:
    """What the file must say: what was found now, with what only a table of an earlier version can tell."""
    before = {row["name"]: row for row in old["arguments"]}
    version: str = found["version"]
    newer = version != old["version"]
    names: list[str] = sorted(row["name"] for row in found["arguments"])
    sections = {name[:dot] for name in names for dot in range(len(name)) if name[dot] == "."}
    now = {*names, *sections, *found.get("computed", ())}
    gone = {**old.get("removed", {}), **(dict.fromkeys(before, version) if newer else {})}
    removed = {name: gone[name] for name in sorted(gone) if name not in now}
    rows = []
    for row in sorted(found["arguments"], key=lambda row: str(row["name"])):
        since = before.get(row["name"], {"since": version if newer else ""}).get("since")
        rows.append({**row, **({"since": since} if since else {})})
    head = {key: value for key, value in found.items() if key != "arguments"}
    return {"backend": old["backend"], **head, **({"removed": removed} if removed else {}), "arguments": rows}


def differences(old: Table, new: Table) -> Iterator[str]:
    """What the file says and the backend does not, a line for each fact."""
    for key in dict.fromkeys((*old, *new)):
        if key != "arguments" and old.get(key) != new.get(key):
            yield from _changed(key, old.get(key), new.get(key))
    before, now = ({row["name"]: row for row in table["arguments"]} for table in (old, new))
    yield from (f"added: {name}" for name in now if name not in before)
    yield from (f"removed: {name}" for name in before if name not in now)
    for name in (name for name in before if name in now):
        for fact in (*FACTS, "since"):
            was, is_now = before[name].get(fact), now[name].get(fact)
            if (was, type(was)) != (is_now, type(is_now)):
                yield from _changed(f"{name}: {fact}", was, is_now)


def _changed(what: str, old: object, new: object) -> Iterator[str]:
    if isinstance(old, list) and isinstance(new, list) and {*map(str, old)} != {*map(str, new)}:
        yield from (f"{what}: {item!r} is missing" for item in new if item not in old)
        yield from (f"{what}: {item!r} is no more" for item in old if item not in new)
    else:
        yield f"{what}: {_shown(old)} must be {_shown(new)}"


def _shown(value: object) -> str:
    return "nothing" if value is None else json.dumps(value)


def extracted(framework: str, table: Table, source: Path | None) -> Table:
    """What the installed backend takes, as images/<framework>/extract.py finds it."""
    path = ROOT / "images" / framework / "extract.py"
    spec = importlib.util.spec_from_file_location("extract", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Table = module.table(table, source)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework")
    parser.add_argument("--source", type=Path, metavar="DIR", help="a repository, for what is in no package")
    parser.add_argument("--commit", default="", help="the version of a backend that has no other: MaxDiffusion")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.check == options.write:
        parser.error("either --check or --write")
    path = ROOT / "primus" / "backends" / options.framework / "arguments.json"
    if not path.is_file():
        parser.error(f"there is no {path}")
    text = path.read_text(encoding="utf-8")
    old = json.loads(text)
    sys.path.insert(0, str(ROOT))  # for what the workers do before they import the backend
    found = extracted(options.framework, old, options.source)
    found["version"] = options.commit[:8] or found["version"]
    new = updated(old, found)
    count = f"{len(new['arguments'])} arguments"
    for line in [*differences(old, new)] or [count if written(new) == text else f"{count}, written otherwise"]:
        print(f"{options.framework}: {line}")
    if options.write:
        path.write_text(written(new), encoding="utf-8")
    elif written(new) != text:
        where = path.relative_to(ROOT)
        raise SystemExit(
            f"{where} is not what {options.framework} {new['version']} takes\n"
            f"hint: in the backend's Python, python images/arguments.py {options.framework} --write"
        )


if __name__ == "__main__":
    main()
