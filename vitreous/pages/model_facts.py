"""What a living page must know of a model, its data and its task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from vitreous.data.preprocess import Preprocess
from vitreous.deploy.living import AFTER, LivingGraph
from vitreous.engines.interventions import encoder_layers, heads_of
from vitreous.labels import LabelMap
from vitreous.pages.colours import as_hex, colours_of
from vitreous.pages.decoder_steps import decoder_steps, sets
from vitreous.pages.encoder_steps import encoder_steps
from vitreous.pages.steps import Makers, name_of, step
from vitreous.pages.words import WORDS
from vitreous.predict import Predictor
from vitreous.tasks import show_of


def about(
    predictor: Predictor, graph: LivingGraph, weights: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the page must know of the model, its data and its task."""
    model, preprocess, task = predictor.model, shown_preprocess(predictor), predictor.task
    size, show = graph.size, show_of(task.name)
    core = model.core
    prefix = int(core.prefix_length)
    layers = encoder_layers(model)
    return {
        "model": model.name,
        "answer": show.page_answer,
        "excludes": show.excludes,
        "labels": list(task.labels.names),
        "colours": [] if show.page_answer == "classes" else _colours(task.labels),
        "thresholds": _plain(getattr(task, "thresholds", None)),
        "noObject": model.other_classes > 0,
        "threshold": _plain(getattr(task, "threshold", None)),
        "input": [preprocess.channels, *size],
        "mean": list(preprocess.mean),
        "std": list(preprocess.std),
        "preprocess": {
            "channels": preprocess.channels,
            "size": list(size),
            "resize": preprocess.resize,
            "whole": preprocess.whole,
            "crop": preprocess.crop,
            "interpolation": preprocess.interpolation,
            "antialias": preprocess.antialias,
        },
        "grid": list(graph.interventions.grid),
        "pixels": list(graph.interventions.pixels),
        "prefix": prefix,
        "tokens": token_names(core),
        "changes": {
            name: {"dims": list(value.shape), "whole": not value.is_floating_point()}
            for name, value in graph.interventions.items()
        },
        "heads": [heads_of(core, layer) for layer in layers],
        "blocks": _blocks(core, graph),
        "queries": [
            {
                "name": f"{AFTER}.{layer.name}.weights",
                "grid": list(layer.columns.grid),
                "pixels": list(layer.columns.pixels),
                "heads": graph.outputs[f"{AFTER}.{layer.name}.weights"][1],
            }
            for layer in model.attentions(size)
            if layer.part == "cross" and f"{AFTER}.{layer.name}.weights" in graph.outputs
        ],
        "draw": preprocess.channels == 1 and max(size) <= 32,
        "layers": [
            name
            for name, layer in ((f"{each.name}.weights", each) for each in layers)
            if layer.columns.windows is None and name in graph.outputs
        ],
        "outputs": {name: list(shape) for name, shape in graph.outputs.items()},
        "same": graph.same,
        "answers": list(graph.answers),
        "weights": weights,
        "steps": steps_of(predictor, graph),
        "sets": sets(model, size),
        "maps": maps_of(graph),
        "parameters": sum(each.numel() for each in model.parameters()),
    }


def maps_of(graph: LivingGraph) -> list[str]:
    """The outputs (1, d, h, w) that are maps, and no attention of heads."""
    parts = ("q", "k", "v", "bias", "scores", "scaled", "weights", "heads")
    return [
        name
        for name, shape in graph.outputs.items()
        if len(shape) == 4 and name.rpartition(".")[2] not in parts
    ]


def _colours(labels: LabelMap) -> list[str]:
    return [as_hex(colour) for colour in colours_of(tuple(labels.external))]


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, Tensor) else value


def _blocks(core: Any, graph: LivingGraph) -> list[str]:
    """The outputs of the blocks whose tokens lie on the grid that patches are chosen on."""
    count = int(core.prefix_length) + graph.interventions.grid[0] * graph.interventions.grid[1]
    names = [f"blocks.{number}" for number in range(getattr(core, "depth", 0))]
    return [name for name in names if graph.outputs.get(name, ())[1:2] == (count,)]


def token_names(core: Any) -> list[list[str]]:
    """Of the tokens before the patches, in English and Chinese."""
    said = WORDS["viewer"]
    tokens = getattr(core.config, "tokens", "none")
    named = [said[f"{each}Token"] for each in tokens.split("+") if f"{each}Token" in said]
    registers = range(1, getattr(core.config, "registers", 0) + 1)
    return [*named, *([text.format(i) for text in said["register"]] for i in registers)]


def steps_of(predictor: Predictor, graph: LivingGraph) -> list[dict[str, Any]]:
    """Every step in its order: which output it is, and what makes one cell of it."""
    model, core = predictor.model, predictor.model.core
    found = [step("image", "")]
    found += encoder_steps(core, Makers(graph, name_of(model, core)))
    found += decoder_steps(model, Makers(graph, ""))
    if show_of(predictor.task.name).excludes:
        found.append(step("answer", "", how={"kind": "softmax", "of": "logits"}))
    return found


def shown_preprocess(predictor: Predictor) -> Preprocess:
    """How a page makes an image fit. A model that goes over an image in windows shows its middle,
    cut out as one window."""
    if predictor.preprocess.whole and predictor.task.windows:
        return replace(predictor.preprocess, resize="shorter", whole=False, longest=None)
    return predictor.preprocess
