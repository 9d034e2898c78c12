"""Models: config.json files as they were published, and what each backend is told of them."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from primus.errors import ConfigError
from primus.experiment import flat, load_experiment
from primus.experiment.schema import schema
from primus.models import flavors, huggingface, maxtext, megatron, patterns
from primus.models import published as known_models
from primus.models.architecture import Architecture, active_parameters, parameters
from primus.models.preset import text
from primus.models.report import report

from .conftest import Experiment, Primus, Write

PUBLISHED = Path(__file__).parent / "huggingface"
IMPORTED = PUBLISHED / "imported"
UPDATE = os.environ.get("PRIMUS_UPDATE_GOLDEN") == "1"
MODELS = tuple(sorted(path.stem for path in PUBLISHED.glob("*.json")))

# As transformers 5.12.1 counts them: sum(p.numel()) of AutoModelForCausalLM.from_config on the meta device.
PARAMETERS = {
    "HuggingFaceTB--SmolLM2-135M": 134515008,
    "Qwen--Qwen1.5-MoE-A2.7B-Chat": 14315784192,
    "Qwen--Qwen2-0.5B-Instruct": 494032768,
    "Qwen--Qwen2-7B-Instruct": 7615616512,
    "Qwen--Qwen2.5-3B-Instruct": 3085938688,
    "Qwen--Qwen3-0.6B": 596049920,
    "Qwen--Qwen3-235B-A22B": 235093634560,
    "Qwen--Qwen3-30B-A3B": 30532122624,
    "Qwen--Qwen3-32B": 32762123264,
    "Qwen--Qwen3-8B": 8190735360,
    "TinyLlama--TinyLlama-1.1B-Chat-v1.0": 1100048384,
    "bigcode--starcoder2-7b": 7173923840,
    "codellama--CodeLlama-34b-hf": 33744232448,
    "deepseek-ai--DeepSeek-V2-Lite": 15706484224,
    "deepseek-ai--DeepSeek-V3": 671026404352,
    "google--gemma-2b": 2506172416,
    "meta-llama--Llama-2-7b-hf": 6738415616,
    "meta-llama--Llama-3.1-405B": 405853388800,
    "meta-llama--Llama-3.1-70B": 70553706496,
    "meta-llama--Llama-3.1-8B": 8030261248,
    "meta-llama--Llama-3.2-1B-Instruct": 1235814400,
    "meta-llama--Llama-3.2-3B-Instruct": 3212749824,
    "microsoft--Phi-3.5-mini-instruct": 3821079552,
    "mistralai--Mistral-7B-Instruct-v0.3": 7248023552,
    "mistralai--Mistral-7B-v0.1": 7241732096,
    "mistralai--Mixtral-8x22B-v0.1": 140620634112,
    "mistralai--Mixtral-8x7B-v0.1": 46702792704,
    "moonshotai--Kimi-K2-Instruct": 1026408209408,
    "openai-community--gpt2": 124439808,
    "togethercomputer--RedPajama-INCITE-Base-3B-v1": 2775864320,
}


def published(model: str) -> huggingface.Reading:
    return huggingface.load(PUBLISHED / f"{model}.json")


@pytest.mark.parametrize("model", PARAMETERS)
def test_parameters_are_counted_exactly(model: str) -> None:
    assert parameters(published(model).architecture) == PARAMETERS[model]


@pytest.mark.parametrize(
    ("model", "billions"),
    [("deepseek-ai--DeepSeek-V3", 37), ("Qwen--Qwen3-30B-A3B", 3.3), ("mistralai--Mixtral-8x7B-v0.1", 12.9)],
)
def test_active_parameters_are_what_the_papers_say(model: str, billions: float) -> None:
    assert active_parameters(published(model).architecture) / 1e9 == pytest.approx(billions, rel=0.02)


# Published models that are no fixture here: MaxText's models of the same dimensions, or Megatron's presets.
ELSEWHERE = {
    "meta-llama/Meta-Llama-3-8B": "llama3-8b",
    "meta-llama/Meta-Llama-3-70B": "llama3-70b",
    "Qwen/Qwen2-1.5B": "qwen2.5-1.5b",
    "Qwen/Qwen2-72B": "qwen2.5_72B.yaml",
    "Qwen/Qwen2.5-1.5B": "qwen2.5-1.5b",
    "Qwen/Qwen2.5-7B": "qwen2.5-7b",
    "Qwen/Qwen2.5-14B": "qwen2.5-14b",
    "Qwen/Qwen2.5-32B": "qwen2.5_32B.yaml",
    "Qwen/Qwen2.5-72B": "qwen2.5_72B.yaml",
    "Qwen/Qwen3-1.7B": "qwen3-1.7b",
    "Qwen/Qwen3-4B": "qwen3-4b",
    "Qwen/Qwen3-14B": "qwen3-14b",
}


@pytest.mark.parametrize("model", sorted(known_models.table()))
def test_the_table_of_published_models_is_theirs(model: str, experiment: Experiment) -> None:
    found = known_models.reading(model)
    assert found is not None
    assert found.unsupported == ()
    name = re.sub(r"^(meta-llama)/Meta-(Llama-3\.1)", r"\1/\2", model).replace("/", "--")
    fixtures = (name, f"{name}-Instruct", f"{name.replace('2.5-0', '2-0')}-Instruct")
    if fixture := next((one for one in fixtures if one in MODELS), ""):
        assert asdict(found.architecture) == asdict(published(fixture).architecture)
        return
    other = ELSEWHERE[model]
    if other.endswith(".yaml"):
        built = megatron_model(experiment(framework="megatron", module=f"model: {other}"))
    else:
        built = dict(maxtext.known())[other]
    different = flavors.differences(built, found.architecture)
    assert {key: value for key, value in different.items() if key not in ("norm_eps", "vocab")} == {}
    assert abs(built.vocab - found.architecture.vocab) <= 128  # some are padded


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "unsloth/qwen3-8b-Base", "Llama-3.1-8B-Instruct", "x/Llama-2-7b"])
def test_a_copy_of_a_published_model_is_known(name: str) -> None:
    assert known_models.reading(name) is not None
    assert known_models.reading(f"{name}-of-mine") is None


def command(model: str, framework: str) -> tuple[object, ...]:
    source = PUBLISHED / f"{model}.json"
    return ("config", "import-hf", source, "--framework", framework, "--name", model.partition("--")[2])


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "maxtext", "megatron_bridge"])
@pytest.mark.parametrize("model", MODELS)
def test_the_preset_of_a_model_is_the_one_last_looked_at(model: str, framework: str, primus: Primus) -> None:
    done = primus(*command(model, framework), "--output", "-")
    found = (done.out + done.err).replace(f"{PUBLISHED}/", "")
    path = IMPORTED / framework / f"{model}.txt"
    if UPDATE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert found == (path.read_text(encoding="utf-8") if path.is_file() else "")


def megatron_model(experiment: Path, **options: Any) -> Architecture:
    """What Megatron builds from an experiment."""
    table = schema("megatron")
    said = flat(load_experiment(experiment, **options).args, table)
    return megatron.architecture({name: row.default for name, row in table.arguments.items()} | said)


# What Megatron 0.19 cannot be told; the golden text says why.
REFUSED = {
    "Qwen--Qwen3.5-35B-A3B",
    "allenai--OLMo-2-1124-7B",
    "google--gemma-2-9b",
    "google--gemma-2b",
    "meta-llama--Llama-4-Scout-17B-16E-Instruct",
    "microsoft--Phi-3.5-mini-instruct",
    "moonshotai--Kimi-K2-Instruct",
    "openai--gpt-oss-20b",
}


@pytest.mark.parametrize("model", sorted({*MODELS} - REFUSED))
def test_megatron_builds_the_model_that_was_imported(model: str, primus: Primus, experiment: Experiment) -> None:
    done = primus(*command(model, "megatron"), "--output", "presets")
    assert done.code == 0, done.err
    path = experiment(framework="megatron", module=f"model: {model.partition('--')[2]}.yaml")
    built = asdict(megatron_model(path, preset_dirs=[Path("presets")]))
    meant = asdict(published(model).architecture)
    for numbers in (built, meant):
        if numbers["rope"] and not numbers["rope"]["scaling"]:
            numbers["rope"]["original"] = 0
    assert {key: (built[key], meant[key]) for key in meant if built[key] != meant[key]} == {}


SHIPPED = {
    "llama2_7B": "meta-llama--Llama-2-7b-hf",
    "llama3.1_8B": "meta-llama--Llama-3.1-8B",
    "llama3.1_70B": "meta-llama--Llama-3.1-70B",
    "llama3.1_405B": "meta-llama--Llama-3.1-405B",
    "llama3.2_1B": "meta-llama--Llama-3.2-1B-Instruct",
    "llama3.2_3B": "meta-llama--Llama-3.2-3B-Instruct",
    "qwen2.5_3B": "Qwen--Qwen2.5-3B-Instruct",
    "qwen3_8B": "Qwen--Qwen3-8B",
    "qwen3_32B": "Qwen--Qwen3-32B",
    "qwen3_30B_A3B": "Qwen--Qwen3-30B-A3B",
    "qwen3_235B_A22B": "Qwen--Qwen3-235B-A22B",
    "mixtral_8x7B_v0.1": "mistralai--Mixtral-8x7B-v0.1",
    "mixtral_8x22B_v0.1": "mistralai--Mixtral-8x22B-v0.1",
    "deepseek_v2_lite": "deepseek-ai--DeepSeek-V2-Lite",
    "deepseek_v3": "deepseek-ai--DeepSeek-V3",
}


# What upstream Primus, whose values the shipped presets have, trains otherwise than it was published:
# preset -> field -> (shipped, published).
# - positions: how long a sequence may be; a rotary model's weights do not depend on it, and no example is longer.
#   DeepSeek's presets leave it to the experiment.
Fields = dict[str, tuple[object, object]]
_SHORT: Fields = {"positions": (8192, 131072)}
_QWEN3: Fields = {"positions": (131072, 40960)}
_LATER: Fields = {"positions": (0, 163840)}
EXCEPTIONS: dict[str, Fields] = {
    "llama3.1_405B": _SHORT,
    "llama3.2_1B": _SHORT,
    "llama3.2_3B": _SHORT,
    "qwen2.5_3B": {"positions": (131072, 32768)},
    "qwen3_8B": _QWEN3,
    "qwen3_32B": _QWEN3,
    "qwen3_30B_A3B": _QWEN3,
    "qwen3_235B_A22B": _QWEN3,
    "mixtral_8x7B_v0.1": {"positions": (4096, 32768)},
    "deepseek_v2_lite": _LATER,
    "deepseek_v3": _LATER,
}


@pytest.mark.parametrize("preset", SHIPPED)
def test_a_shipped_preset_is_the_published_model(preset: str, experiment: Experiment) -> None:
    shipped = leaves(asdict(megatron_model(experiment(framework="megatron", module=f"model: {preset}.yaml"))))
    meant = leaves(asdict(published(SHIPPED[preset]).architecture))
    different = {
        key: (shipped.get(key), meant.get(key)) for key in {**shipped, **meant} if shipped.get(key) != meant.get(key)
    }
    assert different == EXCEPTIONS.get(preset, {})


def leaves(value: dict[str, Any], above: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        result |= leaves(item, f"{above}{key}.") if isinstance(item, dict) else {f"{above}{key}": item}
    return result


def written(primus: Primus, *words: object) -> str:
    done = primus("config", "import-hf", *words)
    assert done.code == 0, done.err
    return done.out


def config(write: Write, **changes: object) -> Path:
    """TinyLlama's config.json with changes; None takes a key away."""
    said = json.loads((PUBLISHED / "TinyLlama--TinyLlama-1.1B-Chat-v1.0.json").read_text())
    return write(
        "config.json", json.dumps({key: value for key, value in (said | changes).items() if value is not None})
    )


