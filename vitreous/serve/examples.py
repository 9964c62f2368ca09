"""Examples for the page: a few images of the data that a run was validated on.

Only where the server was started with `--examples N`: whoever reaches it can see them.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from fastapi import FastAPI, Request, Response
from torch import Tensor

from vitreous.errors import DataError, VitreousError
from vitreous.pages.pictures import as_picture
from vitreous.run_folder import OpenedRun
from vitreous.serve import openapi
from vitreous.serve.logs import log
from vitreous.serve.problem import ProblemError
from vitreous.serve.schema import ExampleName, Examples
from vitreous.train.open_data import open_named, stored_recipe

SIDE, EXACT_SIDE = 1024, 512
"""Pixels of the longer side: above the first, images are made smaller; above the second, they are
sent as JPEG."""


@dataclass(frozen=True)
class ExampleImage:
    name: str
    media_type: str
    data: bytes


def read_examples(name: str, run: OpenedRun, count: int, max_pixels: int) -> list[ExampleImage]:
    """Spread over the val split of a run's own data; where there is none, the log says why."""
    try:
        return _read(run, count, max_pixels) if count else []
    except (VitreousError, OSError) as error:
        log("no examples", logging.WARNING, model=name, reason=str(error))
        return []


def _read(run: OpenedRun, count: int, max_pixels: int) -> list[ExampleImage]:
    recipe = stored_recipe(run)
    if recipe is None:
        reason = "has no recipe.toml, which says what data it was trained on"
        raise DataError(f"{run.reference} {reason}")
    source = open_named(replace(recipe, download=False))
    source.max_pixels = max_pixels
    samples = source.splits.get("val") or source.splits.get("test") or ()
    spread = samples[:: max(len(samples) // count, 1)][:count]
    return [_encoded(str(sample.id), source.image(sample)) for sample in spread]


def _encoded(name: str, image: Tensor) -> ExampleImage:
    """image (c, h, w) as stored; only what can be sent back as it is."""
    if image.dtype != torch.uint8 or image.shape[0] not in (1, 3):
        raise DataError(f"{name}: not of 8 bits in one or three channels, as pictures of pages are")
    picture = as_picture(image / 255)
    picture.thumbnail((SIDE, SIDE))
    exact = max(picture.size) <= EXACT_SIDE
    file = io.BytesIO()
    picture.save(file, "PNG" if exact else "JPEG", quality=90)
    return ExampleImage(name, "image/png" if exact else "image/jpeg", file.getvalue())


def add_examples(app: FastAPI, find: Callable[[Request, str], Any]) -> None:
    @app.get(
        "/v1/models/{name}/examples",
        response_model=Examples,
        responses=openapi.problem(401, 404, 421, 503),
    )
    async def examples(request: Request, name: str) -> Any:
        """Images to try the model on, if the server was started with --examples."""
        found = find(request, name).examples
        names = [ExampleName(number=i, name=each.name) for i, each in enumerate(found)]
        return Examples(examples=names)

    @app.get(
        "/v1/models/{name}/examples/{number}",
        response_class=Response,
        responses={
            200: {"content": {kind: {"schema": openapi.BINARY} for kind in KINDS}},
            **openapi.problem(401, 404, 421, 422, 503),
        },
    )
    async def example(request: Request, name: str, number: int) -> Response:
        """One of them."""
        found = find(request, name).examples
        if not 0 <= number < len(found):
            raise ProblemError("not-found", f"{name} has {len(found)} examples, from 0")
        return Response(found[number].data, media_type=found[number].media_type)


KINDS = ("image/png", "image/jpeg")
