"""Attention between different things: DETR's decoder, and pooling by a learned query."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.layers.attention import Heads


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
