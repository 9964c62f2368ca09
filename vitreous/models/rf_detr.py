"""LW-DETR (Chen et al. 2024) and RF-DETR (Robinson et al. 2025): DETR that learns quickly.

What is slow in DETR is replaced, the set prediction stays. A plain ViT whose blocks attend inside
windows, but for a few, is the encoder. A projector joins the tokens behind several blocks to one
map, or to maps of several scales. Every position of the maps proposes a box; the best ones are
where the queries begin (two stages). In the decoder, queries attend to each other and, by
deformable attention, to a few points around their boxes. While training, several groups of queries
learn side by side from the same objects (Group DETR); only the first one predicts.

RF-DETR is LW-DETR over DINOv2, with LayerNorm in the projector, and a head for instance masks:
each query's vector is multiplied with a map of a quarter of the image's size.

Classes are independent (sigmoid): there is no "no object". Boxes are (cx, cy) + Δ · (w, h) and
(w, h) · exp Δ of the proposals, so that they need no sigmoid; the proposals stay the same for all
layers of the decoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import Classes, Depth, Epsilon, Fraction, Hidden, Size
from vitreous.errors import ConfigError
from vitreous.layers.cross_attention import CrossAttention
from vitreous.layers.decoder import DecoderLayer
from vitreous.layers.deformable import DeformableAttention
from vitreous.layers.mlp import Activation, Mlp
from vitreous.layers.padding import Images
from vitreous.layers.projector import Projector
from vitreous.layers.proposals import (
    ClassHead,
    MapTokens,
    Proposals,
    Proposed,
    anchors_of,
    box_change,
    box_sines,
    moved,
)
from vitreous.layers.tap import show
from vitreous.models.composite import CompositeConfig
from vitreous.models.detector import SMALL_BACKBONE, Detector, check_width
from vitreous.models.model import AttentionLayer, Model

ROUNDING = 1e-4
"""The part of the largest score by which two scores may differ and be the same up to rounding."""


@dataclass(frozen=True)
class RFDETRConfig(CompositeConfig):
    """What an RF-DETR is made of. The defaults are RF-DETR Base, but for its windows."""

    part = "backbone"

    image_size: Size = 560
    """Height and width that it is made for; it takes any size that its backbone takes."""
    channels: int = 3
    classes: Classes = 91
    """COCO's ids, with gaps, end at 90."""
    backbone: str = "dinov2-s/14"
    """The name of any model with feature maps."""
    backbone_fields: dict[str, Any] = field(default_factory=dict)
    """Changes to the backbone's config; on the command line `--set backbone.windows.side=2`."""
    blocks: tuple[int, ...] | None = None
    """Blocks or stages of the backbone whose maps are used, from 0; unless given, four that divide
    a ViT evenly, or all stages of a pyramid."""
    scales: tuple[float, ...] = (1.0,)
    """Sizes of the projector's maps, relative to that of the ViT's: 2, 1 or 0.5."""
    dim: int = 256
    """Width of projector and decoder."""
    projector_depth: int = 3
    """Bottlenecks of each map's projector."""
    projector_norm: Literal["layer", "batch"] = "layer"
    """layer (RF-DETR) or batch (LW-DETR)."""
    projector_eps: Epsilon = 1e-6
    """Of these norms."""
    heads: Hidden[int] = 8
    """Of the attention between queries."""
    cross_heads: int = 16
    """Of the deformable attention to the maps."""
    points: int = 2
    """To which a head of a query looks on each map."""
    decoder_depth: Depth = 3
    mlp_dim: int = 2048
    """Width inside the MLP of each decoder layer."""
    activation: Activation = "relu"
    """Of the decoder."""
    queries: int = 300
    """How many objects can be found in an image."""
    groups: int = 13
    """Of so many queries each, while training."""
    masks: bool = False
    """Whether each object has a mask, too."""
    mask_pixels: int = 4
    """Pixels of the image for each of a mask, in height and width."""
    mask_mlp_dim: int | None = None
    """Width inside the MLP of the mask head; 4 x dim unless given."""
    dropout: Fraction = 0.0
    norm_eps: Epsilon = 1e-5
    """Of the decoder's norms."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_width(self.dim, self.heads)
        if not self.scales or not set(self.scales) <= {2.0, 1.0, 0.5}:
            raise ConfigError(f"scales = {list(self.scales)}: expected some of 2, 1 and 0.5")


class RFDETROutput(NamedTuple):
    """The predictions of each query, by the last decoder layer, or by every one while training,
    when there are `groups` times as many queries, group by group."""

    logits: Tensor
    """(layers, b, queries, classes): of independent classes, for a sigmoid."""
    boxes: Tensor
    """(layers, b, queries, 4): normalised cxcywh, relative to the image without its padding."""
    proposed_logits: Tensor
    """(b, queries, classes) of the first stage,"""
    proposed_boxes: Tensor
    """(b, queries, 4)"""
    groups: int = 1
    masks: Tensor | None = None
    """(layers, b, queries, h/4, w/4): logits,"""
    proposed_masks: Tensor | None = None
    """(b, queries, h/4, w/4) of the first stage, while training."""
    places: Tensor | None = None
    """(b, queries): the number of the position in the maps that each query begins at."""


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


class RFDETR(Detector):
    """(b, c, h, w), or a list of (c, h, w) of any sizes -> `RFDETROutput`. See `RFDETRConfig`."""

    hidden_steps = ("class_head", "box_head", "proposals", "box_position", "mask_head")

    def __init__(self, config: RFDETRConfig, backbone: Model) -> None:
        blocks = used_blocks(backbone, config.blocks)
        config = replace(config, blocks=tuple(blocks))  # a run keeps what was chosen
        super().__init__(config, backbone, blocks)
        dim, eps, size = config.dim, config.norm_eps, self.own_size()
        widths = [level.channels for level in self.decoded_levels(size)]
        self.projectors = nn.ModuleList(
            Projector(
                widths,
                dim,
                scale,
                depth=config.projector_depth,
                norm=config.projector_norm,
                eps=config.projector_eps,
            )
            for scale in config.scales
        )
        self.proposals = nn.ModuleList(
            Proposals(dim, config.classes, eps) for _ in range(config.groups)
        )
        self.queries = nn.Embedding(config.queries * config.groups, dim)
        self.query_boxes = nn.Embedding(config.queries * config.groups, 4)
        """How the boxes that queries begin with differ from the proposals."""
        self.box_position = nn.ModuleList((nn.Linear(2 * dim, dim), nn.Linear(dim, dim)))
        self.decoder = nn.ModuleList(self._layer(config) for _ in range(config.decoder_depth))
        self.norm = nn.LayerNorm(dim, eps=eps)
        self.class_head, self.box_head = ClassHead(dim, config.classes), box_change(dim)
        self.mask_head = (
            MaskHead(dim, config.mask_mlp_dim or 4 * dim, config.decoder_depth, eps)
            if config.masks
            else None
        )
        nn.init.zeros_(self.query_boxes.weight)
        for module in backbone.behind(max(blocks)):  # nothing reads them
            module.requires_grad_(False)

    @staticmethod
    def _layer(config: RFDETRConfig) -> DecoderLayer:
        dim, dropout = config.dim, config.dropout
        return DecoderLayer(
            dim,
            CrossAttention(dim, config.heads, dim // config.heads, dropout=dropout),
            DeformableAttention(
                dim, config.cross_heads, len(config.scales), config.points, dropout
            ),
            Mlp(dim, config.mlp_dim, activation=config.activation, dropout=dropout),
            config.norm_eps,
        )

    def forward(
        self, images: Images, every_layer: bool = False, places: Tensor | None = None
    ) -> RFDETROutput:
        """The output of the last decoder layer; of all while training, or with `every_layer`.
        places (b, queries): where queries begin, instead of the best proposals."""
        batch, padding = self.padded(images)
        maps = [show(self, f"backbone.{i}", each) for i, each in enumerate(self.maps(batch))]
        projected = [projector(maps) for projector in self.projectors]  # (b, d, gh, gw) each
        memory = MapTokens.of(projected, padding)
        groups = self.config.groups if self.training else 1
        proposed = self.propose(memory, groups, places)
        changes = self._of_groups(self.query_boxes.weight, groups, memory)
        start = show(self, "query_boxes", moved(proposed.boxes.detach(), changes))
        hidden = self.decode(memory, start, groups, every_layer or self.training)
        found = torch.stack(hidden)  # (layers, b, groups·q, d)
        logits, boxes = self.class_head(found), moved(start, self.box_head(found))
        show(self, "class_head", logits[-1])
        show(self, "box_head", boxes[-1])
        output = RFDETROutput(
            logits, boxes, proposed.logits, proposed.boxes, groups, places=proposed.places
        )
        if self.mask_head is None:
            return output
        step = self.config.mask_pixels
        size = (batch.shape[2] // step, batch.shape[3] // step)
        large = F.interpolate(projected[0], size, mode="bilinear", align_corners=False)
        masks = self.mask_head(large, hidden)
        show(self, "mask_head", masks[-1])
        first = self.mask_head.masks(proposed.tokens, large) if self.training else None
        return output._replace(masks=masks, proposed_masks=first)

    def propose(self, memory: MapTokens, groups: int, places: Tensor | None) -> Proposed:
        """The first stage: the best positions for each group of queries, one behind another."""
        anchors, valid = anchors_of(memory)
        count = min(self.config.queries, memory.tokens.shape[1])
        proposed = [
            proposal(memory.tokens, anchors, valid, count, places)
            for proposal in self.proposals[:groups]
        ]
        joined = Proposed(*(torch.cat(each, dim=1) for each in zip(*proposed, strict=True)))
        show(self, "proposals", joined.tokens)
        return joined

    def decode(
        self, memory: MapTokens, start: Tensor, groups: int, every_layer: bool
    ) -> list[Tensor]:
        """start (b, groups·q, 4), the boxes that queries begin at -> queries behind the last layer,
        or each one, normalised: (b, groups·q, d) each."""
        tokens, grids, inside, sizes = memory
        boxes = start[:, :, None]  # (b, groups·q, 1, 4)
        if inside is not None:
            whole = torch.tensor([(gw, gh) for gh, gw in grids], device=tokens.device)
            ratio = sizes / whole  # (b, levels, 2)
            boxes = boxes * torch.cat((ratio, ratio), dim=-1)[:, None]
        first, second = self.box_position
        sines = box_sines(boxes[:, :, 0], self.config.dim // 2).to(tokens.dtype)
        position = show(self, "box_position", second(F.relu(first(sines))))
        boxes = boxes.to(tokens.dtype)
        x = self._of_groups(self.queries.weight, groups, memory).to(tokens.dtype)
        x = show(self, "queries", x.repeat(tokens.shape[0], 1, 1))
        hidden = []
        for i, layer in enumerate(self.decoder):
            x = layer(x, position, boxes, tokens, grids, inside, groups=groups)
            if every_layer or i == len(self.decoder) - 1:
                hidden.append(self.norm(x))
        return hidden

    def _of_groups(self, table: Tensor, groups: int, memory: MapTokens) -> Tensor:
        """(groups·queries, d) -> (1, groups·q, d): of each group as many as there are positions."""
        used = table.unflatten(0, (-1, self.config.queries))[:groups, : memory.tokens.shape[1]]
        return used.flatten(0, 1)[None]

    def outputs(
        self, images: Tensor, like: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Of several hundred proposals some are always equally good up to rounding, and which of
        them comes first decides what their queries become. The places of `like` are taken as far as
        they are as good as the best ones."""
        found = self(images)
        if like is not None and "places" in like:
            best, places = found, like["places"].long()
            found = self(images, places=places)
            wanted, given = (each.proposed_logits.amax(dim=-1) for each in (best, found))
            as_good = (wanted - given).abs() <= ROUNDING * wanted.abs().amax()
            found = found._replace(places=torch.where(as_good, places, best.places))
        parts = {"logits": found.logits, "boxes": found.boxes, "masks": found.masks}
        last = {name: part[-1] for name, part in parts.items() if part is not None}
        assert found.places is not None
        return {**last, "places": found.places.float()}

    @classmethod
    def output_of(cls, tensors: Mapping[str, Tensor]) -> RFDETROutput:
        logits, boxes, masks = (tensors.get(name) for name in ("logits", "boxes", "masks"))
        assert logits is not None
        assert boxes is not None
        # Nothing that predicts reads the first stage.
        found = RFDETROutput(logits[None], boxes[None], logits[:, :0], boxes[:, :0])
        masks = None if masks is None else masks[None]
        return found._replace(masks=masks, places=tensors.get("places"))

    def undecayed(self) -> list[nn.Parameter]:
        return [*super().undecayed(), *self.query_boxes.parameters()]

    def attentions(self, size: tuple[int, int] | None = None) -> list[AttentionLayer]:
        """The backbone is the encoder. Deformable attention has points; it shows what they count
        on the first of the projector's maps."""
        _, (gh, gw), (ph, pw) = self.levels(size or self.own_size())[-1]
        scale = self.config.scales[0]
        grid = (round(gh * scale), round(gw * scale))
        pixels = (round(ph / scale), round(pw / scale))
        unread = {m for part in self.core.behind(max(self.decoded)) for m in part.modules()}
        read = [
            each._replace(part="encoder")
            for each in super().attentions(size)
            if self.get_submodule(each.name) not in unread
        ]
        return [*read, *self.decoder_attentions(grid, pixels)]


