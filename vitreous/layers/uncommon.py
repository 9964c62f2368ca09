"""Transformer blocks as no published vision transformer has them, but some people's own models."""

from __future__ import annotations

from torch import Tensor

from vitreous.layers.attention import Rotate
from vitreous.layers.block import Block
from vitreous.layers.mlp import Mlp


class PostNormBlock(Block):
    """The norms stand behind the sums (Vaswani et al. 2017)."""

    def forward(
        self, x: Tensor, bias: Tensor | None = None, rotate: Rotate | None = None
    ) -> Tensor:
        x = x + self.drop_path(self.scale1(self.attention(x, bias, rotate)))
        return self.transform(x)

    def transform(self, x: Tensor) -> Tensor:
        x = self.norm1(x)
        return self.norm2(x + self.drop_path(self.scale2(self.mlp(x))))


class MixedNormBlock(Block):
    """The second norm is on the residual stream as well, the first before its branch alone."""

    def transform(self, x: Tensor) -> Tensor:
        x = self.norm2(x)
        return x + self.drop_path(self.scale2(self.mlp(x)))


class StreamNormBlock(MixedNormBlock):
    """Both norms are on the residual stream as well."""

    def forward(
        self, x: Tensor, bias: Tensor | None = None, rotate: Rotate | None = None
    ) -> Tensor:
        x = self.norm1(x)
        x = x + self.drop_path(self.scale1(self.attention(x, bias, rotate)))
        return self.transform(x)


BLOCKS: dict[str, type[Block]] = {
    "pre": Block,
    "post": PostNormBlock,
    "stream": StreamNormBlock,
    "pre+stream": MixedNormBlock,
}
"""By the place of the norms."""


class ActivatedMlp(Mlp):
    """The activation stands behind the second linear layer as well."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.dropout(self.activation(self.fc1(x))))
        return self.dropout(self.activation(self.fc2(x)))
