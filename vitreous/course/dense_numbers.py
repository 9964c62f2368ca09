"""What chapter 12 counts: boxes of its scene, and masks of nothing. Texts ask for it by
`facts.py`."""

from __future__ import annotations

from functools import cache
from typing import Literal

CONFIDENT, OVERLAP = 0.2, 0.5
"""Boxes that count, and the IoU of those that NMS takes for one."""


@cache
def scene_boxes(layer: Literal[1, 2, 3] = 3, nms: bool = False) -> str:
    """`17`: boxes that a small DETR is confident of, behind a layer of its decoder; what NMS leaves
    of them."""
    from vitreous.course.scene import scene
    from vitreous.tasks.objects.boxes import cxcywh_to_xyxy
    from vitreous.tasks.objects.boxes import nms as kept

    here = scene()
    chance, label = here.logits[layer - 1].softmax(dim=-1)[:, :-1].max(dim=-1)
    order = chance.argsort(descending=True)[: int((chance > CONFIDENT).sum())]
    if not nms:
        return f"{len(order)}"
    boxes = cxcywh_to_xyxy(here.found[layer - 1][order])
    return f"{int(kept(boxes, label[order], OVERLAP).sum())}"


def scene_objects() -> str:
    """`3`"""
    from vitreous.course.scene import scene

    return f"{len(scene().labels)}"


@cache
def empty_mask(metric: Literal["pixel_accuracy", "miou"]) -> str:
    """`0.77`: what an answer that finds nothing has on the generated scenes."""
    import torch

    from vitreous.data.formats import open_source

    source = open_source("shapes:100", truth="mask")
    pixels = torch.cat([source.truth(each).flatten() for each in source.splits["test"]])
    ground = (pixels == 0).double().mean().item()
    # Of the ground, union is the image; no other class has a pixel in common with the answer.
    found = {"pixel_accuracy": ground, "miou": ground / pixels.unique().numel()}
    return f"{found[metric]:.2f}"
