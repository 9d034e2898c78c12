"""Takes `apptainer exec`'s arguments, strictly, and becomes docker with what they mean.

apptainer_stand_in.py DOCKER-IMAGE exec OPTIONS IMAGE COMMAND...
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from pathlib import Path


def main() -> None:
    image, verb, *rest = sys.argv[1:]
    assert verb == "exec"
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("cleanenv", "no-eval", "no-home", "writable-tmpfs", "pid"):
        parser.add_argument(f"--{name}", action="store_true", required=True)
    parser.add_argument("--no-mount", required=True)
    parser.add_argument("--pwd", required=True)
    parser.add_argument("--mount", action="append", required=True)
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(rest)
    assert given.no_mount.split(",") == ["home", "cwd", "tmp"]
    if not Path(given.image).exists():
        sys.exit(255)  # FATAL
    words = [
        "docker",
        "run",
        "--rm",
        "--interactive",
        "--init",
        "--network=host",
        f"--user={os.getuid()}:{os.getgid()}",
    ]
    words += [f"--workdir={given.pwd}", f"--label=io.primus.run={given.pwd}"]
    for text in given.mount:
        fields = dict((field + "=").split("=", 1) for field in next(csv.reader([text])))
        source, target = fields.pop("source"), fields.pop("destination")
        assert fields.pop("type") == "bind="
        line = [
            "type=bind",
            f"source={source[:-1]}",
            f"target={target[:-1]}",
            *(["readonly"] if "ro" in fields else []),
        ]
        words.append("--mount=" + ",".join('"' + field.replace('"', '""') + '"' for field in line))
    entry, *arguments = given.command
    os.execvp("docker", [*words, f"--entrypoint={entry}", image, *arguments])


if __name__ == "__main__":
    main()
