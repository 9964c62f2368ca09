"""Chapter 9: how far heads look, and maps of the same images side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vitreous.course.model import digit, digits
from vitreous.data.formats import open_source
from vitreous.explain.distances import coordinates, mean_distances
from vitreous.explain.explanation import MapExplanation
from vitreous.models.model import Places
from vitreous.pages.figure import ACCENTS, SOFT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

CHINESE = {
    "mean distance, pixels": "平均距离（像素）",
    "block": "编码块",
    "even attention": "均匀的注意力",
    "one head": "一个头",
    "image": "图像",
    "attention": "注意力",
    "rollout": "rollout",
    "class map": "类别图",
    "occlusion": "遮挡",
}
IMAGES = 128
"""As in the paper."""
SHOWN = (3, 8, 12)
"""Digits of the test split."""


@styled
def distances() -> Figure:
    """Mean attention distance of each head of the digits model (ViT, figure 7 right)."""
    source, predictor = open_source("digits"), digits()
    samples = source.splits["test"][:IMAGES]
    images = torch.stack([predictor.prepare(source.image(sample)) for sample in samples])
    found = mean_distances(predictor.model, [images]).result()
    places = coordinates(Places(1, (4, 4), (2, 2)))
    even = torch.cdist(places, places).mean().item()
    figure = new_figure(4.6, 2.4)
    axes = figure.add_subplot()
    axes.axhline(even, color=SOFT, linestyle=(0, (5, 3)), linewidth=1)
    axes.text(3.45, even + 0.07, "even attention", color=SOFT, fontsize=8, ha="right")
    for block, heads in enumerate(found, start=1):
        label = "one head" if block == 1 else None
        axes.plot([block] * len(heads), heads.tolist(), "o", color=ACCENTS[0], label=label)
    axes.set_xlim(0.5, 3.5)
    axes.set_ylim(0, 5)
    axes.set_xticks([1, 2, 3])
    axes.set_xlabel("block")
    axes.set_ylabel("mean distance, pixels")
    axes.legend(loc="lower right")
    return figure


@styled
def maps() -> Figure:
    """What four kinds of map say about the same digits."""
    predictor = digits()
    figure = new_figure(5.2, 3.2)
    axes = figure.subplots(len(SHOWN), 5)
    for row, number in zip(axes, SHOWN, strict=True):
        image, _ = digit(number)
        found = predictor.explain(image, classes=1)
        assert isinstance(found, MapExplanation)
        drawn = {
            "image": image[0].float(),
            "attention": found.attention[-1].mean(dim=0),
            "rollout": found.rollout,
            "class map": next(iter(found.class_maps.values())),
            "occlusion": _occlusion(predictor.prepare(image)),
        }
        for each, (name, values) in zip(row, drawn.items(), strict=True):
            picture = name == "image"
            each.imshow(values.numpy(), cmap="gray" if picture else "viridis")
            each.set_xticks([])
            each.set_yticks([])
            if number == SHOWN[0]:
                each.set_title(name, fontsize=8, loc="center")
    return figure


@torch.no_grad()
def _occlusion(image: Tensor) -> Tensor:
    """(4, 4): how much the logit of the predicted class falls without each patch."""
    model = digits().model
    whole = model(image[None])[0]
    keep = 1 - torch.eye(16).reshape(16, 1, 4, 4)
    covered = image * keep.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    target = whole.argmax()
    return (whole[target] - model(covered)[:, target]).reshape(4, 4)