WORDS = ("--framework", "megatron", "--name", "new_1.1B")


def test_an_import_is_checked_and_ready_to_run(primus: Primus, write: Write) -> None:
    write("primus.yaml", "")
    config(write)
    preset, example = written(primus, ".", *WORDS, "--example", "MI300X").split()
    assert preset == "primus/configs/models/megatron/new_1.1B.yaml"
    assert example == "examples/megatron/configs/MI300X/new_1.1B-pretrain.yaml"
    assert primus("config", "check", example).out == f"{example}: ok\n"
    assert primus("run", "--dry-run", "--config", example).code == 0
    assert written(primus, ".", *WORDS).split() == [preset]  # the same again changes nothing


@pytest.mark.parametrize("sku", ["MI300X", "MI355X"])
@pytest.mark.parametrize(
    ("model", "nodes"),
    [
        ("meta-llama--Llama-3.1-70B", {"MI300X": 1, "MI355X": 1}),
        ("meta-llama--Llama-3.1-405B", {"MI300X": 32, "MI355X": 8}),
        ("Qwen--Qwen3-235B-A22B", {"MI300X": 4, "MI355X": 2}),
        ("deepseek-ai--DeepSeek-V3", {"MI300X": 16, "MI355X": 8}),
    ],
)
def test_the_example_is_spread_so_that_it_fits(
    model: str, nodes: dict[str, int], sku: str, primus: Primus, write: Write
) -> None:
    write("primus.yaml", "")
    _, example = written(primus, *command(model, "megatron")[2:], "--example", sku).split()
    found = report(load_experiment(example), gpus=8 * nodes[sku])
    assert (found.layout.gpus, found.sku, found.exceeds) == (8 * nodes[sku], sku, False)
    head = Path(example).read_text(encoding="utf-8").splitlines()[0]
    assert (f"on {nodes[sku]} nodes of 8 GPUs" if nodes[sku] > 1 else "on 8 GPUs") in head


