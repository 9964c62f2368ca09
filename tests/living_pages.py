"""Living pages, made without being verified, and torch's answers to compare theirs with."""

import contextlib
import functools
import json

import numpy as np
import pytest
import torch

from vitreous.deploy.living import living_graph
from vitreous.deploy.web_runtime import NoRuntimeError, web_runtime
from vitreous.engines.interventions import Interventions, intervening
from vitreous.pages.living import page, sample_of
from vitreous.pages.model_facts import shown_preprocess

READY = "html[data-ready]"


@functools.cache
def _runtime(webgpu):
    try:
        return web_runtime(webgpu=webgpu), ""
    except NoRuntimeError as error:
        return None, str(error)


def has_runtime():
    return _runtime(False)[0] is not None


def runtime(webgpu=False):
    """onnxruntime-web from the cache or from npm; without it, the test is skipped."""
    found, why = _runtime(webgpu)
    if found is None:
        pytest.skip(f"needs onnxruntime-web: {why}")
    return found


def write_page(path, predictor, images, precision="float32", title="a page"):
    """A page with these images (c, h, w), of whole numbers."""
    web = runtime()
    graph = living_graph(predictor.model, shown_preprocess(predictor))
    samples = [sample_of(image, predictor)[0] for image in images]
    path.write_text(page(predictor, graph, web, precision, samples, title), encoding="utf-8")
    return path


@contextlib.contextmanager
def opened(chromium, path, width=1280, expected=None, link="", said=None, **options):
    """The page offline, when it is ready. What it asks for outside, and errors on its console, are
    errors here, but for those with the words that are expected. Warnings are added to `said`."""
    wrong = []
    context = chromium.new_context(viewport={"width": width, "height": 900}, **options)
    context.set_offline(True)
    shown = context.new_page()
    shown.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    shown.on(
        "console",
        lambda m: said.append(m.text) if said is not None and m.type == "warning" else None,
    )
    shown.on("pageerror", lambda e: wrong.append(str(e)))
    shown.on("dialog", lambda d: (wrong.append(f"dialog: {d.message}"), d.dismiss()))
    inside = (path.as_uri(), "blob:", "data:")
    shown.on("request", lambda r: None if r.url.startswith(inside) else wrong.append(r.url))
    shown.goto(path.as_uri() + link)
    shown.wait_for_selector(READY, state="attached", timeout=60_000)
    yield shown
    context.close()
    wrong = [each for each in wrong if expected is None or expected not in each]
    assert not wrong, wrong


def settled(shown):
    """Until it shows what was asked for last."""
    version = shown.evaluate("page.engine.version")
    shown.wait_for_selector(f"html[data-done='{version}']", state="attached")
    return shown.inner_text("#answers")


def ask(shown, pixels, names, changes=None):
    """What the page computes for pixels (c, h, w) as the model takes them: flat arrays."""
    given = {name: value.flatten().tolist() for name, value in (changes or {}).items()}
    words = ", ".join(map(json.dumps, (pixels.flatten().tolist(), list(names), given)))
    return {name: np.array(each) for name, each in shown.evaluate(f"page.ask({words})").items()}


@torch.inference_mode()
def torch_answer(predictor, pixels, changes=None):
    """The same by torch."""
    values, model = predictor.preprocess.normalise(pixels)[None], predictor.model
    given = Interventions.of(model).with_values(changes or {})
    with intervening(model, given):
        found = model.outputs(given.rearranged(values))
    return {name: each.numpy().ravel() for name, each in found.items()}


def changes_of(model):
    """One change of each kind that a model knows, by its name."""
    neutral, found = Interventions.of(model), {}
    generator = torch.Generator().manual_seed(5)
    for name, value in neutral.items():
        if name.endswith("_order"):
            found[name] = {name: torch.randperm(len(value), generator=generator)}
        elif value.ndim:
            found[name] = {name: (torch.rand(value.shape, generator=generator) < 0.5).float()}
        else:
            found[name] = {name: torch.zeros(())}
    if {"patch_order", "position_order"} <= neutral.keys():
        order = found["patch_order"]["patch_order"]
        found["both orders"] = {"patch_order": order, "position_order": order}
    return found


def assert_alike(seen, wanted, tolerance=1e-4):
    """To a part of the largest number."""
    for name, value in wanted.items():
        assert seen[name].shape == value.shape
        assert abs(seen[name] - value).max() <= tolerance * max(abs(value).max(), 1e-6), name
