"""How objects are printed, written and reported, whatever is found of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from vitreous.data.decode.images import shown
from vitreous.errors import ConfigError
from vitreous.labels import LabelMap
from vitreous.pages import charts
from vitreous.pages.colours import colours_of
from vitreous.pages.maps import Mark, Panel
from vitreous.predict import Predictor
from vitreous.results import Detection
from vitreous.tasks.objects import label_files
from vitreous.tasks.objects.boxes import to_pixels
from vitreous.tasks.objects.coco_results import coco_ids, writing
from vitreous.tasks.objects.report import CURVES, ObjectReport
from vitreous.tasks.show import Show
from vitreous.tasks.task import Log

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = "results"
"""The COCO file of results for all images is called so, with .json."""


class ObjectShow(Show):
    headings = ("size", "objects>", "detections")
    has_threshold = True
    reserved = (RESULTS,)
    has_ids = True
    batch_columns = 4  # names must leave room to see what they name

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

    label_formats = tuple(label_files.FORMATS)

    def labelling(
        self,
        format: str,
        out: Path,
        names: Mapping[str, str],
        labels: LabelMap,
        data: Path | None = None,
        log: Log = lambda text: None,
    ) -> AbstractContextManager[Callable[[Detection, str], None]]:
        if data is not None and format != "coco":
            raise ConfigError(f"--data {data}: {format} files have no ids: leave it out")
        ids = coco_ids(list(names), labels, data, log)
        return label_files.FORMATS[format](label_files.Place(out, names), labels.names, ids)

    def target_panel(self, image: Tensor, target: Any, labels: LabelMap) -> Panel:
        """Normalised cxcywh boxes with their names."""
        colours = colours_of(labels.external)
        boxes = to_pixels(target["boxes"], (image.shape[1], image.shape[2]))
        marks = [
            Mark(tuple(box), labels.names[label], colours[label])
            for box, label in zip(boxes.tolist(), target["labels"].tolist(), strict=True)
        ]
        return Panel(image, marks=marks)

    def report(self, predictor: Predictor) -> ObjectReport:
        return ObjectReport(predictor)

    def figures(self, result: Mapping[str, Any]) -> dict[str, Figure]:
        return {
            "classes": charts.class_scores(result["classes"], "ap", "average precision"),
            "precision": charts.precision_recall(result["curves"], title=CURVES),
        }


def file_ids(paths: Sequence[str]) -> dict[str, str]:
    """What a file of results calls each image: its file's name, or all of its path where another
    image has that name."""
    files = Counter(Path(path).name for path in set(paths))
    return {path: shown(path if files[Path(path).name] > 1 else Path(path).name) for path in paths}