def test_bridge_is_told_a_recipe_and_where_the_model_is(primus: Primus, write: Write) -> None:
    write("primus.yaml", "")
    source = PUBLISHED / "Qwen--Qwen3-30B-A3B.json"
    write("model/config.json", source.read_text(encoding="utf-8"))
    write("model/model.safetensors", "")
    words = ("--framework", "megatron_bridge", "--name", "mine_30B_A3B", "--example", "MI300X")
    preset, example = written(primus, "model", *words).split()
    lines = [line.partition("  #")[0] for line in Path(preset).read_text(encoding="utf-8").splitlines()]
    assert lines[-3:] == [
        "recipe: qwen.qwen3_moe",
        "flavor: qwen3_30b_a3b_sft_config",
        f"hf_path: {Path('model').absolute()}",
    ]
    assert primus("config", "check", example, "--nodes", "1").out == f"{example}: ok\n"
    found = report(load_experiment(example), gpus=8)
    assert (found.layout.gpus, found.exceeds) == (8, False)
    assert found.model == replace(published("Qwen--Qwen3-30B-A3B").architecture, positions=4096)


def test_a_model_that_names_itself_is_the_recipes(primus: Primus, write: Write) -> None:
    """Its dimensions are in no table here."""
    config(write, _name_or_path="zai-org/GLM-4.5-Air")
    found = written(primus, ".", "--framework", "megatron_bridge", "--name", "glm_1B", "--output", "-")
    assert "flavor: glm45_air_106b_sft_config" in found
    assert "hf_path: zai-org/GLM-4.5-Air  # _name_or_path" in found


