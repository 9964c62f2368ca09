"""Tagging: any number of labels per image, each decided by a threshold of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.check.classes import LabelsCheck
from vitreous.data.loader import Batch
from vitreous.data.source import Sample, Source
from vitreous.data.truth import Truth
from vitreous.errors import ConfigError, DataError
from vitreous.labels import IGNORED, LabelMap
from vitreous.layers.head import DistilledOutput
from vitreous.results import check_threshold
from vitreous.tasks.bootstrap import RESAMPLES, resampled
from vitreous.tasks.metric import USUAL, Metric, best_threshold
from vitreous.tasks.task import Task, TaskMetrics, ratio
from vitreous.tasks.verdict import (
    FEW,
    SAME_FOR_ALL,
    STILL,
    Baseline,
    Finding,
    Signs,
    never_predicted,
    variation,
)

MOST_DRAWN = 1 << 28
"""Scores that are drawn for intervals, of all labels and draws."""
RECALLS = np.linspace(0, 1, 101)
"""Where precision is drawn."""


@dataclass(frozen=True)
class Tags:
    """The labels of one image."""

    labels: tuple[str, ...]
    """Names of the labels whose probability reaches their threshold, the most probable first."""
    scores: dict[str, float]
    """Probability by label, highest first; they are independent and do not sum to one."""
    thresholds: dict[str, float]
    ids: dict[str, int]
    """Numbers of the labels: their ids in the training data, or from 0 where that has only
    names."""
    image: str = ""
    """The image's file, if it has one."""

    def above(self, threshold: float) -> Tags:
        """The same result with one threshold, from 0 to 1, for all labels."""
        check_threshold(threshold)
        labels = tuple(name for name, score in self.scores.items() if score >= threshold)
        return replace(self, labels=labels, thresholds=dict.fromkeys(self.scores, threshold))

    def agreement(self, other: Tags) -> float:
        """The part of all labels that both have, or both do not."""
        differ = set(self.labels) ^ set(other.labels)
        return 1 - len(differ) / max(len(self.scores), 1)

    def to_dict(self, top: int = 5) -> dict[str, Any]:
        """Plain data for JSON."""

        def row(name: str) -> dict[str, Any]:
            return {"label": name, "id": self.ids[name], "score": self.scores[name]}

        return {
            "image": self.image,
            "labels": [row(name) for name in self.labels],
            "top": [row(name) for name in list(self.scores)[:top]],
        }


class LabelsTruth(Truth):
    """(classes,): 1 for each label of the image as a whole, 0 for the others."""

    def classes(self, truth: Tensor) -> list[int]:
        return truth.nonzero().flatten().tolist()

    def mix(self, first: Tensor, second: Tensor, share: float) -> Tensor:
        return share * first + (1 - share) * second


