"""How objects are printed, written, reported and explained, whatever is found of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vitreous.data.decode.images import shown
from vitreous.errors import ConfigError
from vitreous.explain.attention import Layer
from vitreous.explain.explanation import Pixel
from vitreous.labels import LabelMap
from vitreous.models.model import Places
from vitreous.pages import charts, maps, viewer
from vitreous.pages.colours import class_colours, colours_of
from vitreous.pages.maps import BoxMark, Panel
from vitreous.pages.words import Message
from vitreous.predict import Predictor
from vitreous.results import Detection
from vitreous.tasks.objects import draw, label_files
from vitreous.tasks.objects.boxes import to_pixels
from vitreous.tasks.objects.coco_results import coco_ids, writing
from vitreous.tasks.objects.draw import boxed, frame_marks, mark_of, moved, told_apart
from vitreous.tasks.objects.explanation import (
    DetectionExplanation,
    Look,
    explain_objects,
)
from vitreous.tasks.objects.object_task import ObjectTask
from vitreous.tasks.objects.report import CURVES, LETTERS, ObjectReport
from vitreous.tasks.show import Show
from vitreous.tasks.task import Log

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

RESULTS = "results"
"""The COCO file of results for all images is called so, with .json."""


class ObjectShow(Show):
    headings = ("size", "objects>", "detections")
    has_threshold = True
    endings: tuple[str, ...] = draw.ENDINGS
    reserved = (RESULTS,)
    has_ids = True
    batch_columns = 4  # names must leave room to see what they name
    page_answer = "objects"
    question = "where the queries look"
    takes_pixel = True
    has_picture = True
    takes_top = True
    label_formats = tuple(label_files.FORMATS)
    report = ObjectReport

    def row(self, result: Detection, top: int) -> tuple[str, ...]:
        """Of an image without detections, what is nearest: the threshold may be too high."""
        shown = [
            f"{found.label} {'' if found.track is None else f'#{found.track} '}{found.score:.2f}"
            for found in result.objects[:top]
        ]
        if len(result.objects) > top:
            shown.append("…")
        if not shown:
            best = result.names[result.classes[0]]
            shown = [f"none of {result.threshold:g} or more; {best} {result.scores[0]:.2f} is next"]
        height, width = result.size
        return f"{height}x{width}", str(len(result.objects)), ", ".join(shown)

    def write(
        self, result: Any, image: Tensor, folder: Path, name: str, predictor: Predictor
    ) -> None:
        draw.write(result, image, folder, name)

    def picture(self, result: Any, image: Tensor) -> Image:
        return boxed(image, frame_marks(result))

    def threshold(self, predictor: Predictor) -> float:
        assert isinstance(predictor.task, ObjectTask)
        return predictor.task.threshold

    def served(self, result: Any, top: int | None, masks: str | None) -> dict[str, Any]:
        """All objects, unless fewer are asked for."""
        return self.record(result.best(top), 5)

    @contextmanager
    def collecting(
        self,
        out: Path,
        paths: Sequence[str],
        labels: LabelMap,
        data: Path | None = None,
        log: Log = lambda text: None,
    ) -> Iterator[Callable[[Detection, str], None]]:
        """Every box, whatever its score, as a COCO file of results. Ids of images are those of a
        COCO file, `data`; else their places in the list, and rows have the file's name too."""
        ids, files = coco_ids(paths, labels, data, log), file_ids(paths)
        with writing(out / f"{RESULTS}.json", f"--out {out}") as file:

            def add(result: Detection, path: str) -> None:
                if path not in ids.images:  # an image may be named twice
                    return
                rows = result.to_coco(ids.images.pop(path), ids.categories)
                name = {"file_name": files[path]} if data is None else {}
                file.add({**row, **name} for row in rows)

            yield add

    def labelling(
        self,
        format: str,
        out: Path,
        names: Mapping[str, str],
        labels: LabelMap,
        data: Path | None = None,
        log: Log = lambda text: None,
    ) -> AbstractContextManager[Callable[[Detection, str], None]]:
        """Inside, a function that writes a result, given with its path, as labels of a data set in
        `out`. `names`: by path, what an image is called there."""
        if data is not None and format != "coco":
            raise ConfigError(f"--data {data}: {format} files have no ids: leave it out")
        ids = coco_ids(list(names), labels, data, log)
        return label_files.FORMATS[format](
            label_files.LabelFolder(out, names), labels.names, ids, log
        )

    def target_panel(self, image: Tensor, target: Any, labels: LabelMap) -> Panel:
        """Normalised cxcywh boxes with their names."""
        return Panel(image, marks=true_marks(target, (image.shape[1], image.shape[2]), labels))

    def words(self, result: Detection) -> str:
        return _counted(result.counts)

    def truth_words(self, target: Any, labels: LabelMap) -> str:
        return _counted(Counter(labels.names[label] for label in target["labels"].tolist()))

    def conflict(self, result: Detection, other: Detection) -> float:
        """The score of the most confident object that only one of them has found."""
        return max((found.score for each in result.only_in(other) for found in each), default=0.0)

    def beside(
        self, image: Tensor, target: Any, results: Sequence[Any], labels: LabelMap
    ) -> list[Image]:
        size = (image.shape[1], image.shape[2])
        truth = true_marks(target, size, labels)
        drawn = [boxed(image, truth, LETTERS, self.true_masks(target, size))]
        for each in results:
            marks = moved(frame_marks(each), each.size, size)
            drawn.append(boxed(image, marks, LETTERS, self.masks_in(each, size)))
        return drawn

    def true_masks(self, target: Any, size: tuple[int, int]) -> draw.Masks:
        """Of an image's objects, in a picture of this size; None: they have none."""
        return None

    def masks_in(self, result: Any, size: tuple[int, int]) -> draw.Masks:
        """Of the objects found, in the order of `frame_marks`."""
        return None

    def figures(self, result: Mapping[str, Any]) -> dict[str, Figure]:
        return {
            "classes": charts.class_scores(result["classes"], "ap", "average precision"),
            "precision": charts.precision_recall(result["curves"], title=CURVES),
        }

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
        panels = mapped(found, (look.map for look in found.looks))
        looks = [
            panel._replace(title=mark.words, scale="attention to a patch", marks=[box])
            for panel, mark, box in zip(panels, marks, boxes, strict=True)
        ]
        return maps.grid(maps.wrapped([first, *looks]))

    def explanation_figures(self, found: DetectionExplanation) -> dict[str, Figure]:
        """Where queries look, in the last layer, by layer and by head; and what the places of the
        encoder attend to, seen from one pixel."""
        drawn = {
            "objects": self.map_figure(found),
            "layers": object_rows(found, "layer", [mapped(found, e.layers) for e in found.looks]),
            "heads": object_rows(found, "head", [mapped(found, e.heads[-1]) for e in found.looks]),
        }
        if any(look.points is not None for look in found.looks):
            points = [pointed(found, look) for look in found.looks]
            drawn["points"] = object_rows(found, "layer", points, 1.8)
        if found.attention:
            panels = [
                Panel(found.image, f"layer {i}", each.mean(0), patch=found.pixels, ring=found.at)
                for i, each in enumerate(found.attention, 1)
            ]
            first = Panel(found.image, "input", ring=found.at)
            drawn["pixel"] = maps.grid(maps.wrapped([first, *panels]))
        return drawn

    def answer(self, found: DetectionExplanation) -> Message:
        counts = ", ".join(f"{count} {name}" for name, count in found.result.counts.items())
        if counts:
            return ["found", counts]
        key = "noneReachesHighest" if found.looks else "noneReaches"
        return [key, f"{found.result.threshold:g}"]

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
            "note": data["note"] and [["ofEncoder"], *data["note"]],
            "answer": self.answer(found),
            "objects": objects,
        }


