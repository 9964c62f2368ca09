"""Augmentation moves a mask with its image."""

import pytest
import torch

from vitreous.data.augment import Augment, random_by
from vitreous.data.preprocess import Preprocess
from vitreous.errors import DataError
from vitreous.labels import IGNORED
from vitreous.tasks.objects.boxes import BoxesTruth
from vitreous.tasks.segment.truth import MaskTruth, resized_mask


def picture(height=60, width=80, cell=10):
    """An image whose gray says which class a pixel has: 0, 50, 100 …; in blocks."""
    rows, columns = torch.arange(height)[:, None] // cell, torch.arange(width)[None] // cell
    mask = ((rows * 3 + columns) % 5).to(torch.int16)
    return (mask * 50).to(torch.uint8)[None], mask


def gray_of(values, preprocess):
    return preprocess.restore(values)[0] * 255 / 50


def augmented(augment, preprocess, number):
    image, mask = picture()
    with random_by(0, 0, str(number)):
        return augment(image, mask, preprocess, MaskTruth())


@pytest.mark.parametrize("crop", ["window", "resized"])
def test_mask_and_image_stay_together(crop):
    preprocess = Preprocess(image_size=48, channels=1, whole=True, antialias=False)
    augment = Augment(crop=crop, flip=True, zoom=(0.5, 2.0))
    flipped, missing = 0, 0
    for number in range(30):
        values, mask = augmented(augment, preprocess, number)
        assert values.shape == (1, 48, 48)
        assert mask.shape == (48, 48)
        assert mask.dtype == torch.int16
        known = mask != IGNORED
        missing += int((~known).sum())
        said = gray_of(values, preprocess).round()
        # blocks blend at their edges, everywhere else the gray is the class
        assert (said == mask)[known].float().mean() > 0.75
        assert (values[0][~known] == 0).all(), "what is filled in is the mean colour"
        flipped += int(mask[0, 0] != augmented(replace_flip(augment), preprocess, number)[1][0, 0])
    assert flipped > 3
    assert (missing > 0) == (crop == "window")


def replace_flip(augment):
    return Augment(crop=augment.crop, flip=False, zoom=augment.zoom)


def test_window_without_zoom_is_exact():
    preprocess = Preprocess(image_size=(48, 64), channels=1, whole=True, resize="none")
    for number in range(10):
        values, mask = augmented(Augment("window", zoom=(1.0, 1.0)), preprocess, number)
        assert torch.equal(gray_of(values, preprocess).round(), mask.float())


def test_shift_moves_both():
    preprocess = Preprocess(image_size=(60, 80), channels=1, whole=True)
    values, mask = augmented(Augment("shift"), preprocess, 1)
    assert torch.equal(gray_of(values, preprocess).round(), mask.float())
    assert not torch.equal(mask, picture()[1])


def test_without_a_crop_sizes_must_fit():
    preprocess = Preprocess(image_size=48, channels=1, whole=True)
    with pytest.raises(DataError, match="pass crop='window'"):
        augmented(Augment("none"), preprocess, 0)


def test_whole_images_keep_their_proportions():
    whole = Preprocess(image_size=48, whole=True)
    assert whole.working_size(60, 80) == (48, 64)
    assert whole.working_size(24, 12) == (96, 48)
    assert Preprocess(image_size=48, whole=True, resize="none").working_size(60, 80) == (60, 80)
    assert Preprocess(image_size=48, whole=True, resize="square").working_size(60, 80) == (48, 48)
    assert whole.region(60, 80) == (0, 0, 60, 80)


@pytest.mark.parametrize("size", [(30, 40), (120, 160), (61, 79)])
def test_masks_are_resized_by_the_middles_of_pixels(size):
    """As images are: a picture of classes and the mask agree but at edges of blocks."""
    image, mask = picture()
    preprocess = Preprocess(image_size=48, channels=1, whole=True, antialias=False)
    gray = preprocess.resized(image, size)[0].float() / 50
    resized = resized_mask(mask, size)
    assert resized.shape == size
    assert set(resized.unique().tolist()) == set(mask.unique().tolist())
    apart = (gray - resized).abs()
    assert (apart < 0.01).float().mean() > 0.7
    # flipped and resized is resized and flipped, but where a middle falls between two pixels
    flipped = resized_mask(mask.flip(1), size).flip(1)
    assert (flipped == resized).float().mean() > 0.98


