"""Damaged requests must end in an answer below 500, and never show a traceback.

    PYTHONPATH=.:tests python tests/serve/fuzz_bodies.py RUN … --cases 1000

Each case is a good request (image, form or JSON) with bytes of its body, its head or its address
changed, cut or repeated; a case's number is its seed.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import io
import itertools
import json
import random
import socket
from collections import Counter

from PIL import Image
from serve.running import running

PATHS = ("predict", "predict?top=2", "predict?masks=png", "explain?maps=png", "embed?pool=mean")
WORDS = (b"\x00", b"\xff" * 8, b"{", b"[" * 2000, b"\r\n", b"--x", b"--x--", b'"', b"%00", b"\xc3")


QUICK = {"upload": 0.3, "head": 0.3}
"""Half a request is not waited for."""


def good(chance: random.Random, images: list[bytes], names: list[str]) -> tuple[bytes, bytes]:
    """Head (without its length) and body of a request that could be answered."""
    picked = chance.choices(images, k=chance.randint(1, 3))
    path = f"/v1/models/{chance.choice(names)}/{chance.choice(PATHS)}"
    kind = chance.choice(("image", "form", "json"))
    if kind == "image":
        types, body = "image/png", picked[0]
    elif kind == "json":
        types = "application/json"
        given = [
            {"name": f"{n}.png", "data": base64.b64encode(i).decode()} for n, i in enumerate(picked)
        ]
        body = json.dumps({"images": given}).encode()
    else:
        types = "multipart/form-data; boundary=x"
        parts = [
            b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n'
            b"Content-Type: image/png\r\n\r\n" + image + b"\r\n"
            for image in picked
        ]
        body = b"".join(parts) + b"--x--\r\n"
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {types}\r\n".encode(), body


def damaged(chance: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        place = chance.randrange(len(found) + 1)
        match chance.randrange(4):
            case 0 if place < len(found):
                found[place] = chance.randrange(256)
            case 1:
                found[place:place] = chance.choice(WORDS)
            case 2:
                del found[place : place + chance.choice((1, 4, 100))]
            case 3:
                found[place:place] = found[place : place + 200]
    return bytes(found[: chance.randrange(len(found) + 1)] if chance.random() < 0.15 else found)


def request(number: int, images: list[bytes], names: list[str]) -> bytes:
    chance = random.Random(number)
    head, body = good(chance, images, names)
    body = damaged(chance, body) if chance.random() < 0.9 else body
    if chance.random() < 0.2:
        line, _, rest = head.partition(b"\r\n")
        head = damaged(chance, line[:-9]) + line[-9:] + b"\r\n" + rest
    if chance.random() < 0.2:
        head = damaged(chance, head[:-2]) + b"\r\n"
    if chance.random() < 0.3:
        chunks = [body[i : i + 5000] for i in range(0, len(body), 5000)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks) + b"0\r\n\r\n"
        return head + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + body
    length = len(body) + (chance.choice((-5, 5, 100)) if chance.random() < 0.05 else 0)
    return head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % max(length, 0) + body


def answer(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
        parts = []
        with contextlib.suppress(OSError):  # it may be refused while it is sent
            line.sendall(data)
        with contextlib.suppress(ConnectionResetError):
            while part := line.recv(65536):
                parts.append(part)
        return b"".join(parts)


def fuzz(port: int, images: list[bytes], names: list[str], cases: range) -> Counter[int]:
    """Statuses by number; 0: the connection was closed without an answer, as half a request is."""
    statuses: Counter[int] = Counter()
    for number in cases:
        found = answer(port, request(number, images, names))
        status = int(found[9:12]) if found.startswith(b"HTTP/1.1 ") else 0
        assert status < 500, (number, found[:1000])
        assert b"Traceback" not in found, (number, found[:1000])
        assert b'File "' not in found, (number, found[:1000])
        statuses[status] += 1
    return statuses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="+", help="run folders")
    parser.add_argument("--cases", type=int, default=1000)
    given = parser.parse_args()
    with running(*given.runs, **QUICK) as server:
        names = [each["name"] for each in server.client.get("/v1/models").json()["models"]]
        port = int(server.url.rpartition(":")[2])
        statuses = fuzz(port, pictures(), names, range(given.cases))
        assert server.client.get("/readyz").status_code == 200
        print(dict(sorted(statuses.items())))


def pictures() -> list[bytes]:
    found = []
    for size, kind in itertools.product(((40, 60), (90, 30)), ("PNG", "JPEG", "WEBP", "TIFF")):
        file = io.BytesIO()
        Image.effect_noise(size, 80).save(file, kind)
        found.append(file.getvalue())
    return found


if __name__ == "__main__":
    main()
