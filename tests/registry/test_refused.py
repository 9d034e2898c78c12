"""What a registry can refuse, each told apart, and with which credentials: none of them is ever printed."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from primus.errors import ImageError
from primus.image.registry import Found, Registry, digest_of
from tests.conftest import missing
from tests.registry.conftest import Project, forget, make_project
from tests.registry.server import Server, installed

pytestmark = pytest.mark.timeout(120)

PASSWORD = "correct-horse"


@pytest.fixture
def private(request: pytest.FixtureRequest, docker: str, tmp_path: Path) -> Iterator[Project]:
    """A project whose registry wants to know who it is."""
    if not installed():
        missing(request, "registry", "needs Debian's docker-registry, skopeo and apache2-utils")
    directory = tmp_path / "registry"
    directory.mkdir()
    server = Server(directory, ("somebody", PASSWORD))
    made = make_project(tmp_path / "project", server.registry)
    yield made
    forget(f"{server.registry}/")
    server.stop()


def login(project: Project, password: str) -> None:
    folder = Path(project.env["DOCKER_CONFIG"])
    auth = base64.b64encode(f"somebody:{password}".encode()).decode()
    host = project.registry.partition("/")[0]
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}), encoding="ascii")


def test_without_credentials_nothing_is_built_and_it_is_said_where_they_were_looked_for(private: Project) -> None:
    done = private.image("publish", "torchtitan", "--version=1.0")
    assert (done.code, "asks who we are (401)" in done.err, "building" in done.err) == (3, True, False)
    assert (
        f"docker login {private.registry.partition('/')[0]}; looked for in {private.env['DOCKER_CONFIG']}" in done.err
    )


def test_wrong_credentials_are_told_from_none_and_right_ones_work(private: Project) -> None:
    login(private, "wrong-horse")
    for command in (("publish", "torchtitan", "--version=1.0"), ("promote", "1.0", "stable"), ("lock",)):
        done = private.image(*command)
        assert (done.code, "does not take the credentials" in done.err) == (3, True), done.err
        assert f"of {private.env['DOCKER_CONFIG']}/config.json (401)" in done.err
        assert "wrong-horse" not in done.err
        assert base64.b64encode(b"somebody:wrong-horse").decode() not in done.err
    login(private, PASSWORD)
    published = private.publish("1.0")
    assert private.image("promote", "1.0", "stable").out.strip() == published
    assert private.image("lock", "--version=stable").code == 0
    assert private.image("pull").out.strip() == published


def test_a_run_says_why_an_image_cannot_be_pulled(private: Project) -> None:
    from tests.launch.support import EXAMPLES

    words = ("run", f"--config={EXAMPLES['torchtitan']}", f"--registry={private.registry}", "--run-dir=run")
    done = private.primus(*words)
    assert (done.code, "asks who we are (401)" in done.err) == (3, True)


@dataclass
class Answers:
    """A server that answers as it is told, and remembers what it was asked."""

    host: str = ""
    status: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    wrap: Callable[[ssl.SSLContext], None] = lambda _: None

    def registry(self, config: Path, **options: Any) -> Registry:
        return Registry(self.host, "team/x", environ={"DOCKER_CONFIG": str(config)}, pauses=(0.01,), **options)


@pytest.fixture
def answers() -> Iterator[Answers]:
    made = Answers()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            made.asked.append((self.command, self.path, self.headers.get("Authorization", "")))
            path = self.path.partition("?")[0]
            status, headers, body = made.status.get(path, made.status.get("*", (404, {}, b"")))
            if status == 401 and self.headers.get("Authorization") == "Bearer good":
                status, headers, body = made.status["good"]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_POST = do_PUT = answer

        def handle(self) -> None:
            with contextlib.suppress(OSError):  # a client that does not like what it sees
                super().handle()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.host = f"127.0.0.1:{server.server_port}"

    def wrap(context: ssl.SSLContext) -> None:
        server.socket = context.wrap_socket(server.socket, server_side=True)

    made.wrap = wrap
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (401, {}, "asks who we are (401)"),
        (403, {}, "whoever has no credentials may not read there (403: no)"),
        (429, {"Retry-After": "30"}, "too many requests (429: no)\nhint: wait 30 s"),
        (418, {}, "HTTP 418: no"),
        (503, {}, "HTTP 503: no"),
    ],
)
def test_each_refusal_is_told_apart(
    answers: Answers, tmp_path: Path, status: int, headers: dict[str, str], said: str
) -> None:
    answers.status["*"] = (status, headers, b'{"errors": [{"code": "X", "message": "no"}]}')
    with pytest.raises(ImageError) as error:
        answers.registry(tmp_path).manifest("1")
    assert said in str(error.value)


def test_nothing_there_is_no_error_but_none(answers: Answers, tmp_path: Path) -> None:
    registry = answers.registry(tmp_path)
    assert (registry.manifest("1"), registry.digest("1"), registry.tags()) == (None, "", ())


def test_who_may_not_write_is_told_before_anything_is_built(answers: Answers, tmp_path: Path) -> None:
    answers.status["*"] = (403, {}, b"")
    with pytest.raises(ImageError, match=r"may not write there \(403\)"):
        answers.registry(tmp_path).may_push()


def test_a_token_is_asked_for_and_only_where_the_registry_says(answers: Answers, tmp_path: Path) -> None:
    """As Docker Hub does it; the password goes to the realm, the token to the registry."""
    auth = base64.b64encode(b"me:secret").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {answers.host: {"auth": auth}}}))
    realm = f'Bearer realm="http://{answers.host}/token",service="hub"'
    content = b'{"mediaType": "x", "config": {"digest": "c"}, "layers": []}'
    answers.status = {
        "*": (401, {"WWW-Authenticate": realm}, b""),
        "/token": (200, {}, b'{"token": "good"}'),
        "good": (200, {}, content),
    }
    registry = answers.registry(tmp_path)
    found = registry.manifest("1")
    assert found is not None
    assert found.digest == digest_of(content)
    registry.manifest("1")
    kinds = [(path.partition("?")[0], authorization) for _, path, authorization in answers.asked]
    where = "/v2/team/x/manifests/1"
    asked = [(where, ""), ("/token", f"Basic {auth}"), (where, "Bearer good"), (where, "Bearer good")]
    assert kinds == asked
    assert "scope=repository%3Ateam%2Fx%3Apull" in answers.asked[1][1]


def test_credentials_do_not_follow_a_redirect(answers: Answers, tmp_path: Path) -> None:
    """Registries keep blobs elsewhere, with links that are signed; another's password is none of theirs."""
    auth = base64.b64encode(b"me:secret").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {answers.host: {"auth": auth}}}))
    digest = digest_of(b"blob")
    realm = f'Bearer realm="http://{answers.host}/token"'
    answers.status = {
        "*": (401, {"WWW-Authenticate": realm}, b""),
        "/token": (200, {}, b'{"token": "good"}'),
        "good": (307, {"Location": f"http://{answers.host}/elsewhere"}, b""),
        "/elsewhere": (200, {}, b"blob"),
    }
    assert answers.registry(tmp_path).blob(digest) == b"blob"
    assert answers.asked[-1] == ("GET", "/elsewhere", "")


