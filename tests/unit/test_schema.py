"""Arguments have the backend's types by every route, and what it does not know is an error with a way out."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from primus.errors import ConfigError
from primus.experiment import load_experiment
from primus.experiment.coerce import Argument, coerce
from primus.experiment.schema import frameworks, schema
from primus.experiment.yaml import parse

from .conftest import EXAMPLES, Experiment, Primus

ERROR = "an error"
# Ways for a value to come: what the file says, the words on the command line, the variable X.
ROUTES = {
    "file": ("{key}: {text}", (), ""),
    "quoted": ("{key}: '{text}'", (), ""),
    "default": ("{key}: ${{X:{text}}}", (), ""),
    "variable": ("{key}: ${{X}}", (), "{text}"),
    "KEY=VALUE": ("{{}}", ("{key}={text}",), ""),
    "--KEY=VALUE": ("{{}}", ("--{key}={text}",), ""),
    "--KEY VALUE": ("{{}}", ("--{key}", "{text}"), ""),
}
ALL = tuple(ROUTES)
PLAIN = tuple(route for route in ROUTES if route != "quoted")
LISTS = ("file", "KEY=VALUE", "--KEY=VALUE", "--KEY VALUE")
TABLE: list[tuple[str, str, Any, tuple[str, ...]]] = [
    ("learning_rate", "1e-5", 1e-5, ALL),
    ("learning_rate", "5e-6", 5e-6, ALL),
    ("learning_rate", "3e4", 3e4, ALL),
    ("learning_rate", "163.0e12", 163e12, ALL),
    ("learning_rate", "1", 1.0, ALL),
    ("learning_rate", ".5", 0.5, ALL),
    ("learning_rate", "true", ERROR, ALL),
    ("learning_rate", "abc", ERROR, ALL),
    ("learning_rate", "1,5", ERROR, ALL),
    ("learning_rate", "9" * 400, ERROR, ALL),
    ("steps", "50", 50, ALL),
    ("steps", "0x10", 16, ALL),
    ("steps", "-1", -1, tuple(route for route in ROUTES if route != "default")),  # ${X:-1} is the shell's ${X:-1}
    ("steps", "5.0", ERROR, ALL),
    ("steps", "1e3", ERROR, ALL),
    ("steps", "1_000", ERROR, ALL),
    ("steps", "true", ERROR, ALL),
    ("steps", "null", ERROR, ALL),
    ("steps", "9" * 5000, ERROR, ALL),
    ("enable_checkpointing", "false", False, ALL),
    ("enable_checkpointing", "False", False, ALL),
    ("enable_checkpointing", "TRUE", True, ALL),
    ("enable_checkpointing", "0", ERROR, ALL),
    ("enable_checkpointing", "no", ERROR, ALL),
    ("enable_checkpointing", "null", ERROR, ALL),
    ("run_name", "007", "007", ALL),
    ("run_name", "2024.10", "2024.10", ALL),
    ("run_name", "1e5", "1e5", ALL),
    ("run_name", "12345678", "12345678", ALL),
    ("run_name", "0123456e78", "0123456e78", ALL),
    ("run_name", "no", "no", ALL),
    ("run_name", "true", "true", ALL),
    ("run_name", "2024-01-01", "2024-01-01", ALL),
    ("run_name", "null", ERROR, PLAIN),
    ("run_name", "null", "null", ("quoted",)),
    ("adamw_mask", "[a, 007]", ["a", "007"], LISTS),
    ("adamw_mask", "[]", [], LISTS),
    ("adamw_mask", "a", ERROR, ALL),
    ("adamw_mask", "[null]", ERROR, LISTS),
    ("adamw_mask", "[[a]]", ERROR, LISTS),
    ("adamw_mask", "[a]", ERROR, ("quoted", "default", "variable")),
    ("compress_ratios", "[1, 2]", [1, 2], LISTS),
    ("compress_ratios", "[1, 2.5]", ERROR, LISTS),
    ("attn_logits_soft_cap", "null", None, PLAIN),
    ("attn_logits_soft_cap", "~", None, PLAIN),
    ("attn_logits_soft_cap", "null", ERROR, ("quoted",)),
    ("attn_logits_soft_cap", "1e-5", 1e-5, ALL),
    ("attn_module_name", "null", None, PLAIN),
    ("attn_module_name", "null", "null", ("quoted",)),
    ("experimental_sa_quant_k_fp8", "False", False, ALL),
    ("per_device_batch_size", "4", 4, ALL),
    ("per_device_batch_size", "0.25", 0.25, ALL),
    ("eval_image_column", "a", "a", ALL),
    ("eval_image_column", "[a]", ["a"], LISTS),
    ("dataset_type", "synthetic", "synthetic", ALL),
    ("dataset_type", "synthetc", ERROR, ALL),
]


def by_route(experiment: Experiment, route: str, key: str, text: str) -> Any:
    """MaxText's argument when `text` comes by the route, or ERROR."""
    written, words, variable = ROUTES[route]
    path = experiment(written.format(key=key, text=text), framework="maxtext")
    given = [word.format(key=key, text=text) for word in words]
    try:
        found = load_experiment(path, given, environ={"X": variable.format(text=text)})
    except ConfigError:
        return ERROR
    return found.args[key]


