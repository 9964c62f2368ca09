"""The text tower that CLIP (Radford et al. 2021, section 2.4) and its successors share.

A text is cut into tokens, of which one marks its end (`vitreous/text`). They go through the blocks
of a ViT; in most towers a token sees only those before it. One token is read for the whole text,
and projected into the space that texts and images share:

    x₀  = [t¹E; …; tⁿE] + E_pos          `embed`
    x_l = Block_l(x_{l-1})               `encode`: `layers/block.py`, causal or not
    y   = W LN(x_L)ᵉ                     `pool` and `head`: e is the place of the end token
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.config import Classes, Depth, Epsilon, Hidden
from vitreous.errors import ConfigError, InputError
from vitreous.layers.attention import Attention
from vitreous.layers.block import Block
from vitreous.layers.head import HeadSizes, LinearHeadConfig
from vitreous.layers.init import initialise
from vitreous.layers.mlp import Activation, Mlp
from vitreous.layers.resample import Grid
from vitreous.layers.text import (
    EndPoolConfig,
    TextPool,
    TextPooling,
    TokenEmbedding,
    causal_bias,
)
from vitreous.models.model import AttentionLayer, Model, ModelConfig, Places

NOWHERE: Grid = (0, 0)
"""The grid of tokens that have no place in an image."""


@dataclass(frozen=True)
class TextConfig(ModelConfig):
    """What a text tower is made of. The defaults are those of CLIP ViT-B."""

    vocabulary: int = 49408
    """How many tokens there are."""
    length: int = 77
    """The most tokens of a text, with its end and padding."""
    classes: Classes = 512
    """Dimensions of the space that texts and images share."""
    dim: int = 512
    """Width of a token."""
    depth: Depth = 12
    """Number of blocks."""
    heads: Hidden[int] = 8
    mlp_dim: int | None = None
    """Width inside the MLP; 4 x dim unless given."""
    activation: Activation = "gelu"
    norm_eps: Epsilon = 1e-5
    causal: Hidden[bool] = True
    """Whether a token sees only itself and those before it."""
    pool: TextPool = EndPoolConfig()
    """The token that is read for the whole text: end (pool.token), largest, last."""
    head: LinearHeadConfig = LinearHeadConfig("projection")
    """projection, linear (with bias), or none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % self.heads:
            raise ConfigError(f"dim = {self.dim} does not divide into {self.heads} heads")
        if self.end >= self.vocabulary:
            raise ConfigError(
                f"pool.token = {self.end}: the vocabulary has {self.vocabulary} tokens, the first "
                "of which is 0"
            )
        if self.end == self.vocabulary - 1 and self.pool.kind == "end":
            object.__setattr__(self, "pool", EndPoolConfig())

    @property
    def end(self) -> int:
        """The id of the end token."""
        token = getattr(self.pool, "token", None)
        return self.vocabulary - 1 if token is None else token

    @property
    def mlp_width(self) -> int:
        return self.mlp_dim or 4 * self.dim

    @property
    def any_length(self) -> bool:
        """Whether padding behind the end changes nothing, and may be left out."""
        return self.causal and self.pool.kind != "last"


class TextTower(Model):
    """Token ids (b, n) -> (b, classes). See `TextConfig` for every choice."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.config, self.depth = config, config.depth
        dim, heads, eps = config.dim, config.heads, config.norm_eps
        self.embedding = TokenEmbedding(config.vocabulary, config.length, dim)
        self.blocks = nn.ModuleList(
            Block(
                dim,
                Attention(dim, heads, dim // heads, norm_eps=eps),
                Mlp(dim, config.mlp_width, activation=config.activation),
                norm_eps=eps,
            )
            for _ in range(config.depth)
        )
        self.norm, self.ends_with_norm = nn.LayerNorm(dim, eps=eps), True
        self.pooling = TextPooling(config.pool.kind, config.end)
        self.head = config.head.make(HeadSizes(dim, config.classes))
        initialise(self, "trunc-normal")

    def forward(self, ids: Tensor) -> Tensor:
        x = self.encode(*self.embed(ids))  # x_L: (b, n, d)
        return self.head(self.pool(x, ids))  # (b, classes)

    def embed(self, ids: Tensor) -> tuple[Tensor, Grid]:
        self.check_ids(ids)
        return self.embedding(ids), NOWHERE

    def encode(
        self, x: Tensor, grid: Grid = NOWHERE, first: int = 0, last: int | None = None
    ) -> Tensor:
        bias = causal_bias(x) if self.config.causal else None
        for block in list(self.blocks)[first:last]:
            x = block(x, bias)
        return x

    def pool(self, x: Tensor, ids: Tensor) -> Tensor:  # type: ignore[override]
        """The ids say where the end is."""
        return self.pooling(self.norm(x), ids)

    def text_vectors(self, ids: Tensor) -> Tensor:
        """Token ids (b, n) -> (b, classes), of length one."""
        self.check_ids(ids)
        self.check_values(ids)
        return F.normalize(self(ids), dim=-1)

    def final_norm(self, x: Tensor, block: int) -> Tensor:
        return self.norm(x)

    @property
    def width(self) -> int:
        return self.config.dim

    def vector_length(self, pool: str = "head") -> int:
        return int(self.width if self.config.head.kind == "none" else self.config.classes)

    def layers(self) -> list[list[nn.Module]]:
        return [[self.embedding], *([block] for block in self.blocks), [self.norm, self.head]]

    def steps(self) -> dict[str, nn.Module]:
        """Its parts alone: it shows nothing besides what they give."""
        return {name: part for name, part in super().steps().items() if name}

    def undecayed(self) -> list[nn.Parameter]:
        return [self.embedding.positions]

    def attentions(self, size: tuple[int, int] | None = None) -> list[AttentionLayer]:
        words = Places(self.config.length, NOWHERE, (1, 1))
        names = (f"blocks.{i}.attention" for i in range(self.depth))
        return [AttentionLayer(name, "text", words, words) for name in names]

    def example(self) -> dict[str, Tensor]:
        ids = self.embedding.positions.new_zeros(1, self.config.length)
        return {"text": ids.long()}

    def check_ids(self, ids: Tensor) -> None:
        """Token ids are integers (b, n), as many as the tower has places, or fewer where padding
        changes nothing."""
        config = self.config
        whole = not (ids.is_floating_point() or ids.is_complex())
        if ids.ndim != 2 or not whole:
            raise InputError(
                f"token ids of shape {tuple(ids.shape)} and type {ids.dtype} were given; a text "
                "tower takes integers (texts, tokens), as a tokenizer gives them"
            )
        count = ids.shape[1]
        if count == config.length or (config.any_length and 0 < count < config.length):
            return
        many = "up to " if config.any_length else "exactly "
        raise InputError(
            f"texts of {count} tokens were given; this model takes {many}{config.length}: cut "
            "them off before the end token, and pad them"
        )

    def check_values(self, ids: Tensor) -> None:
        """The ids are in the vocabulary, and every text has an end."""
        config = self.config
        if not ids.numel():
            return
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= config.vocabulary:
            raise InputError(
                f"token ids from {low} to {high} were given; the vocabulary of this model has "
                f"{config.vocabulary} tokens: use the tokenizer of its checkpoint"
            )
        if config.pool.kind == "end":
            ended = (ids == config.end).any(dim=1)
            if not bool(ended.all()):
                row = int((~ended).nonzero()[0])
                raise InputError(
                    f"text {row} has no end token ({config.end}), which is what this model "
                    "reads: use the tokenizer of its checkpoint, which also ends texts that it "
                    "cuts off"
                )
