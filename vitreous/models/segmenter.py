"""Segmenter: Transformer for Semantic Segmentation (Strudel et al. 2021).

An encoder's patch tokens are put back on their grid, and a decoder turns them into a map of scores
for each class, which is enlarged to the image's size. The paper's decoders are one linear layer and
the mask transformer; progressive up-sampling is SETR's (Zheng et al. 2021), and encoders that give
maps of several sizes (Swin, ResNet) get a simple feature pyramid (Lin et al. 2017).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import Classes, Depth, Epsilon, Fraction, Hidden, Size
from vitreous.errors import ConfigError
from vitreous.layers.attention import Attention
from vitreous.layers.block import Block
from vitreous.layers.init import initialise
from vitreous.layers.mlp import Mlp
from vitreous.layers.resample import enlarged
from vitreous.layers.tap import show
from vitreous.models.composite import Composite, EncoderConfig
from vitreous.models.model import AttentionLayer, Model, Places

CONV_WIDTH = 256


@dataclass(frozen=True)
class SegmenterConfig(EncoderConfig):
    """What a Segmenter is made of. The defaults are Seg-S-Mask/16 for ADE20K."""

    image_size: Size = 512
    """Height and width of what it sees at once; larger images are covered by sliding windows."""
    classes: Classes = 150
    decoder: Literal["mask", "linear", "progressive", "pyramid"] = "mask"
    """mask (the paper's transformer), linear, progressive (SETR) or pyramid (Swin, ResNet)."""
    dim: int | None = None
    """Width of the decoder; the encoder's unless given, or 256 for convolutions."""
    depth: Depth = 2
    """Blocks of the mask transformer."""
    heads: Hidden[int | None] = None
    """Its attention heads; one for each 64 of its width unless given."""
    dropout: Fraction = 0.1
    """In the mask transformer."""
    norm_eps: Epsilon = 1e-5
    """Of the decoder's norms."""


class LinearDecoder(nn.Module):
    """Each patch by itself: (b, d, gh, gw) -> (b, classes, gh, gw) (section 3.2, Linear)."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, classes)

    def forward(self, maps: list[Tensor]) -> Tensor:
        return self.out(maps[-1].permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Affine(nn.Module):
    """A factor and an offset for each of the last axis; the factor makes scores of cosines."""

    def __init__(self, count: int, factor: float = 5.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((count,), factor))
        self.bias = nn.Parameter(torch.zeros(count))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


class MaskTransformer(nn.Module):
    """Patches and one embedding for each class in one transformer (section 3.2, Mask Transformer).

    The score of a class at a patch is the product of their outputs, each of length one, and the
    classes' scores of a patch are normalised (if there are more than two):
    (b, d, gh, gw) -> (b, classes, gh, gw).
    """

    def __init__(self, width: int, config: SegmenterConfig) -> None:
        super().__init__()
        classes, dropout, norm_eps = config.classes, config.dropout, config.norm_eps
        dim = config.dim or width
        heads = config.heads or max(dim // 64, 1)
        if dim % heads:
            raise ConfigError(f"a decoder of width {dim} does not divide into {heads} heads")
        self.project = nn.Linear(width, dim)
        self.classes = nn.Parameter(torch.empty(classes, dim))
        self.blocks = nn.ModuleList(
            Block(
                dim,
                Attention(dim, heads, dim // heads, dropout=dropout),
                Mlp(dim, 4 * dim, dropout=dropout),
                norm_eps=norm_eps,
            )
            for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(dim, eps=norm_eps)
        self.patch_out = nn.Linear(dim, dim, bias=False)
        self.class_out = nn.Linear(dim, dim, bias=False)
        # Of two scores a LayerNorm leaves only which one is larger: no gradient to learn from.
        self.mask_norm = Affine(classes) if classes < 3 else nn.LayerNorm(classes, norm_eps)
        initialise(self, "trunc-normal")
        nn.init.trunc_normal_(self.classes, std=0.02)
        for module in (self.patch_out, self.class_out):
            nn.init.normal_(module.weight, std=dim**-0.5)

    def forward(self, maps: list[Tensor]) -> Tensor:
        patches = self.project(maps[-1].flatten(2).transpose(1, 2))  # (b, n, d)
        classes = self.classes.to(patches.dtype).expand(patches.shape[0], -1, -1)
        # Without positions the order of tokens does not matter: classes first, as in a ViT.
        x = torch.cat((classes, patches), dim=1)
        for block in self.blocks:
            x = block(x)
        classes, patches = self.norm(x).split((classes.shape[1], patches.shape[1]), dim=1)
        classes = F.normalize(self.class_out(classes), dim=-1)
        patches = F.normalize(self.patch_out(patches), dim=-1)
        masks = self.mask_norm(patches @ classes.mT)  # (b, n, classes)
        return masks.transpose(1, 2).unflatten(2, maps[-1].shape[2:])


def conv_norm(channels: int, out: int, kernel: int = 3) -> nn.Sequential:
    """Convolution, norm, ReLU. SETR has batch norm here; groups do not depend on the batch, so
    that an image's mask is the same in every batch and on every number of processes."""
    groups = math.gcd(32, out)
    conv = nn.Conv2d(channels, out, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, nn.GroupNorm(groups, out), nn.ReLU())


class ProgressiveDecoder(nn.Module):
    """Convolution and doubling in turn, up to the image's size (SETR, PUP): no step is larger."""

    def __init__(self, width: int, dim: int, classes: int, stride: int) -> None:
        super().__init__()
        steps = max(math.ceil(math.log2(stride)), 1)
        self.steps = nn.ModuleList(conv_norm(dim if i else width, dim) for i in range(steps))
        self.out = nn.Conv2d(dim, classes, 1)

    def forward(self, maps: list[Tensor]) -> Tensor:
        x = maps[-1]
        for step in self.steps:
            x = F.interpolate(step(x), scale_factor=2.0, mode="bilinear")
        return self.out(x)


class PyramidDecoder(nn.Module):
    """Maps of several sizes to one (FPN): what is coarse is enlarged and added to what is finer."""

    def __init__(self, widths: list[int], dim: int, classes: int) -> None:
        super().__init__()
        # Swin's stages end without a norm: each map gets one before maps are added.
        self.norms = nn.ModuleList(nn.GroupNorm(1, width) for width in widths)
        self.lateral = nn.ModuleList(nn.Conv2d(width, dim, 1) for width in widths)
        self.smooth = nn.ModuleList(conv_norm(dim, dim) for _ in widths)
        self.out = nn.Conv2d(dim, classes, 1)

    def forward(self, maps: list[Tensor]) -> Tensor:
        """maps from fine to coarse -> (b, classes, the finest one's height and width)."""
        size, above, total = maps[0].shape[2:], None, None
        for norm, lateral, smooth, x in reversed(
            list(zip(self.norms, self.lateral, self.smooth, maps, strict=True))
        ):
            x = lateral(norm(x))
            above = x if above is None else x + enlarged(above, x.shape[2:])
            level = enlarged(smooth(above), size)
            total = level if total is None else total + level
        assert total is not None
        return self.out(total)


class Segmenter(Composite):
    """(b, c, h, w) -> logits (b, classes, h, w). See `SegmenterConfig`."""

    def __init__(self, config: SegmenterConfig, encoder: Model) -> None:
        pyramid = config.decoder == "pyramid"
        super().__init__(config, encoder, range(encoder.depth) if pyramid else (-1,))
        levels = self.decoded_levels(self.own_size())
        if pyramid and len(set(levels)) < 2:
            raise ConfigError(
                f"decoder = 'pyramid' needs an encoder with maps of several sizes (swin, resnet), "
                f"not {config.encoder!r}: use decoder = 'mask', 'linear' or 'progressive'"
            )
        width, _, (stride, _) = levels[-1]
        match config.decoder:
            case "mask":
                self.decoder: nn.Module = MaskTransformer(width, config)
            case "linear":
                self.decoder = LinearDecoder(width, config.classes)
                initialise(self.decoder, "trunc-normal")
            case "progressive":
                dim = config.dim or CONV_WIDTH
                self.decoder = ProgressiveDecoder(width, dim, config.classes, stride)
            case _:
                widths = [level.channels for level in levels]
                self.decoder = PyramidDecoder(widths, config.dim or CONV_WIDTH, config.classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.decode(self.maps(images), images)

    def decode(self, maps: list[Tensor], images: Tensor) -> Tensor:
        """The encoder's maps, (b, d, gh, gw) each -> (b, classes, h, w), as large as the images."""
        for i, each in enumerate(maps):
            show(self, f"encoder.{i}" if len(maps) > 1 else "encoder", each)
        masks = self.decoder(maps)  # (b, classes, gh, gw)
        # The masks cover whole patches; what reaches over the image is cut off.
        h, w = images.shape[2:]
        _, (gh, gw), (ph, pw) = self.decoded_levels((h, w))[0]
        masks = enlarged(masks, (max(gh * ph, h), max(gw * pw, w)))[:, :, :h, :w]
        return show(self, "upsample", masks)

    def undecayed(self) -> list[nn.Parameter]:
        own = [self.decoder.classes] if isinstance(self.decoder, MaskTransformer) else []
        return [*super().undecayed(), *own]

    def attentions(self, size: tuple[int, int] | None = None) -> list[AttentionLayer]:
        found = super().attentions(size)
        if isinstance(self.decoder, MaskTransformer):
            _, grid, pixels = self.levels(size or self.own_size())[-1]
            places = Places(self.config.classes, grid, pixels)
            for i in range(self.config.depth):
                name = f"decoder.blocks.{i}.attention"
                found.append(AttentionLayer(name, "decoder", places, places))
        return found


DECODERS: dict[str, dict[str, Any]] = {"": {}, "-linear": {"decoder": "linear"}}
VARIANTS = {  # paper, section 4.2: images of 512, and of 640 for L; stochastic depth of 0.1
    f"segmenter-{size}{ending}": SegmenterConfig(
        image_size=640 if size == "l/16" else 512,
        encoder=f"vit-{size}",
        encoder_fields={"norm_eps": 1e-5, "drop_path": 0.1},
        **fields,
    )
    for ending, fields in DECODERS.items()
    for size in ("ti/16", "s/16", "s/32", "b/8", "b/16", "b/32", "l/16")
}
VARIANTS["segmenter-mini/8"] = SegmenterConfig(
    # Ours, not the paper's: for a few hundred images and no weights to start from. A convolutional
    # stem before a small ViT, and masks that grow step by step.
    image_size=192,
    encoder="hybrid",
    encoder_fields={
        **{"stages": (1, 1), "width": 32, "dim": 128, "depth": 4, "heads": 4, "mlp_dim": 256},
        **{"position": "conditional", "tokens": "none", "pool": "mean"},
    },
    decoder="progressive",
    dim=64,
)
VARIANTS["segmenter-mini/4"] = SegmenterConfig(
    # Ours as well, for larger images: half of a ResNet-18, and its maps of four sizes as a pyramid.
    # From few photographs it learns more in a minute than blocks and patches do in several.
    image_size=192,
    encoder="resnet-18",
    encoder_fields={"width": 32},
    decoder="pyramid",
    dim=64,
)