def test_presets_go_where_they_are_read_first(primus: Primus, write: Write) -> None:
    config(write)
    Path("mine").mkdir()
    assert "error: there is no directory of presets here" in primus("config", "import-hf", ".", *WORDS).err
    (preset,) = written(primus, ".", *WORDS, "--preset-dir", "mine").split()
    assert preset == "mine/models/megatron/new_1.1B.yaml"
    done = primus("config", "import-hf", ".", *WORDS, "--output", "other", "--example", "MI355X")
    assert done.err.endswith("read with --preset-dir other\n")
    preset, example = done.out.split()
    assert primus("config", "import-hf", ".", *WORDS, "--output", "a.yaml").code == 2
    assert primus("config", "check", example, "--preset-dir", "other").code == 0


def test_another_file_of_that_name_is_left_alone(primus: Primus, write: Write) -> None:
    config(write)
    path = write("out/models/megatron/new_1.1B.yaml", "num_layers: 1\n")
    done = primus("config", "import-hf", ".", *WORDS, "--output", "out", "--example", "MI300X")
    assert done.code == 2
    assert "is there already" in done.err
    assert path.read_text() == "num_layers: 1\n"
    assert not Path("out/examples").exists()


def test_what_is_not_known_is_listed_and_refused_but_with_force(primus: Primus, write: Write) -> None:
    config(write, layerskip=3, rope_scaling={"type": "longrope", "factor": 2.0})
    done = primus("config", "import-hf", ".", *WORDS, "--output", "-")
    assert (done.code, done.out) == (2, "")
    assert "rope_scaling: longrope scaling is not supported" in done.err
    assert "layerskip: is not known here (it says 3)\nhint: --force" in done.err
    done = primus("config", "import-hf", ".", *WORDS, "--output", "-", "--force")
    assert done.code == 0
    assert "# Not said here: layerskip: is not known here (it says 3)" in done.out


