"""The models of a server: their names, how they are loaded, their descriptions, and the lanes in
front of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous.config import pair, to_dict
from vitreous.data.decode.images import ImageBytes
from vitreous.engines.graph import GraphEngine
from vitreous.engines.table import FORMATS
from vitreous.errors import ConfigError
from vitreous.explain.attention import has_attention
from vitreous.explain.parameters import position_similarity
from vitreous.import_run import open_run
from vitreous.pages.colours import colours_of
from vitreous.pages.pictures import png_base64
from vitreous.predict import POOLS, Predictor
from vitreous.run_folder import OpenedRun, RunConfig
from vitreous.serve.examples import ExampleImage, read_examples
from vitreous.serve.lane import Lane
from vitreous.serve.metrics import ServerMetrics
from vitreous.serve.schema import ExplainOptions, ModelInfo, PredictOptions
from vitreous.serve.settings import Limits, Settings
from vitreous.tasks import show_of

PREDICT = "predict"
"""The key of predictions in their lane; that of vectors is their pool."""
LoadPredictor = Callable[..., Predictor]
"""`vitreous.load`, which stands above this layer."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def named_models(given: Sequence[str]) -> dict[str, str]:
    """Of NAME=PATH, or PATH alone, which is called like its last part."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or "/" in name or not _NAME.fullmatch(name):
            path = text
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", _last_part(text)).strip("-.")[:64]
        if not _NAME.fullmatch(name) or not path:
            raise ConfigError(f"{text}: give it a name of letters and digits: NAME={path}")
        if name in found:
            raise ConfigError(
                f"two models are called {name!r}: {found[name]} and {path}: give one another name, "
                f"NAME={path}"
            )
        found[name] = path
    return found


def _last_part(text: str) -> str:
    path = Path(text).resolve() if Path(text).exists() else Path(text)
    return path.stem if path.suffix in FORMATS else path.name


class ServedModel:
    """One name of the server."""

    def __init__(
        self,
        name: str,
        predictor: Predictor,
        config: RunConfig,
        limits: Limits,
        pool: Executor,
        metrics: ServerMetrics,
        examples: Sequence[ExampleImage] = (),
    ) -> None:
        self.name, self.predictor, self.examples = name, predictor, examples
        self.show = show_of(predictor.task.name)
        self.description = self._describe(config)
        self.lane = Lane(
            *(name, "predict", predictor.prepared, self._compute),
            size=limits.queue,
            batch=min(limits.batch, predictor.preprocess.at_once),
            delay=limits.delay,
            pool=pool,
            metrics=metrics,
        )
        self.explain_lane = Lane(
            *(name, "explain", lambda image: image, self._explain),
            size=limits.explain_queue,
            batch=1,
            delay=0.0,
            pool=pool,
            metrics=metrics,
        )

    @property
    def lanes(self) -> tuple[Lane, Lane]:
        return self.lane, self.explain_lane

    def warm_up(self) -> None:
        """The first forward pass of an engine takes longer than others."""
        height, width = pair("image_size", self.predictor.preprocess.image_size)
        channels = self.predictor.preprocess.channels
        self.predictor(torch.zeros(channels, height, width, dtype=torch.uint8))

    # What the threads of the lanes do

    def _compute(self, key: str, prepared: Sequence[Any]) -> Sequence[Any]:
        if key == PREDICT:
            return self.predictor.answer(prepared)
        return list(self.predictor.vectors(prepared, key).numpy())

    def _explain(self, key: tuple[Any, ...], images: Sequence[ImageBytes]) -> list[dict[str, Any]]:
        (classes, pixel, maps), (image,) = key, images  # they come one by one
        classes = list(classes) if isinstance(classes, tuple) else classes
        predictor = self.show.subject(self.predictor)
        show = show_of(predictor.task.name)
        layers = maps == "viewer"
        found = show.explain(predictor, image, classes, pixel=pixel, layers=layers)
        if layers:
            data = show.viewer_data(found, position_similarity(predictor.model))
            return [{"image": image.name, **data}]
        return [found.to_dict(as_png) if maps == "png" else found.to_dict()]

    # Before and behind them

    def check_predict(self, options: PredictOptions) -> None:
        """An option that this model's task does not have is an error."""
        for name, given, known in (
            ("top", options.top, self.description.takes_top),
            ("threshold", options.threshold, self.description.takes_threshold),
            ("masks", options.masks, options.masks in self.description.masks),
        ):
            if given is not None and not known:
                raise ConfigError(
                    f"{name} = {given}: a model for the task {self.predictor.task.name} has no "
                    f"{name}: leave it out"
                )

    def record(self, result: Any, options: PredictOptions) -> dict[str, Any]:
        if options.threshold is not None:
            result = result.above(options.threshold)
        return self.show.served(result, options.top, options.masks)

    def check_explain(self, options: ExplainOptions) -> tuple[Any, ...]:
        """The key of what is asked for; what cannot be explained is an error."""
        if isinstance(self.predictor.engine, GraphEngine):
            raise ConfigError(
                f"{self.name} is an exported file, whose inside cannot be seen: ask a server that "
                "has the run folder"
            )
        if options.classes and options.top is not None:
            raise ConfigError("classes and top: give names, or how many of the most likely")
        if (options.y is None) != (options.x is None):
            raise ConfigError("a pixel has a row and a column: give y and x")
        pixel = None if options.y is None else (options.y, options.x)
        classes: Any = options.classes or (3 if options.top is None else options.top)
        subject = self.show.subject(self.predictor)
        show_of(subject.task.name).check_query(subject, classes, pixel)
        return (tuple(classes) if options.classes else classes), pixel, options.maps

    def _describe(self, config: RunConfig) -> ModelInfo:
        predictor, show, labels = self.predictor, self.show, self.predictor.task.labels
        try:
            subject = show.subject(predictor)
            explainable = has_attention(subject.model)
            takes_pixel = show_of(subject.task.name).takes_pixel
        except ConfigError:  # an exported file
            explainable = takes_pixel = False
        return ModelInfo(
            name=self.name,
            task=predictor.task.name,
            purpose=predictor.task.purpose,
            model=config.model,
            engine=predictor.engine.name,
            precision=predictor.engine.precision,
            labels=list(labels.names),
            ids=list(labels.external),
            colours=[list(colour) for colour in colours_of(labels.external)],
            image_size=list(pair("image_size", predictor.preprocess.image_size)),
            preprocessing=to_dict(predictor.preprocess),
            licence=config.origin.get("licence") or None,
            takes_top=show.takes_top,
            takes_threshold=show.has_threshold,
            threshold=show.threshold(predictor),
            masks=list(show.mask_formats),
            can_explain=explainable,
            takes_pixel=takes_pixel,
            pools=[pool for pool in POOLS if _has_vectors(predictor, pool)],
            examples=len(self.examples),
        )


