"""One check for each patch, which fails without it: what the patch is for, done for real on a CPU.

usage: postconditions.py [--transformers DIR] [--transformer-engine DIR] [PATCH...]

Prints `ok` or `failed` and the patch, a line each; all of them unless some are named.  The trees default to what is
installed.  Needs MaxDiffusion and its dependencies; trains random models for a few steps, a minute in all.
"""
# mypy: disable-error-code="import-not-found, import-untyped, no-any-unimported, misc, unused-ignore"

import argparse
import importlib.util
import os
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from functools import cache
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ |= {"JAX_PLATFORMS": "cpu", "NVTE_FRAMEWORK": "jax", "TF_CPP_MIN_LOG_LEVEL": "3", "HF_HUB_OFFLINE": "1"}

# Transformer Engine is on no CPU: this much of it is enough to see when it is imported, and to build a layer.
STAND_IN = {
    "__init__.py": "import sys\nTENSORFLOW_FIRST = 'tensorflow' in sys.modules\n",
    "jax/__init__.py": "",
    "jax/sharding.py": (
        "from contextlib import nullcontext as global_shard_guard\nfrom types import SimpleNamespace as MeshResource\n"
    ),
    "jax/flax/__init__.py": "",
    "jax/flax/transformer.py": "class DotProductAttention:\n  def __init__(self, **settings): pass\n",
}
Losses = dict[int, float]


def stand_in() -> Any:
    """The stand-in for Transformer Engine, ready to be imported."""
    folder = Path(tempfile.mkdtemp())
    for name, text in STAND_IN.items():
        path = folder / "transformer_engine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder))


