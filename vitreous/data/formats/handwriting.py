"""Real handwritten digits on real photographs, with any kind of ground truth. `handwriting:9000`
has so many images to train on.

Digits and photographs are those that come with scikit-learn. Chance decides which digits an image
has, and where, how large, how turned and in which colour. Each split has digits of its own, as in
`digits`, and its own part of each photograph: nothing in an image of test was seen in training.
To learn one class per image, images have one digit each; else one to four.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.digits import datasets_folder, read_digits
from vitreous.data.formats.generated import (
    KEPT,
    SIZE,
    GeneratedSource,
    Scene,
    box_of,
    contrasting,
    generated,
    random_of,
)
from vitreous.data.source import Sample
from vitreous.labels import LabelMap

MOST_DIGITS = 4
"""In one image."""
PHOTOGRAPHS = ("china.jpg", "flower.jpg")
COLUMNS = {"train": (0.0, 0.5), "test": (0.5, 0.75), "val": (0.75, 1.0)}
"""The part of each photograph that a split has, from left to right."""
WINDOW = (64, 110)
"""Pixels of a photograph, a side, that become an image."""
SMALL = 32
"""Height and width of an image with one digit."""
SIDES = (14, 26)
"""Pixels of a digit, a side."""
TURN = 20
"""Degrees, to either side."""
TRIES = 20
INK = 0.4
"""How much of a pixel must be covered to belong to a digit."""

_NAMES = tuple(map(str, range(10)))
_LABELS = {
    "boxes": LabelMap(_NAMES, tuple(range(10))),
    "mask": LabelMap(("background", *_NAMES), tuple(range(11))),
    "instances": LabelMap(_NAMES, tuple(range(10))),
    "labels": LabelMap.of_names(_NAMES),
    "class": LabelMap.of_names(_NAMES),
}
"""By the kind of ground truth."""


class HandwritingSource(GeneratedSource):
    may_flip = False

    def scene(self, sample: Sample) -> Scene:
        return scene(self.seed, sample.id, sample.target)


@lru_cache(maxsize=KEPT)
def scene(seed: int, id: str, target: int | None) -> Scene:
    """One to four digits, each apart from the others; or, in a smaller image, the one that is asked
    for."""
    split, random = random_of(seed, id)
    size = SIZE if target is None else SMALL
    image, places = _ground(random, split, size), np.zeros((size, size), np.int8)
    taken = np.zeros((size, size), np.bool_)
    kinds: list[int] = []
    boxes: list[tuple[int, int, int, int]] = []
    digits = read_digits()
    known = _known(split, target)
    wanted = 1 if target is not None else random.integers(1, MOST_DIGITS + 1)
    for number in random.integers(len(known), size=wanted):
        sample = known[number]
        for _ in range(TRIES):
            cover = _cover(random, digits.shades[int(sample.id)], size)
            mask = cover >= INK
            left, top, right, bottom = box_of(mask)
            if not taken[top:bottom, left:right].any():
                break
        else:
            continue  # there is no room for it
        colour = contrasting(random, image[mask].mean(axis=0))
        image += cover[:, :, None] * (colour - image)
        kinds.append(sample.target)
        boxes.append((left, top, right, bottom))
        places[mask] = len(kinds)
        taken[top:bottom, left:right] = True
    pixels = np.round(image.clip(0, 1) * 255).astype(np.uint8)
    return Scene(pixels, places, tuple(kinds), tuple(boxes))


@cache
def _known(split: str, target: int | None) -> list[Sample]:
    """The digits of a split, or those of one class."""
    return [each for each in read_digits().splits[split] if target in (None, each.target)]


def _ground(random: np.random.Generator, split: str, size: int) -> NDArray[np.float64]:
    """(h, w, 3) from 0 to 1: a window of a photograph, within the split's part of it."""
    photograph = _photograph(PHOTOGRAPHS[random.integers(len(PHOTOGRAPHS))])
    side = int(random.integers(*WINDOW, endpoint=True))
    first, last = (round(share * photograph.width) for share in COLUMNS[split])
    left = int(random.integers(first, last - side, endpoint=True))
    top = int(random.integers(photograph.height - side, endpoint=True))
    box = (left, top, left + side, top + side)
    window = photograph.resize((size, size), Image.Resampling.BILINEAR, box)
    return np.asarray(window, np.float64) / 255


@cache
def _photograph(name: str) -> Image.Image:
    with Image.open(datasets_folder() / "images" / name) as image:
        return image.convert("RGB")


def _cover(
    random: np.random.Generator, shades: NDArray[np.uint8], size: int
) -> NDArray[np.float64]:
    """(h, w) from 0 to 1: how much of each pixel the ink of a digit (8, 8) covers, wholly inside of
    the image."""
    side = int(random.integers(*SIDES, endpoint=True))
    paper = Image.fromarray(np.pad(shades, 1))  # so that no stroke is cut off by turning
    digit = paper.resize((side, side), Image.Resampling.BICUBIC)
    digit = digit.rotate(random.uniform(-TURN, TURN), Image.Resampling.BICUBIC)
    cover = np.zeros((size, size))
    top, left = random.integers(size - side, size=2, endpoint=True)
    cover[top : top + side, left : left + side] = np.asarray(digit, np.float64) / 255
    return cover


def read(builder: SourceBuilder) -> HandwritingSource:
    size = SMALL if builder.truth_kind == "class" else SIZE
    note = f"real digits on real photographs, put together: images of {size}x{size}"
    return generated(builder, HandwritingSource, _LABELS, note, usual=5000)
