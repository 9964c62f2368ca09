"""DETR: End-to-End Object Detection with Transformers (Carion et al. 2020).

A backbone turns the image into a map of features; in a transformer encoder its positions attend to
each other; in a decoder a fixed number of object queries attend to the map and to each other; each
query ends as one box with one class, or as no object. The set is predicted at once: there are no
anchors, and no non-maximum suppression.

Images of different sizes share a batch: they are padded at the bottom and right, and the padding is
masked out of attention. A backbone whose positions depend on the image's size (a ViT) sees each
size by itself; its maps are padded instead, so that no padding is seen at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import Classes, Count, Depth, Epsilon, Fraction, Hidden, OneOrMore, Size
from vitreous.errors import ConfigError, InputError
from vitreous.layers.attention import CrossAttention
from vitreous.layers.mlp import Activation, Mlp
from vitreous.layers.resample import Grid
from vitreous.layers.sines import image_sines
from vitreous.layers.tap import show
from vitreous.models.composite import Composite, CompositeConfig
from vitreous.models.model import (
    AttentionLayer,
    Features,
    Model,
    Places,
)

Images = Tensor | Sequence[Tensor]
"""(b, c, h, w), or (c, h, w) each, of any sizes."""


@dataclass(frozen=True)
class DETRConfig(CompositeConfig):
    """What a DETR is made of. The defaults are DETR-R50 for COCO, but for its frozen norm."""

    part = "backbone"

    image_size: Size = 800
    """Height and width that it is made for; it takes any size that its backbone takes."""
    channels: int = 3
    classes: Classes = 91
    """Without "no object", for which there is one more output. COCO's ids, with gaps, end at 90."""
    backbone: str = "resnet-50"
    """The name of any model with feature maps; the last map is used."""
    backbone_fields: dict[str, Any] = field(default_factory=dict)
    """Changes to the backbone's config; on the command line `--set backbone.norm=group`."""
    dim: int = 256
    """Width of the transformer."""
    heads: Hidden[int] = 8
    encoder_depth: Count = 6
    decoder_depth: Depth = 6
    mlp_dim: int = 2048
    """Width inside the MLP of each layer."""
    queries: int = 100
    """How many objects can be found in an image."""
    placed: Hidden[bool] = False
    """Whether the positional encoding is added to the feature map itself too, not only to queries
    and keys. A deep backbone learns positions from its zero padding; a shallow one does not, and
    without this its boxes stay poor."""
    temperature: OneOrMore = 10_000.0
    """Of the sines: the highest frequency has one period over the image, the lowest is this many
    times lower. At 10,000 most channels are nearly constant; at 20 more of them vary."""
    activation: Activation = "relu"
    norm_eps: Epsilon = 1e-5
    dropout: Fraction = 0.1
    attention_dropout: Fraction = 0.1
    """On the attention weights, as in the paper's code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % self.heads:
            raise ConfigError(
                f"dim = {self.dim} does not divide into {self.heads} heads: change one"
            )
        if self.dim % 4:
            raise ConfigError(
                f"dim = {self.dim}: use a multiple of 4, for sines and cosines of x and y"
            )


class DETROutput(NamedTuple):
    """The prediction of each query, by the last decoder layer, or by every one while training."""

    logits: Tensor
    """(layers, b, queries, classes + 1); the last class is "no object"."""
    boxes: Tensor
    """(layers, b, queries, 4): normalised cxcywh, relative to the image without its padding."""


class Inside(NamedTuple):
    """What of a batch of images or maps is image, and not padding."""

    rows: Tensor
    """(b, h)"""
    columns: Tensor
    """(b, w)"""


class EncoderLayer(nn.Module):
    """Positions of the map attend to each other (appendix A.3, figure 10 left).

    The positional encoding is added to queries and keys, in every layer, and never to the values.
    """

    def __init__(self, dim: int, attention: CrossAttention, mlp: Mlp, norm_eps: float) -> None:
        super().__init__()
        self.attention, self.norm1 = attention, nn.LayerNorm(dim, eps=norm_eps)
        self.mlp, self.norm2 = mlp, nn.LayerNorm(dim, eps=norm_eps)

    def forward(self, x: Tensor, position: Tensor, mask: Tensor | None) -> Tensor:
        """x (b, n, d), position (b or 1, n, d), mask (b, 1, 1, n) -> (b, n, d)."""
        at = x + position
        x = self.norm1(x + self.attention(at, at, x, mask))
        return self.norm2(x + self.mlp(x))


class DecoderLayer(nn.Module):
    """Queries attend to each other, then to the map (appendix A.3, figure 10 right)."""

    def __init__(
        self,
        dim: int,
        self_attention: CrossAttention,
        cross_attention: CrossAttention,
        mlp: Mlp,
        norm_eps: float,
    ) -> None:
        super().__init__()
        self.self_attention, self.norm1 = self_attention, nn.LayerNorm(dim, eps=norm_eps)
        self.cross_attention, self.norm2 = cross_attention, nn.LayerNorm(dim, eps=norm_eps)
        self.mlp, self.norm3 = mlp, nn.LayerNorm(dim, eps=norm_eps)

    def forward(
        self, x: Tensor, queries: Tensor, keys: Tensor, memory: Tensor, mask: Tensor | None
    ) -> Tensor:
        """x (b, q, d), what the queries have found so far; queries (q, d), their own encoding;
        memory (b, n, d), with positions in `keys`; mask (b, 1, 1, n) -> (b, q, d)."""
        at = x + queries
        x = self.norm1(x + self.self_attention(at, at, x))
        x = self.norm2(x + self.cross_attention(x + queries, keys, memory, mask))
        return self.norm3(x + self.mlp(x))


class BoxHead(nn.Module):
    """Three layers and a sigmoid: (…, d) -> (…, 4) between 0 and 1 (section 3.2, FFNs)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, out) for out in (dim, dim, 4))

    def forward(self, x: Tensor) -> Tensor:
        first, second, last = self.layers
        x = last(F.relu(second(F.relu(first(x)))))
        # near 1, a step of bfloat16 is three pixels of 800
        return x.to(torch.promote_types(x.dtype, torch.float32)).sigmoid()


