"""Multi-head self-attention (Vaswani et al. 2017, section 3.2; ViT appendix A).

The one attention of Vitreous. It runs fused; while it is looked into (`tap.py`), it computes the
same thing step by step and shows its queries, keys, values and weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.layers.tap import Tapped


class Attention(Tapped):
    """softmax(q kᵀ · scale + bias) v for each head, then a projection back to `dim`.

    `head_dim` is free of `dim / heads`; `scale` is head_dim^-0.5 unless given (`qk_scale`).
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        *,
        qkv_bias: bool = True,
        projection_bias: bool = True,
        scale: float | None = None,
        qk_norm: bool = False,
        norm_eps: float = 1e-6,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.scale = head_dim**-0.5 if scale is None else scale
        self.attention_dropout = attention_dropout
        self.qkv = nn.Linear(dim, 3 * heads * head_dim, bias=qkv_bias)
        self.q_norm = nn.LayerNorm(head_dim, eps=norm_eps) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(head_dim, eps=norm_eps) if qk_norm else nn.Identity()
        self.projection = nn.Linear(heads * head_dim, dim, bias=projection_bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, bias: Tensor | None = None, queries: int | None = None) -> Tensor:
        """x (b, n, d), bias (heads, n, n) or (b, heads, n, n) -> (b, n, d).

        With `queries=q`, only the first q tokens ask (all tokens answer): -> (b, q, d).
        """
        q, k, v = self._split(x, queries)
        q, k = self.q_norm(q), self.k_norm(k)
        if bias is not None:
            # With four axes torch takes its fused kernel, with three it does not.
            bias = (bias if bias.ndim == 4 else bias[None])[:, :, :queries].to(q.dtype)
        dropout = self.attention_dropout if self.training else 0.0
        if self.tap is None:
            out = F.scaled_dot_product_attention(
                q, k, v, attn_mask=bias, dropout_p=dropout, scale=self.scale
            )
        else:
            out = self._explicit(q, k, v, bias, dropout)
        return self.dropout(self.projection(out.transpose(1, 2).flatten(2)))

    def _split(self, x: Tensor, queries: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """x (b, n, d) -> q (b, heads, queries or n, e), k and v (b, heads, n, e)."""
        shape = (-1, self.heads, self.head_dim)
        if queries is None:
            q, k, v = self.qkv(x).unflatten(2, (3, *shape[1:])).permute(2, 0, 3, 1, 4)
            return q, k, v
        # Rows of the fused weight are q, k, v in this order: ask only for what is needed.
        width = self.heads * self.head_dim
        weight, b = self.qkv.weight, self.qkv.bias
        q = F.linear(x[:, :queries], weight[:width], None if b is None else b[:width])
        kv = F.linear(x, weight[width:], None if b is None else b[width:])
        k, v = kv.unflatten(2, (2, *shape[1:])).permute(2, 0, 3, 1, 4)
        return q.unflatten(2, shape[1:]).transpose(1, 2), k, v

    def _explicit(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, dropout: float
    ) -> Tensor:
        self.show("q", q)
        self.show("k", k)
        self.show("v", v)
        scores = (q * self.scale) @ k.transpose(-2, -1)  # (b, heads, queries, n)
        if bias is not None:
            scores = scores + bias
        weights = self.show("weights", torch.softmax(scores, dim=-1))
        return F.dropout(weights, dropout, training=dropout > 0) @ v
