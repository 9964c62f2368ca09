"""The parts of LW-DETR and RF-DETR (`rf_detr.py`): projector, proposals, heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.layers.conv_stem import ChannelNorm
from vitreous.layers.decoder import BoxHead
from vitreous.layers.mlp import ACTIVATIONS, Activation, Mlp
from vitreous.layers.resample import enlarged

PRIOR = 0.01
"""The probability of every class at the start: most queries find nothing (Lin et al. 2017)."""


class ConvNorm(nn.Module):
    """Convolution, norm, activation: (b, c, h, w) -> (b, out, h', w')."""

    def __init__(
        self,
        channels: int,
        out: int,
        kernel: int,
        *,
        norm: str,
        eps: float,
        stride: int = 1,
        activation: Activation = "silu",
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)
        self.norm = ChannelNorm(out, eps=eps) if norm == "layer" else nn.BatchNorm2d(out, eps=eps)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](self.norm(self.conv(x)))


class Projector(nn.Module):
    """The backbone's maps as one map of a scale, by a C2f block (LW-DETR, section 3.1; Jocher et
    al. 2023): half of the channels go through bottlenecks, and everything on the way is joined."""

    def __init__(
        self,
        widths: Sequence[int],
        dim: int,
        scale: float,
        *,
        depth: int,
        norm: str,
        eps: float,
    ) -> None:
        super().__init__()
        kind: dict[str, Any] = {"norm": norm, "eps": eps}
        resizing = [_resizing(width, scale, kind) for width in widths]
        self.resize = nn.ModuleList(layers for layers, _ in resizing)
        half, channels = dim // 2, sum(width for _, width in resizing)
        self.enter = ConvNorm(channels, 2 * half, 1, **kind)
        self.bottlenecks = nn.ModuleList(
            nn.Sequential(ConvNorm(half, half, 3, **kind), ConvNorm(half, half, 3, **kind))
            for _ in range(depth)
        )
        self.leave = ConvNorm((2 + depth) * half, dim, 1, **kind)
        self.norm = ChannelNorm(dim, eps=1e-6)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        resized = [resize(each) for resize, each in zip(self.resize, maps, strict=True)]
        # Maps of a pyramid (Swin, ResNet) are brought to one grid; those of a ViT are on one.
        x = torch.cat([enlarged(each, resized[-1].shape[2:]) for each in resized], dim=1)
        parts = [*self.enter(x).chunk(2, dim=1)]
        for bottleneck in self.bottlenecks:
            parts.append(bottleneck(parts[-1]))
        return self.norm(self.leave(torch.cat(parts, dim=1)))


def _resizing(width: int, scale: float, kind: dict[str, Any]) -> tuple[nn.Sequential, int]:
    """A map at another scale, and its channels then. LW-DETR, with batch norms, makes a wide map
    narrower before it is enlarged."""
    if scale == 1:
        return nn.Sequential(), width
    if scale < 1:
        layer = ConvNorm(width, width, 3, stride=2, activation="relu", **kind)
        return nn.Sequential(layer), width
    if width <= 512 or kind["norm"] == "layer":
        return nn.Sequential(nn.ConvTranspose2d(width, width // 2, 2, 2)), width // 2
    narrow = ConvNorm(width, width // 2, 1, activation="relu", **kind)
    enlarging = nn.ConvTranspose2d(width // 2, width // 4, 2, 2)
    return nn.Sequential(narrow, enlarging), width // 4


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


class MaskBlock(nn.Module):
    """Neighbours, then channels: (b, d, h, w) -> (b, d, h, w)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pointwise = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        made = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + F.gelu(self.pointwise(made)).permute(0, 3, 1, 2)


class MaskHead(nn.Module):
    """Queries (b, q, d) of each decoder layer and the projector's map -> mask logits, one block of
    the map for each layer (RF-DETR, segmentation head)."""

    def __init__(self, dim: int, mlp_dim: int, depth: int, norm_eps: float) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(MaskBlock(dim) for _ in range(depth))
        self.map_projection = nn.Conv2d(dim, dim, 1)
        self.query_norm = nn.LayerNorm(dim, eps=norm_eps)
        self.query_mlp = Mlp(dim, mlp_dim)
        self.query_projection = nn.Linear(dim, dim)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, maps: Tensor, queries: Sequence[Tensor]) -> Tensor:
        """maps (b, d, h, w), queries of the last layers or all -> (layers, b, q, h, w)."""
        found, first = [], len(self.blocks) - len(queries)
        for i, block in enumerate(self.blocks):
            maps = block(maps)
            if i >= first:
                found.append(self.masks(queries[i - first], self.map_projection(maps)))
        return torch.stack(found)

    def masks(self, queries: Tensor, maps: Tensor) -> Tensor:
        """(b, q, d), (b, d, h, w) -> (b, q, h, w)"""
        x = self.query_projection(queries + self.query_mlp(self.query_norm(queries)))
        return (x @ maps.flatten(2)).unflatten(2, maps.shape[2:]) + self.bias
