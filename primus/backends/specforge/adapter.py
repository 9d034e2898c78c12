"""SpecForge 0.2.0: an experiment as up to three steps, each a command: capture features, train a draft, export it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from primus.backends import torchrun
from primus.command import Command
from primus.errors import ConfigError, Problem
from primus.experiment import Experiment
from primus.experiment.substitute import escaped
from primus.experiment.yaml import dump
from primus.node import Node

STEPS = ("capture", "train", "export")  # in the order in which one needs the other
_WORKER = "primus.backends.specforge.worker"
_RUN = ("run_id", "output_dir", "model", "data", "training", "tracking", "profiling", "runtime", "deployment")
_VOCABULARY = ("eagle3", "peagle")  # strategies with a draft vocabulary of its own
# name -> value; see docs/environment.md for the reasons.
_ENV = {
    "SGLANG_USE_AITER": "1",
    "SGLANG_USE_AITER_UNIFIED_ATTN": "1",
    "AITER_FLYDSL_FORCE": "1",
    "SGLANG_DISABLE_RADIX_CACHE": "1",
}
_TRACKERS = ("wandb", "tensorboard", "swanlab", "mlflow")

# Inputs that may be a name on the Hugging Face hub; the others are paths.
HUB = frozenset(
    {
        *("model.target_model_path", "model.draft_model_config", "model.draft_checkpoint_path"),
        *("specforge_capture.target_model_path", "specforge_capture.draft_model_config"),
        *("specforge_export.draft_config", "specforge_export.embedding_source"),
    }
)
# What makes an input that is missing.
MAKERS = {
    "data.hidden_states_path": "specforge_mode: capture makes it",
    "model.vocab_mapping_path": "specforge_mode: capture makes it, in vocab_mapping/",
    "specforge_export.checkpoint": "specforge_mode: train makes it",
}


def steps(experiment: Experiment) -> tuple[str, ...]:
    """What this run does: `specforge_mode`, one word or several."""
    mode = experiment.args.get("specforge_mode", "train")
    return tuple(mode) if isinstance(mode, list) else (mode,)


def modules(experiment: Experiment) -> dict[str, str]:
    """The Python modules this run imports, each with what needs it."""
    needed = {"specforge": "framework: specforge"}
    if "capture" in steps(experiment) and experiment.accelerator == "rocm":
        needed["sglang"] = "specforge_mode: capture"
    if "train" in steps(experiment):
        tracker = _section(experiment, "tracking").get("report_to")
        if tracker in _TRACKERS:
            needed[tracker] = f"tracking.report_to: {tracker}"
        if _section(experiment, "model").get("use_liger_kernel"):
            needed["liger_kernel"] = "model.use_liger_kernel (model.use_liger_kernel=false does without)"
    return needed


def inputs(experiment: Experiment) -> tuple[str, ...]:
    """The arguments that name files, directories or hub repositories this run reads."""
    read = {
        "capture": ("target_model_path", "draft_model_config", "data_path"),
        "export": ("checkpoint", "draft_config", "vocab_mapping", "embedding_source"),
    }
    names = ["model.target_model_path", "model.draft_model_config"]
    for step in steps(experiment):
        names += [f"specforge_{step}.{name}" for name in read.get(step, ())]
    if "train" in steps(experiment):
        names += ["specforge_config", "model.draft_checkpoint_path", "model.vocab_mapping_path"]
        names += ["data.hidden_states_path", "data.eval_hidden_states_path", "training.resume_from"]
    return tuple(names)


def problems(experiment: Experiment) -> Iterator[Problem]:
    """What keeps the experiment from being launched although each of its arguments is right."""
    done = steps(experiment)
    if not done or any(step not in STEPS for step in done):
        said = ", ".join(done) or "[]"
        yield _problem(
            experiment, "specforge_mode", f"{said} is none", f"there are {', '.join(STEPS)}; a list is in order"
        )
    elif list(done) != sorted(set(done), key=STEPS.index):
        yield _problem(experiment, "specforge_mode", f"{', '.join(done)} is no order", f"it is {', '.join(STEPS)}")
    for key in experiment.unknown:
        section = key.partition(".")[0]
        if section.removeprefix("specforge_") not in done and (section.startswith("specforge_") or "train" not in done):
            yield _problem(experiment, key, f"{', '.join(done)} reads no such part", "leave it out")
    if _online(experiment):
        return
    draft = experiment.args.get("specforge_draft") or _section(experiment, "model").get("draft_model_config")
    target = _section(experiment, "model").get("target_model_path")
    file = experiment.args.get("specforge_config")  # which may say what is missing here
    missing: list[tuple[str, object, str]] = []
    if "capture" in done:
        options = _section(experiment, "specforge_capture")
        missing += [
            ("specforge_capture.data_path", options.get("data_path"), "name a file of conversations, JSON lines"),
            ("model.target_model_path", target or options.get("target_model_path"), "name the model to imitate"),
            ("specforge_draft", draft or options.get("draft_model_config"), "write the draft's config.json there"),
        ]
    if "train" in done:
        features = _captures(experiment) or _section(experiment, "data").get("hidden_states_path")
        missing += [
            ("model.target_model_path", target or file, "name the model that was captured"),
            ("data.hidden_states_path", features or file, "name what specforge_mode: capture wrote"),
        ]
    if "export" in done:
        options = _section(experiment, "specforge_export")
        missing += [
            ("specforge_draft", draft or options.get("draft_config"), "write the draft's config.json there"),
        ]
    for key, value, hint in missing:
        if not value:
            yield _problem(experiment, key, f"is missing; {', '.join(done)} needs it", hint)


def refusals(experiment: Experiment) -> Iterator[Problem]:
    """What is right and cannot be launched yet."""
    if _online(experiment):
        yield _problem(
            experiment,
            "specforge_train_mode",
            "online training is not built yet: it needs SGLang servers and Mooncake on nodes of their own",
            "capture the features first (specforge_mode: capture), then train with specforge_train_mode: offline",
        )


def _online(experiment: Experiment) -> bool:
    return "train" in steps(experiment) and experiment.args.get("specforge_train_mode") == "online"


def command(experiment: Experiment, node: Node, run_dir: Path) -> Command:
    """torchrun for what is shared among processes, one process for an export; several steps one after the other."""
    files: dict[Path, str] = {}
    if draft := experiment.args.get("specforge_draft"):
        files[run_dir / "draft.json"] = json.dumps(draft, indent=2) + "\n"
    argvs = []
    done = steps(experiment)
    if done == ("export",) and node.nodes > 1:
        raise ConfigError("an export is the work of one process", hint="leave --nodes and NNODES out")
    for step in done:
        if step == "export" and node.rank > 0:
            continue  # the first node's
        file = run_dir / f"specforge-{step}.yaml"
        words: tuple[str, ...] = (experiment.accelerator, step, str(file))
        if step == "export":
            values = _export(experiment, run_dir)
            start: tuple[str, ...] = ("python", "-m", _WORKER)
        else:
            place = _place(experiment, step, node)
            values = _capture(experiment, run_dir) if step == "capture" else _train(experiment, place, run_dir)
            start = torchrun.argv(place, run_dir, _WORKER, shown="0")
        if step == "train" and experiment.args.get("specforge_config"):
            words = (*words, experiment.args["specforge_config"])
        files[file] = dump(escaped(values))
        argvs.append((*start, *words))
    return Command(
        argv=argvs[0] if len(argvs) == 1 else _one_after_the_other(argvs),
        env=torchrun.environment(experiment.accelerator, node) | (_ENV if experiment.accelerator == "rocm" else {}),
        files=files,
    )


def _one_after_the_other(argvs: list[tuple[str, ...]]) -> tuple[str, ...]:
    return ("python", "-m", "primus.backends.specforge.steps", *(word for argv in argvs for word in ("--", *argv)))


def _train(experiment: Experiment, node: Node, run_dir: Path) -> dict[str, Any]:
    """SpecForge's own run config; what it writes is in the run directory, always the same, so that a run resumes."""
    let_through = [key for key in experiment.args if key not in _RUN and not key.startswith("specforge_")]
    run: dict[str, Any] = {key: experiment.args[key] for key in (*_RUN, *let_through) if key in experiment.args}
    run["run_id"] = run.get("run_id") or experiment.exp_name
    run["output_dir"] = str(_checkpoints(experiment, run_dir))
    model = run["model"] = dict(run.get("model", {}))
    data = run["data"] = dict(run.get("data", {}))
    if draft := _draft(experiment, run_dir):
        model["draft_model_config"] = draft
    if _captures(experiment):
        data.setdefault("hidden_states_path", _features(experiment, run_dir))
        if _strategy(experiment) in _VOCABULARY:
            model.setdefault("vocab_mapping_path", _mapping(experiment, run_dir))
    data["cache_dir"] = str(run_dir / data.get("cache_dir", "cache"))
    trainer: dict[str, Any] = {"nnodes": node.nodes, "nproc_per_node": node.gpus}
    if node.nodes > 1:
        trainer |= {"node_rank": node.rank, "master_addr": node.master_addr, "master_port": node.master_port}
    run["deployment"] = {**run.get("deployment", {}), "trainer": trainer}
    if "tracking" in run:
        run["tracking"] = {**run["tracking"], "wandb_dir": str(run_dir / (run["tracking"].get("wandb_dir") or "wandb"))}
    return run


