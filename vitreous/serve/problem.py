"""Errors as problem details (RFC 9457): what is wrong, with which image, and what to do."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

TYPES = {
    "bad-request": 400,
    "no-token": 401,
    "other-site": 403,
    "not-found": 404,
    "wrong-method": 405,
    "too-slow": 408,
    "body-too-large": 413,
    "wrong-type": 415,
    "wrong-host": 421,
    "cannot-be-used": 422,
    "queue-full": 429,
    "internal": 500,
    "not-ready": 503,
    "deadline": 504,
}
"""What can go wrong, with its status. Clients can rely on these names."""
PREFIX = "urn:vitreous:problem:"
MEDIA_TYPE = "application/problem+json"


class ProblemError(Exception):
    """An answer that is an error."""

    def __init__(
        self, kind: str, detail: str, headers: dict[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.headers, self.more = kind, detail, headers or {}, more
        self.status = TYPES[kind]

    def response(self, request_id: str = "") -> Response:
        content = {
            "type": PREFIX + self.kind,
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            **({"request_id": request_id} if request_id else {}),
            **self.more,
        }
        text = json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace")
        return Response(text, self.status, self.headers, MEDIA_TYPE)


def kind_of(status: int) -> str:
    """The problem of a status that a library has chosen."""
    known = {number: kind for kind, number in TYPES.items()}
    return known.get(status, "bad-request" if status < 500 else "internal")
