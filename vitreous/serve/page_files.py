"""The files of the page, as they are in the package, and what a browser may do with them."""

from __future__ import annotations

import hashlib
import json
import mimetypes
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from vitreous.pages.words import words_for

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""Nothing from elsewhere, and no script but ours."""
SHARED = ("theme.css", "viewer.css", "viewer.js", "words.js")
TYPES = {".js": "text/javascript", ".svg": "image/svg+xml", ".webmanifest": "application/json"}


def add_page(app: FastAPI) -> None:
    """index.html at /, and all files of the folder `page` below /page/, with those that it shares
    with the pages that are written as files, and the table of words."""
    page, templates = files("vitreous.serve") / "page", files("vitreous.pages") / "templates"
    known = {each.name: each.read_bytes() for each in page.iterdir() if each.is_file()}
    known |= {name: (templates / name).read_bytes() for name in SHARED}
    words = json.dumps(words_for("serve", "viewer"), ensure_ascii=False)
    known["table.js"] = f"export const WORDS = {words};\n".encode()
    tags = {name: f'"{hashlib.sha256(data).hexdigest()[:16]}"' for name, data in known.items()}

    def answer(request: Request, name: str) -> Response:
        request.state.account.route = "page"
        if name not in known:
            raise HTTPException(404)
        ending = name[name.rfind(".") :]
        kind = TYPES.get(ending) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        charset = "; charset=utf-8" if kind.startswith("text/") else ""
        headers = {
            "content-security-policy": POLICY,
            "cache-control": "no-cache",
            "etag": tags[name],
            "content-type": kind + charset,
            "x-frame-options": "DENY",
        }
        if request.headers.get("if-none-match") == tags[name]:
            return Response(status_code=304, headers=headers)
        return Response(known[name], headers=headers)

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Any:
        return answer(request, "index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def file(request: Request, name: str) -> Any:
        return answer(request, name)