def _capture(experiment: Experiment, run_dir: Path) -> dict[str, Any]:
    """The capture script's options; what they do not say is as for training."""
    model, data = _section(experiment, "model"), _section(experiment, "data")
    options = {
        "strategy": _strategy(experiment),
        **{key: model[key] for key in ("target_model_path", "trust_remote_code") if key in model},
        **{key: data[key] for key in ("chat_template", "max_length", "is_preformatted") if key in data},
        **_section(experiment, "specforge_capture"),
    }
    for key in ("nproc_per_node", "nnodes"):
        options.pop(key, None)
    options["draft_model_config"] = options.get("draft_model_config") or _draft(experiment, run_dir)
    options["output_path"] = str(run_dir / (options.get("output_path") or "hidden_states_raw"))
    options["cache_dir"] = str(run_dir / options.get("cache_dir", "cache"))
    if options.get("filter_output_path"):
        options["filter_output_path"] = str(run_dir / options["filter_output_path"])
    return options


def _export(experiment: Experiment, run_dir: Path) -> dict[str, Any]:
    """The options of `specforge export`; what they do not say follows from what was trained."""
    options = dict(_section(experiment, "specforge_export"))
    options.setdefault("to", "hf")
    options["checkpoint"] = options.get("checkpoint") or str(_checkpoints(experiment, run_dir))
    options["draft_config"] = options.get("draft_config") or _draft(experiment, run_dir)
    options["output_dir"] = str(run_dir / (options.pop("output_path", None) or "export"))
    model = _section(experiment, "model")
    if _strategy(experiment) in _VOCABULARY:
        mapping = _mapping(experiment, run_dir) if _captures(experiment) else None
        options["vocab_mapping"] = options.get("vocab_mapping") or model.get("vocab_mapping_path") or mapping
    if options["to"] == "hf":  # the other one takes no embedding
        options["embedding_source"] = options.get("embedding_source") or model.get("target_model_path")
        options.setdefault("embedding_key", model.get("embedding_key", "model.embed_tokens.weight"))
    return {key: value for key, value in options.items() if value is not None}


