"""Classification: one class per image."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.check.classes import ClassCheck
from vitreous.data.loader import Batch
from vitreous.data.source import Sample, Source
from vitreous.data.truth import Truth
from vitreous.errors import DataError
from vitreous.labels import LabelMap
from vitreous.layers.head import DistilledOutput
from vitreous.results import Classification
from vitreous.tasks.bootstrap import (
    AT_ONCE,
    LEVEL,
    RESAMPLES,
    Intervals,
    generator,
    intervals,
    resampled,
)
from vitreous.tasks.defaults import Defaults
from vitreous.tasks.metric import Metric
from vitreous.tasks.task import Task, TaskMetrics, check_two_classes, ratio
from vitreous.tasks.verdict import (
    SAME_FOR_ALL,
    STILL,
    Baseline,
    Finding,
    Signs,
    never_predicted,
    variation,
)

BINS = 15
"""Of confidence, for calibration (Guo et al. 2017)."""
NEIGHBOURS = 5


class Mixed(NamedTuple):
    """A target of two classes: the first with `share`, the second with the rest."""

    first: Any
    second: Any
    share: Any


class ClassTruth(Truth):
    """One class, from 0, for the image as a whole."""

    def mix(self, first: int, second: int, share: float) -> Mixed:
        return Mixed(first, second, share)


class ClassifyDefaults(Defaults):
    smoothing = 0.1


class Classify(Task):
    """Cross-entropy, with smoothed, mixed and weighted labels; distillation from a teacher."""

    name = "classify"
    purpose = "one class per image"
    metric = Metric("accuracy")
    other_metrics = (Metric("balanced_accuracy"), Metric("f1"))
    image_metric = Metric("right")
    truth = ClassTruth()
    options = frozenset(
        (
            *("randaugment", "erase", "mixup", "cutmix", "sampler"),
            *("teacher", "distill", "smoothing", "class_weights"),
        )
    )
    checker = ClassCheck
    defaults = ClassifyDefaults()

    def __init__(
        self,
        labels: LabelMap,
        *,
        smoothing: float = 0.0,
        class_weights: Tensor | None = None,
        distill: str = "none",
        temperature: float = 3.0,
        distill_share: float = 0.5,
    ) -> None:
        super().__init__(labels)
        self.smoothing, self.class_weights = smoothing, class_weights
        self.distill, self.temperature, self.share = distill, temperature, distill_share

    @classmethod
    def for_training(cls, recipe: Any, source: Source, samples: Sequence[Sample]) -> Self:
        weights = None
        if recipe.class_weights == "auto":
            # rare classes count more, by the inverse of their number; a sample counts 1 on average
            counts = class_counts(source, samples).clamp(min=1)
            weights = (counts.sum() / (len(counts) * counts)).float()
        return cls(
            source.labels,
            smoothing=recipe.smoothing or 0.0,
            class_weights=weights,
            distill=recipe.distill or "hard",
        )

    @classmethod
    def check_trainable(cls, source: Source) -> None:
        check_two_classes(source)
        counts = class_counts(source, source.splits["train"]).tolist()
        missing = [name for name, n in zip(source.labels.names, counts, strict=True) if not n]
        if missing:
            raise DataError(
                f"{source.name} has no image in train that can be used of the class "
                f"{', '.join(missing)}: add some, or remove the class"
            )

    def loss(self, output: Any, targets: Any, teacher: Tensor | None = None) -> dict[str, Tensor]:
        """output (b, classes) or both of DeiT's; targets `Mixed`; teacher (b, classes) logits.

        DeiT's equations 2 (soft) and 3 (hard). A distilled model learns the labels with one token
        and the teacher with the other, a plain one both with the same output.
        """
        own, taught = (
            output if isinstance(output, DistilledOutput) else DistilledOutput(output, output)
        )
        loss = self._cross_entropy(own, targets)
        if teacher is None:
            if isinstance(output, DistilledOutput):  # without a teacher both learn the labels
                loss = (loss + self._cross_entropy(taught, targets)) / 2
            return {"loss": loss}
        if self.distill == "hard":
            second = F.cross_entropy(taught.float(), teacher.argmax(dim=1))
        else:
            second = F.kl_div(
                F.log_softmax(taught.float() / self.temperature, dim=1),
                F.log_softmax(teacher.float() / self.temperature, dim=1),
                reduction="batchmean",
                log_target=True,
            )
            second = second * self.temperature**2
        return {"loss": (1 - self.share) * loss, "distillation": self.share * second}

    def _cross_entropy(self, logits: Tensor, targets: Any) -> Tensor:
        """In float32, each sample with its two labels and their shares.

        The mean is over samples, also with class weights: torch would divide by the weights of the
        batch, and the loss would depend on how samples are divided among processes.
        """
        logits = logits.float()
        weights = None if self.class_weights is None else self.class_weights.to(logits.device)

        def each(labels: Tensor) -> Tensor:
            return F.cross_entropy(
                logits, labels, weights, reduction="none", label_smoothing=self.smoothing
            )

        share = targets.share.to(logits.dtype)
        return (share * each(targets.first) + (1 - share) * each(targets.second)).mean()

    def metrics(self) -> ClassifyMetrics:
        return ClassifyMetrics(self.labels)

    def baselines(self) -> list[Baseline]:
        count = len(self.labels)
        return [NearestImages(count), MostFrequentClass(count)]

    def signs(self) -> ClassSigns:
        return ClassSigns(self.labels)

    def decode(self, output: Tensor, images: list[str]) -> list[Classification]:
        results = []
        names, ids = self.labels.names, self.labels.numbers
        for scores, image in zip(output.float().softmax(dim=1).tolist(), images, strict=True):
            order = sorted(range(len(scores)), key=lambda i, s=scores: (-s[i], i))  # type: ignore[misc]
            best = order[0]
            by_name = {names[i]: scores[i] for i in order}
            results.append(Classification(names[best], scores[best], ids[best], by_name, image))
        return results


def class_counts(source: Source, samples: Sequence[Sample]) -> Tensor:
    """How many samples each class has."""
    targets = torch.tensor([sample.target for sample in samples])
    return torch.bincount(targets, minlength=len(source.labels)).double()


class ClassifyMetrics(TaskMetrics):
    """All metrics come from a confusion matrix, a calibration histogram and a few sums."""

    def __init__(self, labels: LabelMap) -> None:
        n = len(labels)
        self.names = labels.names
        self.confusion = torch.zeros(n, n, dtype=torch.float64)
        """[truth, prediction]"""
        self.bins = torch.zeros(3, BINS, dtype=torch.float64)
        """By confidence: how many, how many right, sum of confidence."""
        self.sums = torch.zeros(3, dtype=torch.float64)
        """How many, how many among the first five, sum of cross-entropy."""
        self.seen: list[Tensor] = []
        """Of each batch (2, b): the classes that images have, and that are predicted."""

    def update(self, output: Tensor, targets: Tensor) -> None:
        logits = output.float().cpu()
        targets = targets.cpu()
        probability = logits.softmax(dim=1)
        confidence, predicted = probability.max(dim=1)
        right = predicted == targets
        n = len(self.names)
        pairs = torch.bincount(targets * n + predicted, minlength=n * n)
        self.confusion += pairs.reshape(n, n)
        bins = (confidence * BINS).long().clamp(max=BINS - 1)
        self.bins[0].index_add_(0, bins, torch.ones_like(confidence, dtype=torch.float64))
        self.bins[1].index_add_(0, bins, right.double())
        self.bins[2].index_add_(0, bins, confidence.double())
        best = logits.topk(min(5, n), dim=1).indices
        self.seen.append(torch.stack((targets, predicted)))
        self.sums[0] += len(targets)
        self.sums[1] += (best == targets[:, None]).any(dim=1).sum()
        self.sums[2] += F.cross_entropy(logits.double(), targets, reduction="sum")

    def counts(self) -> Tensor:
        return torch.cat([part.flatten() for part in (self.confusion, self.bins, self.sums)])

    def compute(self, counts: Tensor | None = None) -> dict[str, Any]:
        counts = self.counts() if counts is None else counts
        n = len(self.names)
        confusion, bins, sums = counts.split([n * n, 3 * BINS, 3])
        confusion, bins = confusion.reshape(n, n), bins.reshape(3, BINS)
        total = sums[0].item()
        true = confusion.diagonal()
        truth, predicted = confusion.sum(dim=1), confusion.sum(dim=0)
        precision, recall = ratio(true, predicted), ratio(true, truth)
        f1 = ratio(2 * true, truth + predicted)
        present = truth > 0
        gaps = (ratio(bins[1], bins[0]) - ratio(bins[2], bins[0])).abs()
        return {
            "accuracy": (true.sum() / total).item(),
            "top5": (sums[1] / total).item(),
            "loss": (sums[2] / total).item(),
            "balanced_accuracy": recall[present].mean().item(),
            "f1": f1[present].mean().item(),
            "calibration_error": ((bins[0] / total) * gaps).sum().item(),
            "samples": int(total),
            "classes": {
                name: {
                    # a class without images has no score, unless it was wrongly predicted
                    "precision": precision[i].item() if truth[i] + predicted[i] else None,
                    "recall": recall[i].item() if present[i] else None,
                    "f1": f1[i].item() if present[i] else None,
                    "samples": int(truth[i]),
                }
                for i, name in enumerate(self.names)
            },
            "confusion": confusion.long().tolist(),
            "calibration": {
                "confidence": ratio(bins[2], bins[0]).tolist(),
                "accuracy": ratio(bins[1], bins[0]).tolist(),
                "samples": bins[0].long().tolist(),
            },
        }

    def resampled(self) -> Iterator[dict[str, Tensor]]:
        """`intervals` has no need of single images."""
        seen = self._seen()
        cells, cell = seen.unique(dim=1, return_inverse=True)
        for weights in resampled(seen.shape[1]) if seen.numel() else ():
            drawn = weights.new_zeros(len(weights), cells.shape[1]).index_add(1, cell, weights)
            yield self._of_draws(cells.T, drawn, seen.shape[1])

    def each(self) -> Tensor:
        """1 where the class is predicted that the image has, else 0."""
        truth, predicted = self._seen()
        return (truth == predicted).float()

    def answers(self) -> Sequence[Hashable]:
        return [self.names[i] for i in self._seen()[1].tolist()]

    def _seen(self) -> Tensor:
        """(2, images)"""
        return torch.cat([torch.zeros(2, 0, dtype=torch.int64), *self.seen], dim=1)

    def intervals(self) -> Intervals:
        """To draw images is to draw cells of the confusion matrix: a multinomial distribution."""
        cells = self.confusion.nonzero()
        if not len(cells):
            return {}
        counts = self.confusion[tuple(cells.T)].numpy()
        total, random = int(counts.sum()), generator()
        at_once = max(AT_ONCE // len(cells), 1)

        def blocks() -> Iterator[dict[str, Tensor]]:
            for first in range(0, RESAMPLES, at_once):
                size = min(at_once, RESAMPLES - first)
                drawn = torch.from_numpy(random.multinomial(total, counts / total, size)).double()
                yield self._of_draws(cells, drawn, total)

        found = intervals(blocks())
        right = int(self.confusion.diagonal().sum())
        # Draws of images that are all right, or all wrong, do not vary; the exact limit of a
        # proportion (Clopper and Pearson 1934) says what so many images can show.
        limit = ((1 - LEVEL) / 2) ** (1 / total)
        if right == total:
            found["accuracy"] = (limit, 1.0)
        elif not right:
            found["accuracy"] = (0.0, 1 - limit)
        return found

    def _of_draws(self, cells: Tensor, drawn: Tensor, total: int) -> dict[str, Tensor]:
        """drawn (draws, cells)"""
        rows, columns = cells.unbind(1)
        blank = torch.zeros(len(drawn), len(self.names), dtype=torch.float64)
        truth, predicted = (blank.index_add(1, each, drawn) for each in (rows, columns))
        true = blank.index_add(1, rows, drawn * (rows == columns))
        recall, f1 = ratio(true, truth), ratio(2 * true, truth + predicted)
        return {
            "accuracy": true.sum(dim=1) / total,
            "balanced_accuracy": recall.masked_fill(truth == 0, torch.nan).nanmean(dim=1),
            "f1": f1.masked_fill(truth == 0, torch.nan).nanmean(dim=1),
        }


class MostFrequentClass(Baseline):
    """The same for every image: probabilities that are the classes' shares."""

    name = "the most frequent class"

    def __init__(self, classes: int) -> None:
        self.counts = torch.zeros(classes)

    def learn(self, batch: Batch, targets: Tensor) -> None:
        self.counts += torch.bincount(targets, minlength=len(self.counts))

    def answer(self, batch: Batch) -> Tensor:
        shares = self.counts / self.counts.sum()
        return shares.clamp(min=1e-6).log().expand(len(batch.ids), -1)