def true_marks(target: Any, size: tuple[int, int], labels: LabelMap) -> list[BoxMark]:
    """Of normalised cxcywh boxes, in an image of this height and width."""
    colours, boxes = colours_of(labels.external), to_pixels(target["boxes"], size)
    return [
        BoxMark(tuple(box), labels.names[label], colours[label])
        for box, label in zip(boxes.tolist(), target["labels"].tolist(), strict=True)
    ]


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "no objects"


def marks_in(found: DetectionExplanation) -> list[BoxMark]:
    """Boxes and words of the explained objects, in what the model sees."""
    result = found.result
    colours = class_colours(result.names, result.ids)
    marks = told_apart([mark_of(look.found, colours) for look in found.looks])
    return moved(marks, result.size, found.image.shape[1:])


def mapped(found: DetectionExplanation, values: Iterable[Tensor]) -> list[Panel]:
    """Maps (gh, gw) over the image."""
    return [Panel(found.image, values=each, patch=found.pixels) for each in values]


def pointed(found: DetectionExplanation, look: Look) -> list[Panel]:
    """The points that a query looks at, in each layer of the decoder."""
    assert look.points is not None
    height, width = found.image.shape[1:]
    dots = look.points * torch.tensor([width, height, 1.0]) - torch.tensor([0.5, 0.5, 0.0])
    return [Panel(found.image, dots=each) for each in dots]


def object_rows(
    found: DetectionExplanation, column: str, each: Sequence[Sequence[Panel]], wide: float = 1.4
) -> Figure:
    """A row for each object with its panels, which `column` calls them: layer, head."""
    rows = []
    for line, (mark, panels) in enumerate(zip(marks_in(found), each, strict=True)):
        box = [mark._replace(words="")]
        titles = ["" if line else f"{column} {number}" for number in range(1, len(panels) + 1)]
        named = zip(panels, titles, strict=True)
        shown = (panel._replace(title=title, marks=box) for panel, title in named)
        rows.append([Panel(found.image, marks=box, beside=mark.words), *shown])
    return maps.grid(rows or [[Panel(found.image, "no detections")]], wide)


def file_ids(paths: Sequence[str]) -> dict[str, str]:
    """What a file of results calls each image: its file's name, or all of its path where another
    image has that name."""
    files = Counter(Path(path).name for path in set(paths))
    return {path: shown(path if files[Path(path).name] > 1 else Path(path).name) for path in paths}
