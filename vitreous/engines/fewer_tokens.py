"""A ViT that computes fewer tokens: two wrappers, put on from outside.

- Where the head reads leading tokens alone (the class token), the last block computes no others:
  keys and values of all tokens, all else of those that are read. That is exact.
- Tokens that are alike are merged, block by block (`layers/token_merging.py`): a little different,
  and faster.
"""

from __future__ import annotations

import math
from typing import TypeVar

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vitreous.engines.swap import base_of, has_hooks, put_on, take_off
from vitreous.errors import ConfigError
from vitreous.layers.attention import Attention, Rotate
from vitreous.layers.block import Block
from vitreous.layers.cross_attention import RowsLinear
from vitreous.layers.resample import Grid
from vitreous.layers.token_merging import TokenMerging
from vitreous.layers.uncommon import BLOCKS, PostNormBlock, StreamNormBlock
from vitreous.models.composite import Composite
from vitreous.models.model import AttentionLayer, Model
from vitreous.models.vit import ViT

M = TypeVar("M", bound=nn.Module)


def skip_unread(model: M, skip: bool = True) -> M:
    """Let the last block of every ViT in `model` compute only what its head reads."""
    for module in model.modules():
        if isinstance(module, ViT) and module.config.reads is not None:
            _put_on(module, skip, module.merge)
    return model


def merge_tokens(model: Model, r: int) -> None:
    """From now on every block merges the r patches that are most like others into these."""
    if isinstance(r, bool) or not isinstance(r, int) or r < 0:
        raise ConfigError(f"merge = {r!r}: expected a whole number, 0 or more")
    name = model.name or type(model).__name__
    if r and (why := why_unmerged(model)):
        raise ConfigError(f"merge = {r}: {name} {why}")
    if not isinstance(model, ViT):
        return
    most = math.prod(model.config.grid) // 2
    if r > most:
        raise ConfigError(
            f"merge = {r}: {name} can merge at most {most} patches in a block, half of those that "
            "it has"
        )
    _put_on(model, isinstance(model, FewerTokensViT) and model.skips_unread, r)


def why_unmerged(model: Model) -> str:
    """Why tokens cannot be merged, behind the model's name; empty if they can."""
    if isinstance(model, Composite):
        return f"reads the maps of its {model.config.part}, which need all tokens"
    if not isinstance(model, ViT):
        return "is no plain ViT: only where all tokens see each other can some be merged"
    if model.config.windows.side > 1:
        return "attends inside of windows, which need all of their tokens"
    if model.position.merges_from is None:
        return (
            f"has position = {model.config.position.kind!r}: every block needs the place of each "
            "patch, and a merged token has none"
        )
    return ""


def _put_on(model: ViT, skip: bool, merge: int) -> None:
    wrapped = list(model.blocks) if merge else list(model.blocks)[-1:] if skip else []
    for block in model.blocks:
        for module in block.modules():
            if block not in wrapped:
                take_off(module, (FewerTokensBlock, FewerTokensAttention, RowsLinear))
            elif base_of(module) in BLOCKS.values():
                put_on(module, FewerTokensBlock, base_of(module))
            elif isinstance(module, Attention):
                put_on(module, FewerTokensAttention)
                put_on(module.qkv, RowsLinear)
    if wrapped:
        put_on(model, FewerTokensViT)
        assert isinstance(model, FewerTokensViT)
        model.skips_unread, model.merge = skip, merge
    else:
        take_off(model, (FewerTokensViT,))
        model.merge = 0


def _learns_statistics(block: nn.Module) -> bool:
    """Whether its norms are over all tokens: batch norms in training."""
    return any(isinstance(each, _BatchNorm) and each.training for each in block.children())


