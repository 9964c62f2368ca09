"""A real server in a thread of the test's process."""

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx

import vitreous
from vitreous.serve.served import loader, named_models
from vitreous.serve.server import DrainingServer, configured, listening
from vitreous.serve.settings import Life, Limits, Settings


@dataclass
class Running:
    url: str
    life: Life
    server: DrainingServer
    client: httpx.Client

    def metric(self, name, **labels):
        """The sum of all samples of this name with these labels."""
        total = 0.0
        for line in self.client.get("/metrics").text.splitlines():
            words = [f'{key}="{value}"' for key, value in labels.items()]
            if line.partition("{")[0].split(" ")[0] == name and all(w in line for w in words):
                total += float(line.rpartition(" ")[2])
        return total


def running(*models, load=vitreous.load, token="", drain=0.0, examples=0, wait=True, **limits: Any):
    settings = Settings(
        named_models([str(model) for model in models]),
        token=token,
        drain=drain,
        examples=examples,
        limits=Limits(**limits),
    )
    return running_as(settings, load, wait)


@contextmanager
def running_as(settings, load, wait=True):
    """At a free port of this machine."""
    settings, life = replace(settings, host="127.0.0.1", port=0), Life()
    token, drain = settings.token, settings.drain
    with listening(settings) as port:
        config = configured(settings, loader(settings, load), life)
        server = DrainingServer(config, life, drain)
        thread = threading.Thread(target=server.run, args=([port],))
        thread.start()
        url = f"http://127.0.0.1:{port.getsockname()[1]}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
            try:
                until(lambda: server.started)
                if wait:
                    until(lambda: life.ready or life.failure)
                yield Running(url, life, server, client)
            finally:
                server.stop()
                thread.join(60)
        assert not thread.is_alive()


def until(true, seconds=30):
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.01)


def die(settings, load, port):
    """A worker process that does nothing else."""
    os._exit(3)


def slow(seconds, gate=None):
    """`vitreous.load` of models that take their time; `gate` holds them until it is set."""

    def load(path, **options):
        predictor = vitreous.load(path, **options)
        answer = predictor.answer
        predictor.computed = []

        def late(prepared, *more):
            predictor.computed.append([each.name for each in prepared])
            if gate is not None:
                gate.wait(30)
            time.sleep(seconds)
            return answer(prepared, *more)

        predictor.answer = late
        return predictor

    return load
