"""Which variables reach the training process, and which of several values wins.

Highest first: --env, the experiment's `env:`, the user's own variables, the backend's table, the image's ENV.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from primus.experiment import Template
from primus.experiment.substitute import fill, is_secret

# Passed into the container when set: the libraries between the trainer and the hardware, and the trackers.
PREFIXES = (
    *("NCCL_", "RCCL_", "GLOO_", "UCX_", "IONIC_"),
    *("HSA_", "HIP", "ROCM_", "ROCR_", "ROCBLAS_", "ROCPROF", "AMD_LOG_", "MIOPEN_", "AITER_"),
    *("TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_", "NVTE_", "TE_HIPBLASLT_"),
    *("XLA_", "JAX_", "TF_CPP_", "TF_CUDNN_", "TF_XLA_", "LIBTPU_", "KERAS_"),
    *("HF_", "TRANSFORMERS_", "TOKENIZERS_", "WANDB_", "MLFLOW_", "DATABRICKS_"),
    *("PRIMUS_", "OMP_", "MKL_"),
)
NAMES = (
    *("MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK", "GPUS_PER_NODE"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MAX_CONNECTIONS", "GPU_MAX_HW_QUEUES", "TZ", "NO_COLOR"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
# Settings of this launcher, already decided here, and what only means something on the host.
_NEVER = re.compile(
    r"PRIMUS_(IMAGE|LOCK|REGISTRY|LAUNCHER|ENGINE|PULL|OFFLINE|ACCELERATOR|PRESET_DIR|WORKSPACE|TEAM|USER|EXP_NAME"
    r"|PROFILE|RUN_RECORD|VERIFY_KEY|SIGN_PASSWORD|PARTITION|ACCOUNT|QOS|TIME|RESERVATION)"
    r"|ROCM_PATH|ROCM_HOME"
)
# Values made of several: a user's part replaces its namesake, not the rest. name -> separator.
_MERGED = {"XLA_FLAGS": " ", "LD_LIBRARY_PATH": ":"}
_PROXY = re.compile(r"https?_proxy", re.IGNORECASE)


def forwarded(environ: Mapping[str, str], extra: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The names in `environ` that a container gets: the allow-list's that have a value, and `extra`."""
    listed = (
        name
        for name, value in environ.items()
        if value and not _NEVER.fullmatch(name) and (name in NAMES or name.startswith(PREFIXES))
    )
    return tuple(sorted({*listed, *extra}))


def verdict(name: str, value: str | None) -> tuple[bool, str]:
    """Whether a container gets the variable, and why, or why not."""
    if _NEVER.fullmatch(name):
        host = name.startswith("ROCM_")
        return False, "means something on this machine alone" if host else "is a setting of the launcher's"
    prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), None)
    if prefix is None and name not in NAMES:
        return False, f"is not on the list (docs/running.md); --env {name} passes it on"
    if not value:
        return False, "is empty" if value == "" else "is not set here"
    return True, f"is on the list, by its prefix {prefix}" if name not in NAMES else "is on the list"


_PASSWORD_IN_URL = re.compile(r"://[^/@\s]+:[^/@\s]+@")


def secret(name: str, value: str) -> bool:
    """Whether the variable goes to the container through its standard input, where `inspect` does not show it.

    Proxies too, and any URL that carries a password.
    """
    return is_secret(name) or bool(_PROXY.fullmatch(name)) or bool(_PASSWORD_IN_URL.search(value))


def clean_secrets(environ: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """`environ` without empty secrets and with white space stripped from the others; and notes on what changed.

    A token with a newline makes an illegal HTTP header, an empty one a request that is refused.
    """
    result, notes = dict(environ), []
    for name in [name for name in environ if is_secret(name)]:
        value = environ[name].strip()
        if not value:
            del result[name]
        elif value != environ[name]:
            result[name] = value
            notes.append(f"{name}: white space around its value is removed")
    return result, tuple(notes)


def process_env(table: Mapping[str, str], env: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """What the training process gets on top of `environ`: the backend's table below, the experiment's `env` above."""
    result = {name: value for name, value in table.items() if name not in environ or name in _MERGED}
    for name, separator in _MERGED.items():
        parts = [
            layer[name] for layer in (table, environ, env) if layer.get(name) and not isinstance(layer[name], Template)
        ]
        if len(parts) > 1 or name in table:
            result[name] = _merge(parts, separator)
    result |= {name: value for name, value in env.items() if name not in _MERGED or isinstance(value, Template)}
    for name in _MERGED:
        if name in env and name not in result:
            result[name] = env[name]
    # ${NAME} for NAME itself is there already.
    return {name: value for name, value in result.items() if value != f"${{{name}}}"}


def _merge(parts: list[str], separator: str) -> str:
    if separator == ":":  # search paths: the highest layer is searched first
        return ":".join(dict.fromkeys(entry for part in reversed(parts) for entry in part.split(":") if entry))
    flags: dict[str, str] = {}
    for part in parts:
        for flag in part.split():
            flags[flag.split("=", 1)[0]] = flag
    return " ".join(flags.values())


def filled(env: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """`env` with the references of its templates replaced: the last step before the process starts."""
    return {name: fill(value, environ) if isinstance(value, Template) else value for name, value in env.items()}
