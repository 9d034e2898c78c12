"""A real registry on loopback, Debian's docker-registry, with or without users."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TOOLS = ("docker-registry", "skopeo", "htpasswd")

CONF = """\
version: 0.1
log: {{level: info, accesslog: {{disabled: false}}}}
storage:
  filesystem: {{rootdirectory: {dir}/data}}
  delete: {{enabled: true}}
http: {{addr: "{host}"}}
"""
AUTH = """\
auth:
  htpasswd: {{realm: test, path: {dir}/htpasswd}}
"""


def installed() -> bool:
    return all(shutil.which(tool) for tool in TOOLS)


class Server:
    """Started by the constructor, and again by `start`; `stop` ends its own process only."""

    def __init__(self, directory: Path, user: tuple[str, str] | None = None) -> None:
        self.directory = directory
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.host = f"127.0.0.1:{sock.getsockname()[1]}"
        self.registry = f"{self.host}/team"
        self.log = directory / "log"
        conf = CONF + (AUTH if user else "")
        (directory / "config.yml").write_text(conf.format(dir=directory, host=self.host), encoding="utf-8")
        if user:
            words = ("htpasswd", "-Bbn", *user)
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            (directory / "htpasswd").write_text(done.stdout, encoding="ascii")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            words = ("docker-registry", "serve", str(self.directory / "config.yml"))
            environ = {**os.environ, "OTEL_TRACES_EXPORTER": "none"}
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ)
        deadline = time.monotonic() + 20
        while not self._answers():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://{self.host}/v2/", timeout=2).close()
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            return False
        return True

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(20)
            self._process = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It takes connections, and says and stores nothing, so that nothing can be over while another one acts."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def uploads(self) -> list[Path]:
        """What is being uploaded right now."""
        # Path.glob trips over what the registry removes meanwhile; os.walk does not.
        below = os.walk(self.directory / "data/docker/registry/v2/repositories")
        return [Path(at) / "data" for at, _, files in below if "data" in files and Path(at).parent.name == "_uploads"]

    def tags(self, name: str) -> set[str]:
        below = self.directory / "data/docker/registry/v2/repositories/team" / name / "_manifests/tags"
        return {path.name for path in below.iterdir()} if below.is_dir() else set()

    def index(self, name: str, tag: str) -> list[dict[str, str]]:
        """The entries of a list of manifests."""
        accept = {"Accept": "application/vnd.oci.image.index.v1+json"}
        request = urllib.request.Request(f"http://{self.host}/v2/team/{name}/manifests/{tag}", headers=accept)
        with urllib.request.urlopen(request) as answer:
            return list(json.load(answer)["manifests"])

    def digest(self, name: str, tag: str) -> str:
        """As another tool sees it."""
        words = ("skopeo", "inspect", "--tls-verify=false", "--format={{.Digest}}")
        address = f"docker://{self.registry}/{name}:{tag}"
        done = subprocess.run((*words, address), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