@pytest.mark.parametrize(("key", "text", "expected", "routes"), TABLE, ids=[f"{row[0]}={row[1][:12]}" for row in TABLE])
def test_a_value_has_the_arguments_type_by_every_route(
    experiment: Experiment, key: str, text: str, expected: Any, routes: tuple[str, ...]
) -> None:
    found = {route: by_route(experiment, route, key, text) for route in routes}
    assert {route: (type(value), value) for route, value in found.items()} == dict.fromkeys(
        routes, (type(expected), expected)
    )


@pytest.mark.parametrize(
    ("overrides", "words", "expected"),
    [
        ("optimizer:\n  lr: abc", [], "exp.yaml:11:13: optimizer.lr: must be float, not 'abc' (str)"),
        ("training: {steps: 1.5}", [], "exp.yaml:10:25: training.steps: must be int, not '1.5' (float)"),
        ("training: {steps: [1]}", [], "must be int, not a list\nhint: write 1 without brackets"),
        ("training: {steps: {a: 1}}", [], "must be int, not a mapping\nhint: write a whole number"),
        ("training: {steps: x}", [], "hint: write a whole number"),
        ("training: {steps: 1e3}", [], "hint: write 1000"),
        ("optimizer: {lr: x}", [], "hint: write a number"),
        ("compile: {enable: yes}", [], "must be bool, not 'yes' (str)\nhint: write true"),
        ("compile: {enable: 0}", [], "hint: write false"),
        ("compile: {enable: maybe}", [], "hint: write true or false"),
        ("training: {max_norm: a}", [], "hint: write a number or a whole number"),
        ("training: {dataset: [a, b]}", [], "hint: write text"),
        ("model: {converters: {a: b}}", [], "hint: write a list: [a, b]"),
        ("training: {dataset: null}", [], 'hint: write "null" in quotes for the text'),
        ("training: {steps: }", [], "hint: leave the key out for its default"),
        ("model: {converters: a}", [], "hint: write a list: [a]"),
        ("model: {converters: [a, {b: c}]}", [], "hint: item 2 is a mapping; write a list: [a, b]"),
        ("activation_checkpoint: {mode: fulll}", [], "hint: did you mean 'full'? choices: selective, full,"),
        ("", ["training.steps=x"], "command line, argument 1: training.steps: must be int"),
        ("", ["a", "training.steps"], "command line, argument 1: 'a' is no override"),
        ("", ["--training.steps"], "training.steps: must be int, not 'true' (bool)"),
        ("", ["training.steps="], "training.steps: must be int, not null"),
        ("compile: {enable: off}", [], "compile.enable: must be bool, not 'off' (str)\nhint: write false"),
        ("compile: {enable: Yes}", [], "compile.enable: must be bool, not 'Yes' (str)\nhint: write true"),
        ("compile: {enable: 0}", [], "compile.enable: must be bool, not '0' (int)\nhint: write false"),
        ("training: 5", [], "exp.yaml:10:17: training: is a section of keys, not a value"),
        ("training: [5]", [], "training: is a section of keys, not a value"),
        ("", ["training=5"], "training: is a section of keys, not a value"),
        ("", ["training.steps.x=5"], "training.steps: must be int, not a mapping"),
        ("training: {steps: " + "9" * 5000 + "}", [], "9..."),
    ],
    ids=lambda item: str(item)[:40],
)
def test_what_does_not_fit_is_said(experiment: Experiment, overrides: str, words: list[str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_experiment(experiment(overrides or "{}"), words, environ={})
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--compile.enable", "--training.steps", "3"], {"compile": {"enable": True}, "training": {"steps": 3}}),
        (["--compile.enable", "training.steps=3"], {"compile": {"enable": True}, "training": {"steps": 3}}),
        (["--compile.enable", "false"], {"compile": {"enable": False}}),
        (["--checkpoint.load_step", "-1"], {"checkpoint": {"load_step": -1}}),
        (["training={steps: 3, seq_len: 4}"], {"training": {"steps": 3, "seq_len": 4}}),
        (["job.description=a=b"], {"job": {"description": "a=b"}}),
        (["job.description="], {"job": {"description": ""}}),
        (["job.description='007'"], {"job": {"description": "007"}}),
        (["job.description=a: b # c"], {"job": {"description": "a: b # c"}}),
        (["job.description=a\nb"], {"job": {"description": "a\nb"}}),
        (["compile.components=[a, 'b c']"], {"compile": {"components": ["a", "b c"]}}),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, list) else "",
)
def test_words_are_overrides(experiment: Experiment, words: list[str], expected: dict[str, Any]) -> None:
    assert load_experiment(experiment(), words, environ={}).args == expected


