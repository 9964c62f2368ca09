"""Vectors on a plane, near each other where they are similar."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vitreous.config import choice
from vitreous.neighbours import Vectors, nearest, normalised

LAYOUTS = ("auto", "t-sne", "pca")
MOST_TSNE = 4000
"""Images that t-SNE places, in half a minute; of more, the others are put beside these."""
MOST_BESIDE = 100_000
"""Images up to which that is the usual layout."""
BESIDE = 3
"""The nearest placed images that decide where another one is put."""
COMPONENTS = 50
"""Principal components that t-SNE starts from."""


def on_plane(vectors: Vectors, layout: str = "auto") -> tuple[NDArray[np.float32], str]:
    """(n, 2) in -1..1, and the layout: PCA or t-SNE (van der Maaten and Hinton 2008) of the first
    50 principal components of the normalised vectors. The same vectors give the same plane."""
    layout = choice("layout", layout, LAYOUTS)
    count = len(vectors)
    if layout == "auto":
        layout = "t-sne" if 4 <= count <= MOST_BESIDE else "pca"
    parts = _principal(normalised(vectors), COMPONENTS)
    # images that are all the same have no neighbours to place them by
    if layout == "t-sne" and count >= 4 and parts.shape[1] >= 2 and np.ptp(parts[:, 0]) > 1e-6:
        parts = _t_sne(parts)
    else:
        layout = "pca"
    plane = np.zeros((count, 2), np.float32)
    plane[:, : parts.shape[1]] = parts[:, :2]
    plane -= (plane.max(axis=0) + plane.min(axis=0)) / 2
    return plane / max(float(np.abs(plane).max()), 1e-12), layout


def _t_sne(parts: Vectors) -> Vectors:
    """(n, d) -> (n, 2). Of many, as many as can be placed in a short time are, evenly chosen; each
    other one lies among the placed ones that are most like it."""
    from sklearn.manifold import TSNE

    rows = np.unique(np.linspace(0, len(parts) - 1, min(len(parts), MOST_TSNE)).astype(int))
    perplexity = min(30.0, (len(rows) - 1) / 3)
    placed = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(parts[rows])
    if len(rows) == len(parts):
        return np.asarray(placed, np.float32)
    found = nearest(parts, parts[rows], BESIDE)
    weights = np.maximum(found.similarities, 1e-6)[:, :, None] ** 8  # the nearest counts most
    plane = (placed[found.indices] * weights).sum(axis=1) / weights.sum(axis=1)
    plane[rows] = placed
    return np.asarray(plane, np.float32)


def _principal(vectors: Vectors, most: int) -> Vectors:
    from sklearn.decomposition import PCA

    if len(vectors) < 2:
        return np.zeros((len(vectors), 1), np.float32)
    with np.errstate(invalid="ignore"):  # its shares of a variance of 0
        found = PCA(min(most, *vectors.shape), random_state=0).fit_transform(vectors)
    return np.asarray(found, np.float32)
