"""The images in a request's body: one as it is, several as a form, or base64 in JSON.

Everything stays in memory, and is counted while it arrives: a body that is too long is refused at
its first byte too many, whatever its head says. No file is written and no address is followed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from vitreous.data.decode.images import ImageBytes
from vitreous.serve.problem import ProblemError
from vitreous.serve.settings import Limits

FORM, JSON = "multipart/form-data", "application/json"
RAW = "application/octet-stream"
WAYS = (
    f"send the image itself as {RAW} (or image/…), one or several files as {FORM}, or "
    f'{JSON} like {{"images": [{{"name": "cat.jpg", "data": "…base64…"}}]}}'
)
PART_HEAD = 4096
"""Bytes of the head of a form's part."""
LONGEST_NAME = 200


@dataclass
class Memory:
    """The bytes of all bodies that are held, and their limit."""

    limit: int
    used: int = 0

    @contextmanager
    def holding(self) -> Iterator[Hold]:
        hold = Hold(self)
        try:
            yield hold
        finally:
            self.used -= hold.bytes


@dataclass
class Hold:
    """The share of one request."""

    memory: Memory
    bytes: int = 0

    def add(self, count: int) -> None:
        if self.memory.used + count > self.memory.limit:
            raise ProblemError(
                "queue-full",
                "too many uploads at once: try again in a second",
                {"Retry-After": "1"},
            )
        self.memory.used += count
        self.bytes += count


async def read_images(request: Request, limits: Limits, hold: Hold) -> list[ImageBytes]:
    """At least one, and no more than the limits allow."""
    kind, options = parse_options_header(request.headers.get("content-type"))
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise ProblemError("wrong-type", f"Content-Encoding {encoding!r}: send the body as it is")
    media_type = kind.decode("latin-1").lower()
    chunks = _counted(request, limits, hold)
    try:
        async with asyncio.timeout(limits.upload):
            if media_type == FORM:
                images = await _from_form(chunks, options.get(b"boundary", b""), limits)
            elif media_type == JSON:
                # megabytes of JSON would hold up all other requests here
                images = await asyncio.to_thread(_from_json, await _joined(chunks), limits)
            elif media_type == RAW or media_type.startswith("image/"):
                images = [ImageBytes(await _joined(chunks), "image")]
            else:
                given = f"Content-Type {media_type!r}" if media_type else "no Content-Type"
                raise ProblemError("wrong-type", f"{given}: {WAYS}")
    except TimeoutError:
        raise ProblemError(
            "too-slow", f"the body did not arrive within {limits.upload:g} seconds: send it faster"
        ) from None
    if not images or not any(image.data for image in images):
        raise ProblemError("cannot-be-used", f"the request has no image: {WAYS}")
    return images


def check_length(request: Request, limits: Limits) -> None:
    """What the head says of a body that is too long is enough to refuse it."""
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > limits.body:
        raise _too_large(limits, f"{int(stated):,} bytes")


async def _counted(request: Request, limits: Limits, hold: Hold) -> AsyncIterator[bytes]:
    total = 0
    async for chunk in request.stream():
        total += len(chunk)
        if total > limits.body:
            raise _too_large(limits, "more")
        hold.add(len(chunk))
        yield chunk


def _too_large(limits: Limits, given: str) -> ProblemError:
    return ProblemError(
        "body-too-large",
        f"a request may have {limits.body:,} bytes, and this one has {given}: send fewer or "
        "smaller images",
        limit=limits.body,
    )


def check_count(count: int, most: int) -> None:
    if count > most:
        raise ProblemError(
            "cannot-be-used",
            f"a request may have {most} images here, and this one has more: send several requests",
            limit=most,
        )


async def _joined(chunks: AsyncIterator[bytes]) -> bytearray:
    data = bytearray()
    async for chunk in chunks:
        data += chunk
    return data