class FewerTokensAttention(Attention):
    def forward(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        rotate: Rotate | None = None,
        reads: int | None = None,
        merging: TokenMerging | None = None,
    ) -> Tensor:
        """x (b, n, d) -> (b, n, d), or (b, reads, d): the first tokens alone are queries, all are
        keys. `merging` sees the keys."""
        if reads is not None:
            q, k, v = self._leading(x, reads)
        else:
            q, k, v = self.make(x)
        q, k = self.q_norm(q), self.k_norm(k)
        if merging is not None:
            merging.match(k)
        if rotate is not None:
            # Leading tokens have no place: nothing to rotate.
            q, k = q if reads is not None else rotate(q), rotate(k)
        if bias is not None and reads is not None:
            bias = bias[..., :reads, :]
        return self.join(self.weigh(q, k, v, bias))

    def _leading(self, x: Tensor, reads: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of the first tokens, keys and values of all."""
        if not isinstance(self.qkv, RowsLinear):
            q, k, v = self.make(x)
            return q[:, :, :reads], k, v
        width, bias = self.heads * self.head_dim, self.qkv_bias()
        (q,) = self.split(self.qkv(x[:, :reads], slice(width), bias))
        k, v = self.split(self.qkv(x, slice(width, None), bias))
        return q, k, v


class FewerTokensBlock(Block):
    def forward(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        rotate: Rotate | None = None,
        reads: int | None = None,
        merging: TokenMerging | None = None,
    ) -> Tensor:
        """x (b, n, d) -> (b, reads, d), exactly what the first tokens would be; or, where they are
        merged, (b, n - r, d)."""
        if reads is None and merging is None:
            return super().forward(x, bias, rotate)
        seen = x if isinstance(self, PostNormBlock) else self.norm1(x)
        stream = seen if isinstance(self, StreamNormBlock) else x
        found = self.attention(seen, bias, rotate, reads, merging)
        x = stream[:, :reads] + self.drop_path(self.scale1(found))
        return self.transform(x if merging is None else merging.merge(x))


class FewerTokensViT(ViT):
    skips_unread = False

    def forward(self, images: Tensor) -> Tensor:
        self._check(images, dynamic=bool(self.config.dynamic_size))
        return self.head(self.pooled(images))

    def pooled(self, images: Tensor) -> Tensor:
        x, grid = self.embed(images)
        reads = self.config.reads if self.skips_unread else None
        return self.pool(self._encode(x, grid, 0, None, reads))

    def encode(self, x: Tensor, grid: Grid, first: int = 0, last: int | None = None) -> Tensor:
        """If tokens are merged, each patch comes out as the token that it is in."""
        return self._encode(x, grid, first, last, None)

    def _encode(
        self, x: Tensor, grid: Grid, first: int, last: int | None, reads: int | None
    ) -> Tensor:
        """With `reads`, only the first tokens leave the last block."""
        if not self.merge and reads is None:
            return super().encode(x, grid, first, last)
        merging = self._merging(first, restored=reads is None)
        position, p = self.position, self.prefix_length
        rotate = position.rotation(p, grid, x.device)
        first_merged = position.merges_from or 0
        for i, block in list(enumerate(self.blocks))[first:last]:
            bias = position.score_bias(i, p, grid) if merging is None else merging.score_bias()
            if reads is not None and i == self.depth - 1:
                return self._last(block, x, bias, rotate, reads)
            if merging is not None and i >= first_merged:
                x = block(x, bias, rotate, merging=merging)
            else:
                x = block(x, bias, rotate)
            x = position.after(i, x, p, grid)
        return x if merging is None else merging.restore(x)

    @staticmethod
    def _last(
        block: nn.Module, x: Tensor, bias: Tensor | None, rotate: Rotate | None, reads: int
    ) -> Tensor:
        """Who looks into the last block sees all tokens, there and in the norm behind it."""
        attention = getattr(block, "attention", None)
        if (
            isinstance(block, FewerTokensBlock)
            and isinstance(attention, FewerTokensAttention)
            and not has_hooks(attention, attention.qkv)
            and not _learns_statistics(block)
        ):
            return block(x, bias, rotate, reads)
        return block(x, bias, rotate)

    def _merging(self, first: int, *, restored: bool) -> TokenMerging | None:
        if not self.merge or first == self.depth:
            return None
        if first:
            raise ConfigError(
                f"merge = {self.merge}: tokens of several blocks were requested, which are other "
                "ones in each: use the model without merging"
            )
        return TokenMerging(self.merge, self.prefix_length, restored=restored)

    def attentions(self, size: tuple[int, int] | None = None) -> list[AttentionLayer]:
        if self.merge:
            raise ConfigError(
                f"merge = {self.merge}: attention is shown between the places of patches, and a "
                "merged token has none: load the run without merge to look inside"
            )
        return super().attentions(size)
