"""Runs inside the image: SpecForge's own trainer, capture and exporter, given our resolved arguments.

torchrun ... -m primus.backends.specforge.worker rocm|cpu train FILE [BASE]
torchrun ... -m primus.backends.specforge.worker rocm|cpu capture FILE
python -m primus.backends.specforge.worker rocm|cpu export FILE
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import runpy
import sys
import types
from pathlib import Path
from typing import Any, NoReturn

import torch

from primus.backends.specforge import features
from primus.experiment.substitute import fill
from primus.experiment.yaml import read, untyped

SCRIPT = Path("/opt/specforge/scripts/prepare_hidden_states.py")
# Options of a capture that are ours and not the script's.
OURS = ("filter_output_path", "filter_block_size", "filter_min_kept", "sglang_disable_radix_cache")


def train(run: dict[str, Any]) -> int:
    """Train a draft on captured features; goes on from the run's own checkpoint if there is one."""
    training, data = run.setdefault("training", {}), run.get("data", {})
    path = data.get("hidden_states_path") or ""
    if path and not any(features.files(Path(path))):
        raise SystemExit(
            f"error: data.hidden_states_path: no *.ckpt below {path}\nhint: specforge_mode: capture writes them"
        )
    latest = Path(run["output_dir"]) / f"{run['run_id']}-latest"
    if "resume_from" not in training and latest.exists():
        training["resume_from"] = str(latest)

    import specforge.cli as cli
    from pydantic import ValidationError
    from specforge.config import Config

    try:
        config = Config.model_validate(run)
    except ValidationError as error:
        faults = [f"error: {'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise SystemExit("\n".join(faults)) from None
    cli.load_config = lambda _path, _overrides: config  # it would read a file, which has no secrets filled in
    return int(cli.main(["train", "--config=-"]))


def without_triton() -> None:
    """EAGLE's loss is a Triton kernel, and CPU builds of torch bring no Triton: the same sum in plain torch."""
    module = types.ModuleType("specforge.core.loss")

    def apply(logits: torch.Tensor, target: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The cross entropy of the target's probabilities, summed over the vocabulary, where the mask is set."""
        return -(mask * target * logits.float().log_softmax(dim=2)).sum(dim=2).mean()

    module.LogSoftmaxLoss = types.SimpleNamespace(apply=apply)  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module


def capture(accelerator: str, options: dict[str, Any]) -> None:
    """Write the target's features of each conversation, and then those that are long enough to train on."""
    ours = {name: options.pop(name, None) for name in OURS}
    if accelerator == "cpu":
        features.capture(options)
    else:
        _capture_with_sglang(options, disable_radix_cache=ours["sglang_disable_radix_cache"] is not False)
    if ours["filter_output_path"] and os.environ["RANK"] == "0":
        features.select(
            Path(options["output_path"]),
            Path(ours["filter_output_path"]),
            block=ours["filter_block_size"] or 16,
            least=ours["filter_min_kept"] or 1,
        )


def _capture_with_sglang(options: dict[str, Any], *, disable_radix_cache: bool) -> None:
    """SpecForge's own script, which runs the target in SGLang in this process."""
    import specforge.offline_capture as library

    # The script of this version has no option for it, and SGLang's cache of hybrid models asserts CUDA.
    library.load_offline_capture = functools.partial(
        library.load_offline_capture, disable_radix_cache=disable_radix_cache
    )
    # It caches beside itself, which in an image nobody may write: so it is called by another path.
    link = Path(options["cache_dir"]) / "scripts" / SCRIPT.name
    link.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        link.symlink_to(SCRIPT)
    sys.argv = [str(link)]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is not None and value is not False:
            sys.argv.append(flag if value is True else f"{flag}={value}")
    runpy.run_path(str(link), run_name="__main__")


def export(options: dict[str, Any]) -> int:
    """Write the draft of a checkpoint as a model directory."""
    import specforge.cli as cli

    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    try:
        code = int(cli.main(["export", *flags]))
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: specforge_export: {error}") from error
    print(f"exported: {options['output_dir']}")
    return code


def merged(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """`top` over `base`, deeply."""
    result = {**base, **top}
    for key in base.keys() & top.keys():
        if isinstance(base[key], dict) and isinstance(top[key], dict):
            result[key] = merged(base[key], top[key])
    return result


def main() -> int:
    accelerator, step, file, *base = sys.argv[1:]
    if accelerator == "cpu":
        without_triton()
    elif step != "export" and not torch.cuda.is_available():  # never a large model on the CPU by mistake
        raise SystemExit(f"torch {torch.__version__} sees no GPU here")
    options = fill(untyped(read(Path(file), layer="resolved")), os.environ)
    if step == "train":
        for path in base:
            options = merged(untyped(read(Path(path), layer="specforge_config")), options)
        return train(options)
    if step == "export":
        return export(options)
    capture(accelerator, options)
    return 0


def leave(code: int) -> NoReturn:
    """End here, with everything written: Gloo's threads now and then abort a process that ends in the usual way."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
