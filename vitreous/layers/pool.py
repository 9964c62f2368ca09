"""From all tokens of an image to what the head sees (ViT, equation 4).

Each kind is a record, which a config holds, and the module that it makes. What published models do
not have is in `uncommon.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from vitreous.config import Hidden, Record
from vitreous.errors import ConfigError
from vitreous.layers.cross_attention import CrossAttention
from vitreous.layers.mlp import Activation, Mlp


class PoolSizes(NamedTuple):
    """What a pooling may depend on."""

    dim: int
    prefix: int
    """Tokens before the patches."""
    heads: int
    head_dim: int
    mlp_dim: int
    activation: Activation
    norm_eps: float


@dataclass(frozen=True)
class PoolConfig(Record):
    """The choice of a pooling."""

    kind: str = ""
    learned: ClassVar[bool] = False
    """Whether it has parameters."""

    @property
    def reads(self) -> int | None:
        """How many leading tokens it reads, where it reads no others."""
        return None

    def width(self, dim: int, tokens: int) -> int:
        """Channels of what it gives for so many tokens of this width."""
        return dim

    def make(self, sizes: PoolSizes) -> nn.Module:
        raise NotImplementedError


@dataclass(frozen=True)
class TokenPoolConfig(PoolConfig):
    """Which tokens the head sees: class (the class token), mean (of the patches), class+mean (side
    by side), both (class and distillation token, DeiT), none (all)."""

    kind: Literal["class", "mean", "class+mean", "both", "none"] = "class"

    @property
    def reads(self) -> int | None:
        return {"class": 1, "both": 2}.get(self.kind)

    def width(self, dim: int, tokens: int) -> int:
        return 2 * dim if self.kind == "class+mean" else dim

    def make(self, sizes: PoolSizes) -> nn.Module:
        return TokenPool(self.kind, sizes.prefix)


class TokenPool(nn.Module):
    """(b, n, d) -> (b, d), or several tokens of it. See `TokenPoolConfig`."""

    def __init__(self, kind: str, prefix: int) -> None:
        super().__init__()
        self.kind, self.prefix = kind, prefix

    def forward(self, x: Tensor) -> Tensor:
        match self.kind:
            case "class":
                return x[:, 0]
            case "both":
                return x[:, :2]
            case "mean":
                return x[:, self.prefix :].mean(dim=1)
            case "class+mean":
                return torch.cat((x[:, 0], x[:, self.prefix :].mean(dim=1)), dim=-1)
        return x


@dataclass(frozen=True)
class AttentionPoolConfig(PoolConfig):
    """A learned query attends to all tokens."""

    kind: Literal["attention"] = "attention"
    heads: Hidden[int | None] = None
    """As many as in the blocks unless given."""
    mlp_dim: int | None = None
    """Width inside its MLP; that of the blocks unless given."""
    learned = True

    def make(self, sizes: PoolSizes) -> nn.Module:
        dim, heads = sizes.dim, self.heads
        if heads is not None and dim % heads:
            raise ConfigError(f"dim = {dim} does not divide into {heads} heads: change pool.heads")
        return AttentionPool(
            dim,
            CrossAttention(dim, heads or sizes.heads, dim // heads if heads else sizes.head_dim),
            Mlp(dim, self.mlp_dim or sizes.mlp_dim, activation=sizes.activation),
            norm_eps=sizes.norm_eps,
        )


class AttentionPool(nn.Module):
    """A learned query (the probe) attends to all tokens, and an MLP follows: (b, n, d) -> (b, d).

    Set Transformer's pooling by attention (Lee et al. 2019), with one query; the "MAP head" of
    Zhai et al. 2022 and SigLIP. Only the MLP has a residual connection.
    """

    attends = "pooling.attention"
    """The attention in a ViT that can be tapped."""

    def __init__(
        self, dim: int, attention: CrossAttention, mlp: Mlp, *, norm_eps: float = 1e-6
    ) -> None:
        super().__init__()
        self.probe = nn.Parameter(torch.empty(dim))
        nn.init.trunc_normal_(self.probe, std=dim**-0.5)
        self.attention = attention
        self.norm = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp = mlp

    def forward(self, x: Tensor) -> Tensor:
        probe = self.probe.to(x.dtype).repeat(x.shape[0], 1, 1)  # (b, 1, d)
        found = self.attention(probe, x, x)
        return (found + self.mlp(self.norm(found)))[:, 0]
