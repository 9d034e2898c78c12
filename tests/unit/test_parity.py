"""What the shipped examples and presets resolve to is what upstream Primus's do, but for the differences we mean.

parity/<framework>.json holds upstream's values, as facts; parity/differences.json what is otherwise here, and
parity/left_out.json what is not here, each with its reason; docs/differences.md tells the same to people. A value that
changes by accident, in an example or in anything it stands on, fails here.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from primus.experiment import Experiment as Loaded
from primus.experiment import flat, load_experiment
from primus.experiment.presets import package_presets
from primus.experiment.schema import schema
from primus.experiment.yaml import plain_value
from primus.node import Node

from .conftest import EXAMPLES, ROOT, Experiment

PARITY = Path(__file__).parent / "parity"
FRAMEWORKS = tuple(sorted({file.stem for file in PARITY.glob("*.json")} - {"differences", "left_out"}))
MODULE = "pre_trainer.yaml"  # unless an example names another
# What an argument that nobody sets means, where that is not the backend's own default but our adapter's.
PLACES = {"megatron": {"save": "checkpoints"}}
VARIABLE = re.compile(r"\$\{([A-Z0-9_]+):([^}]*)\}")
CALLED = re.compile(r"\w+ calls it ([\w.]+)(?: and ([\w.]+))?")
BF16 = re.compile(r"-(bf16|BF16)(?=-)")

Values = dict[str, Any]
Environ = Mapping[str, str]
EMPTY: Environ = {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Difference:
    """One intended difference: for these keys (patterns), in these files (patterns), what is here instead."""

    keys: tuple[str, ...]
    why: str
    files: tuple[str, ...] = ("*",)  # examples as <SKU>/<name>, presets as models/<name> and modules/<name>
    was: tuple[Any, ...] | None = None  # upstream's values this is about; None for all, and for none at all
    now: Any = None
    gone: bool = False  # not set here: the backend's own default, or no such argument
    named: str = ""  # the same value under this name

    def applies(self, files: tuple[str, ...]) -> bool:
        """Whether this is about a file, given by its name and the names of what it stands on."""
        return any(fnmatch.fnmatchcase(file, pattern) for file in files for pattern in self.files)

    def change(self, values: Values) -> bool:
        """Change upstream's `values`; whether there was anything to change."""
        found = [
            key for pattern in self.keys for key in (fnmatch.filter(values, pattern) if "*" in pattern else [pattern])
        ]
        found = [key for key in found if key in values]
        if self.was is not None:
            found = [key for key in found if any(same(values[key], value) for value in self.was)]
        for key in found:
            value = values.pop(key)
            if self.named:
                values[self.named] = value
        sets = not (self.gone or self.named) and (bool(found) or self.was is None)
        if sets:
            values.update(dict.fromkeys(self.keys, self.now))
        return sets or bool(found)


def read(name: str) -> Any:
    return json.loads((PARITY / f"{name}.json").read_text(encoding="utf-8"))


@cache
def upstream(framework: str) -> Mapping[str, Any]:
    """Upstream's modules, models and examples, each saying what differs from what it stands on."""
    found: Mapping[str, Any] = read(framework)
    return found


@cache
def differences(framework: str) -> tuple[Difference, ...]:
    """The framework's intended differences, in the order they apply."""
    lists = ("keys", "files", "was")
    rows: list[dict[str, Any]] = [
        {key: tuple(item) if key in lists else item for key, item in row.items()}
        for row in read("differences")[framework]
    ]
    return tuple(Difference(**row) for row in rows)


@cache
def model(framework: str, name: str) -> Values:
    """A model preset of upstream's with what it extends."""
    row = upstream(framework)["models"][name]
    below: Values = {}
    for parent in row["extends"]:
        below |= model(framework, parent)
    below |= row["values"]
    return below


def substituted(value: Any, environ: Environ = EMPTY) -> Any:
    """The value with each `${VAR:default}` in it replaced."""
    if isinstance(value, list):
        return [substituted(item, environ) for item in value]
    if not isinstance(value, str):
        return value
    text = VARIABLE.sub(lambda match: environ.get(match[1], match[2]), value)
    return value if text == value else plain_value(text)