def loaded(name: str, path: Path) -> Any:
    """The module in one file of a tree, under a name of its own, whatever else is imported."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensorflow_first(options: argparse.Namespace) -> None:
    from maxdiffusion.train_utils import transformer_engine_context

    assert "tensorflow" not in sys.modules
    with transformer_engine_context():
        pass
    assert sys.modules["transformer_engine"].TENSORFLOW_FIRST


def shardy_on(options: argparse.Namespace) -> None:
    import jax
    from maxdiffusion.models.attention_flax import AttentionOp, NNXAttentionOp

    jax.config.update("jax_use_shardy_partitioner", True)
    fixed = {"mesh": None, "attention_kernel": "cudnn_flash_te", "scale": 1, "heads": 2, "dim_head": 8}
    # The stand-in is no real layer; the setting is made before it is built.
    with suppress(TypeError, AttributeError):
        NNXAttentionOp(**fixed)
    with suppress(TypeError, AttributeError):
        AttentionOp(**fixed).bind({}).dpa_layer  # noqa: B018  # a Linen module is set up when it is looked at
    assert jax.config.jax_use_shardy_partitioner is True


def flax_t5_clip(options: argparse.Namespace) -> None:
    import jax.numpy as jnp
    import transformers

    tree = options.transformers or Path(transformers.__file__).parent.parent
    module = loaded("transformers.models.t5.under_test", tree / "transformers/models/t5/modeling_flax_t5.py")
    config = transformers.T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    model = module.FlaxT5EncoderModel(config)
    assert model(jnp.ones((1, 4), jnp.int32)).last_hidden_state.shape == (1, 4, 16)


def empty_axis(options: argparse.Namespace) -> None:
    import jax
    import numpy as np

    tree = options.transformer_engine or Path(sysconfig.get_path("platlib"))
    sharding = loaded("te_sharding", tree / "transformer_engine/jax/sharding.py")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    sizes = [sharding.get_mesh_axis_size(axis, mesh) for axis in (None, "data", "")]
    assert sizes == [1, 1, 1]
    try:
        sharding.get_mesh_axis_size("nope", mesh)
    except AssertionError:
        return
    raise AssertionError("an axis that is not there is still an error")


class Stopped(Exception):
    """The check has seen enough."""


def wan_learning_rate(options: argparse.Namespace) -> None:
    from maxdiffusion.trainers.wan_trainer import WanTrainer

    seen = []

    def create_optimizer(model: Any, config: Any, rate: float) -> None:
        seen.append(rate)
        raise Stopped

    trainer = WanTrainer.__new__(WanTrainer)
    trainer.config = SimpleNamespace(
        logical_axis_rules=(), enable_ssim=False, eval_every=1, enable_generate_video_for_eval=True, learning_rate=0.125
    )
    pipeline = SimpleNamespace(mesh=None, transformer=None)
    trainer.checkpointer = SimpleNamespace(
        load_checkpoint=lambda: (pipeline, None, None), _create_optimizer=create_optimizer
    )
    trainer.load_dataset = lambda *args, **kwargs: None
    with suppress(Stopped):
        trainer.start_training()
    assert seen == [0.125], seen


def unreadable_checkpoint(options: argparse.Namespace) -> None:
    from maxdiffusion.checkpointing.checkpointing_utils import load_state_if_possible

    def restore(*args: Any, **kwargs: Any) -> None:
        raise OSError("unreadable")

    manager = SimpleNamespace(latest_step=lambda: 3, restore=restore, directory="here")
    try:
        load_state_if_possible(manager, {}, "flux_state", False)
    except ValueError:
        return
    raise AssertionError("went on without the checkpoint")


def tiny(name: str) -> str:
    """The directory of one of our own random models, made when it is first asked for."""
    if not TINY:
        sys.path.insert(0, str(Path(__file__).parent))
        import tiny as made

        folder = Path(tempfile.mkdtemp()) / "models"
        for model, make in made.MODELS.items():
            make(folder / model)
            TINY[model] = str(folder / model)
    return TINY[name]


TINY: dict[str, str] = {}


def train(which: str, folder: Path, steps: int, **changes: Any) -> Losses:
    """The losses of a run to step `steps`, from where the checkpoint in `folder` is, if one is there."""
    import yaml
    from maxdiffusion import pyconfig, train_utils

    base = {"wan": "base_wan_1_3b.yml", "flux": "base_flux_dev.yml"}[which]
    arguments = yaml.safe_load((resources.files("maxdiffusion") / "configs" / base).read_text("utf-8-sig"))
    size = {"wan": {"height": 32, "width": 32, "num_frames": 5}, "flux": {"resolution": 32, "max_sequence_length": 32}}
    arguments |= {
        "run_name": "run",
        "output_dir": str(folder),
        "hardware": "gpu",
        "skip_jax_distributed_system": True,
        "dataset_type": "synthetic",
        "synthetic_num_samples": None,
        "reuse_example_batch": True,
        "attention": "dot_product",
        "weights_dtype": "float32",
        "activations_dtype": "float32",
        "per_device_batch_size": 1,
        "learning_rate": 1e-3,
        "learning_rate_schedule_steps": 5,
        "max_train_steps": steps,
        "jax_cache_dir": str(folder.parent / "primus-jax-cache"),
        **size[which],
        **changes,
    }
    if which == "wan":
        arguments |= {"pretrained_model_name_or_path": tiny("wan2.1")}
    else:
        arguments |= {
            "pretrained_model_name_or_path": tiny("flux.1"),
            "clip_model_name_or_path": tiny("flux.1-clip"),
            "t5xxl_model_name_or_path": tiny("flux.1-t5"),
        }
        from maxdiffusion.models.flux import util

        util.configs["flux-dev"].ckpt_path = str(Path(tiny("flux.1"), "flux1-dev.safetensors"))
    file = folder / "config.yml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(arguments), encoding="utf-8")
    pyconfig.initialize(["", str(file)], validate_training=which == "wan")

    import maxdiffusion.trainers.flux_trainer as flux_trainer
    import maxdiffusion.trainers.wan_trainer as wan_trainer

    losses: Losses = {}

    def write_metrics(writer: Any, file: Any, gcs: Any, metrics: Any, step: Any, config: Any) -> None:
        losses[int(step)] = float(metrics["scalar"]["learning/loss"])

    train_utils.write_metrics = flux_trainer.write_metrics = write_metrics
    trainer = {"wan": wan_trainer.WanTrainer, "flux": flux_trainer.FluxTrainer}[which]
    trainer(pyconfig.config).start_training()
    return losses


@cache
def begun(which: str, **changes: Any) -> tuple[Path, Losses, list[str]]:
    """A run of six steps that saves once, with step 3: its directory and losses, and when it saved and waited."""
    from orbax.checkpoint import CheckpointManager

    events = []
    save, wait = CheckpointManager.save, CheckpointManager.wait_until_finished

    def seen_save(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = save(self, *args, **kwargs)
        events.append("saved")
        return result

    def seen_wait(self: Any) -> None:
        wait(self)
        events.append("waited")

    folder = Path(tempfile.mkdtemp())
    CheckpointManager.save, CheckpointManager.wait_until_finished = seen_save, seen_wait
    try:
        losses = train(which, folder, 6, checkpoint_every=EVERY[which], **changes)
    finally:
        CheckpointManager.save, CheckpointManager.wait_until_finished = save, wait
    return folder, losses, events


EVERY = {"wan": 3, "flux": 4}  # WAN counts steps from 0, FLUX.1 samples from 1


def waits(which: str, **changes: Any) -> None:
    """After its last save, a run waits until it is written."""
    _, _, events = begun(which, **changes)
    assert "saved" in events
    assert events[-1] == "waited", events


def resumes(which: str, **changes: Any) -> None:
    """From a checkpoint in its middle, a run has the losses it had the first time."""
    folder, whole, _ = begun(which, **changes)
    again = train(which, folder, 6, checkpoint_every=EVERY[which], **changes)
    assert list(whole) == [*range(6)]
    assert again == {step: whole[step] for step in (4, 5)}, (whole, again)


CHECKS: dict[str, Callable[[argparse.Namespace], None]] = {
    "maxdiffusion/0001-tensorflow-first.patch": tensorflow_first,  # first: it looks at what is imported when
    "maxdiffusion/0002-shardy-on.patch": shardy_on,
    "transformer_engine/0001-empty-axis.patch": empty_axis,
    "maxdiffusion/0003-wan-learning-rate.patch": wan_learning_rate,
    "maxdiffusion/0004-wan-wait-for-checkpoints.patch": lambda _: waits("wan", save_optimizer=True),
    "maxdiffusion/0005-wan-resume.patch": lambda _: resumes("wan", save_optimizer=True),
    "maxdiffusion/0006-wan-unscanned-checkpoints.patch": lambda _: resumes(
        "wan", save_optimizer=True, scan_layers=False
    ),
    "maxdiffusion/0007-unreadable-checkpoint-is-an-error.patch": unreadable_checkpoint,
    "maxdiffusion/0008-flux-wait-for-checkpoints.patch": lambda _: waits("flux"),
    "maxdiffusion/0009-flux-resume.patch": lambda _: resumes("flux"),
    "transformers/0001-flax-t5-clip-arguments.patch": flax_t5_clip,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transformers", type=Path, help="a tree with transformers/models/t5")
    parser.add_argument("--transformer-engine", type=Path, help="a tree with transformer_engine/jax/sharding.py")
    parser.add_argument("patch", nargs="*", help=", ".join(CHECKS))
    options = parser.parse_args()
    if unknown := sorted(set(options.patch) - set(CHECKS)):
        parser.error(f"no check for {', '.join(unknown)}")
    stand_in()
    failed = 0
    for name in options.patch or CHECKS:
        try:
            with redirect_stdout(sys.stderr):
                CHECKS[name](options)
        except Exception:  # noqa: BLE001  # whatever goes wrong in it, the check has failed
            traceback.print_exc()
            failed += 1
            print("failed", name, flush=True)
        else:
            print("ok", name, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
