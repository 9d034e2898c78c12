"""The models that recipes name by their repository on the Hugging Face hub, as directories of this machine."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

# All that a configuration and a tokenizer need.
_WITHOUT_WEIGHTS = ["*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.onnx", "*.h5", "*.msgpack"]


def directory(name: str, revision: str | None = None, *, weights: bool) -> str:
    """The directory `name` is, or the snapshot of the repository `name` in the hub's cache, filled if need be.

    Raises ValueError if neither can be had.
    """
    if Path(name).is_dir():
        if not (Path(name) / "config.json").is_file():
            raise ValueError(f"{name}: holds no config.json, so it is no directory of a Hugging Face model")
        if weights and not any(path.suffix in (".safetensors", ".bin") for path in Path(name).iterdir()):
            raise ValueError(f"{name}: holds no weights, and a post_trainer starts from some")
        return name
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    give = "hint: download it where there is a network (hf download), and give the directory: hf_path=DIR"
    try:
        return snapshot_download(name, revision=revision, ignore_patterns=None if weights else _WITHOUT_WEIGHTS)
    except LocalEntryNotFoundError as error:
        raise ValueError(
            f"{name}: the hub cannot be reached from here, and its cache has no such model\n{give}"
        ) from error
    except GatedRepoError as error:
        raise ValueError(f"{name}: the hub wants a token that may read it\nhint: set HF_TOKEN") from error
    except HFValidationError as error:
        raise ValueError(f"{name}: is no directory here, and no name on the hub") from error
    except HfHubHTTPError as error:
        raise ValueError(f"{name}: the hub refused it: {error}") from error


@contextlib.contextmanager
def redirected(loaders: Mapping[type, str], found: Callable[[str, str | None], str]) -> Iterator[dict[str, str]]:
    """Inside, each of the loaders (class -> method) loads `found(name, revision)` for the name it is asked for.

    Gives the names that were asked for, with what was found.
    """
    asked: dict[str, str] = {}

    def instead(load: Callable[..., object]) -> Callable[..., object]:
        def method(name: Any, *args: object, **options: Any) -> object:
            if str(name) not in asked and str(name) not in asked.values():
                asked[str(name)] = found(str(name), options.get("revision"))
            return load(asked.get(str(name), name), *args, **options)

        return method

    with contextlib.ExitStack() as stack:
        for cls, name in loaders.items():
            stack.enter_context(mock.patch.object(cls, name, instead(getattr(cls, name))))
        yield asked


def replace(config: Any, names: Mapping[str, str]) -> None:
    """Put the directories in the places of a configuration that hold the names, such as its tokenizer's."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, str) and value in names:
            setattr(config, field.name, names[value])
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            replace(value, names)
