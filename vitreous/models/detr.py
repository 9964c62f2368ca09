"""DETR: End-to-End Object Detection with Transformers (Carion et al. 2020).

A backbone turns the image into a map of features; a transformer encoder lets its positions see each
other; a decoder is given a fixed number of object queries, which look at the map and at each other;
and what becomes of each query is read as one box with one class, or as no object. The set is
predicted at once: there are no anchors, and nothing is suppressed afterwards.

Images of different sizes share a batch: they are filled up at the bottom and right, and what is
filling is seen by nobody.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import Size, choice, fraction, pair, positive
from vitreous.errors import ConfigError, InputError
from vitreous.layers.attention import CrossAttention
from vitreous.layers.features import Features
from vitreous.layers.mlp import ACTIVATIONS, Mlp
from vitreous.layers.position import image_sines
from vitreous.models.model import Level, Model, Places

Images = Tensor | Sequence[Tensor]
"""(b, c, h, w), or (c, h, w) each, of any sizes."""


@dataclass(frozen=True)
class DETRConfig:
    """What a DETR is made of. The defaults are DETR-R50 for COCO, but for its frozen norm."""

    image_size: Size = 800
    """Height and width that it is made for; any size can be given, if the backbone takes it."""
    channels: int = 3
    classes: int = 91
    """Without "no object", for which there is one more output. COCO's ids, with gaps, end at 90."""
    backbone: str = "resnet-50"
    """The name of any model with feature maps; the last one is looked at."""
    backbone_fields: dict[str, Any] = field(default_factory=dict)
    """Changes to the backbone's config; on the command line `--set backbone.norm=group`."""
    dim: int = 256
    """Width of the transformer."""
    heads: int = 8
    encoder_depth: int = 6
    decoder_depth: int = 6
    mlp_dim: int = 2048
    """Width inside the MLP of each layer."""
    queries: int = 100
    """How many objects can be found in an image."""
    placed: bool = False
    """Position is added to the map itself too, not only where attention looks. A deep backbone
    tells places from how far the borders are; a shallow one does not, and boxes cannot be said."""
    temperature: float = 10_000.0
    """Of the sines: the lowest frequency is so many times lower than the highest, which turns once
    over the image. Most of 10,000's are the same at every place; 20 leaves more to tell by."""
    activation: str = "relu"
    """gelu, gelu-tanh, quick-gelu, relu or silu-gated."""
    norm_eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.1
    """On the weights of attention, where the paper's code has it too."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "image_size", pair("image_size", self.image_size))
        object.__setattr__(self, "activation", choice("activation", self.activation, ACTIVATIONS))
        positive(self, "channels", "classes", "dim", "heads", "decoder_depth", "mlp_dim", "queries")
        if not 0 <= self.encoder_depth < 1000:
            raise ConfigError(f"encoder_depth = {self.encoder_depth}: expected 0 or more")
        fraction(self, "dropout", "attention_dropout")
        if not 0 < self.norm_eps < 1:
            raise ConfigError(f"norm_eps = {self.norm_eps}: expected a small number above 0")
        if not 1 <= self.temperature < math.inf:
            raise ConfigError(f"temperature = {self.temperature}: expected 1 or more")
        if self.dim % self.heads:
            raise ConfigError(
                f"dim = {self.dim} does not divide into {self.heads} heads: change one"
            )
        if self.dim % 4:
            raise ConfigError(
                f"dim = {self.dim}: use a multiple of 4, for sines and cosines of x and y"
            )
        for name in ("image_size", "channels", "classes", "head"):
            if name in self.backbone_fields:
                raise ConfigError(f"backbone.{name} is the detector's own: give {name} itself")

    def part_fields(self) -> dict[str, Any]:
        """The changes with which the backbone is created."""
        size = {"image_size": self.image_size, "channels": self.channels}
        return {**size, "head": "none", **self.backbone_fields}


class DETROutput(NamedTuple):
    """What each query has found, by the last decoder layer, or by every one while training."""

    logits: Tensor
    """(layers, b, queries, classes + 1); the last class is "no object"."""
    boxes: Tensor
    """(layers, b, queries, 4): x and y of the middle, width and height, in parts of the image as it
    is without filling."""


class Joined(NamedTuple):
    """Images of different sizes in one batch."""

    images: Tensor
    """(b, c, h, w), filled with zeros at the bottom and right."""
    rows: Tensor | None
    """(b, h): which rows of each are image; None where nothing is filling."""
    columns: Tensor | None
    """(b, w)"""


class EncoderLayer(nn.Module):
    """Positions of the map see each other (appendix A.3, figure 10 left).

    Where a position stands is added to queries and keys, in every layer, and never to what is
    passed on.
    """

    def __init__(self, config: DETRConfig) -> None:
        super().__init__()
        self.attention = _attention(config)
        self.norm1 = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.mlp = _mlp(config)
        self.norm2 = nn.LayerNorm(config.dim, eps=config.norm_eps)

    def forward(self, x: Tensor, position: Tensor, bias: Tensor | None) -> Tensor:
        """x (b, n, d), position (b or 1, n, d), bias (b, 1, 1, n) -> (b, n, d)."""
        placed = x + position
        x = self.norm1(x + self.attention(placed, placed, x, bias))
        return self.norm2(x + self.mlp(x))


class DecoderLayer(nn.Module):
    """Queries see each other, then the map (appendix A.3, figure 10 right)."""

    def __init__(self, config: DETRConfig) -> None:
        super().__init__()
        self.self_attention = _attention(config)
        self.norm1 = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.cross_attention = _attention(config)
        self.norm2 = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.mlp = _mlp(config)
        self.norm3 = nn.LayerNorm(config.dim, eps=config.norm_eps)

    def forward(
        self, x: Tensor, queries: Tensor, placed: Tensor, memory: Tensor, bias: Tensor | None
    ) -> Tensor:
        """x (b, q, d), what has been found so far; queries (q, d), which tell the slots apart;
        memory (b, n, d), with its position in `placed`; bias (b, 1, 1, n) -> (b, q, d)."""
        asking = x + queries
        x = self.norm1(x + self.self_attention(asking, asking, x))
        x = self.norm2(x + self.cross_attention(x + queries, placed, memory, bias))
        return self.norm3(x + self.mlp(x))


class BoxHead(nn.Module):
    """Three layers and a sigmoid: (…, d) -> (…, 4) between 0 and 1 (section 3.2, FFNs)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, out) for out in (dim, dim, 4))

    def forward(self, x: Tensor) -> Tensor:
        first, second, last = self.layers
        x = last(F.relu(second(F.relu(first(x)))))
        # near 1, bfloat16 cannot tell places apart that lie three pixels from each other
        return x.to(torch.promote_types(x.dtype, torch.float32)).sigmoid()


