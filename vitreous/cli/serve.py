"""Serve models at an address: HTTP with JSON, and a page to try them in a browser."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from vitreous import api
from vitreous.cli.options import EngineOptions
from vitreous.config import positive
from vitreous.errors import ConfigError
from vitreous.train.recipe import Repeated, option

MOST_EXAMPLES = 100
MODELS = tyro.conf.arg(metavar="[NAME=]RUN|FILE...", help_behavior_hint="(required)")


@dataclass(frozen=True)
class ServingOptions(EngineOptions):
    """What computes the models, and how."""

    max_pixels: Annotated[int, option("N")] = 25_000_000
    """Refuse images with more pixels than this, or that would be enlarged to more."""
    threads: Annotated[int | None, option("N", "all cores, shared by the workers")] = None
    """Threads that compute a model, in each worker."""


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
    queue: Annotated[int, option("N")] = 64
    """Images that wait for a model; more are refused."""
    deadline: Annotated[str, option("TIME")] = "30s"
    """How long a request may take."""
    drain: Annotated[str, option("TIME")] = "0s"
    """Time between SIGTERM, when /readyz begins to say no, and the closing of the port."""
    inference: ServingOptions = field(default_factory=ServingOptions)


def run(arguments: ServeArguments) -> None:
    options = arguments.inference
    positive(arguments, "workers", "max_batch", "max_images", "queue")
    positive(options, "max_pixels", *(["threads"] if options.threads is not None else []))
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
        workers=arguments.workers,
        token=arguments.token,
        drain=seconds("--drain", arguments.drain),
        examples=arguments.examples,
        batch=arguments.max_batch,
        delay=seconds("--max-delay", arguments.max_delay),
        body=int(amount("--max-body", arguments.max_body, SIZES, "10MB or 500KB")),
        images=arguments.max_images,
        queue=arguments.queue,
        deadline=seconds("--deadline", arguments.deadline),
        **options.given(),
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