@pytest.mark.parametrize("word", ["=5", ".a=5", "a..b=5", "a.=5", "-x", "-", "", "--=5", "---a=5", "<<=x", "é=1"])
def test_a_word_that_is_no_override_is_refused(experiment: Experiment, word: str) -> None:
    with pytest.raises(ConfigError, match=r"command line, argument 2: .* (is no override|is no key)"):
        load_experiment(experiment(), ["training.steps=1", word], environ={})


@pytest.mark.parametrize(
    ("framework", "key", "hint"),
    [
        ("torchtitan", "training.step", "did you mean 'training.steps'?"),
        ("torchtitan", "trainig.steps", "did you mean 'training.steps'?"),
        ("torchtitan", "training-steps", "did you mean 'training.steps'?"),
        ("torchtitan", "local_batch_size", "did you mean 'training.local_batch_size'?"),
        ("torchtitan", "steps", "torchtitan calls it training.steps"),
        ("torchtitan", "train_iters", "torchtitan calls it training.steps"),
        ("torchtitan", "train_iter", "torchtitan calls it training.steps"),
        ("torchtitan", "micro_batch_size", "torchtitan calls it training.local_batch_size"),
        ("torchtitan", "learning_rate", "torchtitan calls it optimizer.lr"),
        ("torchtitan", "base_emb_dim", "base_emb_dim is an argument of maxtext, not of torchtitan"),
        ("torchtitan", "nodess", "did you mean the option --nodes?"),
        ("torchtitan", "dry_run", "did you mean the option --dry-run?"),
        ("torchtitan", "exp_name", "edit the file, or --run-dir DIR; in a shipped example, PRIMUS_EXP_NAME=NAME"),
        ("torchtitan", "env.NCCL_DEBUG", "no override reaches that: --env NAME=VALUE"),
        ("torchtitan", "qqqqqq", "--allow-unknown qqqqqq passes it on unchecked"),
        ("maxtext", "train_iters", "maxtext calls it steps"),
        ("megatron", "steps", "megatron calls it train_iters"),
        ("megatron", "norm_epsilon", "megatron calls it layernorm_epsilon"),
        ("megatron", "use_turbo_deepep", "of Primus-Turbo, only its BF16 attention and grouped GEMM are here"),
        ("megatron", "disable_last_saving", "write save: null"),
        ("maxtext", "max_train_steps", "steps"),
        ("maxtext", "training.steps", "maxtext calls it steps"),
        ("maxtext", "optimizer.lr", "maxtext calls it learning_rate"),
        ("maxtext", "lr", "maxtext calls it learning_rate"),
        ("maxtext", "per-device-batch-size", "did you mean 'per_device_batch_size'?"),
        ("maxtext", "learning_rte", "did you mean 'learning_rate'?"),
        ("maxtext", "compile.enable", "compile.enable is an argument of torchtitan, not of maxtext"),
    ],
)
def test_an_unknown_argument_gets_the_nearest_name(experiment: Experiment, framework: str, key: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_experiment(
            experiment(framework=framework), [f"{key}=5"], environ={}, flags=("nodes", "dry-run", "gpus-per-node")
        )
    assert f"command line, argument 1: {key}: unknown to {framework}" in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("work_group:", "workgroup:", "exp.yaml:1:1: workgroup: unknown key\nhint: did you mean 'work_group'?"),
        ("modules:", "module:", "module: unknown key\nhint: did you mean 'modules'?"),
        ("pre_trainer:", "pretrainer:", "modules.pretrainer: unknown key\nhint: did you mean 'pre_trainer'?"),
        (
            "overrides:",
            "overides:",
            "exp.yaml:9:5: modules.pre_trainer.overides: unknown key\nhint: did you mean 'over",
        ),
        ("framework: torchtitan", "framework: torchtian", "there is no 'torchtian'\nhint: did you mean 'torchtitan'?"),
        ("accelerator: cpu", "accelerator: gpu", "accelerator: 'gpu' is none of rocm, cpu"),
        ("exp_name: tiny", "", "exp.yaml:1:1: exp_name: is missing"),
        ("    framework: torchtitan\n", "", "exp.yaml:8:5: modules.pre_trainer.framework: is missing"),
        ("exp_name: tiny", "exp_name: null", "exp_name: must be text"),
        ("exp_name: tiny", "exp_name: ''", "exp_name: must be text"),
        ("exp_name: tiny", "exp_name: [a]", "exp_name: must be text"),
        ("exp_name: tiny", "exp_name: a/b", "cannot hold a '/'"),
        ("exp_name: tiny", "exp_name: ..", "names a directory"),
        ("framework: torchtitan", "framework: [a]", "framework: must be text"),
        ("framework: torchtitan", "framework: ../x", "there is no '../x'"),
    ],
    ids=lambda item: str(item)[:25],
)
def test_every_level_of_the_file_is_checked(
    experiment: Experiment, primus: Primus, old: str, new: str, expected: str
) -> None:
    path = experiment("{}")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_experiment(path, environ={})
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("modules: null", "modules: is missing"),
        ("modules: []", "modules: is missing"),
        ("modules: {}", "modules: is missing"),
        ("modules: {pre_trainer: null}", "modules.pre_trainer: must be a mapping"),
        ("modules: {pre_trainer: [a]}", "modules.pre_trainer: must be a mapping"),
        ("modules: {pre_trainer: {framework: maxtext, overrides: []}}", "overrides: must be a mapping"),
        ("modules: {pre_trainer: {framework: maxtext, overrides: x}}", "overrides: must be a mapping"),
        ("modules: {pre_trainer: {framework: maxtext}, post_trainer: {framework: maxtext}}", "two trainers"),
        ("env: [A]", "env: must be a mapping"),
        ("env: x", "env: must be a mapping"),
        ("env: {A: [1]}", "env.A: must be text"),
        ("env: {A: {b: c}}", "env.A: must be text"),
        ("env: {A: null}", "env.A: must be text"),
        ("env: {'A=B': c}", "env.A=B: is no name"),
        ("env: {'': c}", "is no name"),
        ("env: {1A: c}", "env.1A: is no name"),
    ],
)
def test_a_wrong_shape_is_said(experiment: Experiment, module: str, expected: str) -> None:
    path = experiment()
    text = path.read_text()
    path.write_text((text.partition("modules:")[0] if module.startswith("modules") else text) + module + "\n")
    with pytest.raises(ConfigError) as caught:
        load_experiment(path, environ={})
    assert expected in str(caught.value)