def named(text: str, number: int) -> str:
    """What an image is called, as its sender calls it, without folders."""
    name = re.split(r"[/\\]", text)[-1].strip()
    return name[-LONGEST_NAME:] or f"image {number}"


# Forms


class _Form:
    """Collects the files of a form; see `MultipartParser`."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.images: list[ImageBytes] = []
        self.ended = False
        self.header = bytearray(), bytearray()
        self.head_bytes = 0
        self.filename: str | None = None
        self.field = ""
        self.data = bytearray()

    def on_part_begin(self) -> None:
        self.filename, self.field, self.head_bytes = None, "", 0
        self.data = bytearray()

    def _head(self, which: int, data: bytes, start: int, end: int) -> None:
        self.head_bytes += end - start
        if self.head_bytes > PART_HEAD:
            raise ProblemError("bad-request", "the head of a part of the form is too long")
        self.header[which].extend(data[start:end])

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._head(0, data, start, end)

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._head(1, data, start, end)

    def on_header_end(self) -> None:
        name, value = (bytes(part) for part in self.header)
        self.header = bytearray(), bytearray()
        if name.lower() == b"content-disposition":
            _, options = parse_options_header(value)
            self.field = options.get(b"name", b"").decode("utf-8", "replace")
            if b"filename" in options:
                text = options[b"filename"].decode("utf-8", "replace")
                self.filename = named(text, len(self.images) + 1)

    def on_headers_finished(self) -> None:
        if self.filename is None:
            raise ProblemError(
                "cannot-be-used",
                f"the form's field {self.field!r} is no file: options are part of the address, "
                "like ?top=3",
            )
        check_count(len(self.images) + 1, self.limits.images)

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self.data += memoryview(data)[start:end]

    def on_part_end(self) -> None:
        assert self.filename is not None
        self.images.append(ImageBytes(self.data, self.filename))

    def on_end(self) -> None:
        self.ended = True


async def _from_form(
    chunks: AsyncIterator[bytes], boundary: bytes, limits: Limits
) -> list[ImageBytes]:
    form = _Form(limits)
    names = [name for name in dir(form) if name.startswith("on_")]
    callbacks: Any = {name: getattr(form, name) for name in names}
    try:
        parser = MultipartParser(boundary, callbacks)
        async for chunk in chunks:
            parser.write(chunk)
    except FormParserError as error:
        raise ProblemError("bad-request", f"the form cannot be read: {error}") from None
    if not form.ended:
        raise ProblemError("bad-request", "the form is cut short: its last boundary is missing")
    return form.images


# JSON


def _from_json(body: bytearray, limits: Limits) -> list[ImageBytes]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProblemError("bad-request", f"the body is no JSON: {error}") from None
    if not isinstance(values, dict) or "images" not in values:
        raise ProblemError("cannot-be-used", f"the JSON has no images: {WAYS}")
    if more := sorted(values.keys() - {"images"}):
        raise ProblemError(
            "cannot-be-used",
            f"the JSON also has {', '.join(map(repr, more))}: options are part of the address, "
            "as in ?top=2",
        )
    given = values["images"]
    if not isinstance(given, list):
        raise ProblemError("cannot-be-used", f"images is no list: {WAYS}")
    check_count(len(given), limits.images)
    return [_from_base64(each, number) for number, each in enumerate(given, 1)]


def _from_base64(value: Any, number: int) -> ImageBytes:
    value = {"data": value} if isinstance(value, str) else value
    if (
        not isinstance(value, dict)
        or "data" not in value
        or not value.keys() <= {"name", "data"}
        or not all(isinstance(each, str) for each in value.values())
    ):
        raise ProblemError("cannot-be-used", f"image {number} has no name and data: {WAYS}")
    name = named(value.get("name", ""), number)
    try:
        return ImageBytes(base64.b64decode(value["data"], validate=True), name)
    except (binascii.Error, ValueError) as error:
        raise ProblemError("cannot-be-used", f"{name}: data is not base64: {error}") from None
