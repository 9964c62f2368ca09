"""Object queries: the decoder layer and the box head of DETR (Carion et al. 2020, section 3.2 and
appendix A.3), which its successors share."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.layers.cross_attention import CrossAttention
from vitreous.layers.mlp import Mlp


class DecoderLayer(nn.Module):
    """Queries attend to each other, then to the image, then each goes through an MLP (figure 10,
    right). The norms come behind the sums."""

    def __init__(
        self,
        dim: int,
        self_attention: CrossAttention,
        cross_attention: nn.Module,
        mlp: Mlp,
        norm_eps: float,
    ) -> None:
        super().__init__()
        self.self_attention, self.norm1 = self_attention, nn.LayerNorm(dim, eps=norm_eps)
        self.cross_attention, self.norm2 = cross_attention, nn.LayerNorm(dim, eps=norm_eps)
        self.mlp, self.norm3 = mlp, nn.LayerNorm(dim, eps=norm_eps)

    def forward(self, x: Tensor, position: Tensor, *image: Any, groups: int = 1) -> Tensor:
        """x (b, groups·q, d), what the queries have found so far; position (b, groups·q, d), or
        (q, d) for all images, their own encoding; image: what cross_attention reads besides ->
        (b, groups·q, d).

        Groups do not see each other (Group DETR, Chen et al. 2023).
        """
        own, own_position = x, position
        if groups > 1:
            own, own_position = (
                each.unflatten(1, (groups, -1)).flatten(0, 1) for each in (x, position)
            )  # (b·groups, q, d)
        at = own + own_position
        x = self.norm1(x + self.self_attention(at, at, own).reshape(x.shape))
        x = self.norm2(x + self.cross_attention(x + position, *image))
        return self.norm3(x + self.mlp(x))


class BoxHead(nn.Module):
    """Three layers with ReLU between them: (…, d) -> (…, 4)."""

    def __init__(self, first: nn.Linear, second: nn.Linear, last: nn.Linear) -> None:
        super().__init__()
        self.layers = nn.ModuleList((first, second, last))

    def forward(self, x: Tensor) -> Tensor:
        first, second, last = self.layers
        return last(F.relu(second(F.relu(first(x)))))
