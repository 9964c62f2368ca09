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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import Classes, Depth, Epsilon, Fraction, Hidden, Size
from vitreous.errors import ConfigError, InputError
from vitreous.layers.attention import CrossAttention
from vitreous.layers.deformable import DeformableAttention
from vitreous.layers.mlp import Activation, Mlp
from vitreous.layers.resample import Grid
from vitreous.layers.tap import show
from vitreous.models.composite import Composite, CompositeConfig
from vitreous.models.model import (
    AttentionLayer,
    Features,
    Model,
    Places,
)
from vitreous.models.rf_detr_parts import (
    BoxHead,
    ClassHead,
    DecoderLayer,
    MaskHead,
    Projector,
    Proposals,
    box_sines,
    moved,
    nearest,
)

Images = Tensor | Sequence[Tensor]
"""(b, c, h, w), or (c, h, w) each, of any sizes."""
ROUNDING = 1e-4
"""The part of the largest score by which two scores may differ and be the same up to rounding."""
PROPOSED = 0.05
"""Width and height of the boxes that positions start from, as fractions of the image; twice that
for each further level."""


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
        if self.dim % self.heads:
            raise ConfigError(
                f"dim = {self.dim} does not divide into {self.heads} heads: change one"
            )
        if self.dim % 4:
            raise ConfigError(f"dim = {self.dim}: use a multiple of 4, for sines and cosines")
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


class Padded(NamedTuple):
    """What of a batch of images is image, and not padding."""

    inside: Tensor
    """(b, n) of the positions of all maps, one behind another,"""
    sizes: Tensor
    """(b, levels, 2): and how many columns and rows of each map."""


