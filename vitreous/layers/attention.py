"""Multi-head attention (Vaswani et al. 2017, section 3.2; ViT appendix A).

The one attention of Vitreous. It runs fused; while it is tapped (`tap.py`), it computes the same
thing step by step and shows its queries, keys, values and weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import Finite, Fraction, Record
from vitreous.layers.linear import linear
from vitreous.layers.tap import is_tapped, show
from vitreous.layers.token_merging import TokenMerging

Rotate = Callable[[Tensor], Tensor]
"""A positional encoding on queries and on keys, (b, heads, n, e) -> the same shape."""

MOST_SCORES = 512 * 512
"""Of a head, to train on a CPU in bfloat16 without the fused kernel."""


class Heads(nn.Module):
    """softmax(q kᵀ · scale + bias) v for each head, then a projection back to `dim`.

    `head_dim` need not be `dim / heads`; `scale` is head_dim^-0.5 unless given (`qk_scale`). The
    rows of `qkv` make queries, keys and values, in this order; the subclasses choose from what.
    Without `key_bias`, queries and values alone have a bias (BEiT): what a key's bias adds to the
    scores of a query is the same for all keys, unless positions turn some of them.
    """

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
        self.qkv = nn.Linear(dim, 3 * width, bias=qkv_bias and key_bias)
        partly = qkv_bias and not key_bias
        self.qv_bias = nn.Parameter(torch.zeros(2 * width)) if partly else None
        self.q_norm = nn.LayerNorm(head_dim, eps=norm_eps) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(head_dim, eps=norm_eps) if qk_norm else nn.Identity()
        self.projection = nn.Linear(width, dim, bias=projection_bias)
        self.dropout = nn.Dropout(dropout)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, rotate: Rotate | None = None
    ) -> Tensor:
        """q (b, heads, m, e), k and v (b, heads, n, e), bias (heads, m, n) or (b, heads, m, n), of
        which b, heads and m may be 1 -> (b, m, d)."""
        q, k = self.q_norm(q), self.k_norm(k)
        if rotate is not None:
            # Fewer queries than keys are leading tokens, which have no place: nothing to rotate.
            q, k = (rotate(q) if q.shape[2] == k.shape[2] else q), rotate(k)
        if bias is not None:
            # With four axes torch takes its fused kernel, with three it does not.
            bias = (bias if bias.ndim == 4 else bias[None]).to(q.dtype)
        dropout = self.attention_dropout if self.training else 0.0
        if is_tapped(self) or _learns_faster_in_steps(q, k):
            out = self._explicit(q, k, v, bias, dropout)
        else:
            out = F.scaled_dot_product_attention(
                q, k, v, attn_mask=bias, dropout_p=dropout, scale=self.scale
            )
        out = out.transpose(1, 2)
        if torch.compiler.is_exporting():
            # Other engines lay out the fused kernel's output in another way than torch does.
            out = out.clone(memory_format=torch.contiguous_format)
        out = out.flatten(2)
        return self.dropout(linear(out, self.projection.weight, self.projection.bias))

    def make(self, x: Tensor, first: int, last: int) -> Tensor:
        """x (b, n, d) -> (last - first, b, heads, n, e): of queries (0), keys (1) and values (2)
        those from `first` to before `last`, and no work for the others."""
        width = self.heads * self.head_dim
        weight, bias = self.qkv.weight, self.bias()
        if (first, last) != (0, 3):  # else a slice would stand in exported graphs
            rows = slice(first * width, last * width)
            weight, bias = weight[rows], None if bias is None else bias[rows]
        made = linear(x, weight, bias)
        return made.unflatten(2, (last - first, self.heads, self.head_dim)).permute(2, 0, 3, 1, 4)

    def bias(self) -> Tensor | None:
        """(3·heads·e,): of queries, keys and values; zero for keys that have none."""
        if self.qv_bias is None:
            return self.qkv.bias
        q, v = self.qv_bias.chunk(2)
        return torch.cat((q, torch.zeros_like(q), v))

    def _explicit(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, dropout: float
    ) -> Tensor:
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            show(self, name, tensor)
        weights = show(self, "weights", attention_weights(q, k, bias, self.scale))
        return F.dropout(weights, dropout, training=dropout > 0) @ v


def attention_weights(q: Tensor, k: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """softmax(q kᵀ · scale + bias): (b, heads, m, n)."""
    scores = (q if scale == 1.0 else q * scale) @ k.transpose(-2, -1)
    return torch.softmax(scores if bias is None else scores + bias, dim=-1)


def _learns_faster_in_steps(q: Tensor, k: Tensor) -> bool:
    """On a CPU in bfloat16, the backward of torch's fused kernel takes two to four times as long as
    that of matrix products, up to about 500 tokens. They keep the weights, (b, heads, m, n)."""
    return (
        q.requires_grad
        and q.dtype == torch.bfloat16
        and q.device.type == "cpu"
        and q.shape[2] * k.shape[2] <= MOST_SCORES
        and not torch.compiler.is_compiling()
    )


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

    def make(
        self, dim: int, heads: int, head_dim: int, norm_eps: float, dropout: float
    ) -> Attention:
        return Attention(
            dim,
            heads,
            head_dim,
            qkv_bias=self.qkv_bias,
            key_bias=self.key_bias,
            projection_bias=self.projection_bias,
            scale=self.scale,
            qk_norm=self.qk_norm,
            norm_eps=norm_eps,
            attention_dropout=self.dropout,
            dropout=dropout,
        )


class Attention(Heads):
    """Self-attention: queries, keys and values of the same tokens."""

    def forward(
        self,
        x: Tensor,
        *,
        bias: Tensor | None = None,
        rotate: Rotate | None = None,
        queries: int | None = None,
        merging: TokenMerging | None = None,
    ) -> Tensor:
        """x (b, n, d), bias (heads, n, n) or (b, heads, n, n) -> (b, n, d).

        With `queries=q`, only the first q tokens are queries, all are keys: -> (b, q, d). `merging`
        sees the keys.
        """
        if queries is None:
            q, k, v = self.make(x, 0, 3)
            if merging is not None:
                merging.match(self.k_norm(k))
            return self.attend(q, k, v, bias, rotate)
        (q,), (k, v) = self.make(x[:, :queries], 0, 1), self.make(x, 1, 3)
        return self.attend(q, k, v, None if bias is None else bias[..., :queries, :], rotate)


class CrossAttention(Heads):
    """Attention whose queries, keys and values are made from different things.

    Keys and values may come from other tokens than the queries, and a positional encoding may be
    added to queries and keys alone (DETR, appendix A.1).
    """

    def forward(
        self, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        """queries (b, m, d), keys and values (b, n, d), bias as in `attend` -> (b, m, d)."""
        if queries is keys:
            q, k = self.make(queries, 0, 2)
        else:
            (q,), (k,) = self.make(queries, 0, 1), self.make(keys, 1, 2)
        (v,) = self.make(values, 2, 3)
        return self.attend(q, k, v, bias)
