"""Segmentation: losses and metrics against brute force, windows against one look."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compare import assert_same_classes
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.classification import MulticlassJaccardIndex

import vitreous
from vitreous.engines.torch import TorchEngine
from vitreous.labels import IGNORED, LabelMap
from vitreous.tasks.segment.task import MaskPrediction, Segment, at_size, dice_loss
from vitreous.tasks.segment.windows import OVERLAP, bands, enlarged_rows, ramp, sums
from vitreous.tasks.tiles import starts

LABELS = LabelMap.of_names(["road", "sky", "tree"])
CLASSES = len(LABELS)


def scene(seed, size=(9, 7), ignored=0.2):
    generator = torch.Generator().manual_seed(seed)
    said = torch.randint(0, CLASSES, size, generator=generator)
    mask = torch.randint(0, CLASSES, size, generator=generator)
    mask[torch.rand(size, generator=generator) < ignored] = IGNORED
    answer = MaskPrediction(said.to(torch.int16), torch.full(size, 0.5, dtype=torch.float16))
    return answer, mask.to(torch.int16)


def measured(pairs):
    metrics = Segment(LABELS).metrics()
    for answer, mask in pairs:
        metrics.update([answer], [mask])
    return metrics.compute()


def brute_force(pairs):
    """Pixel by pixel, in plain Python."""
    both, either = [0] * CLASSES, [0] * CLASSES
    for answer, mask in pairs:
        for said, true in zip(answer.classes.flatten(), mask.flatten(), strict=True):
            if true == IGNORED:
                continue
            for number in range(CLASSES):
                both[number] += said == number and true == number
                either[number] += said == number or true == number
    return [int(b) / int(e) for b, e in zip(both, either, strict=True)]


def test_miou_is_brute_force_and_torchmetrics():
    pairs = [scene(seed, (9 + seed, 7)) for seed in range(4)]
    result = measured(pairs)
    by_hand = brute_force(pairs)
    assert [row["iou"] for row in result["classes"].values()] == pytest.approx(by_hand)
    assert result["miou"] == pytest.approx(sum(by_hand) / CLASSES)
    theirs = MulticlassJaccardIndex(CLASSES, ignore_index=IGNORED, average="macro")
    for answer, mask in pairs:
        theirs.update(answer.classes.long(), mask.long())
    assert result["miou"] == pytest.approx(theirs.compute().item(), rel=1e-6)
    labelled = [(a.classes[m != IGNORED], m[m != IGNORED]) for a, m in pairs]
    right = sum((said == true).sum() for said, true in labelled)
    assert result["pixel_accuracy"] == pytest.approx(int(right) / sum(len(t) for _, t in labelled))


def test_ignored_pixels_count_for_nothing():
    answer, mask = scene(0)
    other = answer.classes.clone()
    other[mask == IGNORED] = 2
    assert measured([(answer, mask)]) == measured(
        [(MaskPrediction(other, answer.confidence), mask)]
    )


def test_perfect_masks_give_one():
    _, mask = scene(1)
    answer = MaskPrediction(mask.clamp(min=0), torch.ones(mask.shape, dtype=torch.float16))
    result = measured([(answer, mask)])
    assert result["miou"] == result["pixel_accuracy"] == result["mean_accuracy"] == 1.0


def test_a_class_that_nobody_has_seen_does_not_lower_the_mean():
    mask = torch.zeros(4, 4, dtype=torch.int16)
    result = measured([(MaskPrediction(mask, torch.ones(4, 4, dtype=torch.float16)), mask)])
    assert result["miou"] == 1.0
    assert result["classes"]["tree"]["iou"] is None


def test_other_data_is_renamed_and_ignored_stays():
    mask = torch.tensor([[0, 1], [IGNORED, 1]], dtype=torch.int16)
    renamed = Segment(LABELS).renamed([mask], (2, 0))[0]
    assert renamed.tolist() == [[2, 0], [IGNORED, 0]]


def logits_and_masks(seed=0, batch=4):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, CLASSES, 6, 5, generator=generator)
    masks = torch.stack([scene(seed + i, (6, 5))[1] for i in range(batch)])
    return logits, masks


def test_loss_by_hand():
    logits, masks = logits_and_masks()
    weights = torch.tensor([0.5, 1.0, 3.0])
    total = 0.0
    for b, y, x in np.ndindex(4, 6, 5):
        if masks[b, y, x] != IGNORED:
            chances = logits[b, :, y, x].softmax(0)
            total -= weights[int(masks[b, y, x])] * math.log(chances[int(masks[b, y, x])])
    loss = Segment(LABELS, class_weights=weights).loss(logits, masks)
    assert loss.keys() == {"loss"}
    assert loss["loss"].item() == pytest.approx(total.item() / masks.numel(), rel=1e-5)


@pytest.mark.parametrize("dice", [0.0, 0.7])
def test_losses_do_not_depend_on_how_samples_are_divided(dice):
    logits, masks = logits_and_masks()
    task = Segment(LABELS, dice=dice, smoothing=0.1)

    def total(rows):
        return sum(term.item() for term in task.loss(logits[rows], masks[rows]).values())

    whole = total(slice(None))
    assert whole == pytest.approx((total(slice(0, 2)) + total(slice(2, 4))) / 2, rel=1e-5)


def test_dice_by_hand():
    logits, masks = logits_and_masks(batch=2)
    each = []
    for b in range(2):
        chances = logits[b].softmax(0)
        counts = masks[b] != IGNORED
        per_class = []
        for number in range(CLASSES):
            truth = (masks[b] == number).float()
            if truth.sum() == 0:
                continue
            said = chances[number] * counts
            per_class.append(1 - 2 * (said * truth).sum() / (said.sum() + truth.sum()))
        each.append(sum(per_class) / len(per_class))
    by_hand = (sum(each) / 2).item()
    assert dice_loss(logits, masks.long()).item() == pytest.approx(by_hand, rel=1e-5)
    perfect = F.one_hot(masks.long().clamp(min=0), CLASSES).permute(0, 3, 1, 2) * 100.0
    assert dice_loss(perfect, masks.long()).item() == pytest.approx(0, abs=1e-5)


def test_everything_ignored_is_no_loss():
    logits, masks = logits_and_masks()
    loss = Segment(LABELS, dice=1.0).loss(logits, torch.full_like(masks, IGNORED))
    assert [term.item() for term in loss.values()] == [0.0, 0.0]


# Windows


def blurred(images):
    """Every output depends on a neighbourhood of its pixel and not on where it is."""
    return F.avg_pool2d(images, 3, stride=1, padding=1, count_include_pad=False)


@settings(deadline=None, max_examples=60)
@given(
    size=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    window=st.tuples(st.integers(4, 20), st.integers(4, 20)),
)
def test_windows_cover_every_pixel_and_constants_stay_constant(size, window):
    image = torch.full((2, *size), 3.25)
    rows = list(bands(lambda x: x + 0.5, image, window, batch=3))
    whole = torch.cat(rows, dim=1)
    assert whole.shape == (2, *size)
    torch.testing.assert_close(whole, torch.full_like(whole, 3.75))
    assert all(band.shape[1] <= window[0] for band in rows), "memory is bounded by the window"


def test_an_image_that_fits_is_looked_at_once():
    image = torch.randn(3, 10, 12)
    (only,) = bands(lambda x: x * 2, image, (10, 12))
    assert torch.equal(only, image * 2)
    smaller = torch.randn(3, 7, 12)
    (only,) = bands(lambda x: x * 2, smaller, (10, 12))
    assert torch.equal(only, smaller * 2)


def test_windows_agree_with_one_look_where_the_model_is_local():
    """Each window is wrong at its edges, where it cannot see its neighbours; blending hides it."""
    image = torch.randn(1, 90, 120)
    whole = blurred(image[None])[0]
    windowed = torch.cat(list(bands(blurred, image, (48, 48))), dim=1)
    assert (windowed - whole).abs().max() < 0.1 * whole.abs().max()
    inner = (windowed - whole).abs().median()
    assert inner < 1e-6


def test_seams_do_not_show():
    """Two windows that disagree fade into each other: no step is larger than the ramp's."""
    calls = itertools.count()

    def stubborn(images):
        return torch.stack([torch.full_like(image, float(next(calls))) for image in images])

    image = torch.zeros(1, 32, 56)
    whole = torch.cat(list(bands(stubborn, image, (32, 32))), dim=1)
    assert len(starts(56, 32, OVERLAP)) == 2
    assert whole.min() == 0
    assert whole.max() == 1
    assert whole[0].diff(dim=1).max() <= 1 / 8 + 1e-6  # eight shared pixels