def same(one: Any, other: Any) -> bool:
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (one, other))
    return bool(one == other) and (numbers or type(one) is type(other))


def expected(
    framework: str, files: tuple[str, ...], values: Values, environ: Environ = EMPTY
) -> tuple[Values, list[Difference]]:
    """Upstream's values as we mean them: under our backend's names, with every intended difference; and which."""
    table = schema(framework)
    values = {key: substituted(value, environ) for key, value in values.items()}
    for key, hint in table.renamed.items():
        if key in values and (new := CALLED.fullmatch(hint)):
            values |= dict.fromkeys(filter(None, new.groups()), values.pop(key))
    used = [row for row in differences(framework) if row.applies(files) and row.change(values)]
    return {key: value for key, value in values.items() if key in table.arguments or not decided(framework, key)}, used


def decided(framework: str, key: str) -> bool:
    """Whether someone who writes this key of upstream's is told what to do instead."""
    parts = key.split(".")
    return any(".".join(parts[: end + 1]) in schema(framework).renamed for end in range(len(parts)))


def compared(found: Loaded, wanted: Values) -> list[str]:
    """Each argument of an experiment that does not mean what is wanted."""
    table = schema(found.framework).arguments
    ours = flat(found.args, schema(found.framework))
    unset = {name: row.default for name, row in table.items()} | PLACES.get(found.framework, {})

    def lines() -> Iterator[str]:
        for key in sorted(ours.keys() | wanted.keys()):
            if key not in table:
                yield f"{key}: {wanted[key]!r} of upstream's is no argument here, and renamed.json does not say why"
            elif not same(ours.get(key, unset[key]), wanted.get(key, unset[key])):
                yield f"{key}: {ours.get(key, 'not set')!r}, and upstream {wanted.get(key, 'not set')!r}"

    return list(lines())


def theirs(framework: str, name: str, environ: Environ = EMPTY) -> tuple[Values, list[Difference]]:
    """What an example of upstream's resolves to, as we mean it; and the differences it has."""
    found, row = upstream(framework), upstream(framework)["examples"][name]
    preset = substituted(row["model"])
    # Upstream's module preset beats the model preset, ours does not: kimi_k2's enable_experimental is the one such key.
    config = row.get("config", MODULE)
    values = found["modules"][config] | model(framework, preset) | row["overrides"]
    return expected(framework, (name, f"models/{preset}"), values, environ)


def environment(framework: str, name: str, found: Loaded) -> dict[str, str]:
    """The variables that an example of upstream's sets and its backend's adapter does not, as we mean them."""
    adapter = import_module(f"primus.backends.{framework}.adapter")
    node = Node(gpus=8, gfx="gfx950" if name.startswith("MI355X") else "gfx942")
    set_anyway = {key: value.lower() for key, value in adapter.command(found, node, Path("/run")).env.items()}
    env = upstream(framework)["examples"][name].get("env", {})
    values = {f"env.{key}": value for key, value in env.items() if value.lower() != set_anyway.get(key)}
    for row in differences(framework):
        if row.applies((name,)):
            row.change(values)
    return {key.removeprefix("env."): value for key, value in values.items() if key.startswith("env.")}


def here() -> Iterator[tuple[str, str, Path]]:
    """Framework, <SKU>/<name> and file of each example that upstream has too, in the same shape."""
    for example in EXAMPLES:
        framework, _, *folders, name = example.relative_to(ROOT / "examples").parts
        name = "/".join((*folders, name))
        if framework in FRAMEWORKS and folders != ["CPU"] and not otherwise(framework, {name}):
            yield framework, name, example


def otherwise(framework: str, names: set[str]) -> set[str]:
    """Those of the names that are here in another shape, held against upstream's by hand."""
    patterns = [one for row in read("left_out")[framework] if row.get("here") for one in row["files"]]
    return {name for one in patterns for name in fnmatch.filter(names, one)}


OURS = tuple(here())
each_of_ours = pytest.mark.parametrize(("framework", "name", "file"), OURS, ids=[f"{row[0]}/{row[1]}" for row in OURS])
each_framework = pytest.mark.parametrize("framework", FRAMEWORKS)


