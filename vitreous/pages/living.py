"""The living page: one HTML file in which the model itself runs, with every number visible.

`deploy/living.py` makes the graph; here it is put into a page, with the words, the equations and
the lines of source for each step. The page's programs are in living/.
"""

from __future__ import annotations

import base64
import io
import json
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import PIL.Image
import torch
from torch import Tensor

from vitreous.config import choice, pair
from vitreous.data.preprocess import FULL_SCALE
from vitreous.deploy.browser import BrowserError, find_browser, opened_page
from vitreous.deploy.export import LEAST_AGREEMENT, Exported, ExportError
from vitreous.deploy.living import (
    EXACT,
    LARGEST,
    STORED,
    Arrays,
    LivingGraph,
    answers,
    living_graph,
    stored,
    stored_numbers,
)
from vitreous.deploy.web_runtime import WebRuntime, web_runtime
from vitreous.engines.precision import precision_named
from vitreous.errors import ConfigError
from vitreous.models.model import Model
from vitreous.pages.model_facts import about, shown_preprocess
from vitreous.pages.page_file import check_page_name, write_page
from vitreous.pages.pictures import as_picture
from vitreous.pages.template import program, render
from vitreous.pages.words import words_for
from vitreous.predict import Predictor
from vitreous.progress import Log, silent

HERE = Path(__file__).parent
SAFE = str.maketrans("<&", ",.")
"""Characters of base85 that HTML would take for its own, and others in their place."""
PROGRAMS = (
    *("engine.js", "input.js", "matrices.js", "pictures.js", "cells.js", "steps.js"),
    *("answers.js", "link.js", "app.js"),
)
TOLERANCES = {"float32": 1e-4, "float16": 0.02, "int8": 0.3}
"""The largest difference from torch, relative to the largest output, by how weights are kept."""
SMALL_SIDE = 64
"""Pixels: smaller pictures are kept exactly."""


def as_text(content: bytes, *, compress: bool = True) -> str:
    """Bytes for a page: a quarter longer, where base64 is a third."""
    packed = zlib.compress(content, 9) if compress else content
    return base64.b85encode(packed).decode().translate(SAFE)


@cache
def runtime_texts(runtime: WebRuntime) -> dict[str, str]:
    return {"loader": as_text(runtime.loader), "program": as_text(runtime.program)}


@dataclass(frozen=True)
class Verified:
    """How well a page agrees with torch."""

    by: str
    """A browser that opened it, or ONNX Runtime, which ran the same graph."""
    difference: float
    agreement: float
    images: int


def living_page(
    predictor: Predictor,
    path: Path,
    images: Sequence[Tensor],
    *,
    labels: Sequence[str] | None = None,
    precision: str | None = None,
    runtime: Path | None = None,
    webgpu: bool = False,
    title: str | None = None,
    browser: bool = True,
    log: Log = silent,
) -> Exported:
    """Write the page of a model, with some images (c, h, w) to begin with, verified on them.

    `labels` are what they truly show, empty where that is not known. `precision` is how weights are
    kept: float32, float16 or int8; unless given, float32 for small models and float16 for others.
    `runtime` is a folder with onnxruntime-web. With `webgpu` the page uses the graphics chip where
    its answers agree with torch's. Without `browser`, ONNX Runtime verifies it, which is faster.
    """
    check_page_name(path)
    model = predictor.model
    if precision is not None:
        precision = choice("precision", precision_named(precision), tuple(STORED))
    size = 4 * sum(each.numel() for each in model.parameters())
    precision = precision or ("float32" if size <= EXACT else "float16")
    check_size(model, size, precision)
    web = web_runtime(runtime, log, webgpu=webgpu)
    log(f"tracing {model.name}, with every step inside")
    graph = living_graph(model, shown_preprocess(predictor))
    labels = labels or [""] * len(images)
    samples = [
        sample_of(image, predictor, label) for image, label in zip(images, labels, strict=True)
    ]
    kept = [sample for sample, _ in samples]
    seen = [image for _, image in samples]
    checks = expected(predictor, graph, seen, precision) if webgpu else None
    text = page(predictor, graph, web, precision, kept, title or model.name, checks=checks)
    with tempfile.TemporaryDirectory() as folder:
        aside = Path(folder, "page.html")  # a browser goes by the name
        aside.write_text(text, encoding="utf-8")
        program = find_browser() if browser else None
        found = verified(predictor, graph, precision, seen, aside, program, log)
    if not (found.difference <= TOLERANCES[precision] and found.agreement >= LEAST_AGREEMENT):
        raise ExportError(
            f"{path} was not written: {found.by} differs from torch by {found.difference:.1e} "
            f"of the largest output, and predictions agree to {found.agreement:.0%}: take "
            "another --precision"
        )
    write_page(path, text)
    return Exported(
        path,
        "living page",
        found.by,
        precision,
        path.stat().st_size,
        found.difference,
        found.images,
        found.agreement,
    )


