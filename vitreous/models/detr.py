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

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vitreous.config import Classes, Count, Depth, Epsilon, Fraction, Hidden, OneOrMore, Size
from vitreous.layers.attention import AttentionConfig
from vitreous.layers.cross_attention import CrossAttention
from vitreous.layers.decoder import BoxHead, DecoderLayer
from vitreous.layers.mlp import Activation, Mlp
from vitreous.layers.padding import Images, Padding
from vitreous.layers.resample import Grid
from vitreous.layers.sines import image_sines
from vitreous.layers.tap import show
from vitreous.models.composite import CompositeConfig
from vitreous.models.detector import SMALL_BACKBONE, Detector, check_width
from vitreous.models.model import AttentionLayer, Model, Places


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
    add_position: Hidden[bool] = False
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
        check_width(self.dim, self.heads)


class DETROutput(NamedTuple):
    """The prediction of each query, by the last decoder layer, or by every one while training."""

    logits: Tensor
    """(layers, b, queries, classes + 1); the last class is "no object"."""
    boxes: Tensor
    """(layers, b, queries, 4): normalised cxcywh, relative to the image without its padding."""


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


class DETR(Detector):
    """(b, c, h, w), or a list of (c, h, w) of any sizes -> `DETROutput`. See `DETRConfig`."""

    other_classes = 1
    pads_maps = True

    def __init__(self, config: DETRConfig, backbone: Model) -> None:
        super().__init__(config, backbone)
        dim, eps = config.dim, config.norm_eps
        attention = partial(
            CrossAttention,
            dim,
            config.heads,
            dim // config.heads,
            AttentionConfig(dropout=config.attention_dropout),
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
        self.box_head = BoxHead(nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, 4))
        for module in (*self.encoder.modules(), *self.decoder.modules()):
            if isinstance(module, nn.Linear):  # appendix A.4
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, images: Images, every_layer: bool = False) -> DETROutput:
        """Section 3.2. The output of the last decoder layer; of all in training, or with
        `every_layer`."""
        (x,), padding = self.padded_maps(images)  # (b, c, gh, gw)
        x = self.projection(show(self, "backbone", x))  # (b, d, gh, gw)
        position, mask = self.positions(padding, (x.shape[2], x.shape[3]), x.device)
        position = position.to(x.dtype)
        memory = self.encode_map(x.flatten(2).transpose(1, 2), position, mask)  # (b, n, d)
        hidden = self.decode(memory, memory + position, mask, every_layer or self.training)
        logits, boxes = self.class_head(hidden), self.box_head(hidden)  # (layers, b, q, …)
        # near 1, a step of half precision is three pixels of 800
        boxes = boxes.to(torch.promote_types(boxes.dtype, torch.float32)).sigmoid()
        show(self, "class_head", logits[-1])
        show(self, "box_head", boxes[-1])
        return DETROutput(logits, boxes)

    def positions(
        self, padding: Padding | None, grid: Grid, device: torch.device
    ) -> tuple[Tensor, Tensor | None]:
        """Positional encodings (b or 1, n, d), and the mask that is added to attention scores,
        (b, 1, 1, n): 0, and -inf on padding, so that its weight is exactly zero."""
        mask, sizes = None, torch.tensor([grid], device=device)
        if padding is not None:
            inside, sizes = padding.on(grid)
            mask = torch.zeros(inside.shape, device=device).masked_fill(~inside, -torch.inf)
            mask = mask.flatten(1)[:, None, None]
        rows, columns = sizes.unbind(dim=1)
        return image_sines(rows, columns, grid, self.config.dim, self.config.temperature), mask

    def encode_map(self, x: Tensor, position: Tensor, mask: Tensor | None) -> Tensor:
        """Section 3.2, encoder: (b, n, d) -> (b, n, d)."""
        x = show(self, "tokens", x)
        x = x + position if self.config.add_position else x
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

    def attentions(self, size: tuple[int, int] | None = None) -> list[AttentionLayer]:
        _, grid, pixels = self.levels(size or self.own_size())[-1]
        on_map = Places(0, grid, pixels)
        found = super().attentions(size)
        found += [
            AttentionLayer(f"encoder.{i}.attention", "encoder", on_map, on_map)
            for i in range(self.config.encoder_depth)
        ]
        return [*found, *self.decoder_attentions(grid, pixels)]

    def outputs(
        self, images: Tensor, like: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        found = self(images)
        return {"logits": found.logits[-1], "boxes": found.boxes[-1]}

    @classmethod
    def output_of(cls, tensors: Mapping[str, Tensor]) -> DETROutput:
        return DETROutput(tensors["logits"][None], tensors["boxes"][None])


def _variant(layers: int, dilated: bool) -> DETRConfig:
    """Paper, section 4: the norms of the backbone stay as they were on ImageNet."""
    fields = {"norm": "frozen", **({"dilated": True} if dilated else {})}
    return DETRConfig(backbone=f"resnet-{layers}", backbone_fields=fields)


VARIANTS = {
    f"detr-r{layers}{'-dc5' if dilated else ''}": _variant(layers, dilated)
    for dilated in (False, True)
    for layers in (50, 101)
} | {
    # Ours, for few images and no weights to start from: positional encodings are added to the map
    # itself, of sines that vary over the image.
    "detr-small": DETRConfig(
        image_size=256,
        backbone="hybrid",
        backbone_fields=SMALL_BACKBONE,
        dim=128,
        heads=8,
        encoder_depth=1,
        decoder_depth=3,
        mlp_dim=512,
        queries=25,
        add_position=True,
        temperature=20.0,
        dropout=0.0,
        attention_dropout=0.0,
    )
}
