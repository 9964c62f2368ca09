"""How detections are printed, drawn, reported and explained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vitreous.explain.attention import Layer
from vitreous.explain.explanation import Pixel
from vitreous.models.model import Places
from vitreous.pages import maps, viewer
from vitreous.pages.colours import class_colours
from vitreous.pages.content import Table
from vitreous.pages.maps import Mark, Panel
from vitreous.pages.walk import Stop
from vitreous.predict import Predictor, View
from vitreous.results import Detection
from vitreous.tasks.detect import walk
from vitreous.tasks.detect.explanation import DetectionExplanation, explain_objects
from vitreous.tasks.objects import draw
from vitreous.tasks.objects.draw import mark_of, moved, told_apart
from vitreous.tasks.objects.show import ObjectShow

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image


class DetectShow(ObjectShow):
    endings = draw.ENDINGS
    question = "where the queries look"
    takes_pixel = True

    def write(
        self, result: Detection, image: Tensor, folder: Path, name: str, predictor: Predictor
    ) -> None:
        draw.write(result, image, folder, name)

    has_picture = True

    def picture(self, result: Detection, image: Tensor) -> Image:
        return draw.boxed(image, draw.frame_marks(result))

    def explained(
        self, predictor: Predictor, image: Any, classes: Any, pixel: Pixel | None, layers: bool
    ) -> DetectionExplanation:
        names = None if isinstance(classes, int) else classes
        return explain_objects(predictor, image, names, pixel=pixel, layers=layers)

    def map_figure(self, found: DetectionExplanation) -> Figure:
        marks = marks_in(found)
        title = f"all scores below {found.result.threshold:g}" if found.below else "detections"
        boxes = [mark._replace(words="") for mark in marks]
        first = Panel(found.image, title if marks else "no detections", marks=boxes)
        looks = [
            looking(found, mark, look.map, mark.words)._replace(scale="attention to a patch")
            for mark, look in zip(marks, found.looks, strict=True)
        ]
        return maps.grid(maps.wrapped([first, *looks]))

    def explanation_figures(self, found: DetectionExplanation) -> dict[str, Figure]:
        """Where queries look, in the last layer, by layer and by head; and what the places of the
        encoder attend to, seen from one pixel."""
        drawn = {
            "objects": self.map_figure(found),
            "layers": object_rows(found, "layer", [look.layers for look in found.looks]),
            "heads": object_rows(found, "head", [look.heads[-1] for look in found.looks]),
        }
        if any(look.points is not None for look in found.looks):
            drawn["points"] = point_rows(found)
        if found.attention:
            panels = [
                Panel(found.image, f"layer {i}", each.mean(0), patch=found.pixels, ring=found.at)
                for i, each in enumerate(found.attention, 1)
            ]
            first = Panel(found.image, "input", ring=found.at)
            drawn["pixel"] = maps.grid(maps.wrapped([first, *panels]))
        return drawn

    def answer(self, found: DetectionExplanation) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in found.result.counts.items())
        if counts:
            return f"Found: {counts}"
        highest = ". The highest:" if found.looks else ""
        return f"No score reaches {found.result.threshold:g}{highest}"

    def viewer_data(self, found: DetectionExplanation, positions: Tensor | None) -> dict[str, Any]:
        """The objects that were found, with the attention of their queries for each layer."""
        data = viewer.layer_data(found)
        places = Places(0, found.grid, found.pixels)
        weights = [look.heads.flatten(2) for look in found.looks]  # (layers, heads, n) each
        layers = torch.stack(weights, dim=2) if weights else ()
        height, width = found.image.shape[1:]
        marks = marks_in(found)
        objects = {
            "names": [mark.words for mark in marks],
            "boxes": [
                [left / width, top / height, right / width, bottom / height]
                for left, top, right, bottom in (mark.box for mark in marks)
            ],
            "layers": [
                viewer.packed(Layer(i, "", each[None], places)) for i, each in enumerate(layers)
            ],
            "first": not found.chosen,
        }
        return data | {
            "note": data["note"] and f"Of the encoder: {data['note']}",
            "answer": self.answer(found),
            "objects": objects,
        }

    def walk(self, predictor: Predictor, view: View) -> tuple[list[Stop], Table]:
        stops, result = walk.walk_through(predictor, view)
        return stops, walk.objects_table(result)


def marks_in(found: DetectionExplanation) -> list[Mark]:
    """Boxes and words of the explained objects, in what the model sees."""
    result = found.result
    colours = class_colours(result.names, result.ids)
    marks = told_apart([mark_of(look.found, colours) for look in found.looks])
    return moved(marks, result.size, found.image.shape[1:])


def looking(found: DetectionExplanation, mark: Mark, values: Tensor, title: str) -> Panel:
    """An object's map over the image, and its box."""
    return Panel(found.image, title, values, patch=found.pixels, marks=[mark._replace(words="")])


def object_rows(found: DetectionExplanation, column: str, each: Sequence[Tensor]) -> Figure:
    """A row for each object, a column for each of its maps (count, gh, gw), which `column` calls
    them: layer, head."""
    rows = [
        [
            Panel(found.image, marks=[mark._replace(words="")], beside=mark.words),
            *(
                looking(found, mark, values, "" if line else f"{column} {number}")
                for number, values in enumerate(of_object, 1)
            ),
        ]
        for line, (mark, of_object) in enumerate(zip(marks_in(found), each, strict=True))
    ]
    return maps.grid(rows or [[Panel(found.image, "no detections")]], 1.4)


def point_rows(found: DetectionExplanation) -> Figure:
    """A row for each object: the points that its query looks at, in each layer of the decoder."""
    height, width = found.image.shape[1:]
    pixels = torch.tensor([width, height, 1.0])
    rows = []
    for line, (mark, look) in enumerate(zip(marks_in(found), found.looks, strict=True)):
        assert look.points is not None
        boxed = [mark._replace(words="")]
        first = Panel(found.image, marks=boxed, beside=mark.words)
        layers = [
            Panel(
                found.image,
                "" if line else f"layer {number}",
                marks=boxed,
                dots=points * pixels - torch.tensor([0.5, 0.5, 0.0]),
            )
            for number, points in enumerate(look.points, 1)
        ]
        rows.append([first, *layers])
    return maps.grid(rows)


SHOW = DetectShow()
