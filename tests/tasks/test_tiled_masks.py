"""Masks in tiles: every object once, with all of its pixels, wherever the borders of tiles are."""

import numpy as np
import pytest
from bright import LABELS, SCENES, SmallWhole, predictor, scene
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from vitreous.data.instance_masks import decode
from vitreous.mask_parts import MaskPart, encode_at, enlarged, united

ROWS, COLUMNS = np.mgrid[:160, :160]
SHAPES = {
    "diagonal": np.abs(ROWS - COLUMNS) < 4,
    "ring": np.abs(np.hypot(ROWS - 80, COLUMNS - 75) - 55) < 5,
    "corner": ((ROWS < 12) | (COLUMNS < 12)) & (ROWS > 2) & (COLUMNS > 2),
    "comb": (ROWS > 140) | ((COLUMNS % 40 < 12) & (ROWS > 20)),
    "curve": np.abs(ROWS - 80 - 60 * np.sin(COLUMNS / 25)) < 9,
    "two diagonals beside each other": (np.abs(ROWS - COLUMNS) < 4)
    | (np.abs(ROWS - COLUMNS - 14) < 4),
    "spots": (ROWS % 40 < 7) & (COLUMNS % 55 < 7),
}


def image_of(*masks):
    """(h, w, 3) of masks, each in a colour of its own."""
    return np.stack(
        [255 * masks[i] if i < len(masks) else 0 * masks[0] for i in range(3)], 2
    ).astype(np.uint8)


def objects_in(image):
    """What there is: the colour and the pixels of each object."""
    found = set()
    for colour in range(3):
        numbers, count = ndimage.label(image[..., colour] > 0)
        found |= {(colour, (numbers == number).tobytes()) for number in range(1, count + 1)}
    return found


def objects_found(result):
    found = [(LABELS.names.index(o.label), o.mask.tobytes()) for o in result.objects]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.mark.parametrize("name", [*SCENES, *SHAPES])
def test_every_object_is_found_once_with_its_pixels(name):
    image = scene(160, 160, *SCENES[name]) if name in SCENES else image_of(SHAPES[name])
    result = predictor(64, masks=True, tile=64, overlap=0.25)(image)
    assert objects_found(result) == objects_in(image)
    for found in result.objects:
        assert np.array_equal(
            decode(found.rle | {"counts": found.rle["counts"].encode()}), found.mask
        )


@pytest.mark.parametrize("name", SHAPES)
def test_parts_are_united_where_the_whole_image_shows_nothing(name):
    """Only tiles see anything; objects go through up to nine of them."""
    image = image_of(SHAPES[name])
    model = predictor(64, masks=True, tile=64, overlap=0.25)
    model.engine.model.look = blind_to(160, model.engine.model.look)
    assert objects_found(model(image)) == objects_in(image)


def blind_to(side, look):
    return lambda image: look(image * 0 - 1 if image.shape[1] == side else image)


@settings(max_examples=10, deadline=None)
@given(st.integers(40, 120), st.floats(0.15, 0.6), st.data())
def test_it_does_not_matter_how_tiles_fall(side, overlap, data):
    top, left = (data.draw(st.integers(0, 30)) for _ in range(2))
    image = np.zeros((170, 190, 3), np.uint8)
    view = image[top : top + 140, left : left + 160]
    view |= image_of(*(SHAPES[name] for name in ("curve", "ring", "spots")))[20:]
    model = predictor(64, masks=True, tile=side, overlap=overlap)
    if data.draw(st.booleans()):
        model.engine.model.look = blind_to(170, model.engine.model.look)
    assert objects_found(model(image)) == objects_in(image)


def test_of_a_large_object_tiles_show_more_than_the_whole_image():
    image = image_of(SHAPES["curve"])
    model = predictor(64, masks=True, tile=64, overlap=0.25)
    whole = predictor(32, resize="shorter").preprocess
    model.tiled.preprocess = SmallWhole(model.preprocess, whole)
    (found,) = model(image).objects
    coarse = united(found.parts[:1], (160, 160))
    assert iou(coarse, SHAPES["curve"]) < 0.85
    assert iou(found.mask, SHAPES["curve"]) > 0.97


def iou(a, b):
    return (a & b).sum() / (a | b).sum()


def test_masks_of_tiles_are_kept_by_the_cells_around_them():
    generator = np.random.default_rng(0)
    for _ in range(20):
        cells = generator.normal(-1, 1, (12, 15)).astype(np.float16)
        cells[:3], cells[:, 9:] = -0.5, -2
        part = MaskPart.whole(cells, (50, 40))
        assert part.trimmed().logits.size < cells.size
        assert np.array_equal(part.trimmed().dense(), enlarged(cells, (50, 40)))
    nothing = MaskPart.whole(cells * 0 - 1, (50, 40)).trimmed()
    assert nothing.logits.size == 0
    assert not nothing.dense().any()
    result = predictor(64, masks=True, tile=64, overlap=0.25)(scene(300, 300, (0, 9, 9, 15, 17)))
    (found,) = result.objects
    (part,) = found.parts
    assert part.logits.shape == (10, 8)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_runs_of_a_union_are_those_of_its_pixels(data):
    size = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 30))
    expected, parts = np.zeros(size, bool), []
    for _ in range(data.draw(st.integers(0, 3))):
        top, left = (data.draw(st.integers(0, side - 1)) for side in size)
        shape = size[0] - top, size[1] - left
        mask = np.random.default_rng(data.draw(st.integers(0, 99))).random(shape) < 0.4
        expected[top:, left:] |= mask
        parts.append((mask, top, left))
    assert np.array_equal(decode(encode_at(parts, size)), expected)