@pytest.mark.parametrize(
    ("changes", "preset"),
    [
        ({"num_key_value_heads": 1}, "num_query_groups: 1  # num_key_value_heads"),
        ({"num_key_value_heads": None}, "group_query_attention: false  # num_key_value_heads is not said: as many as"),
        ({"head_dim": 128}, "kv_channels: 128  # head_dim"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, "rotary_seq_len_interpolation_factor: 4  # rope_sc"),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}},
            "yarn_original_max_position_embeddings: 512  # rope_scaling.original_max_position_embeddings",
        ),
        ({"rope_theta": None, "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, "rotary_base: 500000"),
        ({"tie_word_embeddings": True}, "untie_embeddings_and_output_weights: false  # tie_word_embeddings"),
        ({"rms_norm_eps": None}, "layernorm_epsilon: 1.0e-06  # rms_norm_eps is not said: the model type's default"),
        ({"model_type": "mistral", "sliding_window": 1024}, 'window_size: "1023,0"  # sliding_window'),
        ({"attention_bias": True, "mlp_bias": True}, "add_bias_linear: true  # mlp_bias, attention_bias"),
    ],
)
def test_a_key_becomes_the_argument_that_says_it(
    changes: dict[str, object], preset: str, primus: Primus, write: Write
) -> None:
    config(write, **changes)
    assert preset in written(primus, ".", *WORDS, "--output", "-")