@pytest.mark.parametrize("text", ["overrides: null", "overrides:", "overrides: {}"])
def test_no_overrides_are_fine(experiment: Experiment, text: str) -> None:
    path = experiment()
    path.write_text(path.read_text().replace("overrides:\n      {}", text))
    assert load_experiment(path, environ={}).args == {}


def test_everything_wrong_is_said_at_once_in_order(experiment: Experiment) -> None:
    path = experiment("training: {step: 1}\nmodle: {}\ncompile: {enable: maybe}", top="env: {A: []}\nfoo: 1")
    with pytest.raises(ConfigError) as caught:
        load_experiment(path, environ={})
    places = [problem.where for problem in caught.value.problems]
    assert places == ["exp.yaml:10:18", "exp.yaml:11:7", "exp.yaml:12:25", "exp.yaml:13:10", "exp.yaml:14:1"]


@pytest.mark.parametrize("key", ["a", "a.b", "training.new"])
def test_allow_unknown_lets_one_key_through_and_says_so(experiment: Experiment, primus: Primus, key: str) -> None:
    path = experiment()
    found = load_experiment(path, [f"{key}=1e-5"], environ={}, allow_unknown=[key])
    value: Any = found.args
    for part in key.split("."):
        value = value[part]
    assert (value, found.unknown) == (1e-5, (key,))
    done = primus("run", "--config", path, "--dry-run", f"--allow-unknown={key}", f"{key}=1e-5")
    assert f"primus: {key} is not known to torchtitan and is passed on as it is\n" in done.err
    assert f"--allow-unknown={key}" in done.out
    assert primus("run", "--config", path, "--dry-run", f"--allow-unknown={key}", f"{key}=1", "other=2").code == 2


