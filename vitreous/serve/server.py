"""The life of a server: its port, its worker processes, and how it ends.

SIGTERM (and Ctrl-C) drains: /readyz says no, the port is closed, what was accepted is answered, and
the process exits with 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import torch
from prometheus_client.multiprocess import mark_process_dead
from uvicorn import Config, Server

from vitreous.errors import ConfigError, VitreousError
from vitreous.serve.app import create_app
from vitreous.serve.logs import log, set_up_logs
from vitreous.serve.protocol import PatientProtocol
from vitreous.serve.served import Load, LoadPredictor, load_model, loader
from vitreous.serve.settings import Life, Settings
from vitreous.train.stop import handling

HEAD_BYTES = 32_768
"""Of a request's head."""
RESTART_SECONDS = 1.0
"""A worker that died is started again, but not more often."""
YOUNG_SECONDS, YOUNG_DEATHS = 60.0, 5
"""If so many die one after the other, each within this time of its start, the server gives up: a
sixth would die, too, and whoever watches over it should know."""


class WorkersDiedError(VitreousError):
    """Workers die as soon as they are started."""

    code = 1


class DrainingServer(Server):
    """Ends by itself when a signal comes, and does not raise the signal again: that would be an
    exit code of its own."""

    def __init__(self, config: Config, life: Life, drain: float) -> None:
        super().__init__(config)
        self.life, self.drain = life, drain
        life.stop = self.stop
        self.ends_at: float | None = None

    def stop(self) -> None:
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        with handling(self.handle_exit, signal.SIGTERM, signal.SIGINT):
            yield

    def handle_exit(self, sig: int, frame: Any) -> None:
        if self.life.draining and sig == signal.SIGINT:
            self.force_exit = self.should_exit = True
        self.life.draining = True
        if self.ends_at is None:
            self.ends_at = time.monotonic() + self.drain

    async def on_tick(self, counter: int) -> bool:
        if self.ends_at is not None and time.monotonic() >= self.ends_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Connections that the kernel has accepted for us are served, too."""
        waiting = [each for port in sockets or [] for each in _accepted(port)]
        for server in self.servers:
            server.close()
        loop, kind = asyncio.get_running_loop(), cast(Any, self.config.http_protocol_class)
        protocol = partial(kind, self.config, self.server_state, self.lifespan.state)
        for line in waiting:
            await loop.connect_accepted_socket(protocol, line)
        await super().shutdown(sockets)


def _accepted(port: socket.socket) -> Iterator[socket.socket]:
    port.setblocking(False)
    with contextlib.suppress(OSError):
        while True:
            line, _ = port.accept()
            line.setblocking(False)
            yield line


def serve(settings: Settings, load: LoadPredictor) -> None:
    """Serves until it is told to stop."""
    with listening(settings) as port:
        address = f"http://{settings.host}:{port.getsockname()[1]}"
        set_up_logs()
        if settings.workers == 1:
            log("listening", address=address, models=settings.models)
            _work(settings, load, port)
        else:
            _check_models(settings, load)
            log("listening", address=address, models=settings.models, workers=settings.workers)
            _supervise(settings, load, port)
        log("stopped")


@contextlib.contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # By the protocol asyncio knows that the rest of an answer must not wait until the client has
    # confirmed its beginning (TCP_NODELAY), which takes 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            port.bind((settings.host, settings.port))
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"{settings.host}:{settings.port} cannot be listened at: {error}: choose another "
                "--port, or stop who uses it"
            ) from None
        yield port


def _work(settings: Settings, load: LoadPredictor, port: socket.socket) -> None:
    """One process."""
    set_threads(settings)
    life = Life()
    config = configured(settings, loader(settings, load), life)
    DrainingServer(config, life, settings.drain).run([port])
    if life.failure is not None:
        raise life.failure


def set_threads(settings: Settings) -> None:
    if settings.threads or settings.workers > 1:
        torch.set_num_threads(settings.threads or max((os.cpu_count() or 1) // settings.workers, 1))


def configured(settings: Settings, load: Load, life: Life) -> Config:
    limits = settings.limits
    protocol = type("Protocol", (PatientProtocol,), {"limits": limits})
    return Config(
        create_app(settings, load, life),
        http=protocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=1024,
        timeout_keep_alive=limits.idle,  # type: ignore[arg-type]
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_graceful_shutdown=int(limits.deadline + limits.upload) + 5,
    )


def _check_models(settings: Settings, load: LoadPredictor) -> None:
    """Once, as the workers will, before they are started: their errors would come many times, and
    all of them would export the same files and time the same engines."""
    set_threads(settings)
    for path in settings.models.values():
        load_model(path, settings, load)


# Several processes


def _worker(settings: Settings, load: LoadPredictor, port: socket.socket) -> None:
    set_up_logs()
    _work(settings, load, port)


def _supervise(settings: Settings, load: LoadPredictor, port: socket.socket) -> None:
    """Worker processes that share the port. One that dies is replaced."""
    context = multiprocessing.get_context("spawn")
    stopping = False

    def on_signal(number: int, frame: Any) -> None:
        nonlocal stopping
        stopping = True
        port.close()  # the workers have it open until they stop
        for each in workers:
            if each.is_alive():
                each.terminate()

    def started() -> Any:
        process = context.Process(target=_worker, args=(settings, load, port))
        process.start()
        born[process.pid] = time.monotonic()
        return process

    port.listen(1024)
    with tempfile.TemporaryDirectory(prefix="vitreous-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # read by the workers; see metrics.py
        workers: list[Any] = []
        born: dict[int | None, float] = {}  # by process id
        young = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, on_signal)
        workers += [started() for _ in range(settings.workers)]
        while not stopping:
            multiprocessing.connection.wait([each.sentinel for each in workers], timeout=None)
            for place, each in enumerate(workers):
                if each.is_alive() or stopping:
                    continue
                log("worker died", logging.ERROR, pid=each.pid, code=each.exitcode)
                mark_process_dead(each.pid)
                young = young + 1 if time.monotonic() - born.pop(each.pid) < YOUNG_SECONDS else 0
                if young == YOUNG_DEATHS:
                    stopping = True
                    break
                time.sleep(RESTART_SECONDS)
                if not stopping:
                    workers[place] = started()
        for each in workers:
            if each.is_alive():
                each.terminate()  # one that was started while the signal came
            each.join()
    if young == YOUNG_DEATHS:
        raise WorkersDiedError(
            f"{YOUNG_DEATHS} workers died one after the other, each soon after its start: the log "
            "above says how (a negative code is a signal; -9 often means too little memory)"
        )
