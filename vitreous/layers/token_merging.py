"""Token merging (Bolya et al. 2023, section 3): behind every attention, r tokens fewer.

Patches that are alike become one token, between the attention and the MLP of a block. Who is alike
is found by bipartite soft matching:

1. The tokens are divided into two sets, in turn: every second one is in A, the others are in B.
2. Each token of A finds the one of B that is most similar to it: by the cosine between their keys,
   which are averaged over the heads.
3. The r most similar of these pairs are kept,
4. and merged: the token of B becomes the mean of both, in which each counts by its size, the number
   of patches in it.
5. What is left of A, and B, are the tokens of the next block.

A token of s patches must be attended to as s equal ones would be: log s is added to the scores of
its key (proportional attention, equation 1). Class, distillation and register tokens are never
merged. Nothing is trained, and how many tokens are left does not depend on the image.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class TokenMerging:
    """The tokens of one batch on their way through the blocks, `prefix` of them no patches.

    At most half of the patches are merged in a block: A has no more. Where the patches are needed
    again (`restored`), their way is kept.
    """

    def __init__(self, r: int, prefix: int, *, restored: bool) -> None:
        self.r, self.prefix, self.restored = r, prefix, restored
        self.sizes: Tensor | None = None
        """(b, p + n, 1): the number of patches in each token; None while all have one."""
        self.places: list[Tensor] = []
        """(b, n) for each merging: where each token before it is behind it."""

    def score_bias(self) -> Tensor | None:
        """(b, 1, 1, p + n): log s."""
        return None if self.sizes is None else self.sizes.log().mT[:, None]

    def match(self, keys: Tensor) -> None:
        """Steps 1 to 3, by the keys (b, heads, p + n, e) of a block."""
        k = F.normalize(keys[:, :, self.prefix :].mean(dim=1), dim=-1)
        similarity = k[:, 1::2] @ k[:, ::2].mT  # (b, |A|, |B|)
        best, self.partner = similarity.max(dim=2)
        # All of A in one order, so that ties can neither lose a token nor use it twice.
        self.order = best.argsort(dim=1, descending=True)  # (b, |A|)

    def merge(self, x: Tensor) -> Tensor:
        """x (b, p + n, d) -> (b, p + n - r, d): steps 4 and 5."""
        sizes = x.new_ones(*x.shape[:2], 1) if self.sizes is None else self.sizes
        before, a, b = self._divided(x)
        before_size, a_size, b_size = self._divided(sizes)
        r = min(self.r, a.shape[1])
        a, a_size = _rows(a, self.order), _rows(a_size, self.order)  # the most similar first
        into = self.partner.gather(1, self.order[:, :r])  # (b, r), numbers in B
        numbers = torch.arange(b.shape[1], device=x.device)
        # (b, |B|, r), the sizes of those that a token of B takes up: a sum over them is a product.
        taken = (into[:, None] == numbers[:, None]) * a_size[:, :r].mT
        size = b_size + taken.sum(dim=2, keepdim=True)
        b = (b * b_size + taken @ a[:, :r]) / size
        if self.restored:
            self.places.append(self._place(r, b.shape[1]))
        self.sizes = torch.cat((before_size, a_size[:, r:], size), dim=1)
        return torch.cat((before, a[:, r:], b), dim=1)

    def restore(self, x: Tensor) -> Tensor:
        """x (b, p + n', d), behind the last block -> (b, p + n, d): in the place of each patch the
        token that it is in. Means over them are then those of the paper, weighted by size."""
        if not self.places:
            return x
        place, *later = self.places
        for each in later:
            place = each.gather(1, place)
        return torch.cat((x[:, : self.prefix], _rows(x[:, self.prefix :], place)), dim=1)

    def _divided(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The tokens that are no patches, A and B."""
        return x[:, : self.prefix], x[:, self.prefix + 1 :: 2], x[:, self.prefix :: 2]

    def _place(self, r: int, count: int) -> Tensor:
        """(b, n): where tokens are behind a merging of r into `count` of B."""
        rank = self.order.argsort(dim=1)  # of each token of A, the most similar first
        left = self.order.shape[1] - r
        a = torch.where(rank < r, left + self.partner, rank - r)
        b = torch.arange(left, left + count, device=a.device).expand(a.shape[0], -1)
        in_turn = torch.stack((b[:, : a.shape[1]], a), dim=2).flatten(1)
        return torch.cat((in_turn, b[:, a.shape[1] :]), dim=1)


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """x (b, n, d), index (b, m) -> (b, m, d)."""
    return x.gather(1, index[:, :, None].expand(-1, -1, x.shape[2]))
