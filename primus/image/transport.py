"""Requests to a registry: https or not, who we are, waiting for one that restarts, and what each refusal means."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from email.message import Message
from pathlib import Path
from typing import Any, NamedTuple

from primus.errors import ConfigError, ImageError
from primus.image import credentials

_PAUSES = (0.5, 1.0, 2.0, 4.0)  # seconds between tries: a registry that restarts is back by then


class Answer(NamedTuple):
    status: int
    headers: Message
    body: bytes
    url: str  # that gave it, behind all redirections


class _Again(Exception):
    """It may be over soon: the registry restarts, or a connection broke."""


class Transport:
    """The way to one repository of a registry. `say` is told when something has to be tried again."""

    def __init__(
        self,
        host: str,
        path: str,
        *,
        plain_http: bool = False,
        environ: Mapping[str, str] | None = None,
        timeout: float = 60,
        pauses: tuple[float, ...] = _PAUSES,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.host, self.path = host, path
        self._environ, self._timeout, self._pauses, self._say = (
            os.environ if environ is None else environ,
            timeout,
            pauses,
            say,
        )
        self._loopback = _is_loopback(host)
        address = "registry-1.docker.io" if host == "docker.io" else host
        # As Docker does: https, and for loopback plain http where the other is not spoken.
        self._base = f"{'http' if plain_http else 'https'}://{address}"
        self._certain = plain_http or not self._loopback
        self._tokens: dict[str, str] = {}
        handlers: list[Any] = [urllib.request.HTTPSHandler(context=_context(host))]
        if self._loopback:
            handlers.append(urllib.request.ProxyHandler({}))
        self._open = urllib.request.build_opener(*handlers).open

    @property
    def plain(self) -> bool:
        """Whether it speaks http, as far as is known."""
        return self._base.startswith("http:")

    @property
    def name(self) -> str:
        return f"{self.host}/{self.path}"

    def url(self, where: str) -> str:
        """A place that the registry named, in full."""
        return urllib.parse.urljoin(self._base, where)

    def ask(
        self,
        method: str,
        where: str,
        *,
        ok: Iterable[int],
        body: bytes | None = None,
        accept: str = "*/*",
        content_type: str = "",
        actions: str = "",
    ) -> Answer:
        """The answer, if its status is one of `ok`; otherwise ImageError says which refusal it is."""
        actions = actions or ("pull" if method in ("GET", "HEAD") else "pull,push")
        headers = {"Accept": accept, "User-Agent": "primus"} | ({"Content-Type": content_type} if content_type else {})
        for pause in (*self._pauses, None):
            try:
                answer = self._authorized(method, where, body, headers, actions)
                if answer.status not in (500, 502, 503, 504) or pause is None:
                    break
                why = f"HTTP {answer.status}"
            except _Again as error:
                why = str(error)
                if pause is None:
                    hint = f"is it running, and is {self.host} its address? proxies are taken from the environment"
                    raise ImageError(f"{self.host} does not answer: {why}", hint=hint) from None
            self._say(f"{self.host}: {why}; trying again in {pause:g} s")
            time.sleep(pause)
        if answer.status not in ok:
            raise self._refusal(answer, actions)
        return answer

    def _authorized(self, method: str, where: str, body: bytes | None, headers: dict[str, str], actions: str) -> Answer:
        own = "://" not in where or self._is_own(where)  # a Location or Link may name any host
        answer = self._send(method, where, body, headers, self._tokens.get(actions, "") if own else "")
        if answer.status != 401 or not self._is_own(answer.url):
            return answer
        token = self._authorization(answer.headers.get_all("WWW-Authenticate") or [], actions)
        if not token:
            return answer
        self._tokens[actions] = token
        return self._send(method, where, body, headers, token)

    def _is_own(self, url: str) -> bool:
        """Whether it is the registry's: nobody else is told who we are, or may say where that is asked."""
        return _origin(url) == _origin(self._base)

    def _authorization(self, challenges: list[str], actions: str) -> str:
        """The header that meets the challenge; empty if we have nothing for it."""
        own = credentials.find(self.host, self.path, self._environ)
        for challenge in challenges:
            scheme, _, rest = challenge.partition(" ")
            if scheme.lower() == "basic" and own is not None and own.basic:
                return f"Basic {own.basic}"
            if scheme.lower() == "bearer":
                said = dict(re.findall(r'(\w+)="([^"]*)"', rest))
                return self._token(said.get("realm", ""), said.get("service", ""), actions, own)
        return ""

    def _token(self, realm: str, service: str, actions: str, own: credentials.Credentials | None) -> str:
        """Docker Hub and its like: https://distribution.github.io/distribution/spec/auth/token/"""
        query = {"service": service, "scope": f"repository:{self.path}:{actions}"}
        if own is not None and own.identity:
            form = {**query, "grant_type": "refresh_token", "refresh_token": own.identity, "client_id": "primus"}
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = self._send("POST", realm, urllib.parse.urlencode(form).encode(), kind, "")
        else:
            url = f"{realm}{'&' if '?' in realm else '?'}{urllib.parse.urlencode(query)}"
            answer = self._send("GET", url, None, {}, f"Basic {own.basic}" if own else "")
        if answer.status != 200:
            if answer.status == 429:
                raise self._refusal(answer, actions)
            return ""
        said = json_of(answer.body, "token", self.name)
        return f"Bearer {said.get('token') or said.get('access_token') or ''}"

    def _send(
        self, method: str, where: str, body: bytes | None, headers: Mapping[str, str], authorization: str
    ) -> Answer:
        while True:
            url = where if "://" in where else f"{self._base}/v2/{self.path}/{where}"
            request = urllib.request.Request(url, data=body, headers=dict(headers), method=method)
            if authorization:  # not for whom the registry redirects us to
                request.add_unredirected_header("Authorization", authorization)
            try:
                return self._read(request)
            except (OSError, http.client.HTTPException) as error:
                reason = error.reason if isinstance(error, urllib.error.URLError) else error
                is_untrusted = isinstance(reason, ssl.SSLCertVerificationError)  # so https it is
                if self._certain or is_untrusted or not isinstance(reason, (ssl.SSLError, ConnectionResetError)):
                    raise self._broken(reason) from None
                self._base, self._certain = self._base.replace("https:", "http:"), True

    def _read(self, request: urllib.request.Request) -> Answer:
        """The whole answer, whatever its status; a connection may break in a refusal, too."""
        try:
            answer = self._open(request, timeout=self._timeout)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return Answer(answer.status, answer.headers, answer.read(), answer.geturl())

    def _broken(self, reason: Any) -> Exception:
        if isinstance(reason, ssl.SSLCertVerificationError):
            return ImageError(
                f"{self.host}: its certificate is not trusted ({reason.verify_message})",
                hint=f"name its authority's file in SSL_CERT_FILE, or put it where Docker wants it: "
                f"/etc/docker/certs.d/{self.host}/ca.crt",
            )
        if isinstance(reason, ssl.SSLError):
            return ImageError(
                f"{self.host}: no https is spoken there ({reason.reason})",
                hint="if it is meant to be without: --plain-http, and insecure-registries in the engine's settings",
            )
        if isinstance(reason, socket.gaierror):
            return ImageError(f"{self.host}: there is no such host ({reason.strerror})", hint="is its name right?")
        return _Again(getattr(reason, "strerror", None) or str(reason) or type(reason).__name__)

    def _refusal(self, answer: Answer, actions: str) -> ImageError:
        own = credentials.find(self.host, self.path, self._environ)
        looked = ", ".join(str(place) for place in credentials.places(self._environ))
        push = "push" in actions
        login = f"docker login {self.host}"
        said = _said(answer.body)
        if answer.status == 401 and own is None:
            return ImageError(
                f"{self.name}: asks who we are (401), and no credentials for {self.host} were found",
                hint=f"{login}; looked for in {looked}",
            )
        if answer.status == 401:
            return ImageError(
                f"{self.name}: does not take the credentials for {self.host} of {own.place if own else ''} (401)",
                hint=f"{login}: the password or token may be wrong or have expired",
            )
        if answer.status == 403:
            whose = f"the credentials of {own.place}" if own else "whoever has no credentials"
            return ImageError(
                f"{self.name}: {whose} may not {'write' if push else 'read'} there (403{said})",
                hint="ask for the right, or name another with --registry"
                + ("" if own else f"; or {login}; looked for in {looked}"),
            )
        if answer.status == 404:
            return ImageError(f"{self.name}: is not in the registry (404{said})", hint="is the path right?")
        if answer.status == 429:
            after = answer.headers.get("Retry-After")
            return ImageError(
                f"{self.host}: too many requests (429{said})",
                hint=(f"wait {after} s, or " if after and after.isdecimal() else "wait, or ")
                + ("use a mirror: --registry" if own else f"{login}: who is known may ask more often"),
            )
        return ImageError(f"{self.name}: HTTP {answer.status}{said}")


def _origin(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc.lower().removesuffix({"https": ":443", "http": ":80"}.get(parts.scheme, ":"))


def _said(body: bytes) -> str:
    """The registry's own words, in short."""
    try:
        errors = json.loads(body).get("errors") or [{}]
        text = str(errors[0].get("message") or errors[0].get("code") or "")
    except (ValueError, AttributeError, IndexError, TypeError):
        return ""
    return f": {text[:200]}" if text else ""


def _is_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    try:
        return name == "localhost" or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _context(host: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    own = Path("/etc/docker/certs.d") / host / "ca.crt"
    if os.access(own, os.F_OK):  # False where it may not be looked for, too
        try:
            context.load_verify_locations(own)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{own}: is no certificate ({error})") from None
    return context


def json_of(content: bytes, what: str, name: str) -> dict[str, Any]:
    """The object in an answer. Raises ImageError for anything else."""
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ImageError(f"{name}: the {what} is not JSON", hint=f"is {name.partition('/')[0]} a registry?")
    return document
