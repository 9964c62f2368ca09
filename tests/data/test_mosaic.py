"""Mosaics: boxes and masks are where their objects are painted, and the stream stays the same."""

import pytest
import torch

from vitreous.data.augment import Augment, random_by
from vitreous.data.formats import open_source
from vitreous.data.instance_masks import InstanceMasks
from vitreous.data.loader import Order, TrainSet, train_batches
from vitreous.data.mosaic import mosaic
from vitreous.data.preprocess import Preprocess
from vitreous.errors import ConfigError, DataError
from vitreous.tasks import task_class
from vitreous.tasks.instance.truth import InstancesTruth, around
from vitreous.tasks.objects.boxes import to_pixels
from vitreous.tasks.objects.truth import BoxesTruth
from vitreous.train.plan import check_options
from vitreous.train.recipe import Recipe

PREPROCESS = Preprocess(image_size=48, channels=8, whole=True)
SIZES = [(90, 120), (60, 60), (200, 70), (33, 150)]


def painted(number, height, width, masks):
    """An image with two rectangles, each white in a channel of its own, and its ground truth."""
    image, boxes = torch.zeros(8, height, width, dtype=torch.uint8), []
    labels = torch.tensor([2 * number, 2 * number + 1])
    for label, (top, left) in zip(labels, ((0.1, 0.05), (0.55, 0.3)), strict=True):
        sides = torch.tensor([left, top, left + 0.6, top + 0.35])
        box = (sides * torch.tensor([width, height] * 2)).round().int().tolist()
        image[label, box[1] : box[3], box[0] : box[2]] = 255
        boxes.append(box)
    crowd = torch.zeros(2, dtype=torch.bool)
    truth = {"boxes": torch.tensor(boxes).float(), "labels": labels, "crowd": crowd}
    return image, truth | ({"masks": InstanceMasks.of(image[labels])} if masks else {})


@pytest.mark.parametrize("masks", [False, True])
def test_objects_are_where_they_are_painted(masks):
    moves = InstancesTruth() if masks else BoxesTruth()
    seen, missing = set(), 0
    for number in range(40):
        parts = [painted(i, *SIZES[(i + number) % 4], masks) for i in range(4)]
        with random_by(0, number):
            image, truth = mosaic(parts, PREPROCESS, moves, 10**6)
        size = tuple(image.shape[1:])
        assert size == tuple(parts[0][0].shape[1:])
        target = moves.target(truth, size)
        visible = image > 127  # edges of an object that was resized are gray
        large = (around(visible)[:, 2:] - around(visible)[:, :2]).min(dim=1).values > 2
        assert set(large.nonzero().flatten().tolist()) <= set(target["labels"].tolist())
        visible, large = visible[target["labels"]], large[target["labels"]]
        off = to_pixels(target["boxes"], size) - around(visible)
        assert off[large].abs().max() <= 1.01
        if masks:
            differ = (target["masks"] != visible).flatten(1).sum(dim=1)
            lengths = (target["boxes"][:, 2:] * torch.tensor(size[::-1])).sum(dim=1)
            assert (differ <= 2 * lengths + 4).all()  # a pixel along the edges
        seen |= set(target["labels"].tolist())
        missing += 8 - len(target["labels"])
    assert seen == set(range(8))
    assert missing > 20


def test_parts_meet_at_one_point_and_cover_all():
    for number in range(20):
        parts = []
        for i in range(4):
            image = torch.full((1, *SIZES[(i + number) % 4]), 50 * (i + 1), dtype=torch.uint8)
            parts.append((image, {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0)}))
        with random_by(0, number):
            image, truth = mosaic(parts, PREPROCESS, BoxesTruth(), 10**6)
        height, width = image.shape[1:]
        y = int((image[0, :, 0] == 50).sum())
        x = int((image[0, 0] == 50).sum())
        assert 0.25 * height - 1 <= y <= 0.75 * height + 1
        assert 0.25 * width - 1 <= x <= 0.75 * width + 1
        expected = torch.full((height, width), 200, dtype=torch.uint8)
        expected[:y, x:], expected[y:, :x], expected[:y, :x] = 100, 150, 50
        assert torch.equal(image[0], expected)
        assert len(truth["boxes"]) == 0


def stream(workers, rank=0, world=1, **options):
    source = open_source("shapes:60", truth="instances")
    samples = source.splits["train"][:16]
    data = TrainSet(
        *(source, samples, Preprocess(image_size=64, whole=True, resize="square")),
        *(Augment(**options), InstancesTruth(), 1),
    )
    return list(train_batches(data, Order(16, 8, 1, 0, 4, rank, world), workers))


def test_workers_and_processes_do_not_change_the_stream():
    torch.manual_seed(0)
    alone = stream(0, mosaic=0.5)
    plain = stream(0)
    torch.manual_seed(5)
    parts = [stream(2 * rank, rank, 2, mosaic=0.5) for rank in range(2)]
    same = 0
    for batch, *halves, without in zip(alone, *parts, plain, strict=True):
        assert torch.equal(batch.images, torch.cat([half.images for half in halves]))
        targets = [target for half in halves for target in half.targets]
        for mine, theirs in zip(batch.targets, targets, strict=True):
            assert all(torch.equal(mine[name], theirs[name]) for name in mine)
        pairs = zip(batch.targets, without.targets, strict=True)
        same += sum(len(a["labels"]) == len(b["labels"]) for a, b in pairs)
    assert 4 < same < 28  # about every second one is a mosaic


def test_images_of_other_values_are_refused():
    truth = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0)}
    parts = [(torch.zeros(1, 9, 9, dtype=torch.uint8), truth)] * 3
    parts.append((torch.zeros(1, 9, 9), truth))
    with pytest.raises(DataError, match="cannot be parts of one mosaic; pass mosaic=0"):
        mosaic(parts, PREPROCESS, BoxesTruth(), 10**6)


def test_only_for_tasks_with_boxes():
    with pytest.raises(ConfigError, match=r"mosaic = 0\.5 is for the task .*, not classify"):
        check_options(Recipe(mosaic=0.5), task_class("classify"))
    check_options(Recipe(mosaic=0.5), task_class("detect"))
    with pytest.raises(ConfigError, match=r"mosaic = 1\.5: expected a probability from 0 to 1"):
        Augment(mosaic=1.5)