# What each backend makes of `KEY: 1e-5` when it was let through: a line of what it is given.
LET_THROUGH = {
    ("megatron", "new_key"): "--new-key=1e-05",
    ("torchtitan", "new_key"): "new_key = 1e-05",
    ("torchtitan", "training.new_key"): "new_key = 1e-05",
    ("maxtext", "new_key"): "new_key: 1e-05",
    ("maxdiffusion", "new_key"): "new_key: 1e-05",
    ("megatron_bridge", "new_key"): '"new_key": 1e-05',
    ("megatron_bridge", "train.new_key"): '"new_key": 1e-05',
    ("specforge", "new_key"): "new_key: 1e-05",
    ("specforge", "training.new_key"): "new_key: 1e-05",
    ("specforge", "specforge_capture.new_key"): "new_key: 1e-05",
}


@pytest.mark.parametrize(("framework", "key"), LET_THROUGH)
def test_a_key_that_is_let_through_reaches_the_backend(framework: str, key: str, primus: Primus) -> None:
    path = next(path for path in EXAMPLES if f"/{framework}/configs/CPU/" in str(path))
    words = ("run", "--config", path, "--dry-run", "--launcher=direct", f"{key}=1e-5")
    assert f"{key}: unknown to {framework}" in primus(*words).err
    done = primus(*words, "--allow-unknown", key)
    assert done.code == 0, done.err
    assert f"primus: {key} is not known to {framework} and is passed on as it is\n" in done.err
    command, *files = done.out.split("\n# file: ")
    resolved = next(text for text in files if text.partition("\n")[0].endswith("/experiment.yaml"))
    assert " new_key: 1e-05\n" in resolved
    assert f'\n# --allow-unknown "{key}": not known to {framework}\n' in resolved
    shown = primus("config", "show", path, "--format=json", f"{key}=1e-5", "--allow-unknown", key)
    assert json.loads(shown.out)["unknown"] == [key]
    assert LET_THROUGH[framework, key] in "".join([command, *(text for text in files if text != resolved)])