class RFDETR(Composite):
    """(b, c, h, w), or a list of (c, h, w) of any sizes -> `RFDETROutput`. See `RFDETRConfig`."""

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
        self.class_head, self.box_head = ClassHead(dim, config.classes), BoxHead(dim)
        self.mask_head = (
            MaskHead(dim, config.mask_mlp_dim or 4 * dim, config.decoder_depth, eps)
            if config.masks
            else None
        )
        nn.init.zeros_(self.query_boxes.weight)
        # Nothing reads what is behind the last block that is used.
        unused = [*self.core.layers()[max(blocks) + 2 : -1]]
        for module in (module for layer in unused for module in layer):
            module.requires_grad_(False)

    @staticmethod
    def _layer(config: RFDETRConfig) -> DecoderLayer:
        dim, dropout = config.dim, config.dropout
        return DecoderLayer(
            dim,
            CrossAttention(dim, config.heads, dim // config.heads, dropout=dropout),
            DeformableAttention(dim, config.cross_heads, len(config.scales), config.points),
            Mlp(dim, config.mlp_dim, activation=config.activation, dropout=dropout),
            dropout=dropout,
            norm_eps=config.norm_eps,
        )

    @property
    def width(self) -> int:
        return self.config.dim

    def forward(
        self, images: Images, every_layer: bool = False, places: Tensor | None = None
    ) -> RFDETROutput:
        """The output of the last decoder layer; of all while training, or with `every_layer`.
        places (b, queries): where queries begin, instead of the best proposals."""
        _, maps, padding, size = self._encoded(images)
        return self.detect(maps, padding, size, every_layer or self.training, places)

    def features(self, images: Images, blocks: Iterable[int] | None = None) -> Features:  # type: ignore[override]
        found, maps, padding, size = self._encoded(images, blocks)
        return found._replace(output=self.detect(maps, padding, size, self.training))

    def detect(
        self,
        maps: Sequence[Tensor],
        padding: Sequence[tuple[int, int]] | None,
        size: tuple[int, int],
        every_layer: bool,
        places: Tensor | None = None,
    ) -> RFDETROutput:
        """Behind the backbone: its maps (b, c, gh, gw) of padded images of `size` pixels, of which
        `padding` says how much of each is image."""
        maps = [show(self, f"backbone.{i}", each) for i, each in enumerate(maps)]
        projected = [projector(maps) for projector in self.projectors]
        grids = [(each.shape[2], each.shape[3]) for each in projected]
        memory = torch.cat([each.flatten(2).transpose(1, 2) for each in projected], dim=1)
        padded = None if padding is None else self._padded(padding, size, grids, memory.device)
        groups = self.config.groups if self.training else 1
        count = min(self.config.queries, memory.shape[1])
        anchors, valid = self._anchors(grids, padded, memory)
        proposed = [
            proposal(memory, anchors, valid, count, places) for proposal in self.proposals[:groups]
        ]
        tokens, logits, boxes, begun = (
            torch.cat(each, dim=1) for each in zip(*proposed, strict=True)
        )
        show(self, "proposals", tokens)
        start = moved(boxes.detach(), self._of_groups(self.query_boxes.weight, groups, count))
        start = show(self, "query_boxes", start)
        hidden = self.decode(memory, start, grids, padded, groups, count, every_layer)
        found = torch.stack(hidden)  # (layers, b, groups·q, d)
        classes, found_boxes = self.class_head(found), moved(start, self.box_head(found))
        show(self, "class_head", classes[-1])
        show(self, "box_head", found_boxes[-1])
        output = RFDETROutput(classes, found_boxes, logits, boxes, groups, places=begun)
        if self.mask_head is None:
            return output
        step = self.config.mask_pixels
        large = F.interpolate(
            projected[0], (size[0] // step, size[1] // step), mode="bilinear", align_corners=False
        )
        masks = self.mask_head(large, hidden)
        show(self, "mask_head", masks[-1])
        first = self.mask_head.masks(tokens, large) if self.training else None
        return output._replace(masks=masks, proposed_masks=first)

    def decode(
        self,
        memory: Tensor,
        start: Tensor,
        grids: Sequence[Grid],
        padded: Padded | None,
        groups: int,
        count: int,
        every_layer: bool,
    ) -> list[Tensor]:
        """Queries behind the last layer, or each one, normalised: (b, groups·q, d) each. start
        (b, groups·q, 4)"""
        boxes = start[:, :, None]  # (b, groups·q, 1, 4)
        if padded is not None:
            whole = torch.tensor([(gw, gh) for gh, gw in grids], device=memory.device)
            ratio = padded.sizes / whole  # (b, levels, 2)
            boxes = boxes * torch.cat((ratio, ratio), dim=-1)[:, None]
        first, second = self.box_position
        sines = box_sines(boxes[:, :, 0], self.config.dim // 2).to(memory.dtype)
        position = show(self, "box_position", second(F.relu(first(sines))))
        boxes = boxes.to(memory.dtype)
        x = self._of_groups(self.queries.weight, groups, count).to(memory.dtype)
        x = show(self, "queries", x.repeat(memory.shape[0], 1, 1))
        inside, hidden = None if padded is None else padded.inside, []
        for i, layer in enumerate(self.decoder):
            x = layer(x, position, boxes, memory, grids, inside, groups)
            if every_layer or i == len(self.decoder) - 1:
                hidden.append(self.norm(x))
        return hidden

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

    def _of_groups(self, table: Tensor, groups: int, count: int) -> Tensor:
        """(groups·queries, d) -> (1, groups·count, d): of each group the first rows."""
        used = table.unflatten(0, (-1, self.config.queries))[:groups, :count]
        return used.flatten(0, 1)[None]

    def _anchors(
        self, grids: Sequence[Grid], padded: Padded | None, like: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Where positions start to look for their box: (b or 1, n, 4), normalised cxcywh around
        themselves; and (b or 1, n), which of them are inside the image."""
        found = []
        for level, (gh, gw) in enumerate(grids):
            rows = torch.arange(gh, device=like.device, dtype=torch.float32) + 0.5
            columns = torch.arange(gw, device=like.device, dtype=torch.float32) + 0.5
            y, x = torch.meshgrid(rows, columns, indexing="ij")
            places = torch.stack((x, y), dim=-1).flatten(0, 1)[None]  # (1, gh·gw, 2)
            whole = torch.tensor([[[gw, gh]]], device=like.device, dtype=torch.float32)
            centre = places / (whole if padded is None else padded.sizes[:, level, None])
            side = torch.full_like(centre, PROPOSED * 2**level)
            found.append(torch.cat((centre, side), dim=-1))
        anchors = torch.cat(found, dim=1)
        valid = ((anchors > 0.01) & (anchors < 0.99)).all(dim=-1)
        return anchors, valid if padded is None else valid & padded.inside

    def _padded(
        self,
        padding: Sequence[tuple[int, int]],
        size: tuple[int, int],
        grids: Sequence[Grid],
        device: torch.device,
    ) -> Padded:
        """A position of a map is image if the pixel nearest to its beginning is (as in DETR)."""
        inside, sizes = [], []
        for gh, gw in grids:
            parts = [
                (nearest(height, size[0], gh, device), nearest(width, size[1], gw, device))
                for height, width in padding
            ]
            rows, columns = (torch.stack(each) for each in zip(*parts, strict=True))
            inside.append((rows[:, :, None] & columns[:, None]).flatten(1))
            sizes.append(torch.stack((columns.sum(dim=1), rows.sum(dim=1)), dim=-1))
        return Padded(torch.cat(inside, dim=1), torch.stack(sizes, dim=1).float())

    def _encoded(
        self, images: Images, blocks: Iterable[int] | None = None
    ) -> tuple[Features, list[Tensor], list[tuple[int, int]] | None, tuple[int, int]]:
        """The backbone's features behind `blocks`, the maps that are used, how much of each image
        is no padding (None: all), and the size with it."""
        if not isinstance(images, Tensor) and not len(images):
            raise InputError("an empty list was given; this model takes at least one image")
        for each in (images,) if isinstance(images, Tensor) else (image[None] for image in images):
            self.check_images(each)
        if isinstance(images, Tensor):
            batch, sizes = images, None
        else:
            sizes = [(image.shape[1], image.shape[2]) for image in images]
            height, width = (max(side) for side in zip(*sizes, strict=True))
            batch = torch.stack(
                [F.pad(i, (0, width - i.shape[2], 0, height - i.shape[1])) for i in images]
            )
            sizes = None if len(set(sizes)) == 1 else sizes
        found, maps = self.core_features(batch, blocks)
        return found, maps, sizes, (batch.shape[2], batch.shape[3])

    def steps(self) -> dict[str, nn.Module]:
        """Without the heads, which give every layer's output at once: their last is shown."""
        left_out = ("class_head", "box_head", "proposals", "box_position", "mask_head")
        return {k: v for k, v in super().steps().items() if k.split(".")[0] not in left_out}

    def undecayed(self) -> list[nn.Parameter]:
        tables = (*self.queries.parameters(), *self.query_boxes.parameters())
        return [*super().undecayed(), *tables]

    def attentions(self, size: tuple[int, int] | None = None) -> list[AttentionLayer]:
        """The backbone is the encoder. Deformable attention has points; it shows what they count
        on the first of the projector's maps."""
        _, (gh, gw), (ph, pw) = self.levels(size or self.own_size())[-1]
        scale = self.config.scales[0]
        grid = (round(gh * scale), round(gw * scale))
        pixels = (round(ph / scale), round(pw / scale))
        queries, on_map = Places(self.config.queries, (0, 0), pixels), Places(0, grid, pixels)
        found = [each._replace(part="encoder") for each in super().attentions(size)]
        for i in range(self.config.decoder_depth):
            found += [
                AttentionLayer(f"decoder.{i}.self_attention", "decoder", queries, queries),
                AttentionLayer(f"decoder.{i}.cross_attention", "cross", queries, on_map),
            ]
        return found


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
    return RFDETRConfig(
        backbone=name,
        backbone_fields=backbone,
        blocks=(1, 4, 7, 10),
        **fields,
    )


_HYBRID = {
    **{"stages": (1, 1, 1), "width": 32, "dim": 128, "depth": 3, "heads": 4},
    **{"mlp_dim": 256, "position": "conditional", "tokens": "none", "pool": "mean"},
}
_MINI = RFDETRConfig(
    image_size=192,
    backbone="hybrid",
    backbone_fields=_HYBRID,
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


@dataclass(frozen=True)
class LWDETRConfig(RFDETRConfig):
    """The defaults are LW-DETR-tiny."""

    image_size: Size = 640
    backbone: str = "vit-ti/16"
    projector_norm: Literal["layer", "batch"] = "batch"
    projector_eps: Epsilon = 1e-5
    queries: int = 100


class LWDETR(RFDETR):
    """(b, c, h, w), or a list of (c, h, w) of any sizes -> `RFDETROutput`. See `LWDETRConfig`."""


def _lightweight(size: str, depth: int, **fields: Any) -> LWDETRConfig:
    """LW-DETR, table 2: a ViT without class token and last norm, pre-trained at 224 pixels."""
    within, used = ((0, 2, 4), (1, 3, 5)) if depth == 6 else ((0, 1, 3, 6, 7, 9), (2, 4, 5, 9))
    backbone = {
        **{"depth": depth, "heads": 12, "tokens": "none", "pool": "mean", "final_norm": "none"},
        **{"attention.key_bias": False, "layer_scale": 0.1, "windows.side": 4},
        "windows.global_blocks": tuple(block for block in range(depth) if block not in within),
        **{"position.grid": 14, "position.antialias": False},
    }
    return LWDETRConfig(backbone=f"vit-{size}/16", backbone_fields=backbone, blocks=used, **fields)


_LARGE = {"dim": 384, "heads": 12, "cross_heads": 24, "points": 4, "scales": (2.0, 0.5)}
LW_VARIANTS = {
    "lw-detr-ti": _lightweight("ti", 6),
    "lw-detr-s": _lightweight("ti", 10, queries=300),
    "lw-detr-m": _lightweight("s", 10, queries=300),
    "lw-detr-l": _lightweight("s", 10, queries=300, **_LARGE),
    "lw-detr-xl": _lightweight("b", 10, queries=300, **_LARGE),
}