def _has_vectors(predictor: Predictor, pool: str) -> bool:
    try:
        predictor.vector_length(pool)
    except ConfigError:
        return False
    return True


def as_png(maps: Tensor) -> dict[str, Any]:
    """Maps (…, gh, gw) as one gray picture, below each other; 255 is the largest value."""
    from PIL import Image

    rows = maps.reshape(-1, maps.shape[-1]).float()
    most = rows.max().item() if rows.numel() else 0.0
    steps = (rows.clamp(min=0) / max(most, 1e-12) * 255).round().to(torch.uint8)
    picture = png_base64(Image.fromarray(steps.numpy())) if rows.numel() else ""
    return {"png": picture, "shape": list(maps.shape), "max": most}


Load = Callable[[ThreadPoolExecutor, ServerMetrics], dict[str, ServedModel]]
"""Loads all models; takes its time."""


def loader(settings: Settings, load: LoadPredictor) -> Load:
    """What loads all models and warms them up, for the app."""
    return partial(_load, settings, load)


def load_model(path: str, settings: Settings, load: LoadPredictor) -> tuple[OpenedRun, Predictor]:
    """Here and in every worker."""
    run = open_run(path, verify=settings.inference.verify)
    options = replace(settings.inference, max_pixels=settings.limits.pixels)
    return run, load(run, **vars(options))


def _load(
    settings: Settings, load: LoadPredictor, pool: ThreadPoolExecutor, metrics: ServerMetrics
) -> dict[str, ServedModel]:
    found = {}
    for name, path in settings.models.items():
        run, predictor = load_model(path, settings, load)
        examples = read_examples(name, run, settings.examples, settings.limits.pixels)
        found[name] = ServedModel(
            *(name, predictor, run.config, settings.limits, pool, metrics, examples)
        )
        found[name].warm_up()
    return found
