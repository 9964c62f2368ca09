"""How alike the two tokens of a small distilled model are, block by block, and those of one whose
second token learns the labels, too (DeiT, section 4).

`taught.json` holds the cosines and accuracies, in place of two models:

    SIZES="--set patch=2 --set dim=48 --set depth=3 --set heads=3 --set mlp_dim=96"
    TOKENS="--set tokens=class+distillation --set pool=both"
    LIKE="--image-size 8 --batch 32 --crop shift"
    vitreous train digits --model resnet-18 --set stages=[1,1] --set width=16 --set root=3x3 \\
        $LIKE --epochs 30 --lr 3e-3 --out TEACHER
    for seed in 0 1 2; do
        vitreous train digits --model deit $SIZES $TOKENS $LIKE --epochs 60 --lr 6e-3 \\
            --set-recipe optimizer=muon --seed $seed --teacher TEACHER --out RUNS/teacher-$seed
        vitreous train digits --model deit $SIZES $TOKENS $LIKE --epochs 60 --lr 6e-3 \\
            --set-recipe optimizer=muon --seed $seed --out RUNS/labels-$seed
    done
    python -m vitreous.course.taught TEACHER RUNS

Tokens of a single run say little: of three distilled ones, one ends with tokens that differ.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.atomic_write import write_text
from vitreous.data.formats import open_source
from vitreous.import_run import open_run
from vitreous.layers.head import DistilledHead
from vitreous.loading import predictor_of
from vitreous.models.vit import ViT

FILE = Path(__file__).with_name("taught.json")
DIGITS = 4
"""Behind the point."""
SEEDS = 3


class TwoTokens(NamedTuple):
    """Of one model, on the test digits."""

    cosines: list[float]
    """Of the tokens with their positions, before the first block, and behind each block."""
    class_head: float
    distillation_head: float
    mean: float
    """Accuracy of each head, and of their mean."""
    apart: float
    """How often the two heads disagree,"""
    class_apart: float
    distillation_apart: float
    """and each of them with the teacher."""


@cache
def taught() -> dict[str, list[TwoTokens]]:
    """By what the second token learned from, teacher or labels: a model for each seed."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: [TwoTokens(**each) for each in runs] for name, runs in stored.items()}


@torch.no_grad()
def measured(model: ViT, images: Tensor, labels: Tensor, answers: Tensor) -> TwoTokens:
    """answers (n,): the teacher's."""
    head = model.head
    assert isinstance(head, DistilledHead)
    z, grid = model.embed(images)
    cosines = [_alike(z)]
    for block in range(model.depth):
        z = model.encode(z, grid, block, block + 1)
        cosines.append(_alike(z))
    y = model.pool(z)
    first, second = head.out(y[:, 0]), head.distillation(y[:, 1])
    one, other, both = (each.argmax(dim=1) for each in (first, second, first + second))
    accuracies = (_share(each == labels) for each in (one, other, both))
    apart = (_share(a != b) for a, b in ((one, other), (one, answers), (other, answers)))
    return TwoTokens(cosines, *accuracies, *apart)


def _alike(z: Tensor) -> float:
    return round(float(F.cosine_similarity(z[:, 0], z[:, 1], dim=1).mean()), DIGITS)


def _share(true: Tensor) -> float:
    return round(float(true.double().mean()), DIGITS)


def write(teacher: Path, runs: Path) -> None:
    source = open_source("digits")
    samples = source.splits["test"]
    first = predictor_of(open_run(teacher))
    images = torch.stack([first.prepare(source.image(sample)) for sample in samples])
    labels = torch.tensor([sample.target for sample in samples])
    with torch.no_grad():
        answers = first.model(images).argmax(dim=1)
    found: dict[str, list[dict[str, object]]] = {"teacher": [], "labels": []}
    for name, rows in found.items():
        for seed in range(SEEDS):
            model = predictor_of(open_run(runs / f"{name}-{seed}")).model
            assert isinstance(model, ViT)
            rows.append(measured(model, images, labels, answers)._asdict())
    write_text(FILE, json.dumps(found) + "\n")


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
