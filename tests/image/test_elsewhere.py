"""Builds away from the public indexes: behind a proxy, with an index and certificate of the site; with no network."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import pytest

from tests.conftest import missing
from tests.image.conftest import ROOT, Run, copy_checkout
from tests.launch.air_gap import host

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the launcher's lock names, for the Python of the CPU images."""
    return fetched(tmp_path_factory.mktemp("wheels"), "base/requirements-launcher.txt")


def fetched(folder: Path, *locks: str) -> Path:
    words = ("-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version=3.11")
    for lock in locks:  # one of torch's is without hashes, and pip wants all or none
        more = ("--retries=0", f"--requirement={ROOT / lock}", f"--dest={folder}")
        subprocess.run([sys.executable, *words, *more], check=True)
    return folder


class Site:
    """A server on loopback that writes down what it was asked: an index of wheels, and a proxy for the rest."""

    def __init__(self, wheels: Path, certificate: Path | None) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                try:
                    code, content = 200, self.content()
                except urllib.error.HTTPError as error:
                    code, content = error.code, b""
                except OSError:
                    code, content = 404, b""
                self.send_response(code)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(content)

            def content(self) -> bytes:
                if self.path.startswith("http://"):
                    with urllib.request.urlopen(self.path) as answer:
                        return bytes(answer.read())
                if self.path.startswith("/simple/"):
                    links = (f'<a href="/wheels/{one.name}">{one.name}</a>' for one in wheels.iterdir())
                    project = self.path.split("/")[2].replace("-", "_")
                    return "".join(link for link in links if project in link.lower()).encode()
                return (wheels / Path(self.path).name).read_bytes()

            def log_message(self, *_words: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def built(engine: Run) -> Iterator[str]:
    """The version of images that a test makes, and that are removed after it."""
    version = f"elsewhere-{uuid4().hex[:8]}"
    yield version
    subprocess.run(["docker", "image", "rm", f"primus-base:{version}-cpu"], capture_output=True, check=False)


@pytest.fixture(scope="module")
def base(engine: Run, request: pytest.FixtureRequest) -> Iterator[str]:
    """An OS image that has the packages of base/packages.txt: our own base without what comes on top of them."""
    ours, name = "primus-base:0.1.0-cpu", f"elsewhere-os:{uuid4().hex[:8]}"
    if not engine("image", "ls", "--quiet", ours):
        missing(request, "docker", f"{ours} is not built")
    text = f"FROM {ours}\nRUN rm -rf /opt/venv /tmp/primus-home\n"
    subprocess.run(["docker", "build", "--quiet", f"--tag={name}", "-"], input=text.encode(), check=True)
    yield name
    subprocess.run(["docker", "image", "rm", name], capture_output=True, check=False)


def build(version: str, base: str, network: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The target `base` as bake has it, by `docker buildx build`: bake of buildx 0.13 knows no network."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("BUILD_")}
    ours = {"ACCELERATOR": "cpu", "APT_SNAPSHOT": "", "BASE_IMAGE": base, "VERSION": version, "REGISTRY": ""}
    environ = {**inherited, **ours, "BUILDX_BAKE_ENTITLEMENTS_FS": "0", **variables}
    printed = subprocess.run(
        ["docker", "buildx", "bake", "--print", "base"], cwd=ROOT, env=environ, stdout=subprocess.PIPE
    )
    target = json.loads(printed.stdout)["target"]["base"]
    secrets = (one if isinstance(one, str) else f"id={one['id']},src={one['src']}" for one in target.get("secret", ()))
    words = [
        *(f"--build-arg={name}={value}" for name, value in target["args"].items()),
        *(f"--build-context={name}={source}" for name, source in target.get("contexts", {}).items()),
        *(f"--label={name}={value}" for name, value in target["labels"].items()),
        *(f"--secret={secret}" for secret in secrets),
        *(f"--file={target['dockerfile']}", f"--target={target['target']}", f"--tag={target['tags'][0]}"),
    ]
    return subprocess.run(
        # Not from the cache, which secrets and the network are no part of.
        ["docker", "buildx", "build", "--progress=plain", "--no-cache", "--load", f"--network={network}", *words, "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def conf(path: Path, text: str) -> str:
    path.write_text(text, encoding="ascii")
    return str(path)


NO_ARCHIVE = 'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "/dev/null";\n'


def test_a_backend_where_there_is_no_network(base: str, tmp_path: Path, docker: str) -> None:
    """A host with an engine, this checkout, an OS image that has its packages, and a folder of wheels: no index, no
    archive, no registry. The whole image of a backend is built there, and runs.
    """
    locks = ("base/requirements-launcher.txt", "base/requirements-torch.txt", "base/requirements-torch.cpu.txt")
    (tmp_path / "wheels").mkdir()
    fetched(tmp_path / "wheels", *locks, "images/torchtitan/requirements.cpu.txt")
    (tmp_path / "none").mkdir()
    copy_checkout(tmp_path / "checkout")
    subprocess.run([docker, "save", f"--output={tmp_path / 'os.tar'}", base], check=True)
    variables = {
        **{"ACCELERATOR": "cpu", "APT_SNAPSHOT": "", "BASE_IMAGE": base, "BUILDX_BAKE_ENTITLEMENTS_FS": "0"},
        **{"BUILD_APT_CONF": "/shared/apt.conf", "BUILD_PIP_CONF": "/shared/pip.conf"},
    }
    conf(tmp_path / "apt.conf", NO_ARCHIVE)
    conf(tmp_path / "pip.conf", "[global]\nno-index = true\n")
    with host(tmp_path, builds=True) as there:
        assert there.run("docker", "load", "--input=os.tar").returncode == 0

        def bake(wheels: str) -> subprocess.CompletedProcess[str]:
            said = (f"{name}={value}" for name, value in {**variables, "BUILD_WHEELS": f"/shared/{wheels}"}.items())
            words = ("docker", "buildx", "bake", "--progress=plain", "torchtitan")
            return there.run("env", *said, *words, cwd="/shared/checkout", source=False)

        refused = bake("none")
        assert refused.returncode != 0  # so the wheels are really taken from there
        assert "No matching distribution found for click" in refused.stdout
        done = bake("wheels")
        assert done.returncode == 0, done.stdout[-3000:]
        words = ("docker", "run", "--rm", "--network=none", "primus-torchtitan:0.1.0-cpu", "primus", "examples", "list")
        assert "torchtitan/CPU/llama3_tiny-pretrain" in there.run(*words).stdout


def test_behind_a_proxy_with_an_index_of_the_sites_own(
    built: str, base: str, wheels: Path, tmp_path: Path, engine: Run
) -> None:
    certificate = tmp_path / "site.pem"
    words = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=site")
    more = ("-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", certificate.with_suffix(".key"))
    subprocess.run(["openssl", *words, *more], capture_output=True, check=True)
    index, proxy = Site(wheels, certificate), Site(wheels, None)
    known = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    both = Path(known).read_text(encoding="utf-8") if Path(known).exists() else ""
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(both + certificate.read_text(encoding="ascii"), encoding="utf-8")
    dates = 'Acquire::Check-Valid-Until "false";\nAcquire::Check-Date "false";\n'  # whatever this machine's clock says
    variables = {
        "BUILD_CA_BUNDLE": str(bundle),
        "BUILD_PIP_CONF": conf(tmp_path / "pip.conf", f"[global]\nindex-url = https://{index.address}/simple/\n"),
        "BUILD_APT_CONF": conf(tmp_path / "apt.conf", f'{dates}Acquire::http::Proxy "http://{proxy.address}";\n'),
    }
    done = build(built, base, "host", **variables)
    assert done.returncode == 0, done.stderr[-3000:]
    assert any(path.startswith("/simple/click") for path in index.asked)
    assert any(path.startswith("http://") and "/dists/" in path for path in proxy.asked)

    image = f"primus-base:{built}-cpu"
    told = engine("image", "history", "--no-trunc", image) + engine("image", "inspect", image)
    files = ("grep", "-rlsE", f"{index.address}|{proxy.address}", "/etc", "/opt", "/root", "/tmp", "/usr", "/var")
    left = subprocess.run(["docker", "run", "--rm", "--network=none", image, *files], capture_output=True, text=True)
    assert (left.returncode, left.stdout) == (1, "")
    line = certificate.read_text(encoding="ascii").splitlines()[1]
    places = ("grep", "-rlsF", line, "/etc", "/opt", "/root", "/usr")
    left = subprocess.run(["docker", "run", "--rm", "--network=none", image, *places], capture_output=True, text=True)
    assert (left.returncode, left.stdout) == (1, "")
    for server in (index, proxy):
        assert server.address not in told

    without = build(built, base, "host", **{**variables, "BUILD_CA_BUNDLE": ""})
    assert without.returncode != 0  # so it was really checked
    assert "CERTIFICATE_VERIFY_FAILED" in without.stderr
