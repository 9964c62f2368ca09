"""Text as tokens, and one vector of it: what the text towers of CLIP, SigLIP and their successors
have besides a transformer's blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from vitreous.config import HIDDEN, LARGEST_SIZE, Check, Record

TokenId = Annotated[int | None, HIDDEN, Check(lambda value: 0 <= value < LARGEST_SIZE, "0 or more")]


class TokenEmbedding(nn.Module):
    """A learned vector for each token of the vocabulary, plus one for each place in the text
    (Vaswani et al. 2017, section 3.4): ids (b, n) -> (b, n, d)."""

    def __init__(self, vocabulary: int, length: int, dim: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, dim)
        self.positions = nn.Parameter(torch.empty(length, dim))
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions, std=0.01)

    def forward(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.positions[: ids.shape[1]]


def causal_bias(like: Tensor) -> Tensor:
    """(1, 1, n, n) for tokens (b, n, d): 0 where one may look, at itself and at what is before it,
    and -∞ elsewhere."""
    n = like.shape[1]
    minus = torch.full((n, n), -math.inf, device=like.device, dtype=like.dtype)
    return minus.triu(diagonal=1)[None, None]


@dataclass(frozen=True)
class TextPoolConfig(Record):
    """Which token is read for the whole text: last (the last place, padding or not), or largest
    (the first of the largest id, as in OpenAI's code, whose end token has that)."""

    kind: Literal["last", "largest"] = "last"


@dataclass(frozen=True)
class EndPoolConfig(Record):
    """The first end token is read for the whole text."""

    kind: Literal["end"] = "end"
    token: TokenId = None
    """Its id; the last of the vocabulary unless given."""


TextPool = Annotated[EndPoolConfig | TextPoolConfig, HIDDEN]


class TextPooling(nn.Module):
    """x (b, n, d), ids (b, n) -> (b, d): one token of each text. end: the id of the end token, of
    the kind that asks for it."""

    def __init__(self, kind: str, end: int) -> None:
        super().__init__()
        self.kind, self.end = kind, end

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        match self.kind:
            case "end":
                places = (ids == self.end).int().argmax(dim=1)
            case "largest":
                places = ids.argmax(dim=1)
            case _:
                return x[:, -1]
        return x.gather(1, places[:, None, None].expand(-1, 1, x.shape[2]))[:, 0]