class DETR(Composite):
    """(b, c, h, w), or a list of (c, h, w) of any sizes -> `DETROutput`. See `DETRConfig`."""

    other_classes = 1

    def __init__(self, config: DETRConfig, backbone: Model) -> None:
        super().__init__(config, backbone)
        dim, eps = config.dim, config.norm_eps
        attention = partial(
            CrossAttention,
            dim,
            config.heads,
            dim // config.heads,
            attention_dropout=config.attention_dropout,
            dropout=config.dropout,
        )
        mlp = partial(
            Mlp, dim, config.mlp_dim, activation=config.activation, dropout=config.dropout
        )
        self.projection = nn.Conv2d(backbone.levels(self.own_size())[-1].channels, dim, 1)
        self.encoder = nn.ModuleList(
            EncoderLayer(dim, attention(), mlp(), eps) for _ in range(config.encoder_depth)
        )
        self.queries = nn.Embedding(config.queries, dim)
        self.decoder = nn.ModuleList(
            DecoderLayer(dim, attention(), attention(), mlp(), eps)
            for _ in range(config.decoder_depth)
        )
        self.norm = nn.LayerNorm(dim, eps=eps)
        self.class_head = nn.Linear(dim, config.classes + 1)
        self.box_head = BoxHead(dim)
        for module in (*self.encoder.modules(), *self.decoder.modules()):
            if isinstance(module, nn.Linear):  # appendix A.4
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    @property
    def width(self) -> int:
        return self.config.dim

    def forward(self, images: Images, every_layer: bool = False) -> DETROutput:
        """The output of the last decoder layer; of all while training, or with `every_layer`."""
        _, backbone_map, inside = self._encoded(images)
        return self.detect(backbone_map, inside, every_layer or self.training)

    def features(self, images: Images, blocks: Iterable[int] | None = None) -> Features:  # type: ignore[override]
        found, backbone_map, inside = self._encoded(images, blocks)
        return found._replace(output=self.detect(backbone_map, inside, self.training))

    def detect(self, backbone_map: Tensor, inside: Inside | None, every_layer: bool) -> DETROutput:
        """Section 3.2 behind the backbone: (b, c, gh, gw) -> classes and boxes."""
        x = self.projection(show(self, "backbone", backbone_map))
        position, mask = self._positions(inside, (x.shape[2], x.shape[3]), x.device)
        position = position.to(x.dtype)
        memory = self.encode_map(x.flatten(2).transpose(1, 2), position, mask)  # (b, n, d)
        hidden = self.decode(memory, memory + position, mask, every_layer)  # (layers, b, q, d)
        logits = self.class_head(hidden)
        show(self, "class_head", logits[-1])
        boxes = self.box_head(hidden)
        show(self, "box_head", boxes[-1])
        return DETROutput(logits, boxes)

    def encode_map(self, x: Tensor, position: Tensor, mask: Tensor | None) -> Tensor:
        """Section 3.2, encoder: (b, n, d) -> (b, n, d)."""
        x = show(self, "tokens", x)
        x = x + position if self.config.placed else x
        for layer in self.encoder:
            x = layer(x, position, mask)
        return x

    def decode(
        self, memory: Tensor, keys: Tensor, mask: Tensor | None, every_layer: bool
    ) -> Tensor:
        """Section 3.2, decoder: queries behind the last layer, or each one: (layers, b, q, d)."""
        queries = self.queries.weight.to(memory.dtype)
        # Queries start at zero; what tells them apart is added like a positional encoding.
        x = show(self, "queries", torch.zeros_like(queries).expand(memory.shape[0], -1, -1))
        kept = []
        for i, layer in enumerate(self.decoder):
            x = layer(x, queries, keys, memory, mask)
            if every_layer or i == len(self.decoder) - 1:
                kept.append(self.norm(x))
        return torch.stack(kept)

    def steps(self) -> dict[str, nn.Module]:
        """Without the heads, which give every layer's output at once: their last is shown."""
        heads = ("class_head", "box_head")
        return {name: part for name, part in super().steps().items() if name not in heads}

    def undecayed(self) -> list[nn.Parameter]:
        return [*super().undecayed(), *self.queries.parameters()]

    def attentions(self, size: tuple[int, int] | None = None) -> list[AttentionLayer]:
        _, grid, pixels = self.levels(size or self.own_size())[-1]
        queries, on_map = Places(self.config.queries, (0, 0), pixels), Places(0, grid, pixels)
        found = super().attentions(size)
        found += [
            AttentionLayer(f"encoder.{i}.attention", "encoder", on_map, on_map)
            for i in range(self.config.encoder_depth)
        ]
        for i in range(self.config.decoder_depth):
            found += [
                AttentionLayer(f"decoder.{i}.self_attention", "decoder", queries, queries),
                AttentionLayer(f"decoder.{i}.cross_attention", "cross", queries, on_map),
            ]
        return found

    def outputs(
        self, images: Tensor, like: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        found = self(images)
        return {"logits": found.logits[-1], "boxes": found.boxes[-1]}

    @classmethod
    def output_of(cls, tensors: Mapping[str, Tensor]) -> DETROutput:
        return DETROutput(tensors["logits"][None], tensors["boxes"][None])

    def _encoded(
        self, images: Images, blocks: Iterable[int] | None = None
    ) -> tuple[Features, Tensor, Inside | None]:
        """The backbone's features behind `blocks`, its last map, and what of the map is image."""
        if not isinstance(images, Tensor) and not len(images):
            raise InputError("an empty list was given; this model takes at least one image")
        for each in (images,) if isinstance(images, Tensor) else (image[None] for image in images):
            self.check_images(each)
        alike = isinstance(images, Tensor) or len({image.shape for image in images}) == 1
        if self.core.scales_positions and (self.sharded or not alike):
            return self._size_by_size(images, blocks)
        batch = images if isinstance(images, Tensor) else torch.stack(padded(images))
        found, maps = self.core_features(batch, blocks)
        if alike:
            return found, maps[-1], None
        gh, gw = maps[-1].shape[2:]
        rows, columns = inside(list(images))
        return found, maps[-1], Inside(nearest(rows, gh), nearest(columns, gw))

    def _size_by_size(
        self, images: Images, blocks: Iterable[int] | None
    ) -> tuple[Features, Tensor, Inside]:
        """The same where the backbone must see no padding: its maps are padded."""
        blocks = None if blocks is None else list(blocks)
        groups: dict[Any, list[int]] = {}
        for number, image in enumerate(images):
            groups.setdefault(number if self.sharded else image.shape, []).append(number)
        alone: dict[int, tuple[list[Tensor], list[Tensor], Tensor]] = {}
        for group in groups.values():
            found, (*_, last) = self.core_features(torch.stack([images[i] for i in group]), blocks)
            for row, number in enumerate(group):
                before = [tokens[row, : found.prefix] for tokens in found.tokens]
                alone[number] = before, [each[row] for each in found.maps], last[row]
        prefixes, maps, lasts = zip(*(alone[i] for i in range(len(images))), strict=True)
        joined = [torch.stack(padded(each)) for each in zip(*maps, strict=True)]  # (b, d, gh, gw)
        tokens = [
            torch.cat((torch.stack(before), each.flatten(2).transpose(1, 2)), dim=1)
            for before, each in zip(zip(*prefixes, strict=True), joined, strict=True)
        ]
        features = Features(tokens, joined, None, found.prefix)
        return features, torch.stack(padded(lasts)), inside(lasts)

    def _positions(
        self, inside: Inside | None, grid: Grid, device: torch.device
    ) -> tuple[Tensor, Tensor | None]:
        """Positional encodings (b or 1, n, d), and the mask that is added to attention scores,
        (b, 1, 1, n): 0, and -inf on padding, so that its weight is exactly zero."""
        if inside is None:
            whole = torch.tensor([grid], device=device)
            return self._sines(whole[:, 0], whole[:, 1], grid), None
        rows, columns = inside
        position = self._sines(rows.sum(1), columns.sum(1), grid)
        image = (rows[:, :, None] & columns[:, None]).flatten(1)
        mask = torch.zeros(image.shape, device=device).masked_fill(~image, -torch.inf)
        return position, mask[:, None, None]

    def _sines(self, rows: Tensor, columns: Tensor, grid: Grid) -> Tensor:
        return image_sines(rows, columns, grid, self.config.dim, self.config.temperature)


def padded(images: Sequence[Tensor]) -> list[Tensor]:
    """(c, h, w) each, with zeros at the bottom and right up to the largest sides."""
    height, width = (max(image.shape[axis] for image in images) for axis in (1, 2))
    return [F.pad(i, (0, width - i.shape[2], 0, height - i.shape[1])) for i in images]


def inside(images: Sequence[Tensor]) -> Inside:
    """What of them is image when they are `padded`."""
    device = images[0].device
    sizes = torch.tensor([image.shape[1:] for image in images], device=device)
    height, width = sizes.amax(dim=0).tolist()
    rows = torch.arange(height, device=device) < sizes[:, :1]
    return Inside(rows, torch.arange(width, device=device) < sizes[:, 1:])


def nearest(inside: Tensor, length: int) -> Tensor:
    """(b, pixels) -> (b, length): a position of the map is image if the pixel nearest to its
    beginning is, as the paper's code has it; the first one always is."""
    return F.interpolate(inside[None].float(), size=length)[0].bool()


def _variant(layers: int, dilated: bool) -> DETRConfig:
    """Paper, section 4: the norms of the backbone stay as they were on ImageNet."""
    fields = {"norm": "frozen", **({"dilated": True} if dilated else {})}
    return DETRConfig(backbone=f"resnet-{layers}", backbone_fields=fields)


VARIANTS = {
    f"detr-r{layers}{'-dc5' if dilated else ''}": _variant(layers, dilated)
    for dilated in (False, True)
    for layers in (50, 101)
} | {
    # Ours, for few images and no weights to start from: a small hybrid ViT as its backbone, which
    # learns what things look like sooner than a ResNet does and halves the size four times, not
    # five; and positional encodings on the map itself, of sines that vary over the image.
    "detr-small": DETRConfig(
        image_size=256,
        backbone="hybrid",
        backbone_fields={
            **{"stages": (1, 1, 1), "width": 32, "dim": 128, "depth": 3, "heads": 4},
            **{"mlp_dim": 256, "position": "conditional", "tokens": "none", "pool": "mean"},
        },
        dim=128,
        heads=8,
        encoder_depth=1,
        decoder_depth=3,
        mlp_dim=512,
        queries=25,
        placed=True,
        temperature=20.0,
        dropout=0.0,
        attention_dropout=0.0,
    )
}