@each_of_ours
def test_an_example_is_upstreams(framework: str, name: str, file: Path) -> None:
    wanted, _ = theirs(framework, name)
    found = load_experiment(file, environ={})
    assert compared(found, wanted) == []
    assert found.env == environment(framework, name, found)
    assert found.exp_name == BF16.sub("", file.stem)  # its own run directory


@each_of_ours
def test_the_variables_of_an_example_are_upstreams(framework: str, name: str, file: Path) -> None:
    """PRIMUS_TP=8 and the like reach the arguments they reach upstream."""
    overrides = upstream(framework)["examples"][name]["overrides"].values()
    variables = [VARIABLE.fullmatch(value) for value in overrides if isinstance(value, str)]
    numbers = {match[1]: str(2 * int(match[2])) for match in variables if match and match[2].isdecimal()}
    places = {"PRIMUS_EXP_NAME": "x", "PRIMUS_TEAM": "us", "PRIMUS_USER": "me", "PRIMUS_WORKSPACE": "/w"}
    wanted, _ = theirs(framework, name, numbers)
    found = load_experiment(file, environ=places | numbers)
    assert compared(found, wanted) == []
    assert found.run_dir == Path("/w/us/me/x")


@each_framework
def test_a_preset_is_upstreams(framework: str, experiment: Experiment) -> None:
    found = upstream(framework)
    wrong = []
    # A model preset of upstream's MaxDiffusion repeats what its module preset says here.
    config = f"config: {MODULE}\n" if framework == "maxdiffusion" else ""
    for name in found["models"]:
        wanted, _ = expected(framework, (f"models/{name}",), model(framework, name))
        path = experiment(framework=framework, module=f"{config}model: {name}")
        ours = load_experiment(path, environ={}, accelerator="rocm")
        wrong += [f"{name}: {line}" for line in compared(ours, wanted)]
    for name, values in found["modules"].items() if not config else ():
        wanted, _ = expected(framework, (f"modules/{name}",), values)
        path = experiment(framework=framework, module=f"config: {name}")
        wrong += compared(load_experiment(path, environ={}, accelerator="rocm"), wanted)
    assert wrong == []


@each_framework
def test_every_difference_is_one(framework: str) -> None:
    """A difference that nothing needs any more goes."""
    found = upstream(framework)
    used = [theirs(framework, name)[1] for name in found["examples"]]
    used += [expected(framework, (f"models/{name}",), model(framework, name))[1] for name in found["models"]]
    used += [expected(framework, (f"modules/{name}",), values)[1] for name, values in found["modules"].items()]
    variables = [row for row in differences(framework) if all(key.startswith("env.") for key in row.keys)]
    used.append([row for row in variables if any(variable_is_set(framework, row, name) for name in found["examples"])])
    assert set(differences(framework)) - {row for rows in used for row in rows} == set()


def variable_is_set(framework: str, row: Difference, name: str) -> bool:
    env = upstream(framework)["examples"][name].get("env", {})
    return row.applies((name,)) and row.change({f"env.{key}": value for key, value in env.items()})


@each_framework
def test_what_upstream_has_is_here_or_left_out_for_a_reason(framework: str) -> None:
    found, presets = upstream(framework), package_presets()
    ours = {name for other, name, _ in OURS if other == framework}
    for folder in ("models", "modules"):
        ours |= {f"{folder}/{file.name}" for file in (presets / folder / framework).glob("*.yaml")}
    # What the CPU examples train, and what several of ours stand on.
    ours = {name for name in ours if not name.endswith(("_tiny.yaml", "/cpu.yaml", "/wan2.1_base.yaml"))}
    rows = read("left_out")[framework]
    ours -= otherwise(framework, ours)
    assert ours == {*found["examples"], *(f"{kind}/{name}" for kind in ("models", "modules") for name in found[kind])}
    patterns = [pattern for row in rows if not row.get("here") for pattern in row["files"]]
    here = {name for name in found["others"] if otherwise(framework, {name})}
    assert [name for name in found["others"] if not any(fnmatch.fnmatchcase(name, one) for one in patterns)] == [
        name for name in found["others"] if name in here
    ]
    assert [one for one in patterns if fnmatch.filter(ours, one) or not fnmatch.filter(found["others"], one)] == []