def test_a_null_is_as_good_as_nothing(primus: Primus, write: Write) -> None:
    path = config(write)
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "head_dim": None, "num_key_value_heads": None}))
    text = written(primus, ".", *WORDS, "--output", "-")
    assert "kv_channels: 64  # head_dim is null: hidden_size / num_attention_heads" in text
    assert "group_query_attention: false  # num_key_value_heads is null" in text


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "is no JSON"),
        ("[]", "holds no mapping"),
        ("[" * 100_000, "is no JSON"),
        ('{"rope_theta": NaN}', "is no JSON: NaN is no number"),
        ('{"model_type": "llama", "num_hidden_layers": 1000000000000}', "num_hidden_layers: is more than"),
        ("{}", "model_type: is missing"),
        ('{"model_type": "llama"}', "hidden_size or n_embd: is missing"),
        ('{"model_type": "llama", "hidden_size": "64"}', "hidden_size: must be int, not '64'"),
        ('{"model_type": "llama", "hidden_size": -64}', "hidden_size: must be more than zero"),
        (
            '{"model_type": "llama", "hidden_size": 10, "num_attention_heads": 3}',
            "is no multiple of",
        ),
        ('{"model_type": "llama", "num_attention_heads": 6, "num_key_value_heads": 4}', "4 does not divide"),
        ('{"model_type": "llama", "rope_scaling": [1]}', "rope_scaling: must be dict"),
        ('{"model_type": "llama", "rope_scaling": {"type": "yarn", "factor": "4"}}', "factor: must be a number"),
        ('{"model_type": "x", "text_config": {}}', "is more than a language model"),
    ],
)
def test_what_is_no_model_is_an_error_that_says_so(text: str, error: str, primus: Primus, write: Write) -> None:
    write("config.json", text)
    done = primus("config", "import-hf", "config.json", *WORDS, "--output", "-")
    assert done.code == 2
    assert error in done.err


@pytest.mark.parametrize("name", ["../up", "a b", "-x", "", "a: b"])
def test_a_name_is_a_file_name(name: str, primus: Primus, write: Write) -> None:
    config(write)
    done = primus("config", "import-hf", ".", "--framework", "megatron", f"--name={name}", "--output", "-")
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("new_1.1B", "name says 1.1B, 1.10B counted\n"),
        ("new_7B", "name says 7B, 1.10B counted: is it that model?\n"),
        ("new_1100M", "name says 1100M, 1.10B counted\n"),
        ("new", "primus: 1.10B counted\n"),
        ("new_A3B", "primus: 1.10B counted\n"),
    ],
)
def test_the_name_is_held_against_the_count(name: str, said: str, primus: Primus, write: Write) -> None:
    config(write)
    done = primus("config", "import-hf", ".", "--framework", "megatron", "--name", name, "--output", "-")
    assert said in done.err


@pytest.mark.parametrize(
    ("layers", "text"),
    [
        ((True,) * 4, "[1]*4"),
        ((False, True, True), "([0]*1+[1]*2)"),
        ((False, True) * 3, "([0]*1+[1]*1)*3"),
        ((True, False, False, True), "([1]*1+[0]*2+[1]*1)"),
    ],
)
def test_patterns_of_layers_are_read_as_they_are_written(layers: tuple[bool, ...], text: str) -> None:
    assert patterns.written(layers) == text
    assert patterns.read(text) == layers


@pytest.mark.parametrize("text", ["", "x", "[1", "__import__('os')", "[1]*1e9", "[1]-[0]"])
def test_what_is_no_pattern_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is no pattern"):
        patterns.read(text)


ODD: tuple[object, ...] = ("x", "", -1, 0, 1.5, 10**30, True, False, None, [], [1], {}, {"a": 1})


@pytest.mark.parametrize("model", ["TinyLlama--TinyLlama-1.1B-Chat-v1.0", "deepseek-ai--DeepSeek-V3"])
def test_no_value_of_a_key_ends_in_a_traceback(model: str) -> None:
    said = json.loads((PUBLISHED / f"{model}.json").read_text(encoding="utf-8"))
    files = [{**said, key: odd} for key in said for odd in ODD]
    yarn = {"type": "yarn", "factor": 2.0}
    files += [{**said, "rope_scaling": {**yarn, key: odd}} for key in ("type", "factor", "x") for odd in ODD]
    for file in files:
        try:
            reading = huggingface.read(file)
        except ConfigError:
            continue
        assert parameters(reading.architecture) > 0
        assert text([], megatron.preset(reading).rows)
