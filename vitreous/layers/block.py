"""One transformer block (ViT equations 2 and 3), its norm, and what may sit on its residual
branches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from vitreous.config import HIDDEN, Record, Uncommon
from vitreous.layers.attention import Rotate
from vitreous.layers.mlp import Mlp
from vitreous.layers.tap import show

Place = Annotated[
    Literal["pre", "post", "stream", "pre+stream"], HIDDEN, Uncommon(("stream", "pre+stream"))
]
PLACES = ("pre", "post", "stream", "pre+stream")


@dataclass(frozen=True)
class NormConfig(Record):
    """The choice of a norm."""

    kind: str = ""
    place: Place = "pre"
    """Before attention and MLP on their branch (pre), behind the sum (post), or before them on the
    residual stream itself (stream): x = LN(x), then x + f(x). pre+stream: pre for attention, stream
    for the MLP (compact transformers)."""

    def make(self, dim: int, eps: float) -> nn.Module:
        raise NotImplementedError


@dataclass(frozen=True)
class LayerNormConfig(NormConfig):
    """Each token by itself (the ViT paper)."""

    kind: Literal["layer"] = "layer"

    def make(self, dim: int, eps: float) -> nn.Module:
        return nn.LayerNorm(dim, eps=eps)


LAYER_NORM = LayerNormConfig()


class DropPath(nn.Module):
    """Stochastic depth (Huang et al. 2016): in training, a sample skips the branch with `rate`.

    What is kept is scaled by 1 / (1 - rate), so that the expectation is the same as in eval mode.
    """

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        keep = 1.0 - self.rate
        kept = torch.rand(x.shape[0], *[1] * (x.ndim - 1), device=x.device) < keep
        return x * kept.to(x.dtype).div_(keep)

    def extra_repr(self) -> str:
        return f"rate={self.rate:.3g}"


class LayerScale(nn.Module):
    """A learned factor per channel on a residual branch (Touvron et al. 2021, CaiT)."""

    def __init__(self, dim: int, initial: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), initial))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class Block(nn.Module):
    """Attention and MLP, each a residual branch with its norm before it. (`uncommon.py` has other
    places for the norms.)"""

    def __init__(
        self,
        dim: int,
        attention: nn.Module,
        mlp: Mlp,
        *,
        norm: NormConfig = LAYER_NORM,
        norm_eps: float = 1e-6,
        layer_scale: float | None = None,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm1 = norm.make(dim, norm_eps)
        self.attention = attention
        self.scale1 = nn.Identity() if layer_scale is None else LayerScale(dim, layer_scale)
        self.norm2 = norm.make(dim, norm_eps)
        self.mlp = mlp
        self.scale2 = nn.Identity() if layer_scale is None else LayerScale(dim, layer_scale)
        self.drop_path = DropPath(drop_path)

    def forward(
        self, x: Tensor, bias: Tensor | None = None, rotate: Rotate | None = None
    ) -> Tensor:
        """x (b, n, d) -> (b, n, d); bias and rotate are for the attention."""
        x = x + self.drop_path(self.scale1(self.attention(self.norm1(x), bias, rotate)))
        return self.transform(show(self, "sum", x, inside=True))

    def transform(self, x: Tensor) -> Tensor:
        """Equation 3: each token by itself."""
        return x + self.drop_path(self.scale2(self.mlp(self.norm2(x))))
