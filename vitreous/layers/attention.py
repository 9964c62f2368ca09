"""Multi-head attention (Vaswani et al. 2017, section 3.2; ViT appendix A).

The one attention of Vitreous. It runs fused; while it is tapped (`tap.py`), it computes the same
thing step by step and shows its queries, keys, values and weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import Finite, Fraction, Record
from vitreous.layers.tap import is_tapped, show

Rotate = Callable[[Tensor], Tensor]
"""A positional encoding on queries and on keys, (b, heads, n, e) -> the same shape."""


@dataclass(frozen=True)
class AttentionConfig(Record):
    """What may differ in a self-attention of some width and number of heads."""

    qkv_bias: bool = True
    key_bias: bool = True
    """Whether keys have a bias where queries and values have one."""
    projection_bias: bool = True
    """Whether the linear layer behind the heads has a bias."""
    scale: Finite[float | None] = None
    """Factor on the scores; head_dim^-0.5 unless given."""
    qk_norm: bool = False
    """LayerNorm on queries and keys."""
    dropout: Fraction = 0.0
    """On the weights."""


USUAL = AttentionConfig()


class Heads(nn.Module):
    """softmax(q kᵀ · scale + bias) v for each head, then a projection back to `dim`.

    `head_dim` need not be `dim / heads`. The rows of `qkv` make queries, keys and values, in this
    order; the subclasses choose from what. Without `key_bias`, queries and values alone have a bias
    (BEiT): what a key's bias adds to the scores of a query is the same for all keys, unless
    positions turn some of them.
    """

    linear: ClassVar[type[nn.Linear]] = nn.Linear

    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        config: AttentionConfig = USUAL,
        *,
        norm_eps: float = 1e-6,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.scale = head_dim**-0.5 if config.scale is None else config.scale
        self.attention_dropout = config.dropout
        width, qk_norm = heads * head_dim, config.qk_norm
        self.qkv = self.linear(dim, 3 * width, bias=config.qkv_bias and config.key_bias)
        partly = config.qkv_bias and not config.key_bias
        self.qv_bias = nn.Parameter(torch.zeros(2 * width)) if partly else None
        self.q_norm = nn.LayerNorm(head_dim, eps=norm_eps) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(head_dim, eps=norm_eps) if qk_norm else nn.Identity()
        self.projection = nn.Linear(width, dim, bias=config.projection_bias)
        self.dropout = nn.Dropout(dropout)

    def split(self, made: Tensor) -> Tensor:
        """(b, n, k·heads·e) -> (k, b, heads, n, e): queries, keys and values, or some of them."""
        return made.unflatten(2, (-1, self.heads, self.head_dim)).permute(2, 0, 3, 1, 4)

    def weigh(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """q (b, heads, m, e), k and v (b, heads, n, e), bias (b, heads, m, n), of which b, heads
        and m may be 1 -> (b, heads, m, e)."""
        bias = None if bias is None else bias.to(q.dtype)
        if is_tapped(self):
            return self.weigh_in_steps(q, k, v, bias)
        dropout = self.attention_dropout if self.training else 0.0
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, dropout_p=dropout, scale=self.scale
        )

    def weigh_in_steps(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """The same, and everybody can see it."""
        q, k, v = (show(self, name, each) for name, each in (("q", q), ("k", k), ("v", v)))
        scores = show(self, "scores", q @ k.transpose(-2, -1))
        scaled = show(
            self, "scaled", scores * self.scale if bias is None else scores * self.scale + bias
        )
        weights = show(self, "weights", scaled.softmax(dim=-1))
        return show(self, "heads", F.dropout(weights, self.attention_dropout, self.training) @ v)

    def join(self, x: Tensor) -> Tensor:
        """(b, heads, m, e) -> (b, m, d)."""
        return self.dropout(self.projection(x.transpose(1, 2).flatten(2)))

    def qkv_bias(self) -> Tensor | None:
        """(3·heads·e,): of queries, keys and values; zero for keys that have none."""
        if self.qv_bias is None:
            return self.qkv.bias
        q, v = self.qv_bias.chunk(2)
        return torch.cat((q, torch.zeros_like(q), v))


def attention_weights(q: Tensor, k: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """softmax(q kᵀ · scale + bias): (b, heads, m, n)."""
    scores = (q if scale == 1.0 else q * scale) @ k.transpose(-2, -1)
    return torch.softmax(scores if bias is None else scores + bias, dim=-1)


class Attention(Heads):
    """Self-attention: queries, keys and values of the same tokens."""

    def forward(
        self, x: Tensor, bias: Tensor | None = None, rotate: Rotate | None = None
    ) -> Tensor:
        """x (b, n, d), bias as in `weigh` -> (b, n, d)."""
        q, k, v = self.make(x)  # (b, heads, n, e) each
        q, k = self.q_norm(q), self.k_norm(k)
        if rotate is not None:
            q, k = rotate(q), rotate(k)
        return self.join(self.weigh(q, k, v, bias))

    def make(self, x: Tensor) -> Tensor:
        """x (b, n, d) -> queries, keys and values, (3, b, heads, n, e)."""
        made = self.qkv(x)
        return self.split(made if self.qv_bias is None else made + self.qkv_bias())
