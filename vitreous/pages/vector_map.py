"""The map of vectors: one self-contained page with all images on a plane.

The images are cells of one picture (an atlas), so that a canvas can draw thousands of them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.data.threads import in_threads
from vitreous.embed.embeddings import KINDS, Embeddings
from vitreous.errors import ConfigError, VitreousError
from vitreous.labels import natural
from vitreous.pages.colours import as_hex, colours_of
from vitreous.pages.page_file import write_page
from vitreous.pages.pictures import as_picture, data_url, thumbnail
from vitreous.pages.template import render
from vitreous.pages.words import words_for
from vitreous.wording import counted

if TYPE_CHECKING:
    from PIL.Image import Image

PIXELS = 6_000_000
"""Of the atlas: about three megabytes."""
SIDES = 12, 96
"""The smallest and the largest side of an image in it."""
MOST_IMAGES = 100_000
"""Of a map: browsers do not show a larger atlas."""
STEPS = 9999
"""Places along each axis."""
NAMES = {"t-sne": "t-SNE", "pca": "PCA"}


def write_map(found: Embeddings, path: Path, layout: str = "auto") -> tuple[Path, str]:
    """The page, and how the images are laid out: t-sne or pca."""
    if len(found) > MOST_IMAGES:
        raise ConfigError(
            f"--map {path}: a page can show {MOST_IMAGES:,} images, not {len(found):,}: name fewer "
            "of them, or one --split"
        )
    plane, layout = found.plane(layout)
    lede = ["lede", found.about.model, found.about.pool, NAMES[layout]]
    data = {"lede": lede, **_places(found, plane), **_atlas(found)}
    title = counted(len(found), "image")
    page = render("vector_map.html", title=title, data=data, words=words_for("map"))
    return write_page(path, page), layout


def _places(found: Embeddings, plane: Any) -> dict[str, Any]:
    """Where each image is, and what is known about it."""
    steps = np.round((plane + 1) / 2 * STEPS).astype(int)
    groups = {}
    if any(found.labels):
        groups["label"] = _group(found.labels, sorted(set(found.labels), key=natural))
    if any(found.splits):
        order = sorted(set(found.splits), key=lambda split: (KINDS.get(split, len(KINDS)), split))
        groups["split"] = _group(found.splits, order)
    ends = min(found.paths), max(found.paths)  # all others begin as these do
    common = next((i for i, (a, b) in enumerate(zip(*ends, strict=False)) if a != b), 0)
    start = ends[0].rfind("/", 0, common) + 1
    return {
        "x": steps[:, 0].tolist(),
        "y": steps[:, 1].tolist(),
        "steps": STEPS,
        "groups": groups,
        "folder": found.paths[0][:start],
        "paths": [path[start:] for path in found.paths],
    }


def _group(values: list[str], names: list[str]) -> dict[str, Any]:
    """One way to colour the images."""
    numbers, counts = {name: i for i, name in enumerate(names)}, Counter(values)
    return {
        "of": [numbers[value] for value in values],
        "names": names,
        "counts": [counts[name] for name in names],
        "colours": [as_hex(colour) for colour in colours_of(tuple(range(len(names))))],
    }


def _atlas(found: Embeddings) -> dict[str, Any]:
    """All images in one picture, each in a square cell, and their sizes in it."""
    from PIL import Image

    count = len(found)
    least, most = SIDES
    side = int(min(max((PIXELS / count) ** 0.5, least), most))

    def small(row: int) -> Image.Image | None:
        try:
            image, _ = found.images.read(found.images.entries[row])
        except VitreousError:  # it was there when its vector was computed
            return None
        return as_picture(thumbnail(image, side)).convert("RGB")

    # a cell is no larger than the largest image
    pictures = in_threads(small, range(count), "reading pictures")
    sizes = [(0, 0) if each is None else each.size for each in pictures]
    side = max(max(map(max, sizes)), 1)
    columns = int(np.ceil(count**0.5))
    atlas = Image.new("RGB", (columns * side, -(-count // columns) * side))
    for i, each in enumerate(pictures):
        if each is not None:
            atlas.paste(each, (i % columns * side, i // columns * side))
    same = len(set(sizes)) == 1
    return {
        "atlas": data_url(atlas, exact=side <= 16 and count <= 5000),
        "side": side,
        "columns": columns,
        "sizes": [list(size) for size in (sizes[:1] if same else sizes)],
    }
