"""One transformer block (ViT equations 2 and 3), and what may sit on its residual branches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vitreous.layers.mlp import Mlp
from vitreous.layers.recompute import cheap


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
    """Attention and MLP, each a residual branch, with the norm before it (`pre`), behind the sum
    (`post`), or before it on the stream as well (`stream`); `pre+stream`: the one for attention,
    the other for the MLP."""

    def __init__(
        self,
        dim: int,
        attention: nn.Module,
        mlp: Mlp,
        *,
        norm: str = "pre",
        norm_eps: float = 1e-6,
        layer_scale: float | None = None,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.post, self.stream = norm == "post", norm == "stream"
        self.mixed = norm == "pre+stream"
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.attention = attention
        self.scale1 = nn.Identity() if layer_scale is None else LayerScale(dim, layer_scale)
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp = mlp
        self.scale2 = nn.Identity() if layer_scale is None else LayerScale(dim, layer_scale)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        """x (b, n, d) -> (b, n, d). `options` are for the attention: bias, rotate, queries,
        merging.

        With `queries=q` -> (b, q, d): exactly what the first q tokens would be. With `merging`
        -> (b, n - r, d).
        """
        if self.stream:
            x = cheap(self.norm1, x)
            x = cheap(self.norm2, self._attended(x, x, options))
            return x + self.drop_path(self.scale2(self.mlp(x)))
        if self.post:
            x = cheap(self.norm1, self._attended(x, x, options))
            return cheap(self.norm2, x + self.drop_path(self.scale2(self.mlp(x))))
        x = self._attended(x, cheap(self.norm1, x), options)
        if self.mixed:
            x = cheap(self.norm2, x)
            return x + self.drop_path(self.scale2(self.mlp(x)))
        return x + self.drop_path(self.scale2(self.mlp(cheap(self.norm2, x))))

    def _attended(self, stream: Tensor, x: Tensor, options: dict[str, Any]) -> Tensor:
        """Equation 2, and of its tokens fewer if they are merged."""
        branch = self.drop_path(self.scale1(self.attention(x, **options)))
        x = stream[:, : options.get("queries")] + branch
        merging = options.get("merging")
        return x if merging is None else merging.merge(x)
