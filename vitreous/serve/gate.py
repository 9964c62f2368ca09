"""What every request passes, whatever it asks for: its id, its host, the token, the log, the
metrics, and an answer that never shows a traceback."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vitreous.errors import ConfigError
from vitreous.serve.logs import log
from vitreous.serve.metrics import ServerMetrics
from vitreous.serve.problem import ProblemError
from vitreous.serve.settings import Life

OPEN = ("/livez", "/readyz")
"""Whoever watches over the server asks these without a token."""
PAGE = re.compile(r"/(page/.*)?")
"""The page, which has no secrets: it asks for the token."""
CLIENT_LEFT = 499
FAILURE = ProblemError(
    "internal", "the server has failed: its log tells more, under this request_id"
)
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
LINGER_SECONDS, LINGER_BYTES = 2.0, 32_000_000
"""How long the rest of a refused body is read and thrown away. A connection that is closed while
its client still sends is reset, and the client may never see the answer."""
SHORT = 256_000
"""The rest of a shorter body comes anyway, and the connection can be used again."""
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
}

ANY_NAME = "*"
EVERYWHERE = ("", "0.0.0.0", "::")
"""What a server is bound to that listens at all addresses of its machine."""
_HOST = re.compile(r"(\[[0-9a-f:.%]+\]|[^\[\]:/@\s]+)(?::\d{0,5})?", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


@dataclass(frozen=True)
class Hosts:
    """The names by which a server may be asked.

    A page of another site may give its own name the address of this machine (DNS rebinding). To
    the browser it is then the same site as the server, and may read all answers. But the browser
    says by which name it asks, in the header Host. An address of numbers cannot be rebound.

    One that listens at loopback alone: the loopback names. Another one: every address of numbers,
    because whoever forwards a port to it, or probes it, calls it by addresses that it does not
    know; and its machine's name. Both: `--host`, and what `--allow-host` adds.
    """

    names: frozenset[str]
    loopback_only: bool

    @classmethod
    def of(cls, host: str, allowed: Sequence[str]) -> Hosts:
        local = is_loopback(host)
        names = {_checked(name) for name in allowed} | {"localhost"}
        if host not in EVERYWHERE:
            names.add(_plain(host))
        if not local:
            own = _plain(socket.gethostname())
            names |= {own, own.partition(".")[0]}
        return cls(frozenset(names), local)

    def allow(self, header: bytes | None) -> bool:
        """By the request's header Host. Without one (HTTP/1.0) no browser has sent it."""
        if header is None or ANY_NAME in self.names:
            return True
        found = _HOST.fullmatch(header.decode("latin-1"))
        if found is None:
            return False
        name = _plain(found[1])
        address = _address(name)
        if address is None:
            return name in self.names
        return not self.loopback_only or address.is_loopback or name in self.names


def is_loopback(host: str) -> bool:
    address = _address(_plain(host))
    return _plain(host) == "localhost" if address is None else address.is_loopback


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(name)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def _plain(host: str) -> str:
    """One spelling of a name or address: small letters, without brackets and the root's dot."""
    name = host.strip("[]").lower().removesuffix(".")
    try:
        return str(ip_address(name))
    except ValueError:
        return name


def _checked(given: str) -> str:
    if given == ANY_NAME:
        return given
    name = _plain(given)
    if _address(name) is None:
        try:
            name = name.encode("idna").decode("ascii")
        except UnicodeError:
            name = ""
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"--allow-host {given}: expected a name without http:// and port, like "
                f"models.example.org, or {ANY_NAME} for any"
            )
    return name


@dataclass
class Account:
    """What the log says about a request; routes add to it."""

    id: str
    route: str = ""
    model: str = ""
    images: int = 0
    bytes: int = 0
    status: int = 0
    problem: str = ""


