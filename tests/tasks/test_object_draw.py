"""Boxes in pictures: where they are, in which colour, and their words."""

import numpy as np
import pytest
import torch
from tasks.detect_runs import kinds_of_images

from vitreous.pages.maps import BoxMark
from vitreous.tasks.objects import draw as boxes
from vitreous.tasks.objects.draw import boxed, enlargement, told_apart

RED = (230, 25, 75)


@pytest.mark.parametrize("size", [(30, 40), (200, 300), (700, 1000)])
def test_a_box_is_drawn_where_it_is(size):
    height, width = size
    box = (0.25 * width, 0.4 * height, 0.75 * width, 0.9 * height)
    picture = boxed(torch.full((3, *size), 90, dtype=torch.uint8), [BoxMark(box, "", RED)])
    times = enlargement(*size)
    array = np.asarray(picture)
    assert array.shape == (height * times, width * times, 3)
    coloured = (array == RED).all(axis=2)
    ys, xs = np.nonzero(coloured)
    left, top, right, bottom = (round(edge * times) for edge in box)
    # a thin dark line is outermost
    assert (ys.min(), ys.max()) == (top + 1, bottom - 2)
    assert (xs.min(), xs.max()) == (left + 1, right - 2)
    inside = array[top:bottom, left:right]
    assert (inside[0] == 16).all()
    assert (inside[:, -1] == 16).all()
    outside = np.ones(array.shape[:2], bool)
    outside[top:bottom, left:right] = False
    assert (array[outside] == 90).all()
    middle = inside[len(inside) // 3 : -len(inside) // 3, inside.shape[1] // 3 : -40 * times]
    assert (middle == 90).all()


def labels_of(monkeypatch, size, marks):
    """Where the words are."""
    found, place = [], boxes._label
    monkeypatch.setattr(boxes, "_label", lambda *a: found.append(place(*a)) or found[-1])
    return found, boxed(torch.zeros(3, *size, dtype=torch.uint8), marks)


@pytest.mark.parametrize("size", [(64, 64), (9, 400), (400, 9), (480, 640), (2000, 300), (1, 1)])
def test_words_stay_inside(size, monkeypatch):
    height, width = size
    places = [(0, 0, 1, 1), (0.9, 0.9, 1, 1), (-1, -1, 2, 2), (0.5, 0, 0.6, 1), (0.2, 0.95, 3, 4)]
    marks = [
        BoxMark((left * width, top * height, right * width, bottom * height), words, RED)
        for left, top, right, bottom in places
        for words in ("cat 0.99", "a class of a very long name, which nobody reads 0.99")
    ]
    found, picture = labels_of(monkeypatch, size, marks)
    assert len(found) == len(marks)
    for left, top, right, bottom in found:
        assert 0 <= left < right <= picture.width
        assert top >= 0
        assert bottom <= max(picture.height, bottom - top)


def test_words_do_not_cover_each_other(monkeypatch):
    marks = [BoxMark((40, 60 + i, 200, 200 + i), f"cat 0.{i}", RED) for i in range(6)]
    found, _ = labels_of(monkeypatch, (480, 640), marks)
    assert not any(boxes._meet(a, b) for i, a in enumerate(found) for b in found[:i])


def test_letters_and_lines_grow_with_the_picture():
    assert [enlargement(*size) for size in ((64, 64), (300, 200), (480, 640), (5, 9000))] == [
        *(8, 2, 1, 7)
    ]
    sizes = [boxes.letter_size(*size) for size in ((512, 512), (480, 640), (3000, 4000))]
    assert sizes == sorted(sizes)
    assert sizes[0] >= boxes.SMALLEST
    assert sizes[-1] / 3000 == pytest.approx(sizes[0] / 512, rel=0.2)


def test_boxes_are_drawn_into_all_kinds_of_images():
    first, *others = kinds_of_images()
    marks = [BoxMark((3, 3, 20, 15), "cat", RED, dashed=True)]
    gray = np.asarray(boxed(first, marks))
    for image in others:
        assert abs(np.asarray(boxed(image, marks)).astype(int) - gray).max() <= 1
    for strange in ((50.0, 50.0, 60.0, 60.0), (5.0, 5.0, 5.0, 5.0), (9.0, 9.0, 2.0, 2.0)):
        boxed(first, [BoxMark(strange, "outside, or nothing", RED)])


def test_boxes_of_one_class_that_overlap_can_be_told_apart():
    """By tints of the class's colour; a box that is alone has the colour itself."""
    red, blue = RED, (67, 99, 216)
    boxes = [(0, 0, 10, 10), (5, 5, 15, 15), (8, 8, 20, 20), (30, 30, 40, 40)]
    marks = [BoxMark(box, "", red) for box in boxes] + [BoxMark(boxes[0], "", blue)]
    drawn = told_apart(marks)
    assert [mark.box for mark in drawn] == [mark.box for mark in marks]
    colours = [mark.colour for mark in drawn]
    assert len(set(colours[:3])) == 3
    assert (colours[0], colours[3], colours[4]) == (red, red, blue)
    assert all(0 <= part <= 255 for colour in colours for part in colour)
