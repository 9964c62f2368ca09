"""Nearest neighbours by cosine similarity, block by block: n² numbers are never kept at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Ints = NDArray[np.int64]

BLOCK = 1 << 24
"""Similarities that are computed at a time: 64 MB."""
TEMPERATURE = 0.07
"""Of the votes of neighbours: Wu et al. 2018, Caron et al. 2021 (DINO)."""
K = 20
MOST_PAIRS = 100_000
"""That are kept: a thousand equal images are half a million pairs."""


class Neighbours(NamedTuple):
    """Of each of q queries, the nearest first."""

    indices: Ints
    """(q, k)"""
    similarities: Vectors
    """(q, k): cosine, from -1 to 1"""


class Votes(NamedTuple):
    """What the neighbours of each of q images say about its class."""

    shares: NDArray[np.float32]
    """(q, classes), each row sums to 1: votes weighted by similarity, exp(cos / T)"""
    counts: Ints
    """(q, classes): plain votes"""


def normalised(vectors: Vectors) -> Vectors:
    """Each of length 1; one of length 0 stays, and is similar to nothing."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(length, 1e-12)).astype(np.float32, copy=False)


def standardised(train: Vectors, val: Vectors) -> tuple[Vectors, Vectors]:
    """Each feature with mean 0 and std 1 over the training images: what all images share, which is
    most of a masked autoencoder's features, says nothing about which are alike."""
    mean, std = train.mean(axis=0), np.maximum(train.std(axis=0), 1e-6)
    return (train - mean) / std, (val - mean) / std


def nearest(queries: Vectors, bank: Vectors, k: int, *, same: bool = False) -> Neighbours:
    """The k nearest of `bank`, by cosine. `same`: they are the same images, and none is its own
    neighbour."""
    k = min(k, len(bank) - same)
    found = []
    for start, similar in _blocks(queries, bank):
        if same:
            rows = torch.arange(len(similar))
            similar[rows, start + rows] = -torch.inf
        found.append(similar.topk(k, dim=1))
    if not found:
        return Neighbours(np.zeros((0, k), np.int64), np.zeros((0, k), np.float32))
    values, indices = (torch.cat(part).numpy() for part in zip(*found, strict=True))
    return Neighbours(indices, values)


def vote(found: Neighbours, classes: Ints, count: int, temperature: float = TEMPERATURE) -> Votes:
    """classes: (n,) of the bank, from 0 to below `count`."""
    q = len(found.indices)
    theirs = torch.from_numpy(classes)[torch.from_numpy(found.indices)]  # (q, k)
    # relative to the nearest, so that nothing overflows: shares stay the same
    weights = torch.from_numpy(found.similarities / temperature).softmax(dim=1)
    shares = torch.zeros(q, count).scatter_add_(1, theirs, weights).clamp(max=1)
    counts = torch.zeros(q, count, dtype=torch.int64).scatter_add_(
        1, theirs, torch.ones_like(theirs)
    )
    return Votes(shares.numpy(), counts.numpy())


def similar_pairs(
    vectors: Vectors, threshold: float, groups: Ints, most: int = MOST_PAIRS
) -> tuple[Ints, Vectors]:
    """(p, 2) pairs i < j with a cosine of at least `threshold`, and their cosines (p,).

    Pairs of different groups come first, then by similarity; of more than `most`, those are kept.
    """
    pairs, similarities = np.zeros((0, 2), np.int64), np.zeros(0, np.float32)
    for start, similar in _blocks(vectors, vectors):
        similar = similar[:, start:]  # a pair is seen once, from its first image
        rows, columns = torch.nonzero(similar.triu(1) >= threshold, as_tuple=True)
        new = torch.stack((rows + start, columns + start), dim=1).numpy()
        pairs = np.concatenate((pairs, new))
        similarities = np.concatenate((similarities, similar[rows, columns].numpy()))
        if len(pairs) > most:
            order = _order(pairs, similarities, groups)[:most]
            pairs, similarities = pairs[order], similarities[order]
    order = _order(pairs, similarities, groups)
    return pairs[order], similarities[order]


def _order(pairs: Ints, similarities: Vectors, groups: Ints) -> Ints:
    within = groups[pairs[:, 0]] == groups[pairs[:, 1]]
    return np.lexsort((pairs[:, 1], pairs[:, 0], -similarities, within))


def _blocks(queries: Vectors, bank: Vectors) -> Iterator[tuple[int, torch.Tensor]]:
    """Where a block of queries starts, and its similarities with all of the bank."""
    unit = normalised(bank)  # as large as the bank: made once if both are the same
    ours = torch.from_numpy(unit if queries is bank else normalised(queries))
    theirs = torch.from_numpy(unit).T
    size = max(BLOCK // max(len(bank), 1), 1)
    for start in range(0, len(queries), size):
        yield start, ours[start : start + size] @ theirs