def test_a_manifest_that_is_not_its_digest_is_refused(answers: Answers, tmp_path: Path) -> None:
    answers.status["*"] = (200, {}, b"{}")
    with pytest.raises(ImageError, match="the registry sent something else"):
        answers.registry(tmp_path).manifest(f"sha256:{'0' * 64}")
    answers.status["*"] = (200, {}, b"<html>")
    with pytest.raises(ImageError, match="is not JSON"):
        answers.registry(tmp_path).manifest("1")


def test_tags_come_in_pages(answers: Answers, tmp_path: Path) -> None:
    answers.status = {
        "/v2/team/x/tags/list": (200, {"Link": '</more>; rel="next"'}, b'{"tags": ["a"]}'),
        "/more": (200, {}, b'{"tags": ["b"]}'),
    }
    assert answers.registry(tmp_path).tags() == ("a", "b")


def test_a_list_of_platforms_is_kept_whole_and_its_image_found(answers: Answers, tmp_path: Path) -> None:
    """With attestations, an image is a list, whose other part is for no platform."""
    image = b'{"mediaType": "x", "config": {"digest": "sha256:c"}, "layers": [{"size": 3}]}'
    index = {
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {"digest": "sha256:none", "platform": {"architecture": "unknown", "os": "unknown"}},
            *({"digest": digest_of(image), "platform": {"architecture": name}} for name in ("amd64", "arm64")),
        ],
    }
    answers.status = {
        "/v2/team/x/manifests/1": (200, {}, json.dumps(index).encode()),
        f"/v2/team/x/manifests/{digest_of(image)}": (200, {}, image),
    }
    found = answers.registry(tmp_path).manifest("1")
    assert isinstance(found, Found)
    assert (found.id, found.size, found.digest) == ("sha256:c", 3, digest_of(json.dumps(index).encode()))


