"""The stream of samples: a function of (seed, epoch, position, sample), and of nothing else."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional

from vitreous.data.augment import Augment, random_by, random_part
from vitreous.data.formats import open_source
from vitreous.data.loader import Order, TrainSet, stacked, train_batches
from vitreous.data.photographs import photographs
from vitreous.data.preprocess import Preprocess, is_interleaved
from vitreous.tasks.classify.task import ClassTruth


@given(st.integers(8, 200), st.sampled_from([4, 8]), st.integers(0, 5), st.integers(0, 9))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_any_number_of_processes_and_any_start_see_the_same(count, batch, seed, start):
    stop = start + 7
    alone = list(Order(count, batch, seed, start, stop))
    for world in (1, 2, 4):
        parts = [list(Order(count, batch, seed, start, stop, rank, world)) for rank in range(world)]
        together = [[x for part in step for x in part] for step in zip(*parts, strict=True)]
        assert together == alone
    whole = list(Order(count, batch, seed, 0, stop))
    assert whole[start:] == alone


def test_an_epoch_has_every_sample_once():
    order = Order(count=64, batch=8, seed=3, start=0, stop=16)
    numbers = [draw.number for step in order for draw in step]
    assert sorted(numbers[:64]) == sorted(numbers[64:]) == list(range(64))
    assert numbers[:64] != numbers[64:]


def test_balanced_sampling_draws_classes_alike():
    targets = torch.tensor([0] * 900 + [1] * 100)
    weights = 1 / torch.bincount(targets)[targets].double()
    drawn = Order(1000, 100, 0, 0, 10, weights=weights).epoch(0)
    assert 0.4 < targets[drawn].double().mean() < 0.6


def stream(workers, weights=None, **augment):
    source = open_source("digits")
    samples = source.splits["train"][:64]
    preprocess = Preprocess(image_size=8, channels=1)
    data = TrainSet(source, samples, preprocess, Augment(**augment), ClassTruth(), seed=1)
    order = Order(64, 16, 1, 0, 8, weights=weights)
    return list(train_batches(data, order, workers))


def test_a_sample_drawn_several_times_in_an_epoch_looks_different_each_time():
    rare = torch.full((64,), 1e-3, dtype=torch.float64)
    rare[:4] = 1.0
    seen = {}
    for batch in stream(0, rare, crop="resized", erase=0.99)[:4]:  # one epoch
        for id, image in zip(batch.ids, batch.images, strict=True):
            seen.setdefault(id, []).append(image)
    often = [images for images in seen.values() if len(images) >= 6]
    assert len(often) >= 3
    for images in often:
        assert len({image.numpy().tobytes() for image in images}) == len(images)


def test_workers_do_not_change_the_stream():
    strong = {"crop": "resized", "flip": True, "randaugment": 9, "erase": 0.5, "mixup": 0.3}
    strong |= {"cutmix": 1.0, "jitter": 0.2}
    torch.manual_seed(0)
    alone = stream(0, **strong)
    torch.manual_seed(5)
    for mine, theirs in zip(alone, stream(2, **strong), strict=True):
        assert torch.equal(mine.images, theirs.images)
        assert mine.ids == theirs.ids
        assert all(torch.equal(a, b) for a, b in zip(mine.targets, theirs.targets, strict=True))
    again = {batch.ids[0]: batch.images[0] for batch in alone[:4]}
    later = {batch.ids[0]: batch.images[0] for batch in alone[4:]}
    assert not any(torch.equal(again[i], later[i]) for i in again.keys() & later.keys())


def test_the_generator_outside_is_not_touched():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    with random_by(1, "x"):
        inside = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with random_by(1, "x"):
        assert torch.equal(torch.rand(3), inside)


def test_shares_of_mixed_images():
    first, second = torch.zeros(1, 32, 32), torch.ones(1, 32, 32)
    for options in ({"mixup": 0.5}, {"cutmix": 1.0}):
        mixed, share = Augment(**options).mix(first, second)
        assert (
            1 - mixed.mean().item() == torch.tensor(share).item()
            or abs(1 - mixed.mean().item() - share) < 1e-6
        )


def test_preprocess_sizes_and_values():
    image = torch.arange(2 * 60 * 90, dtype=torch.int64).remainder(256).to(torch.uint8)
    image = image.reshape(2, 60, 90)
    prepared = Preprocess(image_size=(32, 48), channels=2, crop=0.9)
    assert prepared(image).shape == (2, 32, 48)
    same = Preprocess(image_size=(60, 90), channels=2, mean=(0.0,), std=(1.0,))
    assert torch.equal(same(image), image.float() / 255)
    deep = Preprocess(image_size=(60, 90), channels=2, mean=(0.0,), std=(1.0,))
    wide = (image.to(torch.int32) * 257).to(torch.uint16)
    assert torch.allclose(deep(wide), same(image), atol=1e-4)
    assert torch.allclose(prepared.restore(prepared(image)), prepared.fit(image).float() / 255)


@pytest.mark.parametrize("stored", [(224, 256), (40, 400), (300, 3), (1, 1)])
def test_parts_are_those_of_torchvision(stored):
    """By their mean and spread, also of strips, whose centre is taken."""
    theirs = v2.RandomResizedCrop(224, scale=(0.35, 1.0))
    image = torch.empty(1, *stored, device="meta")
    torch.manual_seed(0)
    ours = [random_part(stored, 0.35)[1:] for _ in range(4000)]
    wanted = [theirs.make_params([image]) for _ in range(4000)]
    other = [tuple(each[name] for name in ("top", "left", "height", "width")) for each in wanted]
    for top, left, height, width in ours:
        assert min(top, left) >= 0
        assert min(height, width) >= 1
        assert top + height <= stored[0]
        assert left + width <= stored[1]
    ours, other = torch.tensor(ours).float(), torch.tensor(other).float()
    limit = 0.02 * max(stored)
    assert (ours.mean(0) - other.mean(0)).abs().max() <= limit
    assert (ours.std(0) - other.std(0)).abs().max() <= limit


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_photographs_are_resized_as_they_lie_in_memory(interpolation):
    photo = photographs()[0]
    part = as_decoded(photo)[:, 10:200, 20:333]
    assert is_interleaved(part)
    mode = InterpolationMode(interpolation)
    for image in (part, part.contiguous(), part.float()):
        wanted = functional.resize(part.to(image.dtype), [96, 64], mode, antialias=True)
        found = Preprocess(interpolation=interpolation).resized(image, (96, 64))
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-3)
        assert is_interleaved(found) == is_interleaved(image)
    together = stacked([part, part.flip(-1)])
    assert torch.equal(together, torch.stack([part, part.flip(-1)]))


def as_decoded(photo):
    return photo.permute(1, 2, 0).contiguous().permute(2, 0, 1)