class Gate:
    def __init__(
        self, app: ASGIApp, hosts: Hosts, token: str, metrics: ServerMetrics, life: Life
    ) -> None:
        self.app, self.hosts, self.metrics, self.life = app, hosts, metrics, life
        self.token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = {name.lower(): value for name, value in scope["headers"]}
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        account = Account(given if _ID.fullmatch(given) else secrets.token_hex(8))
        scope.setdefault("state", {})["account"] = account
        answer = _Answer(scope, receive, send, account, self.life)
        # HEAD is as GET; what would follow the head is not sent
        asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            self._check(scope, headers)
            await self.app(asked, answer.receive, answer.send)
        except ProblemError as problem:
            await self._refuse(problem, scope, answer)
        except Exception as error:
            log("error", logging.ERROR, exception=error, id=account.id, path=scope["path"])
            await self._refuse(FAILURE, scope, answer)
        finally:
            self._record(scope, account, time.perf_counter() - began)

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        path, host = scope["path"], headers.get(b"host")
        if not self.hosts.allow(host):
            name = (host or b"").decode("latin-1")[:100]
            raise ProblemError(
                "wrong-host",
                f"this server is not known as {name!r}: whoever runs it can add that name with "
                "--allow-host",
            )
        if scope["method"] not in ("GET", "HEAD") and _from_elsewhere(headers):
            raise ProblemError("other-site", "pages of other sites may not use this server")
        if not self.token or path in OPEN or PAGE.fullmatch(path):
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        bearer = given.strip() if scheme.lower() == b"bearer" else b""
        if not hmac.compare_digest(bearer, self.token):
            what = "this is not the token of this server" if bearer else "this server wants a token"
            raise ProblemError(
                "no-token",
                f"{what}: send the header 'Authorization: Bearer TOKEN'",
                {"WWW-Authenticate": "Bearer"},
            )

    async def _refuse(self, problem: ProblemError, scope: Scope, answer: _Answer) -> None:
        account = answer.account
        account.problem = problem.kind
        if not account.status:
            await problem.response(account.id)(scope, answer.receive, answer.send)

    def _record(self, scope: Scope, account: Account, seconds: float) -> None:
        route = account.route or "other"
        self.metrics.requests.labels(route, account.model, str(account.status)).inc()
        self.metrics.seconds.labels(account.model, "request").observe(seconds)
        if account.problem:
            self.metrics.rejections.labels(account.problem).inc()
        log(
            "request",
            id=account.id,
            method=scope["method"],
            path=scope["path"][:200],
            status=account.status,
            ms=round(seconds * 1000, 1),
            client=(scope.get("client") or ("",))[0],
            **{
                name: value
                for name in ("model", "images", "bytes", "problem")
                if (value := getattr(account, name))
            },
        )


def _from_elsewhere(headers: dict[bytes, bytes]) -> bool:
    """Whether a browser sends this for a page of another site. Older ones name that page alone."""
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        return site in (b"cross-site", b"same-site")
    return origin is not None and origin.partition(b"://")[2] != headers.get(b"host")


class _Answer:
    """The way back: adds headers, and lets a client that still sends read the answer first."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, account: Account, life: Life
    ) -> None:
        self._receive, self._send, self.account, self.life = receive, send, account, life
        self.complete = False
        """Whether all of the request's body is here."""
        self.lingers = False
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        self.short = length.isdigit() and int(length) <= SHORT
        if not length and b"transfer-encoding" not in headers:
            self.complete = True

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self.complete = True
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.account.status = message["status"]
            headers: list[Any] = list(message.get("headers", []))
            headers += [*HEADERS.items(), (b"x-request-id", self.account.id.encode())]
            self.lingers = not self.complete and not self.short
            if self.lingers or self.life.draining:
                headers.append((b"connection", b"close"))
            await self._send({**message, "headers": headers})
        elif self.lingers and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._discard()
            await self._send({"type": "http.response.body", "body": b""})
        else:
            await self._send(message)

    async def _discard(self) -> None:
        left = LINGER_BYTES
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while not self.complete and left > 0:
                    message = await self.receive()
                    if message["type"] == "http.disconnect":
                        return
                    left -= len(message.get("body", b""))
        except TimeoutError:
            pass
