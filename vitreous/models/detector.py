"""What DETR and its successors have in common beside their layers: a list of images of any sizes is
a batch of padded ones, and queries attend to each other and to the image."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vitreous.errors import ConfigError, InputError
from vitreous.layers.padding import Images, Padding, pad
from vitreous.layers.resample import Grid
from vitreous.models.composite import Composite
from vitreous.models.model import AttentionLayer, Places

SMALL_BACKBONE: dict[str, Any] = {
    **{"stages": (1, 1, 1), "width": 32, "dim": 128, "depth": 3, "heads": 4},
    **{"mlp_dim": 256, "position": "conditional", "tokens": "none", "pool": "mean"},
}
"""A hybrid ViT, ours, for few images and no weights to start from: it learns what things look like
sooner than a ResNet does, and halves the size four times, not five."""


def check_width(dim: int, heads: int) -> None:
    """Of a transformer with attention heads and positional encodings."""
    if dim % heads:
        raise ConfigError(f"dim = {dim} does not divide into {heads} heads: change one")
    if dim % 4:
        raise ConfigError(f"dim = {dim}: use a multiple of 4, for sines and cosines of x and y")


class Detector(Composite):
    """(b, c, h, w), or a list of (c, h, w) of any sizes -> classes and boxes of queries."""

    pads_maps: ClassVar[bool] = False
    """Whether a backbone whose positions depend on the image's size sees each size by itself, and
    its maps are padded: so no padding is seen at all. Else the images are padded."""
    queries: nn.Embedding
    hidden_steps: ClassVar[tuple[str, ...]] = ("class_head", "box_head")
    """Parts that give every layer's output at once: the last of it is shown."""

    @property
    def width(self) -> int:
        return self.config.dim

    def maps(
        self, images: Images, blocks: Iterable[int] | None = None, *, norm: bool = True
    ) -> list[Tensor]:
        return self.padded_maps(images, blocks, norm=norm)[0]

    def padded(self, images: Images) -> tuple[Tensor, Padding | None]:
        """The images as one batch, (b, c, h, w), and what of it is image."""
        if not isinstance(images, Tensor) and not len(images):
            raise InputError("an empty list was given; this model takes at least one image")
        for each in (images,) if isinstance(images, Tensor) else (image[None] for image in images):
            self.check_images(each)
        return pad(images)

    def padded_maps(
        self, images: Images, blocks: Iterable[int] | None = None, *, norm: bool = True
    ) -> tuple[list[Tensor], Padding | None]:
        """The backbone's maps, (b, c, gh, gw) each, and what of the last one is image."""
        batch, padding = self.padded(images)
        by_itself = self.pads_maps and self.core.scales_positions
        if by_itself and (self.sharded or padding is not None):
            return self._size_by_size(images, self.block_indices(blocks), norm)
        return super().maps(batch, blocks, norm=norm), padding

    def _size_by_size(
        self, images: Images, blocks: list[int], norm: bool
    ) -> tuple[list[Tensor], Padding | None]:
        groups: dict[Any, list[int]] = {}
        for number, image in enumerate(images):
            groups.setdefault(number if self.sharded else image.shape, []).append(number)
        alone: dict[int, list[Tensor]] = {}
        for group in groups.values():
            maps = super().maps(torch.stack([images[i] for i in group]), blocks, norm=norm)
            alone |= {number: [each[row] for each in maps] for row, number in enumerate(group)}
        padded = [pad(each) for each in zip(*(alone[i] for i in sorted(alone)), strict=True)]
        return [maps for maps, _ in padded], padded[-1][1]

    def steps(self) -> dict[str, nn.Module]:
        steps = super().steps()
        return {k: v for k, v in steps.items() if k.split(".")[0] not in self.hidden_steps}

    def undecayed(self) -> list[nn.Parameter]:
        return [*super().undecayed(), *self.queries.parameters()]

    def decoder_attentions(self, grid: Grid, pixels: tuple[int, int]) -> list[AttentionLayer]:
        """Of the decoder, whose queries attend to a map of `grid`."""
        queries, on_map = Places(self.config.queries, (0, 0), pixels), Places(0, grid, pixels)
        return [
            layer
            for i in range(self.config.decoder_depth)
            for layer in (
                AttentionLayer(f"decoder.{i}.self_attention", "decoder", queries, queries),
                AttentionLayer(f"decoder.{i}.cross_attention", "cross", queries, on_map),
            )
        ]
