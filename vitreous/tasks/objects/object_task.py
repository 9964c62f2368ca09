"""What detection and instance segmentation share: a model with queries, each of which finds an
object with its box and class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from vitreous.data.check.boxes import BoxCheck
from vitreous.data.loader import Batch
from vitreous.data.source import Sample, Source
from vitreous.errors import ConfigError
from vitreous.labels import LabelMap
from vitreous.models.detr import DETROutput
from vitreous.models.model import Model
from vitreous.models.rf_detr import RFDETROutput
from vitreous.results import Detection, InstanceSegmentation, check_threshold
from vitreous.tasks.metric import USUAL, Metric
from vitreous.tasks.objects.boxes import clipped
from vitreous.tasks.objects.coco_results import image_ids, log_missing, measure_results, writing
from vitreous.tasks.objects.defaults import most_objects
from vitreous.tasks.objects.losses import AUXILIARY, Target
from vitreous.tasks.objects.merge import SAME, merge
from vitreous.tasks.objects.metrics import BoxPrediction, DetectMetrics
from vitreous.tasks.objects.track import Tracker
from vitreous.tasks.objects.verdict import ConstantBoxes, DetectSigns
from vitreous.tasks.task import Engine, Log, See, Sizes, Task
from vitreous.tasks.tiles import Tile
from vitreous.tasks.verdict import Baseline
from vitreous.wording import counted


class ObjectTask(Task):
    """A target has "labels" (n,) and "boxes" (n, 4), normalised cxcywh. It may have "crowd" (n,),
    True for a region of objects that were not told apart: nothing is learned from it, and no metric
    counts it; and "area" (n,) in pixels, where an object's area is not its box's."""

    options = frozenset(("longest", "zoom", "multi_scale", "auxiliary"))
    image_metric = Metric("f1", "F1")
    crops = ("resized", "window", "none")
    checker = BoxCheck
    has_masks: ClassVar[bool] = False
    """Whether objects have masks beside their boxes."""

    def __init__(
        self, labels: LabelMap, *, threshold: float = USUAL, nms: float | None = None
    ) -> None:
        super().__init__(labels)
        self.threshold, self.nms = threshold, nms
        self.auxiliary = True
        """Whether the decoder's earlier layers are learned from, too."""

    @classmethod
    def for_training(cls, recipe: Any, source: Source, samples: Sequence[Sample]) -> Self:
        found = super().for_training(recipe, source, samples)
        found.auxiliary = recipe.auxiliary
        return found

    def learned(self, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """The terms of the loss that are learned from."""
        if self.auxiliary:
            return terms
        return {name: term for name, term in terms.items() if not name.startswith(AUXILIARY)}

    @classmethod
    def restored(cls, labels: LabelMap, decoding: dict[str, Any]) -> Self:
        if decoding.keys() - {"threshold"}:
            raise ConfigError(f"decoding: expected threshold, not {', '.join(decoding)}")
        threshold = decoding.get("threshold", USUAL)
        check_threshold(threshold)
        return cls(labels, threshold=threshold)

    def objects(self, refused: str) -> Self:
        return self

    def merge(self, outputs: Iterable[BoxPrediction], tiles: Sequence[Tile]) -> BoxPrediction:
        """The prediction for an image from those for its tiles; the first tile is all of the image.
        Outputs are in pixels of their tile, and come one by one."""
        return merge(list(outputs), tiles, self.same_object)[0]

    def measure_results(self, path: Path, source: Source, split: str) -> dict[str, Any]:
        """The metrics of a COCO file of results, of any program."""
        metrics = type(self)(source.labels).metrics()
        return measure_results(path, source, split, metrics, masks=self.has_masks)

    def metrics(self) -> DetectMetrics:
        return DetectMetrics(self.labels, self.threshold)

    def baselines(self) -> list[Baseline]:
        return [ConstantBoxes()]

    def decode(self, output: list[BoxPrediction], images: list[str]) -> list[Detection]:
        def result(answer: BoxPrediction, image: str) -> Detection:
            columns = (column.numpy() for column in answer[:4])
            about = (self.labels.names, self.labels.numbers, answer.size, self.threshold, image)
            fields: tuple[Any, ...] = (*columns, *about)
            if answer.masks is None:
                return Detection(*fields)
            return InstanceSegmentation(*fields, masks=tuple(answer.masks))

        return [result(*each) for each in zip(output, images, strict=True)]

    @classmethod
    def check_model(cls, source: Source, model: Model, log: Log) -> None:
        most, queries = most_objects(source), model.config.queries
        if not most:
            log("there is no object in the images to train on: nothing can be learned from them")
        if most > queries:
            log(
                f"there are images with {most} objects, and the model has {queries} queries: it "
                f"cannot find them all; give --set queries={2 * most}"
            )

    def count_of(self, targets: Any) -> int:
        return sum(len(target["labels"]) for target in map(learnt, targets))

    def not_finite(self, output: Any, targets: Any) -> tuple[int, str] | None:
        parts = {
            "boxes in the data": [target["boxes"] for target in targets],
            "predicted class scores": output.logits.unbind(1),
            "predicted boxes": output.boxes.unbind(1),
        }
        for what, images in parts.items():
            for number, values in enumerate(images):
                if not bool(values.isfinite().all()):
                    return number, what
        return None

    @torch.inference_mode()
    def infer(self, engine: Engine, images: Any, sizes: Sizes) -> list[BoxPrediction]:
        """images (b, c, h, w), or a list of (c, h, w) of different sizes.

        Those go one by one: padding would change the predictions, as far as the backbone's norms
        and convolutions see it.
        """
        if not isinstance(images, Tensor):
            pairs = zip(images, sizes, strict=True)
            return [self.infer(engine, image[None], [size])[0] for image, size in pairs]
        found = self.predictions(engine(images), sizes)
        return found if self.nms is None else [each.suppressed(self.nms) for each in found]

    def predictions(self, output: Any, sizes: Sizes) -> list[BoxPrediction]:
        """Those of each image, from the model's output."""
        queries, labels, scores = (each.cpu() for each in ranked(output))
        boxes = output.boxes[-1].float().cpu()
        return [
            BoxPrediction(clipped(boxes[i][each], size), labels[i], scores[i], each, size)
            for i, (each, size) in enumerate(zip(queries, sizes, strict=True))
        ]

    def with_nms(self, iou: float) -> Self:
        """The same task with non-maximum suppression: of boxes of a class whose IoU is larger, only
        the most confident one is predicted."""
        if isinstance(iou, bool) or not isinstance(iou, int | float) or not 0 <= iou <= 1:
            raise ConfigError(f"nms = {iou!r}: expected an IoU from 0 to 1")
        found = copy(self)
        found.nms = float(iou)
        return found

    @property
    def same_object(self) -> float:
        """How much two predictions of different tiles overlap at least if they are one object."""
        return SAME if self.nms is None else min(self.nms, SAME)

    def tracker(self) -> Tracker:
        """Is given the results of a video's frames in their order."""
        return Tracker()

    def renamed(self, targets: Any, here: Sequence[int]) -> Any:
        classes = torch.tensor(here)
        return [{**target, "labels": classes[target["labels"]]} for target in targets]

    @contextmanager
    def writing_results(self, path: Path, source: Source, split: str, log: Log) -> Iterator[See]:
        """Inside, what the given function is shown is written as a COCO file of results."""
        ids = image_ids(source, split)
        places = {sample: place for place, sample in enumerate(ids, 1)}
        theirs = dict(zip(source.labels.names, source.labels.numbers, strict=True))
        categories = [theirs.get(name) for name in self.labels.names]

        def see(batch: Batch, output: Any, targets: Any) -> None:
            for result in self.decode(output, batch.ids):
                id = ids[result.image]
                if isinstance(id, int):
                    file.add(result.to_coco(id, categories))
                else:  # COCO's tools want a number; what it is of stands beside it
                    rows = result.to_coco(places[id], categories)
                    file.add({**row, "file_name": id} for row in rows)

        with writing(path, f"--results {path}") as file:
            yield see
        log_missing(self.labels, theirs, source.name, log)
        log(f"written: {path}, {counted(file.rows, 'box')}")

    def signs(self) -> DetectSigns:
        return DetectSigns(self.labels, self.threshold)

    def decoding(self, result: dict[str, Any]) -> dict[str, Any]:
        return {"threshold": result["best_threshold"]}


def ranked(output: DETROutput | RFDETROutput) -> tuple[Tensor, Tensor, Tensor]:
    """(b, k) each, the most confident first: which query, its class, its score.

    DETR's classes exclude each other: every query has one. With independent ones, a query may have
    several, or another query's second class may be the likelier one: as many as there are queries
    are kept.
    """
    logits = output.logits[-1].float()
    if isinstance(output, DETROutput):
        chances, labels = logits.softmax(dim=-1)[..., :-1].max(dim=-1)
        scores, queries = chances.sort(dim=1, descending=True, stable=True)
        return queries, labels.gather(1, queries), scores
    chances = logits.sigmoid().flatten(1)
    scores, places = chances.sort(dim=1, descending=True, stable=True)
    scores, places = scores[:, : logits.shape[1]], places[:, : logits.shape[1]]
    return places // logits.shape[2], places % logits.shape[2], scores


def learnt(target: Target, parts: Sequence[str] = ("labels", "boxes")) -> Target:
    """What of a target is learnt: its objects, without crowds."""
    if "crowd" not in target:
        return target
    single = ~target["crowd"].bool()
    return {name: target[name][single] for name in parts}
