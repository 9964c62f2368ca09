"""COCO's average precision and recall of masks, and of boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from vitreous.data.instance_masks import overlaps
from vitreous.mask_parts import Runs
from vitreous.tasks.objects.metrics import (
    COLUMNS,
    NUMBERS,
    OVERLAPPING,
    BoxPrediction,
    BoxRows,
    DetectMetrics,
    measured,
    resampled_precisions,
)


def mask_overlaps(answer: BoxPrediction, target: Any, runs: Sequence[Runs]) -> Tensor:
    """(n, m): of masks `runs` with the objects of a target, 0 where classes differ; see
    `judge_overlaps`."""
    found = overlaps(runs, target["masks"].encoded(), target["crowd"].tolist())
    return found.masked_fill(answer.labels[:, None] != target["labels"], 0.0)


class InstanceMetrics(DetectMetrics):
    """The numbers of masks have COCO's names, those of boxes begin with box_.

    Masks are not kept, but how they overlap: a row of the table for each pair of one class that
    does, with image, number of the answer, number of the object, and their IoU.
    """

    def add(self, answer: BoxPrediction, target: Any, runs: Sequence[Runs] | None = None) -> None:
        runs = answer.runs() if runs is None else runs
        pairs = mask_overlaps(answer, target, runs)
        places = pairs.nonzero()
        rows = torch.zeros(len(places), len(COLUMNS), dtype=torch.float64)
        rows[:, 0], rows[:, 1] = OVERLAPPING, self.images
        rows[:, 2:4] = places
        rows[:, 4] = pairs[places[:, 0], places[:, 1]]
        self.rows.append(rows)
        super().add(answer, target, runs)

    def compute(self, counts: Tensor | None = None) -> dict[str, Any]:
        masks, boxes = (
            measured(self.names, self.threshold, rows) for rows in self._rows_of(counts)
        )
        for name, row in masks["classes"].items():
            row["box_ap"] = boxes["classes"][name]["ap"]
        return masks | {f"box_{name}": boxes[name] for name in NUMBERS}

    def resampled(self) -> Iterator[dict[str, Tensor]]:
        both = (resampled_precisions(len(self.names), rows) for rows in self._rows_of(None))
        for masks, boxes in zip(*both, strict=True):
            yield masks | {f"box_{name}": values for name, values in boxes.items()}

    def _rows_of(self, counts: Tensor | None) -> tuple[BoxRows, BoxRows]:
        """By masks, by boxes."""
        counts = self.counts() if counts is None else counts
        return BoxRows.of(counts, by_boxes=False), BoxRows.of(counts)