class NearestImages(Baseline):
    """The class of the training images whose pixels, those of small copies, are most alike."""

    name = "k-NN on pixels"
    copies = True

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.images: list[Tensor] = []
        self.targets: list[Tensor] = []

    def learn(self, batch: Batch, targets: Tensor) -> None:
        self.images.append(batch.images.flatten(1))
        self.targets.append(targets)

    def answer(self, batch: Batch) -> Tensor:
        if len(self.images) > 1:  # all have been learned: they are put together once
            self.images, self.targets = [torch.cat(self.images)], [torch.cat(self.targets)]
        (known,), (targets,) = self.images, self.targets
        # |x - y|² without |x|², which is the same for all y
        distances = known.square().sum(dim=1) - 2 * batch.images.flatten(1) @ known.T
        near = distances.topk(min(NEIGHBOURS, len(known)), largest=False)
        # of equally many neighbours the nearer ones decide
        votes = 1 + 1e-3 * near.values.neg().softmax(dim=1)
        found = torch.zeros(len(batch.ids), self.classes)
        return found.scatter_add_(1, targets[near.indices], votes)


class ClassSigns(Signs):
    """Collapse: one class for everything, or probabilities that do not depend on the image."""

    def __init__(self, labels: LabelMap) -> None:
        self.labels = labels
        self.probabilities: list[Tensor] = []

    def see(self, output: Tensor, targets: Tensor) -> None:
        self.probabilities.append(output.float().softmax(dim=1).half())

    def findings(self, result: Mapping[str, Any]) -> list[Finding]:
        confusion = torch.tensor(result["confusion"])
        truth, predicted = confusion.sum(dim=1), confusion.sum(dim=0)
        if int((truth > 0).sum()) < 2:
            return []  # images of one class need no other answer
        if int((predicted > 0).sum()) == 1:
            name = self.labels.names[int(predicted.argmax())]
            seen = f"the model predicts {name} for every image"
            return [Finding("bad", seen, "learn")]
        apart, most = variation(torch.cat(self.probabilities).float())
        if apart.sum() < STILL * most.sum().clamp(min=1e-6):
            return [SAME_FOR_ALL]
        missing = {
            name: int(truth[i]) for i, name in enumerate(self.labels.names) if not predicted[i]
        }
        return never_predicted(missing, "images")


TASK = Classify
