"""What `vitreous serve` stands: throughput beside the bare predictor, ten times more requests than
it can answer, and memory over many requests. Server and clients are two processes on this machine.

python examples/serve_load.py [RUN] [--seconds N] [--requests N] [--rounds N]
"""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tyro
from PIL import Image

import vitreous
import vitreous.client
from vitreous.data.decode.images import ImageBytes
from vitreous.data.photographs import photographs
from vitreous.pages.pictures import as_picture

SIZES = ((640, 427), (480, 320), (500, 500), (320, 240), (224, 224))
CONNECTIONS = 48
"""Of clients that wait for each answer."""


def main(
    run: tyro.conf.Positional[str] = "",
    seconds: float = 60.0,
    requests: int = 10_000,
    rounds: int = 3,
    images: int = 256,
    engine: str = "torch",
) -> None:
    """Args:
    run: Run folder to serve; by default a ViT-Ti/16 for 224x224 images with random weights.
    seconds: How long the server is overloaded; 0: not at all.
    requests: How many requests its memory is watched over; 0: it is not.
    rounds: In which the bare predictor and the server take turns; the best of each counts.
    images: Of a round.
    engine: That of the server, and of the bare predictor.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = run or random_vit(Path(folder) / "vit-ti")
        bodies = jpegs()
        with serving(path, engine) as (process, port):
            bare, served = throughput(path, engine, port, bodies, rounds, images)
            print(f"bare predictor, batches of 8   {bare:8.1f} images/s")
            print(
                f"served, one image per request  {served:8.1f} images/s  ratio {served / bare:.2f}"
            )
            if requests:
                memory(process.pid, port, bodies, requests)
            if seconds:
                overload(process.pid, port, bodies, 10 * served, seconds)
            process.send_signal(signal.SIGTERM)
            print(f"exit code after SIGTERM        {process.wait(60):8}")


# The server


def random_vit(folder: Path) -> str:
    """A run folder of ViT-Ti/16 with random weights."""
    from vitreous.config import to_dict
    from vitreous.data.preprocess import Preprocess
    from vitreous.labels import LabelMap
    from vitreous.run_folder import Run, RunConfig, versions

    model = vitreous.create("vit-ti/16")
    labels = LabelMap.of_names([f"class {number}" for number in range(1000)])
    folder.mkdir()
    config = RunConfig(
        *("vit-ti/16", "vit", to_dict(model.config), "classify", labels, Preprocess((224, 224))),
        *("", "", versions()),
    )
    Run(folder).write_config(config)
    Run(folder).write_weights(model, model.state_dict())
    return str(folder)


@contextmanager
def serving(path: str, engine: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "vitreous", "serve", f"model={path}", "--port", "0"]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen([*command, "--engine", engine], stderr=log, text=True) as process,
    ):
        try:
            yield process, wait_for(process, log)
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str], log: io.TextIOBase) -> int:
    while process.poll() is None:
        time.sleep(0.2)
        log.seek(0)
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read()):
            client = vitreous.client.Client(f"http://127.0.0.1:{found[1]}", timeout=5)
            if client.ready():
                return int(found[1])
    log.seek(0)
    raise SystemExit(f"the server did not start:\n{log.read()}")


def resident(pid: int) -> int:
    """Bytes of memory."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


# The clients


def jpegs() -> list[bytes]:
    """Photographs of several sizes, as files."""
    found = []
    for size, photo in itertools.product(SIZES, photographs()):
        file = io.BytesIO()
        as_picture(photo / 255).resize(size, Image.Resampling.BICUBIC).save(file, "JPEG")
        found.append(file.getvalue())
    return found