class DETR(Model):
    """(b, c, h, w), or a list of (c, h, w) of any sizes -> `DETROutput`. See `DETRConfig`.

    `backbone` is any model with feature maps; tokens that are no patches are left out.
    """

    classwise = ("class_head.*",)

    def __init__(self, config: DETRConfig, backbone: Model) -> None:
        super().__init__()
        self.config, self.backbone = config, backbone
        self.input_weight = f"backbone.{backbone.input_weight}"
        channels = self.levels(pair("image_size", config.image_size))[-1].channels
        self.projection = nn.Conv2d(channels, config.dim, 1)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_depth))
        self.queries = nn.Embedding(config.queries, config.dim)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_depth))
        self.norm = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.class_head = nn.Linear(config.dim, config.classes + 1)
        self.box_head = BoxHead(config.dim)
        for module in (*self.encoder.modules(), *self.decoder.modules()):
            if isinstance(module, nn.Linear):  # appendix A.4
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    @property
    def core(self) -> Model:
        return self.backbone

    @property
    def width(self) -> int:
        return self.config.dim

    def levels(self, size: tuple[int, int]) -> list[Level]:
        return self.backbone.levels(size)

    def forward(self, images: Images, every_layer: bool = False) -> DETROutput:
        """The output of the last decoder layer; of all of them while training, or if asked."""
        return self._run(images, every_layer)[0]

    def features(
        self, images: Images, blocks: Iterable[int] | None = None, *, norm: bool = True
    ) -> Features:
        """The backbone's features, as the encoder gets them, with the detector's output."""
        output, found = self._run(images, False, blocks)
        return found._replace(output=output)

    def places(self, attention: str, size: tuple[int, int]) -> Places:
        """Where those stand that are looked at: the map's positions, or, between queries, none."""
        if attention.startswith("backbone."):
            return self.backbone.places(attention.removeprefix("backbone."), size)
        _, grid, pixels = self.levels(size)[-1]
        if attention.endswith("self_attention"):
            return Places(self.config.queries, (0, 0), pixels)
        return Places(0, grid, pixels)

    def _run(
        self, images: Images, every_layer: bool, blocks: Iterable[int] | None = None
    ) -> tuple[DETROutput, Features]:
        """The one forward: the output, and the backbone's features."""
        joined = self._join(images)
        asked = [-1, *(() if blocks is None else blocks)]
        found = self.backbone.features(joined.images, asked, norm=self.backbone.ends_with_norm)
        self.show("backbone", found.maps[0])
        x = self.show("projection", self.projection(found.maps[0]))
        position, bias = self._places_of(joined, (x.shape[2], x.shape[3]))
        position = position.to(x.dtype)
        memory = self.show("tokens", x.flatten(2).transpose(1, 2))  # (b, n, d)
        memory = memory + position if self.config.placed else memory
        for i, layer in enumerate(self.encoder):
            memory = self.show(f"encoder.{i}", layer(memory, position, bias))
        hidden = self._decode(memory, memory + position, bias, every_layer or self.training)
        logits = self.class_head(hidden)
        self.show("class_head", logits[-1])
        boxes = self.box_head(hidden)
        self.show("box_head", boxes[-1])
        if blocks is not None:
            found = found._replace(tokens=found.tokens[1:], maps=found.maps[1:])
        return DETROutput(logits, boxes), found

    def _decode(
        self, memory: Tensor, placed: Tensor, bias: Tensor | None, every_layer: bool
    ) -> Tensor:
        """What has become of the queries, (layers, b, q, d), behind the last layer or each one."""
        queries = self.queries.weight.to(memory.dtype)
        # nothing is found yet: what the queries are is added as their position
        x = self.show("queries", torch.zeros_like(queries).expand(len(memory), -1, -1))
        kept = []
        for i, layer in enumerate(self.decoder):
            x = self.show(f"decoder.{i}", layer(x, queries, placed, memory, bias))
            if every_layer or i == len(self.decoder) - 1:
                kept.append(self.norm(x))
        self.show("norm", kept[-1])
        return torch.stack(kept)

    def _join(self, images: Images) -> Joined:
        """Images in one batch; those of different sizes filled up to the largest sides."""
        if isinstance(images, Tensor):
            self.check_images(images)
            return Joined(images, None, None)
        if not len(images):
            raise InputError("an empty list was given; this model takes at least one image")
        for image in images:
            self.check_images(image[None])
        sizes = [(image.shape[1], image.shape[2]) for image in images]
        if len(set(sizes)) == 1:
            return Joined(torch.stack(list(images)), None, None)
        height, width = (max(sides) for sides in zip(*sizes, strict=True))
        filled = [
            F.pad(image, (0, width - w, 0, height - h))
            for image, (h, w) in zip(images, sizes, strict=True)
        ]
        device = filled[0].device
        heights, widths = torch.tensor(sizes, device=device).unbind(1)
        rows = torch.arange(height, device=device) < heights[:, None]
        columns = torch.arange(width, device=device) < widths[:, None]
        return Joined(torch.stack(filled), rows, columns)

    def _places_of(self, joined: Joined, grid: tuple[int, int]) -> tuple[Tensor, Tensor | None]:
        """Positions (b or 1, n, d), and what is added to attention: (b, 1, 1, n), 0 and for filling
        -inf, so that its weight is exactly zero."""
        if joined.rows is None or joined.columns is None:
            whole = torch.tensor([grid], device=joined.images.device)
            return self._sines(whole[:, 0], whole[:, 1], grid), None
        rows, columns = nearest(joined.rows, grid[0]), nearest(joined.columns, grid[1])
        position = self._sines(rows.sum(1), columns.sum(1), grid)
        inside = (rows[:, :, None] & columns[:, None]).flatten(1)
        bias = torch.zeros(inside.shape, device=inside.device).masked_fill(~inside, -torch.inf)
        return position, bias[:, None, None]

    def _sines(self, rows: Tensor, columns: Tensor, grid: tuple[int, int]) -> Tensor:
        return image_sines(rows, columns, grid, self.config.dim, self.config.temperature)


def nearest(inside: Tensor, length: int) -> Tensor:
    """(b, pixels) -> (b, length): a position of the map is image if the pixel nearest to its
    beginning is, as the paper's code has it; the first one always is."""
    return F.interpolate(inside[None].float(), size=length)[0].bool()


def _attention(config: DETRConfig) -> CrossAttention:
    return CrossAttention(
        config.dim,
        config.heads,
        config.dim // config.heads,
        attention_dropout=config.attention_dropout,
        dropout=config.dropout,
    )


def _mlp(config: DETRConfig) -> Mlp:
    return Mlp(config.dim, config.mlp_dim, activation=config.activation, dropout=config.dropout)


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
    # five; and a map that is told where things are, in sines that differ from place to place.
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
