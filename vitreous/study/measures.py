"""What a run is measured by: its task's metrics on test images, with the draws of those images that
give an interval, and what a study's [[measure]] asks for besides."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from vitreous.data.source import Source
from vitreous.engines.summary import summarise
from vitreous.errors import ConfigError, did_you_mean
from vitreous.explain.map_scores import map_scores
from vitreous.explain.split import split_distances, split_images
from vitreous.inference import InferenceOptions
from vitreous.loading import predictor_of
from vitreous.measure import chosen_split
from vitreous.predict import Predictor
from vitreous.progress import Log, silent
from vitreous.run_folder import OpenedRun, Run
from vitreous.study.outcomes import outcomes_of
from vitreous.study.spec import Table
from vitreous.tasks import task_class
from vitreous.train.baselines import compare
from vitreous.train.open_data import open_usable, stored_recipe
from vitreous.train.threads import computing_threads

Series = list[tuple[float | str, float]]
"""Numbers with an axis of their own: layers, say, or kinds of maps."""
Found = dict[str, float | Series]
DIGITS = 6


def measured(
    folder: Path,
    evaluations: Table,
    measures: list[Table],
    log: Log = silent,
    *,
    baselines: bool = False,
) -> dict[str, Any]:
    """Of a run: how long it trained, its best value on validation images, and by key what each of
    `evaluations` (options of `vitreous evaluate`) gives on test images, with the `measures`, and
    with what knows nothing."""
    run = OpenedRun(Run(folder))
    config, metric = run.config, task_class(run.config.task).metric
    lines = [line for line in run.metrics() if line.get("kind") == "evaluation"]
    best = metric.best_of(lines) or {}
    times = run.times()[-1:]
    found: dict[str, Any] = {
        "val": best.get(metric.key),
        "images": times[0]["images"] if times else None,
        "seconds": times[0]["seconds"] if times else None,
        "training_cpu_seconds": times[0]["cpu_seconds"] if times else None,
        "evaluations": {},
    }
    recipe = stored_recipe(run)
    if not evaluations or recipe is None:
        return found
    source = open_usable(recipe, log, choose_preprocess=lambda source: config.preprocess)
    split = chosen_split(source)
    with computing_threads(recipe.threads):
        for key, options in evaluations.items():
            predictor = predictor_of(run, InferenceOptions.of({**options, "device": recipe.device}))
            found["evaluations"][key] = _evaluated(predictor, source, split) | {"split": split}
        rows = summarise(run.blank_model())
        found["parameters"] = sum(row.parameters for row in rows)
        found["flops"] = sum(row.flops for row in rows)
        predictor = predictor_of(run, InferenceOptions(device=recipe.device))
        for each in measures:
            log(f"measure: {each['what']}")
            numbers = MEASURES[each["what"]](predictor, source, split, **each["options"])
            found.setdefault("measures", {}).update(numbers)
        if baselines:
            known = compare(predictor.task, source, split, trained=True, log=log)
            found["baselines"] = {each.name: each.numbers.get(metric.key) for each in known}
    return found


def _evaluated(predictor: Predictor, source: Source, split: str) -> dict[str, Any]:
    """The metrics, with what other draws of the images give."""
    found = outcomes_of(predictor, source, split)
    values = found.numbers.items()
    numbers = {n: v for n, v in values if isinstance(v, int | float) and math.isfinite(v)}
    draws = {n: [round(v, DIGITS) for v in values.tolist()] for n, values in found.draws.items()}
    return {"numbers": numbers, "draws": draws}


def attention_distance(
    predictor: Predictor, source: Source, split: str, images: int = 128
) -> Found:
    """The mean over heads, by layer, in pixels (ViT, figure 7 right)."""
    found = split_distances(predictor, source, split, images).result()
    return {"attention-distance": [(i + 1, layer.mean().item()) for i, layer in enumerate(found)]}


def trust(predictor: Predictor, source: Source, split: str, images: int = 60) -> Found:
    """Deletion and insertion scores of each kind of map (Petsiuk et al. 2018, section 4)."""
    scores = map_scores(predictor, split_images(predictor, source, split, images))
    by_kind = {kind.replace(" ", "-"): score for kind, score in scores.items()}
    return {
        "deletion": [(kind, each.deletion.mean().item()) for kind, each in by_kind.items()],
        "insertion": [(kind, each.insertion.mean().item()) for kind, each in by_kind.items()],
    }


def decoder_layers(predictor: Predictor, source: Source, split: str, nms: float = 0.5) -> Found:
    """AP behind each layer of a detector's decoder, with and without NMS (DETR, figure 4): the
    layers behind it are left out, and the heads read it as they read the last one."""
    model, metric = predictor.model, predictor.task.metric.key
    layers = getattr(model, "decoder", None)
    if not isinstance(layers, nn.ModuleList):
        raise ConfigError(f"measure decoder-layers: {model.name} has no decoder with layers")
    suppressed = Predictor(model, predictor.preprocess, predictor.task, InferenceOptions(nms=nms))
    ways = {"ap": predictor, "ap-nms": suppressed}
    found: dict[str, Series] = {name: [] for name in ways}
    try:
        for count in range(1, len(layers) + 1):
            model.decoder = layers[:count]
            for name, way in ways.items():
                found[name].append((count, outcomes_of(way, source, split).numbers[metric]))
    finally:
        model.decoder = layers
    gain = [(x, b - a) for (x, a), (_, b) in zip(found["ap"], found["ap-nms"], strict=True)]
    return {**found, "nms-gain": gain}


def token_norms(predictor: Predictor, source: Source, split: str, images: int = 128) -> Found:
    """How many of the patches' tokens behind the last block are more than twice as long as the
    median of their image (Darcet et al. 2024): their share."""
    model, shares = predictor.model, list[float]()
    for image in split_images(predictor, source, split, images):
        tokens = model.tokens(image[None].to(predictor.device))[-1]
        norms = tokens[0, model.prefix_length :].norm(dim=-1)
        shares.append((norms > 2 * norms.median()).float().mean().item())
    return {"high-norm": sum(shares) / len(shares)}


MEASURES: Mapping[str, Callable[..., Found]] = {
    "attention-distance": attention_distance,
    "decoder-layers": decoder_layers,
    "token-norms": token_norms,
    "trust": trust,
}
"""By the name that a study file uses; options follow."""


def check_measure(name: str, where: str) -> None:
    if name not in MEASURES:
        hint = did_you_mean(name, MEASURES) or f": there are {', '.join(MEASURES)}"
        raise ConfigError(f"{where}: unknown measure {name!r}{hint}")
