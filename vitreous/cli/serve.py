"""Serve models at an address: HTTP with JSON, and a page to try them in a browser."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vitreous import api
from vitreous.cli.options import Engine, MaxPixels, Precision
from vitreous.config import positive
from vitreous.errors import ConfigError
from vitreous.train.recipe import Flag, Repeated, option

MOST_EXAMPLES = 100
MODELS = tyro.conf.arg(metavar="[NAME=]RUN|FILE...", help_behavior_hint="(required)")


@dataclass(frozen=True)
class ServeArguments:
    models: Annotated[tyro.conf.Positional[tuple[str, ...]], MODELS]
    """Run folders or exported files, each under its name: that of the folder or file unless one is
    given."""
    host: Annotated[str, option("ADDRESS")] = "127.0.0.1"
    """Address to listen at; 0.0.0.0 for all of this machine's."""
    port: Annotated[int, option("N")] = 8000
    """Port to listen at; 0 for a free one."""
    allow_host: Annotated[Repeated, option("NAME", "its own names and addresses")] = ()
    """Name by which the server may be asked (repeatable), as of a proxy before it; * for any."""
    engine: Engine = None
    """What computes the models: onnxruntime and openvino run a file that is exported once, and auto
    takes the fastest here."""
    precision: Precision = None
    """How precisely: auto takes bfloat16 if this CPU is made for it and predictions agree with
    float32 in a trial, never int8."""
    threads: Annotated[int | None, option("N", "all cores, shared by the workers")] = None
    """Threads that compute a model, in each worker."""
    workers: Annotated[int, option("N")] = 1
    """Processes that share the port, each with all models."""
    token: Annotated[Path | None, option("FILE", "none: everybody may ask")] = None
    """File with a token that requests must bear."""
    examples: Annotated[int, option("N")] = 0
    """Images of each run's own validation data that the page offers to try; whoever reaches the
    server can see them."""
    max_batch: Annotated[int, option("N")] = 8
    """Images that a model computes at once."""
    max_delay: Annotated[str, option("TIME")] = "5ms"
    """How long an image waits for others to be computed with it."""
    max_body: Annotated[str, option("SIZE")] = "10MB"
    """Largest body of a request."""
    max_images: Annotated[int, option("N")] = 16
    """Images in a request."""
    max_pixels: MaxPixels = 25_000_000
    """Refuse images with more pixels than this, or that would be enlarged to more."""
    queue: Annotated[int, option("N")] = 64
    """Images that wait for a model; more are refused."""
    deadline: Annotated[str, option("TIME")] = "30s"
    """How long a request may take."""
    drain: Annotated[str, option("TIME")] = "0s"
    """Time between SIGTERM, when /readyz begins to say no, and the closing of the port."""
    no_verify: Flag = False
    """Use weights and files also if they were changed after Vitreous wrote them."""


def run(arguments: ServeArguments) -> None:
    positive(arguments, "workers", "max_batch", "max_images", "queue", "max_pixels")
    if arguments.threads is not None:
        positive(arguments, "threads")
    if arguments.max_images > arguments.queue:
        raise ConfigError(
            f"--max-images {arguments.max_images} do not fit into --queue {arguments.queue}"
        )
    if not 0 <= arguments.examples <= MOST_EXAMPLES:
        raise ConfigError(f"--examples {arguments.examples}: expected 0 to {MOST_EXAMPLES}")
    if not arguments.models:
        raise ConfigError("what should be served? give run folders or exported files")
    api.serve(
        arguments.models,
        host=arguments.host,
        port=arguments.port,
        allow_hosts=arguments.allow_host,
        engine=arguments.engine,
        precision=arguments.precision,
        threads=arguments.threads,
        workers=arguments.workers,
        token=arguments.token,
        drain=seconds("--drain", arguments.drain),
        examples=arguments.examples,
        verify=not arguments.no_verify,
        batch=arguments.max_batch,
        delay=seconds("--max-delay", arguments.max_delay),
        body=int(amount("--max-body", arguments.max_body, SIZES, "10MB or 500KB")),
        images=arguments.max_images,
        pixels=arguments.max_pixels,
        queue=arguments.queue,
        deadline=seconds("--deadline", arguments.deadline),
    )


TIMES = {"ms": 0.001, "s": 1.0, "min": 60.0}
SIZES = {"KB": 1e3, "MB": 1e6, "GB": 1e9}


def seconds(name: str, text: str) -> float:
    return amount(name, text, TIMES, "5ms, 30s or 2min")


def amount(name: str, text: str, units: dict[str, float], like: str) -> float:
    """A number with its unit."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]+)", text)
    if found is None or found[2] not in units:
        raise ConfigError(f"{name} {text}: expected a number and its unit, like {like}")
    return float(found[1]) * units[found[2]]
