"""Detection: a box and a class for each object (DETR, sections 3.1 and 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.data.source import Source
from vitreous.errors import ConfigError
from vitreous.labels import LabelMap
from vitreous.models.model import Model
from vitreous.results import Detection, check_threshold
from vitreous.tasks.detect.boxes import clipped, cxcywh_to_xyxy, giou
from vitreous.tasks.detect.check import BoxCheck
from vitreous.tasks.detect.coco_results import image_ids, log_missing, measure_results, writing
from vitreous.tasks.detect.matching import Matches, Target, match
from vitreous.tasks.detect.metrics import BoxPrediction, DetectMetrics
from vitreous.tasks.detect.truth import BoxesTruth
from vitreous.tasks.detect.verdict import ConstantBoxes, DetectSigns
from vitreous.tasks.task import Engine, Glance, Log, ModelChoice, See, Task
from vitreous.tasks.threshold import USUAL
from vitreous.tasks.verdict import Baseline


class Detect(Task):
    """Matching, then cross-entropy for the classes, L1 and GIoU for the boxes of what matches.

    A target is {"labels": (n,), "boxes": (n, 4), normalised cxcywh}. It may have "crowd" (n,), True
    for a region of objects that were not told apart: nothing is learned from it, and no metric
    counts it; and "area" (n,) in pixels, where an object's area is not its box's.
    """

    name = "detect"
    purpose = "a box and a class for each object"
    primary, primary_name = "ap", "AP"
    truth = BoxesTruth()
    families = ("detr",)
    example = "one like 'detr-small', or 'detr' with --set backbone=…"
    options = frozenset(("longest", "zoom"))
    crops = ("resized", "window", "none")
    dense = True
    least_classes = 1
    overfit_epochs = 12
    fine_tuning_gain = (
        "from random weights DETR needs hundreds of epochs, and its paper took 300 of 118,000 "
        "images (docs/detection.md)"
    )
    fine_tuning = ("--recipe", "detect")
    checker = BoxCheck

    def __init__(
        self,
        labels: LabelMap,
        *,
        box_weight: float = 5.0,
        giou_weight: float = 2.0,
        no_object: float = 0.1,
        threshold: float = USUAL,
    ) -> None:
        super().__init__(labels)
        self.box_weight, self.giou_weight = box_weight, giou_weight
        self.no_object, self.threshold = no_object, threshold

    @classmethod
    def restored(cls, labels: LabelMap, decoding: dict[str, Any]) -> Self:
        if decoding.keys() - {"threshold"}:
            raise ConfigError(f"decoding: expected threshold, not {', '.join(decoding)}")
        threshold = decoding.get("threshold", USUAL)
        check_threshold(threshold)
        return cls(labels, threshold=threshold)

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

    @classmethod
    def choose_model(cls, source: Source, glance: Glance) -> ModelChoice:
        """A DETR that learns from few images; a large one from scratch would take days."""
        side = 256 if glance.on_cpu else 512
        size = (glance.height, glance.width) if glance.small else (side, side)
        most = most_objects(source)
        # With fewer queries each of them is right more often, and learns sooner: a third of the
        # steps for 8 instead of 12 where there are up to 4 objects.
        queries = max(2 * most, 8)
        stages = ("backbone.stages=[1,1]",) if glance.small else ()
        reason = f"detr-small, {queries} queries for up to {most} objects"
        return ModelChoice("detr-small", size, (f"queries={queries}", *stages), reason)

    @classmethod
    def overfit_batch(cls, images: int) -> int:
        """A detector learns images by heart in many steps, not in large ones: after 50 passes over
        eight, AP is 0.040 in batches of two, 0.0015 in batches of eight."""
        return max(1, images // 4)

    @classmethod
    def effort(cls, glance: Glance, *, fine_tunes: bool) -> tuple[int, int, int]:
        """A DETR learns slowly from weights, too: what is behind its backbone begins anew."""
        least, most, images = super().effort(glance, fine_tunes=False)
        return least, most, images // 2 if fine_tunes else images

    @classmethod
    def scratch_lr(cls, small: bool) -> float:
        """Beyond that, a DETR never learns to look at one object with each query."""
        return 5e-4

    @classmethod
    def crop_for(cls, small: bool, fits: bool) -> str:
        return "none" if small else "window"

    def count_of(self, targets: Any) -> int:
        return sum(len(target["labels"]) for target in map(learnt, targets))

    def loss(
        self,
        output: Any,
        targets: Any,
        teacher: Tensor | None = None,
        count: float | None = None,
    ) -> dict[str, Tensor]:
        """output `DETROutput`, targets a list of b; the terms of the last decoder layer by name,
        and the sums of the others' as aux_….

        `count` is the mean number of objects per process and part of the batch; with it, the loss
        does not depend on how samples are divided. Without it, the objects given are all there are.
        """
        logits, boxes = output.logits.float(), output.boxes.float()
        targets = [learnt(target) for target in targets]
        found = match(logits, boxes, targets, box_cost=self.box_weight, giou_cost=self.giou_weight)
        truth = torch.cat([target["boxes"] for target in targets]).float()[found.target]
        predicted = boxes[found.layer, found.image, found.query]
        objects = max(self.count_of(targets) if count is None else count, 1.0)

        def by_layer(each: Tensor) -> Tensor:
            return each.unflatten(0, (len(logits), -1)).sum(dim=1) / objects

        apart = (predicted - truth).abs().sum(dim=1)
        missed = 1 - giou(cxcywh_to_xyxy(predicted), cxcywh_to_xyxy(truth))
        terms = {
            "class": self._class_loss(logits, targets, found, count),
            "box": self.box_weight * by_layer(apart),
            "giou": self.giou_weight * by_layer(missed),
        }  # (layers,) each
        last = {name: term[-1] for name, term in terms.items()}
        others = {f"aux_{name}": term[:-1].sum() for name, term in terms.items()}
        return last | (others if len(logits) > 1 else {})

    def _class_loss(
        self, logits: Tensor, targets: Sequence[Target], found: Matches, count: float | None
    ) -> Tensor:
        """(layers,): cross-entropy in the mean over queries, those without an object counting less,
        because most are (section 4, "down-weight by a factor of 10")."""
        labels = torch.cat([target["labels"] for target in targets])
        nothing = logits.shape[-1] - 1
        classes = torch.full(logits.shape[:3], nothing, device=logits.device)
        classes[found.layer, found.image, found.query] = labels[found.target]
        weights = torch.ones(nothing + 1, device=logits.device)
        weights[-1] = self.no_object
        each = F.cross_entropy(
            logits.flatten(0, 2), classes.flatten(), weights, reduction="none"
        ).view_as(classes)
        if count is None:
            whole = weights[classes[0]].sum()  # every layer has as many of both
            return each.sum(dim=(1, 2)) / whole
        queries = classes[0].numel()
        return each.sum(dim=(1, 2)) / (count + self.no_object * (queries - count))

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
    def infer(
        self, engine: Engine, images: Any, sizes: Sequence[tuple[int, int]]
    ) -> list[BoxPrediction]:
        """images (b, c, h, w), or a list of (c, h, w) of different sizes.

        Those go one by one: padding would change the predictions, as far as the backbone's norms
        and convolutions see it.
        """
        if not isinstance(images, Tensor):
            pairs = zip(images, sizes, strict=True)
            return [self.infer(engine, image[None], [size])[0] for image, size in pairs]
        output = engine(images)
        chances, labels = output.logits[-1].float().softmax(dim=-1)[..., :-1].max(dim=-1)
        scores, order = chances.sort(dim=1, descending=True, stable=True)
        boxes = output.boxes[-1].float().cpu()
        labels, scores, order = labels.cpu(), scores.cpu(), order.cpu()
        return [
            BoxPrediction(clipped(boxes[i][each], size), labels[i][each], scores[i], each, size)
            for i, (each, size) in enumerate(zip(order, sizes, strict=True))
        ]

    def renamed(self, targets: Any, here: Sequence[int]) -> Any:
        classes = torch.tensor(here)
        return [{**target, "labels": classes[target["labels"]]} for target in targets]

    @contextmanager
    def writing_results(self, path: Path, source: Source, split: str, log: Log) -> Iterator[See]:
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
        log(f"written: {path}, {file.rows:,} boxes")

    @classmethod
    def measure_results(cls, path: Path, source: Source, split: str) -> dict[str, Any]:
        return measure_results(path, source, split)

    def metrics(self) -> DetectMetrics:
        return DetectMetrics(self.labels, self.threshold)

    def baselines(self) -> list[Baseline]:
        return [ConstantBoxes()]

    def signs(self) -> DetectSigns:
        return DetectSigns(self.labels, self.threshold)

    def decoding(self, result: dict[str, Any]) -> dict[str, Any]:
        return {"threshold": result["best_threshold"]}

    def decode(self, output: list[BoxPrediction], images: list[str]) -> list[Detection]:
        return [
            Detection(
                answer.boxes.numpy(),
                answer.labels.numpy(),
                answer.scores.numpy(),
                answer.queries.numpy(),
                self.labels.names,
                self.labels.numbers,
                answer.size,
                self.threshold,
                image,
            )
            for answer, image in zip(output, images, strict=True)
        ]


def learnt(target: Target) -> Target:
    """What of a target is learnt: its objects, without crowds."""
    if "crowd" not in target:
        return target
    single = ~target["crowd"].bool()
    return {name: target[name][single] for name in ("labels", "boxes")}


def most_objects(source: Source, count: int = 2000) -> int:
    """In one training image, of some that are evenly picked."""
    samples = source.splits["train"]
    step = -(-len(samples) // count)
    return max(int((~source.truth(sample)["crowd"]).sum()) for sample in samples[::step])


TASK = Detect
