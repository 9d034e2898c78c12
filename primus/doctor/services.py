"""What a run asks others for: Slurm, the registry, Hugging Face's cache, the time."""

from __future__ import annotations

import re
from pathlib import Path

from primus.doctor.machine import FAIL, GIB, OK, WARN, Answer, Asked, Machine, Row, size

# What the container launcher keeps of KillWait for itself.
_KEPT = 5


def slurm(machine: Machine) -> list[Row]:
    version = machine.say("scontrol", "--version")
    if version.code == 127:
        return [Row("slurm", OK, "not installed here")]
    said = machine.say("scontrol", "show", "config")
    name = version.out.strip() if version.code == 0 else "Slurm"
    if said.code != 0:
        remedy = "scontrol ping says more; SLURM_CONF, munge and the network are what it needs"
        inside = bool(machine.environ.get("SLURM_JOB_ID"))
        return [Row("slurm", FAIL if inside else WARN, f"{name} is installed and does not answer", remedy)]
    wait = re.search(r"^KillWait\s*=\s*(\d+)", said.out, re.MULTILINE)
    seconds = int(wait[1]) if wait else 30
    text = f"{name}; a training has {max(1, min(20, seconds - _KEPT))} s to save after SIGTERM (KillWait {seconds})"
    if seconds < 2 * _KEPT:
        remedy = "KillWait=30 in slurm.conf; or --signal USR1@120, for those that save on it"
        return [Row("slurm", WARN, text, remedy)]
    return [Row("slurm", OK, text)]


def registry(machine: Machine, asked: Asked) -> tuple[list[Row], Answer | None]:
    """The row, and the answer, which has the time."""
    host = asked.registry.split("/")[0]
    if not host or asked.offline:
        why = "nothing is pulled with --offline" if asked.offline else "none is set: images are this machine's own"
        return [Row("registry", OK, why)], None
    scheme = "http" if host.split(":")[0] in ("localhost", "127.0.0.1") else "https"
    answer = machine.get(f"{scheme}://{host}/v2/")
    if answer.status in (200, 401, 403):  # 401: it asks for a login, as it does of anonymous pulls, too
        login = "" if answer.status == 200 else ", with a login"
        return [Row("registry", OK, f"{host} answers{login}")], answer
    if answer.status:
        remedy = "--registry is HOST[:PORT][/PATH] of a container registry"
        return [Row("registry", FAIL, f"{host} answers {answer.status}, as no registry does", remedy)], answer
    remedy = "its name, a proxy (HTTPS_PROXY), or a certificate that is not trusted; --offline, if the images are here"
    return [Row("registry", FAIL, f"{host} does not answer: {answer.error}", remedy)], answer


def huggingface(machine: Machine) -> list[Row]:
    """The cache as the launcher finds it, and the form of the token; never the token."""
    found = []
    token = machine.environ.get("HF_TOKEN", "")
    if token and (re.search(r"\s", token.strip()) or not token.isascii()):
        found.append(Row("token", FAIL, "HF_TOKEN has a space or a character in it that no token has", "copy it again"))
    given = next((name for name in ("HF_HUB_CACHE", "HF_HOME") if machine.environ.get(name)), "")
    if not given:
        text = "HF_HOME is not set: what a run downloads ends with its container"
        return [*found, Row("cache", OK, text)]
    path = Path(machine.environ[given])
    here = machine.path(str(path))
    if not here.is_dir():
        return [*found, Row("cache", FAIL, f"{given}={path} is no directory", f"mkdir -p {path}, or unset {given}")]
    about = here.stat()
    mine = about.st_uid == machine.uid, about.st_gid in machine.groups
    bits = about.st_mode >> (6 if mine[0] else 3 if mine[1] else 0)
    if machine.uid != 0 and bits & 3 != 3:
        return [*found, Row("cache", FAIL, f"you may not write to {given}={path}", "a cache of your own, or its group")]
    space = machine.space(here)
    if space and space[1] < GIB:
        return [*found, Row("cache", WARN, f"{size(space[1])} free in {given}={path}", "models take tens of GiB")]
    return [*found, Row("cache", OK, f"{given}={path}" + (f", {size(space[1])} free" if space else ""))]


def clock(machine: Machine, answer: Answer | None) -> list[Row]:
    """Certificates, tokens and the order of logs need the right time."""
    remedy = "chronyc tracking, or timedatectl: let something keep it"
    if answer and answer.date is not None and abs(answer.date - machine.now) > 60:
        return [Row("clock", FAIL, f"{abs(answer.date - machine.now):.0f} s off the registry's", remedy)]
    if machine.synchronised is False:
        return [Row("clock", WARN, "nothing keeps the clock right", remedy)]
    return [Row("clock", OK, "kept right" if machine.synchronised else "the kernel does not say")]
