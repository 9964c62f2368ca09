"""From all tokens of an image to one vector, where that is learned."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitreous.layers.attention import CrossAttention
from vitreous.layers.mlp import Mlp
from vitreous.layers.tap import show


class SequencePool(nn.Module):
    """The mean of all tokens, each weighted by a learned score: (b, n, d) -> (b, d).

    Compact transformers (Hassani et al. 2021), section 3.2: softmax(x g(x)ᵀ) x.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.score(x)[:, None].transpose(2, 3)  # (b, 1, 1, n), as of one head
        weights = show(self, "weights", scores.softmax(dim=-1))
        return (weights[:, 0] @ x)[:, 0]


class AttentionPool(nn.Module):
    """A learned query (the probe) attends to all tokens, and an MLP follows: (b, n, d) -> (b, d).

    Set Transformer's pooling by attention (Lee et al. 2019), with one query; the "MAP head" of
    Zhai et al. 2022 and SigLIP. Only the MLP has a residual connection.
    """

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
