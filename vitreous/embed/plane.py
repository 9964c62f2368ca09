"""Vectors on a plane, near each other where they are similar."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vitreous.config import choice
from vitreous.embed.neighbours import Vectors, normalised

LAYOUTS = ("auto", "t-sne", "pca")
MOST_TSNE = 4000
"""Images up to which t-SNE is the usual layout: it takes a minute for so many."""
COMPONENTS = 50
"""Principal components that t-SNE starts from."""


def on_plane(vectors: Vectors, layout: str = "auto") -> tuple[NDArray[np.float32], str]:
    """(n, 2) in -1..1, and the layout: PCA or t-SNE (van der Maaten and Hinton 2008) of the first
    50 principal components of the normalised vectors. The same vectors give the same plane."""
    layout = choice("layout", layout, LAYOUTS)
    count = len(vectors)
    if layout == "auto":
        layout = "t-sne" if 4 <= count <= MOST_TSNE else "pca"
    parts = _principal(normalised(vectors), COMPONENTS)
    # images that are all the same have no neighbours to place them by
    if layout == "t-sne" and count >= 4 and parts.shape[1] >= 2 and np.ptp(parts[:, 0]) > 1e-6:
        from sklearn.manifold import TSNE

        perplexity = min(30.0, (count - 1) / 3)
        parts = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(parts)
    else:
        layout = "pca"
    plane = np.zeros((count, 2), np.float32)
    plane[:, : parts.shape[1]] = parts[:, :2]
    plane -= (plane.max(axis=0) + plane.min(axis=0)) / 2
    return plane / max(float(np.abs(plane).max()), 1e-12), layout


def _principal(vectors: Vectors, most: int) -> Vectors:
    from sklearn.decomposition import PCA

    if len(vectors) < 2:
        return np.zeros((len(vectors), 1), np.float32)
    with np.errstate(invalid="ignore"):  # its shares of a variance of 0
        found = PCA(min(most, *vectors.shape), random_state=0).fit_transform(vectors)
    return np.asarray(found, np.float32)
