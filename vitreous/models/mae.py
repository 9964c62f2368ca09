"""MAE: Masked Autoencoders Are Scalable Vision Learners (He et al. 2022).

Most patches of an image are hidden. The encoder, a ViT, sees the visible ones alone; a light
decoder is given what it made of them, with a mask token in every hidden place, and predicts the
pixels of each patch (figure 1). The loss compares the hidden ones (`tasks/mae`). After that the
decoder is thrown away, and the encoder is fine-tuned.

The encoder's fixed sines over x and y are stored in the files as a position table. The published
encoders have no head, and the norm of a ViT behind the last block. For fine-tuning, the paper's
code averages the patches and puts the norm behind that (`final_norm = "pooled"`); a mean of
normalised patches keeps the file's norm as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vitreous.config import Epsilon, OptionalDepth, pair
from vitreous.errors import ConfigError
from vitreous.layers.attention import Attention
from vitreous.layers.block import Block
from vitreous.layers.head import TokenPoolConfig
from vitreous.layers.init import initialise
from vitreous.layers.kinds import Pool
from vitreous.layers.mlp import Mlp
from vitreous.layers.position import Learned1d
from vitreous.layers.resample import Grid
from vitreous.layers.sines import grid_sines
from vitreous.layers.tap import show
from vitreous.models.composite import Composite, EncoderConfig
from vitreous.models.model import Model
from vitreous.models.vit import SIZES, ViT, ViTConfig, is_empty

EVALUATION = 0
"""The seed of the mask in eval mode."""
HEAD_WIDTH = 32
"""Of the paper's decoder: 512 in 16 heads."""


@dataclass(frozen=True)
class MAEConfig(ViTConfig):
    """A ViT whose head sees the mean of the patches. The defaults are B/16."""

    pool: Pool = TokenPoolConfig("mean")


class MAE(ViT):
    """(b, c, h, w) -> logits (b, classes)."""

    def __init__(self, config: MAEConfig) -> None:
        super().__init__(config)
        if isinstance(self.position, Learned1d):
            sines_(self.position)


