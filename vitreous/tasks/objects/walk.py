"""The walk of one image through a detector: from its feature map to boxes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitreous.config import read_toml
from vitreous.models.rf_detr import RFDETR
from vitreous.pages import walk
from vitreous.pages.colours import class_colours
from vitreous.pages.content import Cell, Table, percent
from vitreous.pages.pictures import as_tensor
from vitreous.pages.walk import Draw, Stop
from vitreous.predict import Predictor, Prepared, View
from vitreous.results import Detection
from vitreous.tasks.objects.draw import boxed, marks_of, moved
from vitreous.tasks.objects.explanation import NEXT_BEST

WORDS = read_toml(Path(__file__).with_name("walk.toml"), "words for each stage")
"""What is written beside each stage."""


def walk_through(predictor: Predictor, view: View) -> tuple[list[Stop], Detection]:
    """The stages for one image that a detector sees, and what it finds."""
    size = (round(view.region[2]), round(view.region[3]))
    (result,) = predictor.answer([Prepared(view.values, "image", size)])
    image = predictor.preprocess.restore(view.values)
    marks = moved(marks_of(result), result.size, image.shape[1:])
    found = boxed((image * 255).round().to(torch.uint8), marks)

    def nothing(values: Tensor) -> list[Tensor]:
        return []

    independent = isinstance(predictor.model, RFDETR)  # classes, that is
    hidden = ("queries", "decoder", "norm", "proposals", "query_boxes", "box_position")
    draw: dict[str, Draw] = {
        **dict.fromkeys(hidden, nothing),
        "class_head": lambda values: [
            (values.sigmoid() if independent else values.softmax(dim=-1)).T[None]
        ],
        "box_head": lambda values: [as_tensor(np.asarray(found))],
        "mask_head": lambda values: [values[int(result.queries[0])].sigmoid()[None]],
    }
    placed = getattr(predictor.model.config, "placed", False)
    others = {"tokens": WORDS["placed"]} if placed else {}
    others |= WORDS["rf_detr"] if independent else {}
    words, query = {**WORDS, **others}, int(result.queries[0])
    stops, _ = walk.walk(predictor, view.values, words, draw, inside=False, query=query)
    return stops, result


def objects_table(result: Detection) -> Table:
    """What was found, the highest score first; or, where that is nothing, what comes next."""
    found = result.objects or result.above(0.0).objects[:NEXT_BEST]
    colours = class_colours(result.names, result.ids)
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