def stored_page(predictor: Predictor, path: Path, image: Tensor, title: str | None = None) -> Path:
    """The same page with the numbers of one image (c, h, w), where nothing can run."""
    sample, seen = sample_of(image, predictor)
    preprocess = shown_preprocess(predictor)
    graph, numbers = stored_numbers(predictor.model, preprocess, preprocess.fit(seen))
    precision = "float32" if sum(4 * each.size for each in numbers.values()) <= EXACT else "float16"
    text = page(predictor, graph, None, precision, [sample], title or predictor.model.name, numbers)
    return write_page(path, text)


def check_size(model: Model, size: int, precision: str) -> None:
    """A page is opened from a mail, on a phone: there is a limit to what that can be."""
    bytes_each = {"float32": 4, "float16": 2, "int8": 1}
    expected = size // 4 * bytes_each[precision] * 1.25
    if expected > LARGEST:
        lower = [name for name in bytes_each if size // 4 * bytes_each[name] * 1.25 <= LARGEST]
        remedy = f"pass --precision {lower[0]}, or take" if lower else "take"
        raise ConfigError(
            f"the page of {model.name} would have about {expected / 1e6:.0f} MB, and browsers open "
            f"at most {LARGEST / 1e6:.0f} MB well: {remedy} a smaller model"
        )


def sample_of(
    image: Tensor, predictor: Predictor, label: str = ""
) -> tuple[dict[str, str], Tensor]:
    """An image for the page, not larger than it needs to be, and what a reader of it gets."""
    most = 2 * max(pair("image_size", predictor.preprocess.image_size))
    picture = as_picture(image.float() / FULL_SCALE.get(image.dtype, 1.0))
    picture.thumbnail((most, most))
    stream = io.BytesIO()
    small = max(picture.size) <= SMALL_SIDE
    picture.save(stream, "png" if small else "jpeg", **({} if small else {"quality": 88}))
    kind = "image/png" if small else "image/jpeg"
    url = f"data:{kind};base64,{base64.b64encode(stream.getvalue()).decode()}"
    return {"url": url, "label": label}, predictor.read(PIL.Image.open(stream))[0]


def verified(
    predictor: Predictor,
    graph: LivingGraph,
    precision: str,
    images: Sequence[Tensor],
    file: Path,
    browser: str | None,
    log: Log,
) -> Verified:
    """In a browser if there is one, else by ONNX Runtime on the same graph and weights."""
    preprocess = shown_preprocess(predictor)
    fitted = [preprocess.fit(image).float() for image in images]
    found: list[dict[str, Tensor]] = []
    by = "ONNX Runtime, on the same graph (not opened in a browser)"
    if browser is not None:
        log(f"opening the page in {Path(browser).name}")
        try:
            found, by = _seen_in(browser, file, fitted, graph), Path(browser).name
        except BrowserError as error:
            log(f"{Path(browser).name} cannot open it here ({error}): ONNX Runtime verifies it")
            by = f"ONNX Runtime, on the same graph ({Path(browser).name} did not open it)"
    if not found:
        kept = {key: STORED[precision](value) for key, value in graph.weights.items()}
        runs = answers(graph, graph.session(kept), [each.numpy() for each in fitted])
        found = [{name: torch.from_numpy(value) for name, value in each.items()} for each in runs]
    worst, same = 0.0, []
    with torch.inference_mode():
        for image, seen in zip(images, found, strict=True):
            wanted = predictor.model.outputs(preprocess(image)[None], like=seen)
            for name, value in wanted.items():
                if name == "places" and precision != "float32":
                    continue  # rounded weights choose between nearly equal proposals otherwise
                apart = (seen[name] - value).abs().max() / value.abs().max().clamp(min=1e-6)
                worst = max(worst, float(apart))
            first = next(iter(wanted))
            axis = -1 if seen[first].ndim == 3 else 1  # of queries, or of images and maps
            alike = seen[first].argmax(axis) == wanted[first].argmax(axis)
            same.append(float(alike.float().mean()))
    return Verified(by, worst, sum(same) / len(same), len(images))


CHECKED = 2
"""Samples on which a page compares WebGPU with torch,"""
COMPARED = 2000
"""and numbers of each."""


@torch.inference_mode()
def expected(
    predictor: Predictor, graph: LivingGraph, images: Sequence[Tensor], precision: str
) -> dict[str, Any]:
    """What torch gives for the first samples: WebGPU must give the same, or it is not used."""
    preprocess, found = shown_preprocess(predictor), []
    name = next(iter(graph.answers))
    for image in images[:CHECKED]:
        values = predictor.model.outputs(preprocess(image)[None])[name].flatten()
        found.append(values[:COMPARED].tolist())
    return {"output": graph.answers[name], "tolerance": TOLERANCES[precision], "values": found}


def _seen_in(
    browser: str, file: Path, fitted: Sequence[Tensor], graph: LivingGraph
) -> list[dict[str, Tensor]]:
    """What the page itself computes for pixels as the model takes them."""
    with opened_page(browser, file) as evaluate:
        until = time.monotonic() + 60
        while not evaluate("document.documentElement?.dataset.ready ?? ''"):
            if failed := evaluate("document.querySelector('#notice span')?.textContent ?? ''"):
                raise BrowserError(failed)
            if time.monotonic() > until:
                raise BrowserError("the page was not ready within a minute")
            time.sleep(0.05)
        found = []
        for each in fitted:
            pixels, names = each.flatten().tolist(), list(graph.answers)
            seen = evaluate(f"page.ask({json.dumps(pixels)}, {json.dumps(names)})")
            shapes = {name: graph.outputs[first] for name, first in graph.answers.items()}
            found.append(
                {name: torch.tensor(seen[name]).reshape(shape) for name, shape in shapes.items()}
            )
        return found


def page(
    predictor: Predictor,
    graph: LivingGraph,
    runtime: WebRuntime | None,
    precision: str,
    samples: Sequence[dict[str, str]],
    title: str,
    numbers: Arrays | None = None,
    checks: dict[str, Any] | None = None,
) -> str:
    """The page itself, with samples as `sample_of` makes them. Without a runtime it has stored
    numbers."""
    raw, index = stored(graph.weights, precision)
    kept, kept_index = stored(numbers or {}, precision)
    told = about(predictor, graph, index) | {
        "precision": precision,
        "samples": list(samples),
        "webgpu": checks,
        "numbers": kept_index if numbers else None,
    }
    return render(
        "living.html",
        title=title,
        about=told,
        words=words_for("living", "viewer"),
        program=program(*(HERE / "living" / name for name in PROGRAMS)),
        style=(HERE / "living" / "living.css").read_text(),
        packed={
            **({} if runtime is None else runtime_texts(runtime)),
            **({} if runtime is None else {"graph": as_text(graph.onnx)}),
            **({"numbers": as_text(kept, compress=False)} if numbers else {}),
            "weights": as_text(raw, compress=False),
        },
    )