class Line:
    """A connection that is used again; HTTP as far as is needed here."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, body: bytes) -> int:
        """The status of a prediction."""
        if self.writer is None or self.reader.at_eof():  # closed by the server: idle for long
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(
            b"POST /v1/models/model/predict?top=1 HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        await self.reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
        if b"connection: close" in head:
            self.close()
        return int(head[9:12])

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


async def closed_loop(port: int, bodies: list[bytes], count: int, lines: int) -> Counter[int]:
    """So many requests, each sent when an answer has come; statuses."""
    statuses: Counter[int] = Counter()
    left = iter(range(count))

    async def client() -> None:
        line = Line(port)
        for number in left:
            statuses[await line.ask(bodies[number % len(bodies)])] += 1
        line.close()

    await asyncio.gather(*(client() for _ in range(min(lines, count))))
    return statuses


async def open_loop(
    port: int, bodies: list[bytes], rate: float, seconds: float
) -> tuple[list[tuple[int, float]], int]:
    """Requests at their times, whether answers come or not: statuses with seconds; and how many
    were not sent, for want of a connection."""
    free = [Line(port) for _ in range(400)]
    found: list[tuple[int, float]] = []
    skipped, running, began = 0, set(), time.perf_counter()

    async def send(line: Line, body: bytes) -> None:
        start = time.perf_counter()
        try:
            found.append((await line.ask(body), time.perf_counter() - start))
        except (OSError, asyncio.IncompleteReadError):
            line.close()
            found.append((0, time.perf_counter() - start))
        free.append(line)

    for number in itertools.count():
        due = began + number / rate
        if due > began + seconds:
            break
        if (pause := due - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        elif number % 10 == 0:
            await asyncio.sleep(0)
        if not free:
            skipped += 1
            continue
        task = asyncio.ensure_future(send(free.pop(), bodies[number % len(bodies)]))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    for line in free:
        line.close()
    return found, skipped


# What is measured


def throughput(
    path: str, engine: str, port: int, bodies: list[bytes], rounds: int, images: int
) -> tuple[float, float]:
    """Images per second of the bare predictor in batches of 8, and of the server."""
    predictor = vitreous.load(path, engine=engine)
    things = [ImageBytes(bodies[i % len(bodies)], f"{i}") for i in range(images)]
    bare, served = [], []
    for _ in range(1 + rounds):
        began = time.perf_counter()
        for _result in predictor.stream(things, 8):
            pass
        bare.append(time.perf_counter() - began)
        began = time.perf_counter()
        statuses = asyncio.run(closed_loop(port, bodies, images, CONNECTIONS))
        served.append(time.perf_counter() - began)
        assert set(statuses) == {200}, statuses
    return images / min(bare), images / min(served)


def memory(pid: int, port: int, bodies: list[bytes], requests: int) -> None:
    part = max(requests // 20, 1)
    sizes, statuses = [], Counter()
    for _ in range(20):
        statuses += asyncio.run(closed_loop(port, bodies, part, CONNECTIONS))
        sizes.append(resident(pid) / 1e6)
    settled = sizes[2:]
    spread = max(settled) / min(settled) - 1
    print(f"requests, all answered 200     {statuses[200]:8,} of {sum(statuses.values()):,}")
    print(
        f"resident memory                {min(settled):8.1f} to {max(settled):.1f} MB after the "
        f"first tenth: {spread:.1%}"
    )


def overload(pid: int, port: int, bodies: list[bytes], rate: float, seconds: float) -> None:
    before = resident(pid)
    found, skipped = asyncio.run(open_loop(port, bodies, rate, seconds))
    statuses = Counter(status for status, _ in found)
    print(f"overload, {rate:.0f} requests/s for {seconds:g} s: {dict(sorted(statuses.items()))}")
    print(f"  not sent, no free connection {skipped:8,}")
    for status in sorted(statuses):
        times = sorted(1000 * each for code, each in found if code == status)
        cells = [times[min(int(len(times) * part), len(times) - 1)] for part in (0.5, 0.99)]
        print(f"  {status}: median {cells[0]:8.1f} ms, p99 {cells[1]:8.1f}, most {times[-1]:8.1f}")
    print(f"  answered 200                 {statuses[200] / seconds:8.1f} images/s")
    print(f"  resident memory              {before / 1e6:8.1f} to {resident(pid) / 1e6:.1f} MB")


if __name__ == "__main__":
    tyro.cli(main)
