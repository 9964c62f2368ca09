"""Multi-head attention (Vaswani et al. 2017, section 3.2; ViT appendix A).

The one attention of Vitreous. It runs fused; while it is tapped (`tap.py`), it computes the same
thing step by step and shows its queries, keys, values and weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.layers.tap import is_tapped, show

Rotate = Callable[[Tensor], Tensor]
"""A positional encoding on queries and on keys, (b, heads, n, e) -> the same shape."""


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


class Heads(nn.Module):
    """softmax(q kᵀ · scale + bias) v for each head, then a projection back to `dim`.

    `head_dim` need not be `dim / heads`; `scale` is head_dim^-0.5 unless given (`qk_scale`). The
    rows of `qkv` make queries, keys and values, in this order; the subclasses choose from what.
    Without `key_bias`, queries and values alone have a bias (BEiT): what a key's bias adds to the
    scores of a query is the same for all keys, unless positions turn some of them.
    """

    linear: ClassVar[type[nn.Linear]] = nn.Linear

    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        *,
        qkv_bias: bool = True,
        key_bias: bool = True,
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
        width = heads * head_dim
        self.qkv = self.linear(dim, 3 * width, bias=qkv_bias and key_bias)
        partly = qkv_bias and not key_bias
        self.qv_bias = nn.Parameter(torch.zeros(2 * width)) if partly else None
        self.q_norm = nn.LayerNorm(head_dim, eps=norm_eps) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(head_dim, eps=norm_eps) if qk_norm else nn.Identity()
        self.projection = nn.Linear(width, dim, bias=projection_bias)
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
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            show(self, name, tensor)
        weights = show(self, "weights", attention_weights(q, k, bias, self.scale))
        return F.dropout(weights, self.attention_dropout, self.training) @ v

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
