"""What every request passes, whatever it asks for: its id, its host, the token, the log, the
metrics, and an answer that never shows a traceback."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import time
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vitreous.serve.hosts import Hosts
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