def _place(experiment: Experiment, step: str, node: Node) -> Node:
    """The node with as many processes as the experiment says, which may be fewer than it has GPUs."""
    if step == "capture":
        prefix, said = "specforge_capture", _section(experiment, "specforge_capture")
    else:
        prefix, said = "deployment.trainer", _section(experiment, "deployment").get("trainer", {})
    if said.get("nnodes") not in (None, node.nodes):
        raise ConfigError(
            f"{prefix}.nnodes is {said['nnodes']}, and the job has {node.nodes} node(s)",
            hint=f"run it with --nodes {said['nnodes']}, or leave the key out",
        )
    count = said.get("nproc_per_node") or node.gpus
    if count > node.gpus:
        raise ConfigError(
            f"{prefix}.nproc_per_node is {count}, and this node has {node.gpus}",
            hint=f"on a CPU, --gpus-per-node {count} makes as many processes; or leave the key out",
        )
    return replace(node, gpus=count)


def _section(experiment: Experiment, name: str) -> Mapping[str, Any]:
    return experiment.args.get(name) or {}


def _strategy(experiment: Experiment) -> str:
    capture = _section(experiment, "specforge_capture").get("strategy")
    return str(_section(experiment, "training").get("strategy") or capture or "eagle3")


def _draft(experiment: Experiment, run_dir: Path) -> str | None:
    """The file of the draft's config: the user's, or the one written from the experiment."""
    given = _section(experiment, "model").get("draft_model_config")
    return given or (str(run_dir / "draft.json") if experiment.args.get("specforge_draft") else None)


def _checkpoints(experiment: Experiment, run_dir: Path) -> Path:
    return run_dir / (experiment.args.get("output_dir") or "checkpoints")


def _captures(experiment: Experiment) -> bool:
    """Whether the experiment says how to capture what it trains on, in this run or in an earlier one."""
    return bool(_section(experiment, "specforge_capture").get("data_path"))


def _features(experiment: Experiment, run_dir: Path) -> str:
    """Where this run's capture leaves what training reads."""
    options = _capture(experiment, run_dir)
    return str(options.get("filter_output_path") or options["output_path"])


def _mapping(experiment: Experiment, run_dir: Path) -> str:
    return str(Path(_features(experiment, run_dir)) / "vocab_mapping" / "vocab_mapping.pt")


def _problem(experiment: Experiment, key: str, what: str, hint: str) -> Problem:
    where = str(experiment.origins[key].origin) if key in experiment.origins else ""
    return Problem(message=f"{key}: {what}", where=where, hint=hint)