def used_blocks(backbone: Model, blocks: tuple[int, ...] | None) -> list[int]:
    """Of a ViT four that divide it evenly, the last included; of a pyramid all stages."""
    if blocks is not None:
        return backbone.block_indices(blocks)
    depth, levels = backbone.depth, backbone.levels((1 << 10, 1 << 10))
    if len({level.grid for level in levels}) > 1 or depth < 4:
        return list(range(depth))
    return [depth * part // 4 - 1 for part in (1, 2, 3, 4)]


def _over_dinov2(
    size: int, patch: int, windows: int, decoder_depth: int, **fields: Any
) -> RFDETRConfig:
    """Global attention stands behind the blocks whose maps are used."""
    backbone = {
        **{"patch": patch, "layer_scale": 1.0},
        **{"windows.side": windows, "windows.global_blocks": (3, 6, 9)},
    }
    return RFDETRConfig(
        image_size=size, backbone_fields=backbone, decoder_depth=decoder_depth, **fields
    )


def _base(name: str, **fields: Any) -> RFDETRConfig:
    """The first releases: DINOv2's own patches and positions, and a block that nothing reads."""
    backbone = {
        **{"windows.side": 4, "windows.global_blocks": (2, 5, 8, 11)},
        **{"layer_scale": 1.0, "position.grid": 37},
    }
    return RFDETRConfig(backbone=name, backbone_fields=backbone, blocks=(1, 4, 7, 10), **fields)


_MINI = RFDETRConfig(
    image_size=192,
    backbone="hybrid",
    backbone_fields=SMALL_BACKBONE,
    dim=128,
    projector_depth=1,
    cross_heads=8,
    points=4,
    decoder_depth=2,
    mlp_dim=512,
    queries=25,
    groups=4,
)
"""Ours, to learn from few images without weights."""
VARIANTS = {
    "rf-detr-mini": _MINI,
    "rf-detr-seg-mini": replace(_MINI, masks=True),
    "rf-detr-n": _over_dinov2(384, 16, 2, 2),
    "rf-detr-s": _over_dinov2(512, 16, 2, 3),
    "rf-detr-m": _over_dinov2(576, 16, 2, 4),
    "rf-detr-b": _base("dinov2-s/14"),
    "rf-detr-l": _over_dinov2(704, 16, 2, 4),
    "rf-detr-l-2025": _base(
        "dinov2-b/14", dim=384, heads=12, cross_heads=24, points=4, scales=(2.0, 0.5)
    ),
} | {
    f"rf-detr-seg-{name}": _over_dinov2(size, 12, windows, depth, queries=queries, masks=True)
    for name, size, windows, depth, queries in (
        ("n", 312, 1, 4, 100),
        ("s", 384, 2, 4, 100),
        ("m", 432, 2, 5, 200),
        ("l", 504, 2, 5, 200),
        ("xl", 624, 2, 6, 300),
        ("2xl", 768, 2, 6, 300),
    )
}
