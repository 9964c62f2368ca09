"""A scene of generated shapes, and what each query of a small DETR says of it, layer by layer.

`scene.json` holds the queries' answers, a few kilobytes in place of a model of eight megabytes:

    vitreous train shapes:2000 --task detect --model detr-small --image-size 64 --batch 16 \\
        --epochs 14 --lr 3e-3 --set-recipe optimizer=muon --out RUN
    python -m vitreous.course.scene RUN NUMBER
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.atomic_write import write_text
from vitreous.data.formats import open_source
from vitreous.import_run import open_run
from vitreous.loading import predictor_of
from vitreous.models.detr import DETR
from vitreous.tasks.objects.boxes import normalised

FILE = Path(__file__).with_name("scene.json")
SOURCE = "shapes:100"
"""Image i of a split is the same, however many there are."""
DIGITS = 4
"""Behind the point: enough for every number that a text shows."""


class AnsweredScene(NamedTuple):
    """One image of the test split."""

    image: Tensor
    """(3, h, w), uint8"""
    names: tuple[str, ...]
    """Of the classes."""
    labels: Tensor
    """(n,): what is there,"""
    boxes: Tensor
    """(n, 4), normalised cxcywh."""
    logits: Tensor
    """(layers, q, classes + 1): what each query says behind each layer of the decoder,"""
    found: Tensor
    """(layers, q, 4)"""


@cache
def scene() -> AnsweredScene:
    """The scene of chapter 12."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    logits, found = torch.tensor(stored["logits"]), torch.tensor(stored["boxes"])
    return AnsweredScene(*_truth(stored["sample"]), logits, found)


def _truth(number: int) -> tuple[Tensor, tuple[str, ...], Tensor, Tensor]:
    source = open_source(SOURCE, truth="boxes")
    sample = source.splits["test"][number]
    image, truth = source.image(sample), source.truth(sample)
    size = (image.shape[1], image.shape[2])
    boxes = normalised(truth["boxes"].float(), size)
    return image, source.labels.names, truth["labels"], boxes


def answers(run: Path, number: int) -> tuple[Tensor, Tensor]:
    """Logits and boxes of every layer (layers, q, …), by the DETR of a run."""
    predictor = predictor_of(open_run(run))
    model = predictor.model
    assert isinstance(model, DETR)
    image, *_ = _truth(number)
    with torch.no_grad():
        output = model(predictor.preprocess.normalise(image)[None], every_layer=True)
    return output.logits[:, 0], output.boxes[:, 0]


def write(run: Path, number: int) -> None:
    logits, boxes = answers(run, number)
    rounded = {"logits": logits, "boxes": boxes}
    stored = {name: _rounded(value.tolist()) for name, value in rounded.items()}
    write_text(FILE, json.dumps({"sample": number, **stored}) + "\n")


def _rounded(value: list[float] | float) -> object:
    return round(value, DIGITS) if isinstance(value, float) else [_rounded(v) for v in value]


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