class Tag(Task):
    """A sigmoid and a binary cross-entropy for each label."""

    name = "tag"
    purpose = "any number of labels per image"
    metric = Metric("map", "mAP")
    other_metrics = (Metric("f1"),)
    image_metric = Metric("labels", "labels that are right")
    truth = LabelsTruth()
    options = frozenset(("randaugment", "erase", "mixup", "cutmix", "smoothing", "class_weights"))
    checker = LabelsCheck

    def __init__(
        self,
        labels: LabelMap,
        *,
        thresholds: Sequence[float] | None = None,
        smoothing: float = 0.0,
        positive_weights: Tensor | None = None,
    ) -> None:
        super().__init__(labels)
        self.thresholds = torch.tensor(thresholds or [USUAL] * len(labels))
        self.smoothing, self.positive_weights = smoothing, positive_weights

    @classmethod
    def for_training(cls, recipe: Any, source: Source, samples: Sequence[Sample]) -> Self:
        weights = None
        if recipe.class_weights == "auto":
            # A label on one image of a hundred would be learned last; by the root, so that it does
            # not drown the others.
            counts = label_counts(source, samples).clamp(min=1)
            weights = ((len(samples) - counts).clamp(min=1) / counts).sqrt().float()
        smoothing = recipe.smoothing or 0.0
        return cls(source.labels, smoothing=smoothing, positive_weights=weights)

    @classmethod
    def restored(cls, labels: LabelMap, decoding: dict[str, Any]) -> Self:
        thresholds = dict(decoding).pop("thresholds", None)
        if decoding.keys() - {"thresholds"}:
            raise ConfigError(f"decoding: expected thresholds, not {', '.join(decoding)}")
        if thresholds is not None:
            if not isinstance(thresholds, list | tuple) or len(thresholds) != len(labels):
                raise ConfigError(f"decoding: expected {len(labels)} thresholds, one per label")
            for threshold in thresholds:
                check_threshold(threshold)
        return cls(labels, thresholds=thresholds)

    @classmethod
    def check_trainable(cls, source: Source) -> None:
        samples = source.splits["train"]
        counts = label_counts(source, samples).tolist()
        for name, count in zip(source.labels.names, counts, strict=True):
            if count in (0, len(samples)):
                where = "on no image" if not count else "on every image"
                raise DataError(
                    f"{source.name}: the label {name!r} is {where} of train that can be used, so "
                    "that nothing can be learned about it: add images, or remove the label"
                )

    def loss(self, output: Any, targets: Any, teacher: Tensor | None = None) -> dict[str, Tensor]:
        """output (b, classes), or both of DeiT's; targets (b, classes), from 0 to 1."""
        targets = targets * (1 - self.smoothing) + self.smoothing / 2
        weights = self.positive_weights

        def cross_entropy(logits: Tensor) -> Tensor:
            return F.binary_cross_entropy_with_logits(
                logits.float(),
                targets.float(),
                pos_weight=None if weights is None else weights.to(logits.device),
            )

        outputs = output if isinstance(output, DistilledOutput) else (output,)
        return {"loss": torch.stack([cross_entropy(each) for each in outputs]).mean()}

    def renamed(self, targets: Any, here: Sequence[int]) -> Tensor:
        """Labels that the other data does not have are not known of its images: IGNORED."""
        ours = torch.full((len(targets), len(self.labels)), float(IGNORED))
        known = [theirs for theirs, number in enumerate(here) if number != IGNORED]
        ours[:, [here[theirs] for theirs in known]] = targets[:, known]
        return ours

    def metrics(self) -> TagMetrics:
        return TagMetrics(self.labels, self.thresholds)

    def baselines(self) -> list[Baseline]:
        return [LabelFrequencies(len(self.labels))]

    def signs(self) -> TagSigns:
        return TagSigns()

    def decoding(self, result: dict[str, Any]) -> dict[str, Any]:
        return {"thresholds": result["best_thresholds"]}

    def decode(self, output: Tensor, images: list[str]) -> list[Tags]:
        names = self.labels.names
        ids = dict(zip(names, self.labels.numbers, strict=True))
        thresholds = dict(zip(names, self.thresholds.tolist(), strict=True))
        results = []
        for row, image in zip(output.float().sigmoid().tolist(), images, strict=True):
            order = sorted(range(len(row)), key=lambda i, row=row: (-row[i], i))  # type: ignore[misc]
            scores = {names[i]: row[i] for i in order}
            labels = tuple(name for name, score in scores.items() if score >= thresholds[name])
            results.append(Tags(labels, scores, thresholds, ids, image))
        return results


def label_counts(source: Source, samples: Sequence[Sample]) -> Tensor:
    """How many samples have each label."""
    counts = torch.zeros(len(source.labels), dtype=torch.float64)
    for sample in samples:
        counts += source.truth(sample)
    return counts


