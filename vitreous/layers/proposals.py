"""Two stages (Deformable DETR, Zhu et al. 2021, appendix A.4; LW-DETR): every position of the maps
proposes a box, and the best ones are where queries begin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vitreous.layers.decoder import BoxHead
from vitreous.layers.padding import Padding
from vitreous.layers.resample import Grid

PRIOR = 0.01
"""The probability of every class at the start: most queries find nothing (Lin et al. 2017)."""
PROPOSED = 0.05
"""Width and height of the boxes that positions start from, as fractions of the image; twice that
for each further level."""


class MapTokens(NamedTuple):
    """The projector's maps as tokens, one map behind another."""

    tokens: Tensor
    """(b, n, d)"""
    grids: list[Grid]
    inside: Tensor | None
    """(b, n): False on padding; None: there is none."""
    sizes: Tensor
    """(b or 1, levels, 2): how many columns and rows of each map are image."""

    @classmethod
    def of(cls, maps: Sequence[Tensor], padding: Padding | None) -> MapTokens:
        tokens = torch.cat([each.flatten(2).transpose(1, 2) for each in maps], dim=1)
        grids = [(each.shape[2], each.shape[3]) for each in maps]
        if padding is None:
            sizes = torch.tensor([[(gw, gh) for gh, gw in grids]], device=tokens.device)
            return cls(tokens, grids, None, sizes.float())
        inside, counts = zip(*(padding.on(grid) for grid in grids), strict=True)
        whole = torch.cat([each.flatten(1) for each in inside], dim=1)
        return cls(tokens, grids, whole, torch.stack(counts, dim=1).flip(-1).float())


def anchors_of(memory: MapTokens) -> tuple[Tensor, Tensor]:
    """Where positions start to look for their box: (b or 1, n, 4), normalised cxcywh around
    themselves; and (b or 1, n), which of them are inside the image."""
    found, device = [], memory.tokens.device
    for level, (gh, gw) in enumerate(memory.grids):
        rows = torch.arange(gh, device=device, dtype=torch.float32) + 0.5
        columns = torch.arange(gw, device=device, dtype=torch.float32) + 0.5
        y, x = torch.meshgrid(rows, columns, indexing="ij")
        places = torch.stack((x, y), dim=-1).flatten(0, 1)[None]  # (1, gh·gw, 2)
        centre = places / memory.sizes[:, level, None]
        side = torch.full_like(centre, PROPOSED * 2**level)
        found.append(torch.cat((centre, side), dim=-1))
    anchors = torch.cat(found, dim=1)
    valid = ((anchors > 0.01) & (anchors < 0.99)).all(dim=-1)
    return anchors, valid if memory.inside is None else valid & memory.inside


def box_change(dim: int) -> BoxHead:
    """How a box differs from that of its proposal: see `moved`."""
    last = nn.Linear(dim, 4)
    nn.init.zeros_(last.weight)  # at first a box is its proposal
    nn.init.zeros_(last.bias)
    return BoxHead(nn.Linear(dim, dim), nn.Linear(dim, dim), last)


class ClassHead(nn.Linear):
    """Scores of independent classes that all begin as improbable."""

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__(dim, classes)
        nn.init.constant_(self.bias, -math.log((1 - PRIOR) / PRIOR))


def moved(boxes: Tensor, change: Tensor) -> Tensor:
    """Normalised cxcywh boxes, each moved and scaled relative to its own size."""
    boxes, change = boxes.float(), change.float()
    centre = boxes[..., :2] + change[..., :2] * boxes[..., 2:]
    return torch.cat((centre, boxes[..., 2:] * change[..., 2:].exp()), dim=-1)


class Proposed(NamedTuple):
    """The best positions of the first stage, for one group of queries."""

    tokens: Tensor
    """(b, q, d)"""
    logits: Tensor
    """(b, q, classes)"""
    boxes: Tensor
    """(b, q, 4)"""
    places: Tensor
    """(b, q): their numbers, the best one first."""


class Proposals(nn.Module):
    """Every position of the maps says what is there and where; the best ones are kept (Deformable
    DETR, appendix A.4)."""

    def __init__(self, dim: int, classes: int, norm_eps: float) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(dim, dim), nn.LayerNorm(dim, eps=norm_eps)
        self.class_head, self.box_head = ClassHead(dim, classes), box_change(dim)

    def forward(
        self,
        memory: Tensor,
        anchors: Tensor,
        valid: Tensor,
        count: int,
        places: Tensor | None = None,
    ) -> Proposed:
        """memory (b, n, d); anchors (b or 1, n, 4), where positions start; valid (b or 1, n);
        places (b, q): these positions instead of the best."""
        x = self.norm(self.linear(memory.masked_fill(~valid[..., None], 0.0)))
        logits = self.class_head(x).masked_fill(~valid[..., None], -torch.inf)
        best = logits.amax(dim=-1).topk(count, dim=1).indices if places is None else places
        # by gather: take_along_dim fixes the length of the batch in a traced graph
        tokens = x.gather(1, best[..., None].expand(-1, -1, x.shape[-1]))
        start = anchors.masked_fill(~valid[..., None], 0.0).expand(x.shape[0], -1, -1)
        start = start.gather(1, best[..., None].expand(-1, -1, 4))
        boxes = moved(start, self.box_head(tokens))
        return Proposed(tokens, self.class_head(tokens), boxes, best)


def box_sines(boxes: Tensor, width: int, temperature: float = 10_000.0) -> Tensor:
    """(…, 4), cxcywh -> (…, 4·width): sines and cosines in turn, of y, x, w and h."""
    steps = torch.arange(width // 2, device=boxes.device) / (width // 2)
    angles = boxes[..., [1, 0, 2, 3], None] * (2 * math.pi) / temperature**steps
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-3)
