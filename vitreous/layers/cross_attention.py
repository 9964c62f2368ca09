"""Attention between different things: DETR's decoder, and pooling by a learned query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import Hidden
from vitreous.errors import ConfigError
from vitreous.layers.attention import Heads
from vitreous.layers.head import PoolConfig, PoolSizes
from vitreous.layers.mlp import Mlp


class RowsLinear(nn.Linear):
    """A linear layer that can be asked for some of its outputs alone: the others cost nothing."""

    def forward(self, x: Tensor, rows: slice | None = None, bias: Tensor | None = None) -> Tensor:
        """(…, d) -> (…, e); `rows` of the weight, and `bias` in place of its own."""
        weight, bias = rows_of(self, rows, bias)
        return F.linear(x, weight, bias)


def rows_of(
    linear: nn.Linear, rows: slice | None, bias: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Of a linear layer; `bias` in place of its own."""
    bias = linear.bias if bias is None else bias
    if rows is None:
        return linear.weight, bias
    return linear.weight[rows], None if bias is None else bias[rows]


class CrossAttention(Heads):
    """Attention whose queries, keys and values are made from different things.

    Keys and values may come from other tokens than the queries, and a positional encoding may be
    added to queries and keys alone (DETR, appendix A.1).
    """

    linear = RowsLinear

    def forward(
        self, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        """queries (b, m, d), keys and values (b, n, d), bias as in `weigh` -> (b, m, d)."""
        if queries is keys:
            q, k = self.make(queries, 0, 2)
        else:
            (q,), (k,) = self.make(queries, 0, 1), self.make(keys, 1, 2)
        (v,) = self.make(values, 2, 3)
        return self.join(self.weigh(self.q_norm(q), self.k_norm(k), v, bias))

    def make(self, x: Tensor, first: int, last: int) -> Tensor:
        """x (b, n, d) -> (last - first, b, heads, n, e): of queries (0), keys (1) and values (2)
        those from `first` to before `last`."""
        width = self.heads * self.head_dim
        rows = slice(first * width, last * width)
        if isinstance(self.qkv, RowsLinear):
            return self.split(self.qkv(x, rows))
        return self.split(self.qkv(x)[..., rows])  # of a layer in its place, such as PEFT's


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