class TagMetrics(TaskMetrics):
    """Average precision needs the order of all scores: every image's are kept."""

    def __init__(self, labels: LabelMap, thresholds: Tensor) -> None:
        self.names, self.thresholds = labels.names, thresholds
        self.rows: list[Tensor] = []
        """Of each batch (b, 2, classes): logits and targets."""

    def update(self, output: Tensor, targets: Tensor) -> None:
        self.rows.append(torch.stack((output.float().cpu(), targets.float().cpu()), dim=1))

    def counts(self) -> Tensor:
        return torch.cat(self.rows) if self.rows else torch.zeros(0, 2, len(self.names))

    def merge(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts))

    def compute(self, counts: Tensor | None = None) -> dict[str, Any]:
        logits, targets = (self.counts() if counts is None else counts).unbind(1)
        scores, known = logits.sigmoid(), targets != IGNORED
        predicted = (scores >= self.thresholds) & known
        truth = (targets == 1) & known
        true = (predicted & truth).sum(dim=0).double()
        sums = {"truth": truth.sum(dim=0), "predicted": predicted.sum(dim=0)}
        precision, recall = ratio(true, sums["predicted"]), ratio(true, sums["truth"])
        f1 = ratio(2 * true, sums["truth"] + sums["predicted"])
        curves = [
            label_curve(scores[:, i], truth[:, i], known[:, i]) for i in range(len(self.names))
        ]
        present = [i for i, curve in enumerate(curves) if curve is not None]
        prevalence = ratio(sums["truth"].double(), known.sum(dim=0).double())
        every = {"true": true.sum(), "all": (sums["truth"] + sums["predicted"]).sum()}
        wrong = (predicted != truth) & known
        loss = F.binary_cross_entropy_with_logits(logits, targets.clamp(min=0), reduction="none")

        def mean(values: Sequence[float]) -> float:
            return sum(values) / len(values) if values else 0.0

        return {
            "map": mean([curves[i][0] for i in present]),  # type: ignore[index]
            "map_chance": mean([prevalence[i].item() for i in present]),
            "f1": mean([f1[i].item() for i in present]),
            "micro_f1": ratio(2 * every["true"], every["all"]).item(),
            "exact_match": (~wrong.any(dim=1)).double().mean().item() if len(wrong) else 0.0,
            "loss": loss[known].mean().item() if known.any() else 0.0,
            "samples": len(targets),
            "classes": {
                name: {
                    "ap": None if (curve := curves[i]) is None else curve[0],
                    "precision": precision[i].item() if sums["predicted"][i] else None,
                    "recall": recall[i].item() if sums["truth"][i] else None,
                    "f1": f1[i].item() if curve is not None else None,
                    "threshold": self.thresholds[i].item(),
                    "samples": int(sums["truth"][i]),
                }
                for i, name in enumerate(self.names)
            },
            "best_thresholds": best_thresholds(scores, truth, known),
            "curves": {
                "recall": RECALLS.tolist(),
                "precision": {
                    name: None if (curve := curves[i]) is None else curve[1]
                    for i, name in enumerate(self.names)
                },
            },
        }

    def each(self) -> Tensor:
        """The part of an image's labels that are rightly predicted, or rightly not."""
        logits, targets = self.counts().unbind(1)
        known = targets != IGNORED
        right = ((logits.sigmoid() >= self.thresholds) == (targets == 1)) & known
        return right.sum(dim=1) / known.sum(dim=1)

    def resampled(self) -> Iterator[dict[str, Tensor]]:
        logits, targets = self.counts().unbind(1)
        if not len(targets):
            return iter(())
        scores, known = logits.sigmoid(), targets != IGNORED
        truth = (targets == 1) & known
        predicted = (scores >= self.thresholds) & known
        table = torch.stack([each.double() for each in (truth & predicted, truth, predicted)])

        def of_draws(weights: Tensor) -> dict[str, Tensor]:
            """weights (draws, images)"""
            true, real, answered = (weights @ each for each in table)  # (draws, labels)
            ap = [
                weighted_ap(scores[:, i], truth[:, i], weights * known[:, i])
                for i in range(len(self.names))
            ]
            f1 = ratio(2 * true, real + answered).masked_fill(real == 0, torch.nan)
            return {"map": torch.stack(ap, dim=1).nanmean(dim=1), "f1": f1.nanmean(dim=1)}

        # sorting many scores a thousand times would take minutes
        count = max(min(RESAMPLES, MOST_DRAWN // scores.numel()), 100)
        return map(of_draws, resampled(len(targets), count))


def weighted_ap(scores: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """(images,), (images,), (draws, images) -> (draws,): the average precision of one label, each
    image counting as often as its weight says; NaN where none of its images is drawn."""
    order = scores.argsort(descending=True, stable=True)
    ranked = scores[order]
    last = torch.cat((ranked[1:] != ranked[:-1], torch.ones(1, dtype=torch.bool)))
    weights = weights[:, order]
    # equal scores are above a threshold together
    true = (weights * truth[order]).cumsum(dim=1)[:, last]
    precision = ratio(true, weights.cumsum(dim=1)[:, last])
    steps = true.diff(dim=1, prepend=torch.zeros_like(true[:, :1]))
    return (steps * precision).sum(dim=1) / true[:, -1]


def label_curve(scores: Tensor, truth: Tensor, known: Tensor) -> tuple[float, list[float]] | None:
    """Average precision of one label, and its best precision at each of RECALLS or above; None
    where no image has the label."""
    from sklearn.metrics import average_precision_score, precision_recall_curve

    scores, truth = scores[known], truth[known]
    if not truth.any():
        return None
    precision, recall, _ = precision_recall_curve(truth.numpy(), scores.numpy())
    best = np.maximum.accumulate(precision)  # sklearn's recall falls: all before it is larger
    at = np.searchsorted(-recall, -RECALLS, side="right") - 1
    return float(average_precision_score(truth.numpy(), scores.numpy())), best[at].tolist()


def best_thresholds(scores: Tensor, truth: Tensor, known: Tensor) -> list[float]:
    """For each label the threshold with the largest F1, (n, classes) each.

    A label with fewer than FEW images gets the one that is best for all labels together: its own
    would be chosen by chance.
    """
    common = best_threshold(scores[known], truth[known])
    return [
        best_threshold(scores[known[:, i], i], truth[known[:, i], i])
        if int(truth[:, i].sum()) >= FEW
        else common
        for i in range(scores.shape[1])
    ]


class LabelFrequencies(Baseline):
    """The same for every image: how frequent each label is. Its AP is that of a random order."""

    name = "the labels' frequencies"

    def __init__(self, labels: int) -> None:
        self.counts, self.known = torch.zeros(labels), torch.zeros(labels)

    def learn(self, batch: Batch, targets: Tensor) -> None:
        self.counts += (targets == 1).sum(dim=0)
        self.known += (targets != IGNORED).sum(dim=0)

    def answer(self, batch: Batch) -> Tensor:
        shares = (self.counts / self.known.clamp(min=1)).clamp(1e-4, 1 - 1e-4)
        return shares.logit().expand(len(batch.ids), -1)


class TagSigns(Signs):
    """Collapse: probabilities that do not depend on the image."""

    def __init__(self) -> None:
        self.scores: list[Tensor] = []

    def see(self, output: Tensor, targets: Tensor) -> None:
        self.scores.append(output.float().sigmoid())

    def findings(self, result: Mapping[str, Any]) -> list[Finding]:
        if len(scores := torch.cat(self.scores)) < 2:
            return []
        # a label that some images have and others have not
        varies = [0 < row["samples"] < len(scores) for row in result["classes"].values()]
        apart, most = (each[torch.tensor(varies)] for each in variation(scores))
        if any(varies) and bool((apart < STILL * most.clamp(min=1e-6)).all()):
            return [SAME_FOR_ALL]
        missing = {
            name: row["samples"]
            for name, row in result["classes"].items()
            if row["precision"] is None  # no prediction reaches the threshold
        }
        return never_predicted(missing, "images")


TASK = Tag