@pytest.mark.parametrize(
    ("framework", "word", "expected"),
    [
        ("megatron", "new_key=false", "new_key: false is no flag of an argument that the launcher does not know"),
        ("megatron", "new_key.part=1", "new_key.part: a flag cannot hold a mapping"),
        ("specforge", "specforge_other.x=1", "specforge_other.x: capture, train, export reads no such part"),
    ],
)
def test_a_key_that_is_let_through_is_not_dropped(framework: str, word: str, expected: str, primus: Primus) -> None:
    path = next(path for path in EXAMPLES if f"/{framework}/configs/CPU/" in str(path))
    words = ("run", "--config", path, word, "--allow-unknown", word.partition("=")[0])
    done = primus(*words, "--launcher=direct")
    assert (done.code, expected in done.err) == (2, True), done.err


def test_a_name_the_backend_computes_cannot_be_set(experiment: Experiment) -> None:
    with pytest.raises(ConfigError, match=r"exp\.yaml:10:7: emb_dim: is computed by maxtext and cannot be set"):
        load_experiment(experiment("emb_dim: 5", framework="maxtext"), environ={})


def test_a_dotted_key_in_a_file_is_refused_with_the_nesting(experiment: Experiment) -> None:
    with pytest.raises(ConfigError, match=re.escape("hint: in a file, write training: {steps: ...}")):
        load_experiment(experiment("training.steps: 5"), environ={})


@pytest.mark.parametrize("framework", frameworks())
def test_every_default_fits_its_own_type(framework: str) -> None:
    assert schema(framework).arguments
    for argument in schema(framework).arguments.values():
        assert argument.type
        if isinstance(argument.default, (bool, int, float)):
            node = parse(str(argument.default), file="", layer="")
            assert coerce(node, argument) == argument.default


def test_a_choice_of_many_is_not_listed_in_full() -> None:
    argument = Argument(name="a", type="str", default="", choices=tuple(f"c{number}" for number in range(50)))
    with pytest.raises(ValueError, match="is not a choice") as caught:
        coerce(parse("x", file="", layer=""), argument)
    assert caught.value.args[1].endswith("c19 and 30 more")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("model.flavor=8b",), "did you mean 8B? it has "),
        (("model.name=qwen3", "model.flavor=9B"), "TorchTitan's qwen3 has no '9B'"),
        (("model.flavor=405B",), ""),
        (("model.flavor=debugmodel",), ""),
        (("model.flavor=debugmodel_flex_attn",), ""),
        (("model.name=mine", "model.flavor=x"), "model.name: 'mine' (str) is not a choice"),
        (("model.flavor=x", "experimental.custom_import=mine"), ""),
    ],
)
def test_a_flavor_that_torchtitan_does_not_have(
    experiment: Experiment, primus: Primus, words: tuple[str, ...], expected: str
) -> None:
    done = primus("run", "--config", experiment(), "--dry-run", *words)
    assert (expected in done.err, bool(expected)) == (True, bool(done.err))


@pytest.mark.parametrize("kind", sorted({row.type for name in frameworks() for row in schema(name).arguments.values()}))
def test_every_type_error_says_what_to_write(kind: str) -> None:
    argument = Argument(name="a", type=kind, default=0)
    for text in ("{a: {b: [c]}}", "[[[{}]]]", "[null, {}]", "x y", "1.5"):
        hint = "it fits"
        try:
            coerce(parse(text, file="", layer=""), argument)
        except ValueError as error:
            hint = error.args[1]
        assert hint, text
