"""The walk of one image through a detector: from its map of features to boxes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vitreous.explain.attention import Layer, map_places, showing
from vitreous.layers.tap import tap
from vitreous.models.summary import spelled
from vitreous.pages.colours import colours_of
from vitreous.pages.content import Cell, Table, percent
from vitreous.pages.pictures import as_tensor, principal_colours, stretched
from vitreous.pages.walk import Stop, cut_up
from vitreous.predict import Predictor, Prepared, View
from vitreous.results import Detection
from vitreous.tasks.detect.draw import boxed, marks_of, moved
from vitreous.tasks.detect.explanation import SUREST

WORDS = {
    "image": "The image as the model sees it: resized and normalised by mean and std. The lines: "
    "what each place of the map below stands for.",
    "backbone": "The backbone turns the image into a map of features. Colours: places with alike "
    "features look alike (three principal components).",
    "projection": "Each place is brought to the width of the transformer.",
    "tokens": "The map is written as one list, row by row. Where each place stands is not in it: "
    "that is told to attention, in every layer anew.",
    "placed": "The map is written as one list, row by row. Where each place stands is added to it "
    "next, and told to attention in every layer anew.",
    "encoder": "Encoder layer {number}: each place gathers from those it attends to, then thinks "
    "for itself (MLP). Left: the places. Right: what they attend to, mean of all heads and places.",
    "queries": "Each of these rows is a question: is there something, what, and where? What they "
    "have learned to ask is told to attention in every layer; what they have found is nothing yet.",
    "decoder": "Decoder layer {number}: the queries see each other, so that no two answer for the "
    "same object; then they look at the map. Left: where all of them look. Right: where the one "
    "looks that finds the surest object.",
    "norm": "The last normalisation.",
    "class_head": "For each query one number for each class, and one for “no object”; softmax "
    "makes probabilities of them. Rows: queries. Columns: classes, “no object” last. Light: sure.",
    "box_head": "For each query a box: the middle, width and height, as parts of the image. Shown: "
    "those of which the model is sure enough.",
}


@torch.no_grad()
def walk(predictor: Predictor, view: View) -> tuple[list[Stop], Detection]:
    """The stages for one image that a detector sees, and what it finds."""
    model, image = predictor.model, predictor.preprocess.restore(view.values)
    batch = view.values[None].to(predictor.device)
    size = (round(view.region[2]), round(view.region[3]))
    (result,) = predictor.answer([Prepared(view.values, "image", size)])
    places = map_places(model, batch)
    first = Stop("image", spelled(batch), WORDS["image"], [cut_up(image, places)])
    stops, looked = [first], dict[str, list[Tensor]]()

    def see_attention(layer: Layer) -> None:
        stage = layer.name.rpartition(".")[0]
        rows = layer.weights[0].mean(dim=0).cpu()  # (askers, n)
        if layer.part == "encoder":
            looked[stage] = [layer.on_grid(rows.mean(dim=0))]
        else:
            each = (rows.mean(dim=0), rows[result.queries[0]])
            looked[stage] = [layer.on_grid(values) for values in each]

    def see(name: str, tensor: Tensor) -> None:
        kind, _, number = name.partition(".")
        values = tensor[0].float().cpu()
        pictures = [stretched(values)[None] for values in looked.get(name, ())]
        if kind in ("backbone", "projection"):
            pictures = [principal_colours(values.flatten(1).T, places.grid)]
        elif kind in ("tokens", "encoder"):
            pictures = [principal_colours(values, places.grid), *pictures]
        elif kind == "class_head":
            pictures = [values.softmax(dim=-1)[None]]
        elif kind == "box_head":
            pictures = [_found(image, result)]
        text = WORDS["placed" if kind == "tokens" and model.config.placed else kind]
        words = text.format(number=int(number or 0) + 1)
        stops.append(Stop(name, spelled(tensor), words, pictures, kind == "box_head"))

    with (
        tap(model.steps(), see),
        showing(model, batch, see_attention),
        showing(model, batch, see_attention, "cross"),
    ):
        model(batch)
    return stops, result


def _found(image: Tensor, result: Detection) -> Tensor:
    """(3, h, w) in 0..1: the image as the model sees it, with the boxes."""
    marks = moved(marks_of(result), result.size, image.shape[1:])
    return as_tensor(np.asarray(boxed((image * 255).round().to(torch.uint8), marks)))


def objects_table(result: Detection) -> Table:
    """What was found, the highest score first; or, where that is nothing, what comes next."""
    found = result.objects or result.above(0.0).objects[:SUREST]
    colours = dict(zip(result.names, colours_of(result.ids), strict=True))
    rows = [
        (
            Cell(each.label, colours[each.label]),
            Cell(percent(each.score), bar=each.score),
            *(Cell(f"{edge:.0f}") for edge in each.box),
            Cell(f"{each.query}"),
        )
        for each in found
    ]
    below = "" if result.objects else f", all below {100 * result.threshold:g} %"
    edges = ("left>", "top>", "right>", "bottom>")
    return Table(("object", f"score{below}>", *edges, "query>"), rows)
