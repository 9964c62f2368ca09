"""Blocks, norms, heads and poolings that no published library has, and models that people have
written themselves do: their files are read by rules of one's own (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor, nn

from vitreous.config import HIDDEN, LARGEST_SIZE, TRAINING, Check, Uncommon
from vitreous.errors import ConfigError
from vitreous.layers.attention import Rotate
from vitreous.layers.block import Block, NormConfig
from vitreous.layers.head import HeadConfig, HeadSizes, PoolConfig, PoolSizes
from vitreous.layers.mlp import ACTIVATIONS, Activation, Mlp, gates
from vitreous.layers.tap import show


@dataclass(frozen=True)
class BatchNormConfig(NormConfig):
    """Each channel by itself, over batch and tokens."""

    kind: Annotated[Literal["batch"], Uncommon(("batch",))] = "batch"
    momentum: Annotated[
        float, TRAINING, Check(lambda value: 0 < value <= 1, "a number above 0, up to 1")
    ] = 0.1
    """How much of a batch goes into the running statistics."""

    def make(self, dim: int, eps: float) -> nn.Module:
        return BatchNorm(dim, eps=eps, momentum=self.momentum)


class BatchNorm(nn.BatchNorm1d):
    """(x - μ) / √(σ² + ε) · γ + β, with μ and σ² of each channel over the batch and its tokens, and
    in eval mode with running ones (Ioffe and Szegedy 2015): (b, n, d) -> (b, n, d)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, -2)).view_as(x)  # of (b·n, d)


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


@dataclass(frozen=True)
class MlpHeadConfig(HeadConfig):
    """LayerNorm and two layers with GELU (vit-pytorch, in its older versions), or more of them."""

    kind: Literal["mlp"] = "mlp"
    hidden: int | tuple[int, ...] | None = None
    """Width inside, that of the blocks' MLP unless given; several, of as many hidden layers."""
    norm: Annotated[bool, Uncommon((False,))] = True
    """Whether it begins with a LayerNorm."""
    activation: Annotated[
        Activation,
        HIDDEN,
        Uncommon(("gelu-tanh", "quick-gelu", "relu", "leaky-relu", "silu", "tanh")),
    ] = "gelu"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.hidden, tuple):
            if not self.hidden or not all(1 <= width <= LARGEST_SIZE for width in self.hidden):
                raise ConfigError(f"hidden = {list(self.hidden)}: expected widths of at least 1")
            if len(self.hidden) == 1:  # so that configs of the same model are equal
                object.__setattr__(self, "hidden", self.hidden[0])

    def make(self, sizes: HeadSizes) -> nn.Module:
        return MlpHead(sizes, self)


class MlpHead(nn.Module):
    """LayerNorm (or none), linear, activation, linear. With several widths in `hidden`, as many
    linear layers with activation: `hidden`, `hidden2` …"""

    def __init__(self, sizes: HeadSizes, config: MlpHeadConfig) -> None:
        super().__init__()
        dim, hidden = sizes.dim, config.hidden or sizes.mlp_dim
        widths = (hidden,) if isinstance(hidden, int) else hidden
        self.norm = nn.LayerNorm(dim, eps=sizes.norm_eps) if config.norm else nn.Identity()
        self.names = ["hidden", *(f"hidden{k}" for k in range(2, len(widths) + 1))]
        for name, before, width in zip(self.names, (dim, *widths), widths, strict=False):
            self.add_module(name, nn.Linear(before, width * gates(config.activation)))
        self.activation = ACTIVATIONS[config.activation]
        self.out = nn.Linear(widths[-1], sizes.classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        for name in self.names:
            x = self.activation(self.get_submodule(name)(x))
        return self.out(x)


@dataclass(frozen=True)
class UncommonPoolConfig(PoolConfig):
    """mean-all (of all tokens), max (of all tokens), first (token, whichever it is), flatten (all
    tokens as one vector)."""

    kind: Annotated[
        Literal["mean-all", "max", "first", "flatten"],
        Uncommon(("mean-all", "max", "first", "flatten")),
    ] = "mean-all"

    @property
    def reads(self) -> int | None:
        return 1 if self.kind == "first" else None

    def width(self, dim: int, tokens: int) -> int:
        return dim * tokens if self.kind == "flatten" else dim

    def make(self, sizes: PoolSizes) -> nn.Module:
        return UncommonPool(self.kind)


POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean-all": lambda x: x.mean(dim=1),
    "max": lambda x: x.amax(dim=1),
    "first": lambda x: x[:, 0],
    "flatten": lambda x: x.flatten(1),
}


class UncommonPool(nn.Module):
    """(b, n, d) -> (b, d), or (b, n·d). See `UncommonPoolConfig`."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        return POOLS[self.kind](x)


@dataclass(frozen=True)
class SequencePoolConfig(PoolConfig):
    """The mean by learned weights, of compact transformers."""

    kind: Annotated[Literal["sequence"], Uncommon(("sequence",))] = "sequence"
    learned = True

    def make(self, sizes: PoolSizes) -> nn.Module:
        return SequencePool(sizes.dim)


class SequencePool(nn.Module):
    """The mean of all tokens, each weighted by a learned score: (b, n, d) -> (b, d).

    Compact transformers (Hassani et al. 2021), section 3.2: softmax(x g(x)ᵀ) x.
    """

    attends = "pooling"

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.score(x)[:, None].transpose(2, 3)  # (b, 1, 1, n), as of one head
        weights = show(self, "weights", scores.softmax(dim=-1))
        return (weights[:, 0] @ x)[:, 0]
