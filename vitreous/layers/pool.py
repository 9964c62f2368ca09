"""From all tokens of an image to one vector, where that is learned."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitreous.layers.attention import CrossAttention
from vitreous.layers.mlp import Mlp


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
