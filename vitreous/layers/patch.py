"""An image as a grid of patches (ViT section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import Record, Uncommon
from vitreous.errors import ConfigError, advice


@dataclass(frozen=True)
class StemConfig(Record):
    """What stands before and behind the patch embedding: nothing, as in the paper, or what other
    stems put there (`conv_stem.py`; the ResNet of a hybrid)."""

    kind: str = ""

    @property
    def stride(self) -> tuple[int, int]:
        """Pixels of the image for each position of the map that is cut into patches,"""
        return 1, 1

    @property
    def grid_stride(self) -> tuple[int, int]:
        """and patches for each token."""
        return 1, 1

    def map_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of what is cut into patches: the image, or a stem's map of it."""
        return size

    def grid_of(self, patches: tuple[int, int]) -> tuple[int, int]:
        """Tokens in height and width of a grid of patches."""
        return patches

    def patch_width(self, dim: int) -> int:
        """Width of a patch's embedding, for tokens of this width."""
        return dim

    def out_channels(self, channels: int, dim: int) -> int:
        """Of what is cut into patches; an error where something does not fit."""
        return channels

    def make(self, channels: int) -> nn.Module:
        """What stands before the patch embedding,"""
        return nn.Identity()

    def make_grid(self, dim: int) -> nn.Module:
        """and behind it."""
        return nn.Identity()


@dataclass(frozen=True)
class NoStem(StemConfig):
    kind: Literal["none"] = "none"


class PatchSizes(NamedTuple):
    """What a patch embedding depends on."""

    channels: int
    patch: tuple[int, int]
    dim: int
    pad: bool = False
    """Whether images are padded with zeros at the bottom and right up to whole patches,"""
    windows: int = 1
    """and to a multiple of so many of them."""
    norm_eps: float = 1e-6


@dataclass(frozen=True)
class PatchConfig(Record):
    """The linear layer of equation 1."""

    kind: Literal["linear"] = "linear"
    bias: bool = True
    norm: Annotated[bool | Literal["in", "out"], Uncommon(("in", "out"))] = False
    """LayerNorm before (in) or after (out) the patch embedding; True: both, as in vit-pytorch."""

    def make(self, sizes: PatchSizes) -> nn.Module:
        return PatchEmbedding(sizes, bias=self.bias, norm=self.norm)


class PatchEmbedding(nn.Module):
    """Cuts (b, c, h, w) into patches and maps each one linearly: -> (b, h/ph, w/pw, dim).

    This is the convolution whose stride is its kernel, computed as one matrix product; the weight
    keeps the convolution's layout (dim, c, ph, pw), which is how most checkpoints store it and how
    one looks at the filters. `norm` puts a LayerNorm before ("in") or after ("out") the map, or
    both (True, vit-pytorch).
    """

    channels_last = True

    def __init__(self, sizes: PatchSizes, *, bias: bool = True, norm: bool | str = False) -> None:
        super().__init__()
        channels, patch, dim, self.pad, self.windows, norm_eps = sizes
        self.patch = patch
        self.weight = nn.Parameter(torch.empty(dim, channels, *patch))
        self.bias = nn.Parameter(torch.zeros(dim)) if bias else None
        width = channels * patch[0] * patch[1]
        before, after = norm in (True, "in"), norm in (True, "out")
        self.norm_in = nn.LayerNorm(width, eps=norm_eps) if before else nn.Identity()
        self.norm_out = nn.LayerNorm(dim, eps=norm_eps) if after else nn.Identity()
        nn.init.trunc_normal_(self.weight, std=width**-0.5)

    def forward(self, images: Tensor) -> Tensor:
        ph, pw = self.patch
        if self.pad:
            h, w = images.shape[2:]
            images = F.pad(images, (0, -w % (pw * self.windows), 0, -h % (ph * self.windows)))
        b, c, h, w = images.shape
        patches = images.reshape(b, c, h // ph, ph, w // pw, pw).permute(0, 2, 4, 1, 3, 5)
        patches = self.norm_in(patches.flatten(3))  # (b, gh, gw, c·ph·pw)
        return self.norm_out(F.linear(patches, self.weight.flatten(1), self.bias))

    def extra_repr(self) -> str:
        dim, channels = self.weight.shape[:2]
        return f"{channels}x{self.patch[0]}x{self.patch[1]} -> {dim}, pad={self.pad}"


class PrefixTokens(nn.Module):
    """The learned tokens before the patches: class, distillation (DeiT), registers, in this order.

    Registers (Darcet et al. 2023) give attention a place to store things: nothing reads their
    output.
    """

    def __init__(
        self, dim: int, *, class_token: bool, distillation_token: bool, registers: int
    ) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(dim)) if class_token else None
        self.distillation_token = nn.Parameter(torch.zeros(dim)) if distillation_token else None
        self.registers = nn.Parameter(torch.zeros(registers, dim)) if registers else None

    def forward(self, patches: Tensor) -> Tensor:
        """(b, n, d) -> (b, p + n, d)."""
        rows = [
            row.reshape(-1, patches.shape[-1])
            for row in (self.class_token, self.distillation_token, self.registers)
            if row is not None
        ]
        if not rows:
            return patches
        prefix = torch.cat(rows).to(patches.dtype).expand(patches.shape[0], -1, -1)
        return torch.cat((prefix, patches), dim=1)


def patch_grid(
    size: tuple[int, int],
    patch: tuple[int, int],
    pad: bool,
    stem: tuple[int, int] = (1, 1),
    windows: int = 1,
) -> tuple[int, int]:
    """How many patches fit into a map of `size`, in height and width; they must fill it, or `pad`,
    which pads to whole windows, too.

    stem: pixels of the image for each position of the map.
    """
    (h, w), (ph, pw) = size, patch
    if not pad and (h % ph or w % pw):
        what, images = ("image", "") if stem == (1, 1) else ("the stem's map of", "images of ")
        rows, columns = ph * stem[0], pw * stem[1]
        multiples = f"{rows}" if rows == columns else f"{rows} in height and {columns} in width"
        raise ConfigError(
            f"{what} {h}x{w} does not divide into {ph}x{pw} patches: use {images}a multiple of "
            f"{multiples}{advice(', or pass ', pad=True)}"
        )
    rows, columns = -(-h // (ph * windows)), -(-w // (pw * windows))
    return (rows * windows, columns * windows) if pad else (h // ph, w // pw)
