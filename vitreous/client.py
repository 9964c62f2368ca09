"""A small client of `vitreous serve`, of the standard library alone.

    client = Client("http://127.0.0.1:8000")
    client.predict("flowers", "rose.jpg")["label"]
    client.predict("flowers", ["rose.jpg", "tulip.jpg"], top=3)

An image is a path, or the bytes of a file. One image gives one result, a list gives a list.
"""

from __future__ import annotations

import json
import os
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from vitreous.errors import DataError, VitreousError

if TYPE_CHECKING:
    from vitreous.records import Record

Image = str | os.PathLike[str] | bytes
AGAIN = (429, 503)
"""Answers after which a request is sent again: the queue is full, or the server is not ready."""


class ServerError(VitreousError):
    """A request that the server has refused, or that did not reach it."""

    def __init__(self, detail: str, status: int = 0, problem: Mapping[str, Any] | None = None):
        super().__init__(detail)
        self.status = status
        """Of HTTP; 0: there was no answer."""
        self.problem = dict(problem or {})
        """Everything that the answer says (RFC 9457)."""

    @property
    def kind(self) -> str:
        """What is wrong, in a word: queue-full, body-too-large …"""
        return str(self.problem.get("type", "")).rpartition(":")[2]


class Client:
    """`timeout` is how many seconds an answer may take in all; while it lasts, a request that a
    busy server refuses is sent again when the server says so."""

    def __init__(
        self, url: str = "http://127.0.0.1:8000", *, token: str | None = None, timeout: float = 60.0
    ) -> None:
        self.url, self.timeout = url.rstrip("/"), timeout
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        # a token must not follow a redirection to elsewhere
        self._open = urllib.request.build_opener(_NoRedirection).open

    def models(self) -> list[dict[str, Any]]:
        """The models of the server: name, task, labels, preprocessing, licence …"""
        return self._answer("/v1/models")["models"]

    def ready(self) -> bool:
        """Whether the server can be asked now."""
        try:
            self._once("/readyz", {}, None, self.timeout)
        except ServerError:
            return False
        return True

    @overload
    def predict(
        self,
        model: str,
        images: list[Any] | tuple[Any, ...],
        *,
        top: int | None = None,
        threshold: float | None = None,
        masks: str | None = None,
    ) -> list[Record]: ...
    @overload
    def predict(
        self,
        model: str,
        images: Image,
        *,
        top: int | None = None,
        threshold: float | None = None,
        masks: str | None = None,
    ) -> Record: ...
    def predict(self, model: str, images: Any, **options: Any) -> Any:
        """What `vitreous predict --json` gives. `masks` is png or rle."""
        return self._results(model, "predict", images, options)["results"]

    def explain(
        self,
        model: str,
        images: Any,
        *,
        classes: Sequence[str] | int = 3,
        pixel: tuple[int, int] | None = None,
        maps: str = "array",
    ) -> Any:
        """What `vitreous explain --json` gives; `maps` is array or png."""
        options: dict[str, Any] = {"maps": maps}
        options["top" if isinstance(classes, int) else "classes"] = classes
        if pixel is not None:
            options["y"], options["x"] = pixel
        return self._results(model, "explain", images, options)["results"]

    def embed(self, model: str, images: Any, *, pool: str = "head") -> Any:
        """A vector, a list of numbers, for each image; not normalised."""
        return self._results(model, "embed", images, {"pool": pool})["vectors"]

    def _results(self, model: str, verb: str, images: Any, options: Mapping[str, Any]) -> Any:
        many = isinstance(images, list | tuple)
        body, kind = form([*images] if many else [images])
        given = {name: value for name, value in options.items() if value is not None}
        query = urllib.parse.urlencode(given, doseq=True)
        path = f"/v1/models/{urllib.parse.quote(model, safe='')}/{verb}"
        found = self._answer(f"{path}?{query}" if query else path, {"Content-Type": kind}, body)
        if many:
            return found
        return {name: each[0] if isinstance(each, list) else each for name, each in found.items()}

    def _answer(
        self, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Any:
        deadline = time.monotonic() + self.timeout
        while True:
            left = deadline - time.monotonic()
            try:
                return self._once(path, headers or {}, body, max(left, 0.001))
            except ServerError as error:
                pause = error.problem.get("retry_after")
                if error.status not in AGAIN or pause is None or pause > left:
                    raise
                time.sleep(pause)

    def _once(self, path: str, headers: Mapping[str, str], body: bytes | None, left: float) -> Any:
        request = urllib.request.Request(
            self.url + path, data=body, headers={**self._headers, **headers}
        )
        try:
            with self._open(request, timeout=left) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(error) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise ServerError(
                f"{self.url} gives no answer: {reason}: is 'vitreous serve' running there?"
            ) from None


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *given: Any) -> None:
        return None


def _refused(error: urllib.error.HTTPError) -> ServerError:
    try:
        problem = json.loads(error.read())
        assert isinstance(problem, dict)
    except (OSError, ValueError, AssertionError):
        problem = {}
    pause = error.headers.get("Retry-After", "")
    if pause.isdecimal():
        problem["retry_after"] = int(pause)
    return ServerError(problem.get("detail") or f"HTTP {error.code}", error.code, problem)


def form(images: Sequence[Image]) -> tuple[bytes, str]:
    """Files as the body of a request, and its Content-Type."""
    boundary = secrets.token_hex(16)
    parts = []
    for number, image in enumerate(images, 1):
        name, data = _file(image, number)
        parts += [
            f'--{boundary}\r\nContent-Disposition: form-data; name="image"; '
            f'filename="{name}"\r\n\r\n'.encode(),
            data,
            b"\r\n",
        ]
    parts.append(f"--{boundary}--\r\n".encode())
    return b"".join(parts), f"multipart/form-data; boundary={boundary}"


def _file(image: Image, number: int) -> tuple[str, bytes]:
    if isinstance(image, bytes):
        return f"image {number}", image
    if not isinstance(image, str | os.PathLike):
        raise DataError(f"image {number}: expected a path or bytes, not {type(image).__name__}")
    path = Path(image)
    name = path.name.encode("utf-8", "replace").decode()
    for special, code in (('"', "%22"), ("\r", "%0D"), ("\n", "%0A")):
        name = name.replace(special, code)
    try:
        return name, path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