def scene_with_boxes():
    """Three bright boxes on black, and where they are."""
    image = torch.zeros(1, 60, 80, dtype=torch.uint8)
    boxes = torch.tensor([[4.0, 6, 20, 18], [50, 30, 78, 58], [30, 2, 38, 50]])
    for number, (left, top, right, bottom) in enumerate(boxes.int().tolist()):
        image[:, top:bottom, left:right] = 80 * (number + 1)
    return image, {"boxes": boxes, "labels": torch.arange(3), "crowd": torch.zeros(3).bool()}


@pytest.mark.parametrize("crop", ["window", "resized", "none"])
def test_boxes_stay_around_what_they_are_around(crop):
    preprocess = Preprocess((48, 64), channels=1, whole=True, interpolation="nearest")
    lost = 0
    for number in range(40):
        image, objects = scene_with_boxes()
        with random_by(0, 0, str(number)):
            values, moved = Augment(crop=crop, scale=0.2)(image, objects, preprocess, BoxesTruth())
        pixels = preprocess.restore(values)[0] * 255
        lost += 3 - len(moved["labels"])
        assert len(moved["boxes"]) == len(moved["labels"]) == len(moved["crowd"])
        for (left, top, right, bottom), label in zip(
            moved["boxes"].tolist(), moved["labels"].tolist(), strict=True
        ):
            assert 0 <= left < right <= values.shape[2] + 1e-4
            assert 0 <= top < bottom <= values.shape[1] + 1e-4
            rows, columns = ((pixels - 80 * (label + 1)).abs() < 8).nonzero().unbind(1)
            if len(rows):  # else it is narrower than a pixel
                found = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
                both = zip(found, (left, top, right, bottom), strict=True)
                # a box may lie under another, of which it then shows a part
                assert label == 2 or max(abs(a - b) for a, b in both) <= 1.01
    assert (lost > 0) == (crop != "none")


def test_boxes_move_as_torchvisions():
    """Crop, resize and flip, against its own boxes."""
    from torchvision import tv_tensors
    from torchvision.transforms.v2 import functional

    _, objects = scene_with_boxes()
    size, truth = (60, 80), BoxesTruth()
    theirs = tv_tensors.BoundingBoxes(objects["boxes"], format="XYXY", canvas_size=size)
    for ours, wanted in (
        (truth.resize(objects, size, (31, 97)), functional.resize(theirs, [31, 97])),
        (truth.hflip(objects, size), functional.horizontal_flip(theirs)),
        (truth.crop(objects, size, 3, 5, 40, 50), functional.crop(theirs, 3, 5, 40, 50)),
    ):
        wide = (wanted[:, 2:] > wanted[:, :2]).all(dim=1)
        assert torch.equal(ours["boxes"], wanted.as_subclass(torch.Tensor)[wide])
        assert torch.equal(ours["labels"], objects["labels"][wide])


def test_targets_are_normalised():
    _, objects = scene_with_boxes()
    target = BoxesTruth().target(objects, (60, 80))
    assert target["labels"].tolist() == [0, 1, 2]
    assert target["boxes"][0].tolist() == pytest.approx([12 / 80, 12 / 60, 16 / 80, 12 / 60])


def test_an_image_without_objects_moves_too():
    preprocess = Preprocess(image_size=(48, 64), channels=1, whole=True)
    image, objects = scene_with_boxes()
    nothing = {name: values[:0] for name, values in objects.items()}
    for crop in ("window", "resized", "none"):
        _, moved = Augment(crop=crop)(image, nothing, preprocess, BoxesTruth())
        assert moved["boxes"].shape == (0, 4)