@given(length=st.integers(1, 300), window=st.integers(1, 64))
def test_starts(length, window):
    found = starts(length, window, OVERLAP)
    assert found[0] == 0
    assert found[-1] == max(length - window, 0)
    assert all(b - a <= window for a, b in itertools.pairwise(found))
    assert (sums(length, window, ramp(window)) > 0).all()


@pytest.mark.parametrize("size", [(20, 30), (7, 5), (10, 12), (33, 12), (10, 40)])
def test_enlarged_rows_is_bilinear(size):
    scores = torch.randn(4, 10, 12)
    whole = F.interpolate(scores[None], size, mode="bilinear")[0]
    parts = [enlarged_rows(scores, size, i, min(i + 3, size[0])) for i in range(0, size[0], 3)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-4, atol=1e-5)


def test_answers_have_the_images_own_size():
    scores = torch.randn(CLASSES, 8, 6)
    answer = at_size([scores[:, :5], scores[:, 5:]], (8, 6), (8, 6))
    assert torch.equal(answer.classes.long(), scores.argmax(0))
    larger = at_size([scores], (8, 6), (31, 17))
    expected = F.interpolate(scores[None], (31, 17), mode="bilinear")[0]
    assert_same_classes(larger.classes, expected.argmax(0))
    assert larger.confidence.float().sub(expected.softmax(0).amax(0)).abs().max() < 1e-3