@torch.no_grad()
def sines_(position: Learned1d) -> None:
    """Fixed sines over x and y as a table (the paper's appendix A.1); zero before the patches."""
    table = position.table
    table[: position.rows] = 0
    sines = grid_sines(table.shape[1] // 4 * 4, position.grid, table.device, ends=False)
    table[position.rows :, : sines.shape[1]] = sines


VARIANTS = {
    f"mae-{size}/{patch}": MAEConfig(patch=patch, **SIZES[size])
    for size, patch in (("b", 16), ("l", 16), ("h", 14))
}


@dataclass(frozen=True)
class MaskedAutoencoderConfig(EncoderConfig):
    """What is pre-trained. The defaults are the paper's for B/16; those of the decoder become
    smaller with the encoder."""

    core_defaults = {"pool": "mean"}  # noqa: RUF012 -- nothing teaches a class token to be read

    encoder: str = "mae-b/16"
    """The name of any ViT whose positions are added to the tokens."""
    mask_ratio: float = 0.75
    """The part of the patches that is hidden."""
    normalised_pixels: bool = True
    """Whether the pixels to predict are normalised by the mean and std of their patch."""
    decoder_dim: int | None = None
    """Width of the decoder; two thirds of the encoder's unless given, at most 512."""
    decoder_depth: OptionalDepth = None
    """Its blocks; 8 unless given, for encoders below ViT-B a third of theirs."""
    decoder_heads: int | None = None
    """Its attention heads; one for each 32 of its width unless given."""
    decoder_mlp_dim: int | None = None
    """Width inside its MLPs; 4 x its width unless given."""
    norm_eps: Epsilon = 1e-6
    """Of all norms."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.mask_ratio < 1:
            raise ConfigError(f"mask_ratio = {self.mask_ratio}: expected a number between 0 and 1")

    def core_fields(self) -> dict[str, Any]:
        return {"norm_eps": self.norm_eps, **super().core_fields()}


class Masked(NamedTuple):
    """What a masked autoencoder gives for b images of n patches with p values each: the pixels of
    a patch row by row, their channels last."""

    prediction: Tensor
    """(b, n, p)"""
    target: Tensor
    """(b, n, p): the true pixels, normalised by the mean and std of their patch if the model is
    made for that,"""
    mean: Tensor
    """(b, n, 1): which are these, or else 0"""
    std: Tensor
    """(b, n, 1): and 1; prediction · std + mean are pixels"""
    mask: Tensor
    """(b, gh, gw): 1 where a patch was hidden, 0 where the encoder saw it."""


class DecoderSizes(NamedTuple):
    dim: int
    depth: int
    heads: int
    mlp_dim: int


def decoder_sizes(core: ViT, config: MaskedAutoencoderConfig) -> DecoderSizes:
    """As they are given, or fit the encoder."""
    width, small = core.config.dim, core.config.dim < SIZES["b"]["dim"]
    dim = config.decoder_dim or min(512, -(-2 * width // 3 // HEAD_WIDTH) * HEAD_WIDTH)
    return DecoderSizes(
        dim,
        config.decoder_depth or (max(core.depth // 3, 1) if small else 8),
        config.decoder_heads or max(dim // HEAD_WIDTH, 1),
        config.decoder_mlp_dim or 4 * dim,
    )


class Decoder(nn.Module):
    """The encoder's tokens of the visible patches -> the pixels of all (section 3, MAE decoder)."""

    def __init__(self, core: ViT, config: MaskedAutoencoderConfig) -> None:
        super().__init__()
        dim, depth, heads, mlp_dim = decoder_sizes(core, config)
        norm_eps, pixels = config.norm_eps, math.prod(core.config.pixels)
        if dim % heads or dim % 4:
            raise ConfigError(
                f"decoder_dim = {dim} with decoder_heads = {heads}: use a multiple of both 4 and "
                "the number of heads"
            )
        self.embed = nn.Linear(core.config.dim, dim)
        self.mask_token = nn.Parameter(torch.empty(dim))
        self.position = Learned1d(dim, core.config.grid, core.class_tokens)
        self.blocks = nn.ModuleList(
            Block(dim, Attention(dim, heads, dim // heads), Mlp(dim, mlp_dim), norm_eps=norm_eps)
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim, eps=norm_eps)
        self.out = nn.Linear(dim, config.channels * pixels)
        initialise(self, "trunc-normal")
        nn.init.trunc_normal_(self.mask_token, std=0.02)
        sines_(self.position)
        self.position.table.requires_grad_(False)

    def forward(self, x: Tensor, prefix: int, restore: Tensor, grid: Grid) -> Tensor:
        """x (b, prefix + visible, width); restore (b, n), where each patch stands in the order
        that begins with the visible ones -> (b, n, out)."""
        x = self.embed(x)
        hidden = restore.shape[1] - (x.shape[1] - prefix)
        tokens = self.mask_token.to(x.dtype).expand(len(x), hidden, -1)
        patches = torch.cat((x[:, prefix:], tokens), dim=1)
        patches = patches.take_along_dim(restore[..., None], dim=1)
        x = self.position(torch.cat((x[:, :prefix], patches), dim=1), prefix, grid)
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))[:, prefix:]


class MaskedAutoencoder(Composite):
    """(b, c, h, w) -> `Masked`. Which patches are hidden is drawn from torch's RNG in training; in
    eval mode they are the same for every image, so that a loss can be compared with another."""

    def __init__(self, config: MaskedAutoencoderConfig, encoder: Model) -> None:
        super().__init__(config, encoder)
        core = checked(encoder, config)
        sizes = decoder_sizes(core, config)._asdict()
        # A run keeps what was chosen.
        self.config = replace(config, **{f"decoder_{name}": size for name, size in sizes.items()})
        self.decoder = Decoder(core, config)

    def forward(self, images: Tensor, noise: Tensor | None = None) -> Masked:
        """noise (b, n): the patches with the smallest values are visible."""
        core, prefix = self.core, self.core.prefix_length
        x, grid = core.embed(images)  # (b, prefix + n, d)
        if noise is None:
            noise = self.noise(len(images), grid, images.device)
        visible = visible_patches(noise.shape[1], self.config.mask_ratio)
        order = noise.argsort(dim=1)
        restore = order.argsort(dim=1)  # (b, n)
        kept = x[:, prefix:].take_along_dim(order[:, :visible, None], dim=1)
        x = core.encode(torch.cat((x[:, :prefix], kept), dim=1), grid)
        x = show(self, "encoder", core.final_norm(x, core.depth - 1))
        prediction = self.decoder(x, prefix, restore, grid)
        mask = (restore >= visible).float().unflatten(1, grid)
        return Masked(prediction, *self.target(images, grid), mask)

    def noise(self, count: int, grid: Grid, device: torch.device) -> Tensor:
        """(count, n), from 0 to 1."""
        n = grid[0] * grid[1]
        if self.training:
            return torch.rand(count, n, device=device)
        generator = torch.Generator().manual_seed(EVALUATION)
        return torch.rand(1, n, generator=generator, device="cpu").to(device).expand(count, -1)

    def target(self, images: Tensor, grid: Grid) -> tuple[Tensor, Tensor, Tensor]:
        """What is to be predicted, and the mean and std that it was normalised by."""
        patches = patchify(images, grid)
        if not self.config.normalised_pixels:
            zeros = torch.zeros_like(patches[:, :, :1])
            return patches, zeros, zeros + 1
        mean, variance = patches.mean(-1, keepdim=True), patches.var(-1, keepdim=True)
        std = (variance + 1e-6).sqrt()
        return (patches - mean) / std, mean, std

    def undecayed(self) -> list[nn.Parameter]:
        return [*super().undecayed(), self.decoder.position.table]


def checked(encoder: Model, config: MaskedAutoencoderConfig) -> ViT:
    """The encoder, which must be able to do without the hidden patches."""
    name = config.encoder
    if not isinstance(encoder, ViT):
        why = "is no plain ViT, whose tokens are the patches"
    elif not encoder.config.position.on_tokens:
        why = f"has positions ({encoder.config.position.kind}) that need all patches: use sines-2d"
    elif not (is_empty(encoder.stem) and is_empty(encoder.grid_stem)):
        why = "has convolutions, through which a patch sees those around it"
    else:
        n = encoder.config.grid[0] * encoder.config.grid[1]
        if 0 < int(n * (1 - config.mask_ratio)) < n:
            return encoder
        height, width = pair("image_size", config.image_size)
        raise ConfigError(
            f"mask_ratio = {config.mask_ratio} of the {n} patches of an image of {height}x{width} "
            "leaves all of them hidden or all visible: use larger images or smaller patches"
        )
    raise ConfigError(
        f"encoder = {name!r} {why}; a masked autoencoder encodes some patches without the others: "
        "use one like 'vit-s/16'"
    )


def visible_patches(n: int, mask_ratio: float) -> int:
    return min(max(int(n * (1 - mask_ratio)), 1), n - 1)


def patchify(images: Tensor, grid: Grid) -> Tensor:
    """(b, c, h, w) -> (b, n, ph·pw·c)"""
    gh, gw = grid
    patches = images.unflatten(3, (gw, -1)).unflatten(2, (gh, -1))  # (b, c, gh, ph, gw, pw)
    return patches.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def unpatchify(patches: Tensor, grid: Grid, size: tuple[int, int]) -> Tensor:
    """(b, n, ph·pw·c) -> (b, c, h, w)"""
    ph, pw = size[0] // grid[0], size[1] // grid[1]
    cut = patches.unflatten(2, (ph, pw, -1)).unflatten(1, grid)  # (b, gh, gw, ph, pw, c)
    return cut.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


PRETRAINED = {
    f"mae-pretrain-{size}/{patch}": MaskedAutoencoderConfig(encoder=f"mae-{size}/{patch}")
    for size, patch in (("b", 16), ("l", 16), ("h", 14))
}