def test_every_example_of_upstreams_is_accounted_for() -> None:
    """430 at the revision whose values these are; SpecForge's three are of a later one."""
    others = [name for framework in FRAMEWORKS for name in upstream(framework)["others"]]
    left = [name for name in others if not name.startswith(("models/", "modules/"))]
    assert sum(len(upstream(framework)["examples"]) for framework in FRAMEWORKS) + len(left) == 430


# What upstream's three SpecForge examples set, by hand: it keeps the rest in files of SpecForge's own checkout.
SPECFORGE: dict[str, Values] = {
    "qwen3.5-4b-dflash-offline-capture": {
        "specforge_mode": "capture",
        "specforge_capture.target_model_path": "Qwen/Qwen3.5-4B",
        "specforge_capture.filter_block_size": 16,
        "specforge_capture.filter_min_kept": 1,
        "specforge_capture.max_length": 2048,
        "specforge_capture.tp_size": 1,
        "specforge_capture.batch_size": 8,
        "specforge_capture.nproc_per_node": 1,
        "specforge_capture.nnodes": 1,
        "specforge_capture.sglang_mem_fraction_static": 0.8,
        "specforge_capture.sglang_context_length": 2560,
        "training.strategy": "dflash",
        "model.trust_remote_code": True,
        "data.chat_template": "qwen3.5",
    },
    "qwen3.5-4b-dflash-offline": {
        "specforge_mode": "train",
        "specforge_train_mode": "offline",
        "training.max_steps": 20,
        "training.num_epochs": 1,
        "training.save_interval": 20,
        "training.log_interval": 5,
        "model.use_liger_kernel": False,
        "deployment.trainer.nproc_per_node": 1,
        "deployment.trainer.nnodes": 1,
    },
    "qwen3.5-4b-dflash-online": {
        "specforge_mode": "train",
        "specforge_train_mode": "online",
        "specforge_online.capture_nnodes": 1,
        "specforge_online.trainer_nnodes": 1,
        "specforge_online.server_count": 1,
        "specforge_online.server_tp": 1,
        "specforge_online.trainer_nproc": 1,
        "specforge_online.mooncake_protocol": "tcp",
        "specforge_online.mooncake_lease_ttl_ms": 500,
        "specforge_online.target_model_path": "Qwen/Qwen3.5-4B",
        "training.max_steps": 20,
        "training.num_epochs": 1,
        "training.save_interval": 20,
        "training.log_interval": 5,
        "model.use_liger_kernel": False,
    },
}


@pytest.mark.parametrize("name", SPECFORGE)
def test_a_specforge_example_is_upstreams(name: str) -> None:
    found = load_experiment(ROOT / f"examples/specforge/configs/{name}.yaml", environ={})
    ours = flat(found.args, schema("specforge"))
    assert {key: ours.get(key) for key in SPECFORGE[name]} == SPECFORGE[name]
    assert found.exp_name == name


@each_framework
def test_the_document_says_what_is_left_out(framework: str) -> None:
    document = (ROOT / "docs/differences.md").read_text(encoding="utf-8")
    assert [row["why"] for row in read("left_out")[framework] if f" {row['why']} |" not in document] == []


def test_no_two_examples_differ_in_name_only() -> None:
    seen: dict[tuple[str, ...], Path] = {}
    for framework, name, file in OURS:
        found = load_experiment(file, environ={})
        key = (framework, name.split("/")[0], json.dumps(found.args, sort_keys=True), json.dumps(dict(found.env)))
        assert key not in seen, f"{file} and {seen.get(key)}"
        seen[key] = file


@each_framework
def test_the_readme_counts_the_examples(framework: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    counts = Counter(example.parent.name for example in EXAMPLES if example.parents[2].name == framework)
    said = re.search(rf"^\| {framework} \|.*\| ([^|]+) \|$", readme, re.MULTILINE)
    skus = ("MI300X", "MI325X", "MI355X", "CPU")
    assert said
    assert said[1] == ", ".join(f"{counts[sku]} {sku}" for sku in skus if counts[sku])