def test_https_is_tried_on_loopback_and_insisted_on_elsewhere(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.status["*"] = (200, {}, b'{"tags": ["a"]}')
    registry = answers.registry(tmp_path)
    assert (registry.tags(), registry.plain) == (("a",), True)
    monkeypatch.setattr("primus.image.transport._is_loopback", lambda _: False)
    with pytest.raises(ImageError, match=r"no https is spoken there .*\nhint: .*--plain-http"):
        answers.registry(tmp_path).tags()
    assert answers.registry(tmp_path, plain_http=True).tags() == ("a",)


def test_a_certificate_is_checked(answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same server behind TLS, with a certificate of its own."""
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    words = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost")
    more = ("-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate))
    subprocess.run((*words, *more), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    answers.wrap(context)
    answers.status["*"] = (200, {}, b'{"tags": ["a"]}')
    answers.host = answers.host.replace("127.0.0.1", "localhost")
    monkeypatch.setattr("primus.image.transport._is_loopback", lambda _: False)
    with pytest.raises(ImageError, match=r"certificate is not trusted .*\nhint: .*SSL_CERT_FILE"):
        answers.registry(tmp_path).tags()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    registry = answers.registry(tmp_path)
    assert (registry.tags(), registry.plain) == (("a",), False)


def test_credentials_go_to_no_other_host_that_the_registry_names(answers: Answers, tmp_path: Path) -> None:
    """Neither in an upload's Location, nor in a Link, nor by a challenge from where a redirection leads."""
    auth = base64.b64encode(b"me:secret").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {answers.host: {"auth": auth}}}))
    other = f"http://{answers.host.replace('127.0.0.1', 'localhost')}"
    answers.status = {
        "/v2/team/x/blobs/uploads/": (202, {"Location": f"{other}/upload"}, b""),
        "/upload": (401, {"WWW-Authenticate": "Basic"}, b""),
        "/v2/team/x/tags/list": (200, {"Link": f"<{other}/more>"}, b"{}"),
        "/more": (401, {"WWW-Authenticate": f'Bearer realm="{other}/token"'}, b""),
        "/v2/team/x/manifests/1": (307, {"Location": f"{other}/more"}, b""),
    }
    registry = answers.registry(tmp_path)
    for act in (lambda: registry.upload(b"x"), registry.tags, lambda: registry.manifest("1")):
        with pytest.raises(ImageError):
            act()
    assert {authorization for _, _, authorization in answers.asked} == {""}
    assert "/token" not in {path.partition("?")[0] for _, path, _ in answers.asked}


def test_a_list_of_tags_that_leads_back_to_itself_ends(answers: Answers, tmp_path: Path) -> None:
    answers.status = {
        "/v2/team/x/tags/list": (200, {"Link": "</more>"}, b'{"tags": ["a"]}'),
        "/more": (200, {"Link": "</more>"}, b'{"tags": ["b"]}'),
    }
    assert set(answers.registry(tmp_path).tags()) == {"a", "b"}


def test_a_manifest_of_no_image_is_named(answers: Answers, tmp_path: Path) -> None:
    answers.status["*"] = (200, {}, b'{"mediaType": "x"}')
    with pytest.raises(ImageError, match="what is there is no image"):
        answers.registry(tmp_path).manifest("1")
