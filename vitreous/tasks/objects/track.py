"""Objects followed through the frames of a video, by their boxes alone.

The boxes of a frame are assigned to those of the frames before so that the sum of their IoUs is as
large as possible (Hungarian algorithm), class by class. Nothing is known of motion or of looks: an
object that moves by more than half of its size between two frames becomes a new one, and two that
cross each other may swap their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from vitreous.data.objects.overlap import iou
from vitreous.results import Detection

LEAST = 0.3
"""IoU of two boxes that may be one object in two frames."""
PATIENCE = 5
"""Frames in which an object may be missing until it is forgotten."""


@dataclass
class Track:
    """An object, where it was seen last."""

    number: int
    label: int
    box: Tensor
    missed: int = 0


class Tracker:
    """Gives the objects of each frame their numbers, from 1 in the order of their appearance; see
    `Task.tracker`."""

    def __init__(self) -> None:
        self.tracks: list[Track] = []
        self.count = 0

    def __call__(self, result: Detection) -> Detection:
        above = result.scores >= result.threshold
        boxes = torch.from_numpy(result.boxes[above])
        labels = torch.from_numpy(result.classes[above])
        known = self._assigned(boxes, labels)
        for track in self.tracks:
            track.missed += 1
        for row, (box, label) in enumerate(zip(boxes, labels.tolist(), strict=True)):
            if row not in known:
                self.count += 1
                known[row] = Track(self.count, label, box)
                self.tracks.append(known[row])
            known[row].box, known[row].missed = box, 0
        self.tracks = [track for track in self.tracks if track.missed <= PATIENCE]
        return replace(result, tracks=tuple(known[row].number for row in range(len(boxes))))

    def _assigned(self, boxes: Tensor, labels: Tensor) -> dict[int, Track]:
        """By the row of a box (n, 4), the object that it is, if it is known."""
        if not self.tracks or not len(boxes):
            return {}
        before = torch.stack([track.box for track in self.tracks])
        classes = torch.tensor([track.label for track in self.tracks])
        overlap = iou(boxes[:, None], before)  # (n, tracks)
        overlap = overlap * (labels[:, None] == classes) * (overlap >= LEAST)
        rows, columns = linear_sum_assignment(overlap, maximize=True)
        pairs = zip(rows.tolist(), columns.tolist(), strict=True)
        return {row: self.tracks[column] for row, column in pairs if overlap[row, column] > 0}
