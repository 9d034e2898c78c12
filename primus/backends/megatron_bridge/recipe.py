"""A recipe's configuration with the experiment's values in it.  Imports Bridge: only after megatron's stand_ins."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from primus.backends.megatron_bridge import hub, overrides, stand_ins

with stand_ins.importing():
    from megatron.bridge import AutoBridge
    from megatron.bridge.data.builders import GPTSFTDatasetConfig
    from megatron.bridge.models.gpt_provider import default_layer_spec, local_layer_spec
    from megatron.bridge.training.config import ConfigContainer, GPTDatasetConfig
    from megatron.bridge.training.mixed_precision import MixedPrecisionConfig, get_mixed_precision_config
    from megatron.bridge.utils.activation_map import str_to_callable, str_to_dtype
    from transformers import AutoConfig, AutoTokenizer

READERS = {torch.dtype: str_to_dtype, Callable: str_to_callable, MixedPrecisionConfig: get_mixed_precision_config}
LOADERS = {AutoBridge: "from_hf_pretrained", AutoConfig: "from_pretrained", AutoTokenizer: "from_pretrained"}


def configuration(settings: Mapping[str, Any], run_dir: Path) -> ConfigContainer:
    """The recipe's own configuration with the experiment's values in it. Raises ValueError."""
    build, options = _recipe(settings["recipe"], settings["flavor"], settings.get("peft_scheme"))
    values = settings["values"]
    model, finetuned = settings.get("hf_path"), settings["stage"] == "posttrain"
    own_weights = finetuned and "pretrained_checkpoint" not in values["checkpoint"]

    def find(name: str, revision: str | None) -> str:
        other = model not in (None, name)
        return hub.directory(model if other else name, None if other else revision, weights=own_weights)

    with hub.redirected(LOADERS, find) as asked:
        config = build(**options)
    if model and not asked:
        raise ValueError(f"hf_path: {settings['flavor']} builds its model without one\nhint: leave it out")
    hub.replace(config, asked)
    if own_weights and asked:
        config.checkpoint.pretrained_checkpoint = next(iter(asked.values()))
    overrides.apply(config, values, READERS)
    start = config.checkpoint.pretrained_checkpoint
    if finetuned and not start:
        raise ValueError(
            "checkpoint.pretrained_checkpoint: is missing; a post_trainer starts from a model\n"
            "hint: hf_path or checkpoint.pretrained_checkpoint, a directory of a Hugging Face model or of a checkpoint"
        )
    if start and not Path(start).is_dir():
        config.checkpoint.pretrained_checkpoint = hub.directory(start, weights=True)
    part = getattr(config.model, "transformer", config.model)
    if part.transformer_impl == "local" and getattr(config.model, "transformer_layer_spec", None) is default_layer_spec:
        config.model.transformer_layer_spec = local_layer_spec
    if part.transformer_impl == "local" and getattr(config.dataset, "enable_offline_packing", False):
        raise ValueError(
            "dataset.enable_offline_packing: packed sequences need Transformer Engine's attention\n"
            "hint: dataset.enable_offline_packing=false, as model.transformer_impl is local"
        )
    _place_data(config, values.get("dataset", {}), run_dir / "data_cache")
    return config


def _recipe(recipe: str, flavor: str, peft_scheme: str | None) -> tuple[Callable[..., ConfigContainer], dict[str, str]]:
    """The function of a recipe's module, and the arguments it takes."""
    with stand_ins.importing():
        module = import_module(f"megatron.bridge.recipes.{recipe}")
        recipes = import_module("megatron.bridge.recipes")
    build = getattr(module, flavor, None)
    if build is None:
        home = getattr(recipes, flavor).__module__.removeprefix("megatron.bridge.recipes.")
        raise ValueError(f"recipe: {recipe} has no flavor {flavor}\nhint: recipe: {home}")
    return build, {} if peft_scheme is None else {"peft_scheme": peft_scheme}


def _place_data(config: ConfigContainer, chosen: Mapping[str, Any], cache: Path) -> None:
    """What is made of the data goes to the run directory: Bridge's default is beside it, which may be read-only."""
    data = config.dataset
    if isinstance(data, GPTDatasetConfig) and "path_to_cache" not in chosen:
        data.path_to_cache = str(cache)
    if isinstance(data, GPTSFTDatasetConfig):
        data.dataset_kwargs = {"index_mapping_dir": str(cache), **(data.dataset_kwargs or {})}
        # What the recipe says of its own data says nothing of other data, nor its packing of unpacked data.
        theirs = ("hf_dataset", "hf_validation_dataset", "hf_test_dataset", "hf_validation_proportion")
        stale = [
            *(theirs if data.dataset_root is not None else ()),
            *(() if data.enable_offline_packing else ("offline_packing_specs",)),
        ]
        for name in stale:
            if name not in chosen:
                setattr(data, name, None)
        if data.dataset_root is not None and data.enable_offline_packing:
            data.dataset_root = _linked(Path(data.dataset_root), cache)


def _linked(folder: Path, cache: Path) -> str:
    """A directory below `cache` with the folder's files in it, and room for packed ones."""
    place = cache / folder.relative_to("/")
    place.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        with contextlib.suppress(FileExistsError):  # each process comes by
            (place / path.name).symlink_to(path)
    return str(place)