def test_infer_batch_equals_singles_and_windows():
    torch.manual_seed(0)
    fields = {"patch": 4, "dim": 16, "depth": 1, "heads": 2}
    model = vitreous.create(
        "segmenter", classes=3, image_size=16, encoder="vit", encoder_fields=fields, dim=16
    ).eval()
    task = Segment(LABELS)
    images = torch.randn(3, 3, 16, 16)
    sizes = [(16, 16), (32, 20), (9, 9)]
    together = task.infer(TorchEngine(model), images, sizes)
    for i, size in enumerate(sizes):
        (alone,) = task.infer(TorchEngine(model), [images[i]], [size])
        assert together[i].classes.shape == size
        assert_same_classes(alone.classes, together[i].classes)
    mixed = task.infer(
        TorchEngine(model), [images[0], torch.randn(3, 40, 21)], [(16, 16), (40, 21)]
    )
    assert_same_classes(mixed[0].classes, together[0].classes)
    assert mixed[1].classes.shape == (40, 21)


def test_results():
    mask = torch.tensor([[0, 0, 2], [0, 2, 2]], dtype=torch.int16)
    answer = MaskPrediction(mask, torch.full((2, 3), 0.5, dtype=torch.float16))
    labels = LabelMap(("road", "sky", "tree"), (7, 9, 12), ignored=(255,))
    (result,) = Segment(labels).decode([answer], ["a.png"])
    assert result.areas == {"road": 0.5, "tree": 0.5}
    assert result.where("tree").tolist() == [[False, False, True], [False, True, True]]
    assert result.to_dict() == {
        "image": "a.png",
        "size": [2, 3],
        "classes": [
            {"label": "road", "id": 7, "pixels": 3, "area": 0.5, "score": 0.5},
            {"label": "tree", "id": 12, "pixels": 3, "area": 0.5, "score": 0.5},
        ],
    }
