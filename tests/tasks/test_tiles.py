"""Images in tiles: every object once, wherever the borders of tiles are."""

import itertools
import json

import numpy as np
import pytest
import torch
from bright import SCENES, BrightRectangles, SmallWhole, boxes, predictor, scene
from hypothesis import given, settings
from hypothesis import strategies as st
from tasks import segment_runs

import vitreous
from vitreous.data.objects.overlap import iou
from vitreous.data.source import Sample, Source
from vitreous.errors import ConfigError, DataError
from vitreous.inference import InferenceOptions
from vitreous.predict import Predictor
from vitreous.tasks.objects.boxes import nms
from vitreous.tasks.objects.merge import merge
from vitreous.tasks.objects.metrics import BoxPrediction
from vitreous.tasks.tiles import Tile, TiledInference, tiles_of


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(9, 99), st.floats(0.05, 0.9))
def test_tiles_cover_every_pixel_and_share_a_part(height, width, side, overlap):
    tiles = tiles_of((height, width), side, overlap)
    seen = np.zeros((1, height, width), int)
    for tile in tiles:
        tile.of(seen)[:] += 1
        assert tile.size == (min(side, height), min(side, width))
    assert seen.min() >= 1
    lefts = sorted({tile.left for tile in tiles})
    step = max(round(side * (1 - overlap)), 1)
    assert all(0 < b - a <= step + 1 for a, b in itertools.pairwise(lefts))


def test_one_tile_is_no_tiling():
    image = scene(50, 60, (0, 3, 4, 20, 30), (1, 40, 10, 60, 50))
    for size in (32, 64):
        plain, tiled = (
            predictor(size, resize="shorter", **tile)(image) for tile in ({}, {"tile": 60})
        )
        for name in ("boxes", "classes", "scores", "queries"):
            assert np.array_equal(getattr(plain, name), getattr(tiled, name))


@pytest.mark.parametrize("name", SCENES)
def test_every_object_is_counted_once(name):
    result = predictor(64, tile=64, overlap=0.25)(scene(160, 160, *SCENES[name]))
    assert boxes(result) == sorted(SCENES[name])


@pytest.mark.parametrize("name", SCENES)
def test_and_if_the_whole_image_is_seen_small(name):
    """At a quarter of its size. Boxes that come from there are less exact."""
    model = predictor(64, tile=64, overlap=0.25)
    whole = predictor(40, resize="shorter").preprocess
    model.tiled.preprocess = SmallWhole(model.preprocess, whole)
    result = model(scene(160, 160, *SCENES[name]))
    expected = np.array(sorted(SCENES[name]))
    assert np.array(boxes(result)) == pytest.approx(expected, abs=4)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_random_scenes(data):
    """Rectangles of any size at any place, apart from each other."""
    free, drawn = np.ones((150, 170), bool), []
    for _ in range(data.draw(st.integers(1, 5))):
        left, top = data.draw(st.integers(0, 165)), data.draw(st.integers(0, 145))
        right = min(left + data.draw(st.integers(4, 120)), 170)
        bottom = min(top + data.draw(st.integers(4, 120)), 150)
        around = (slice(max(top - 2, 0), bottom + 2), slice(max(left - 2, 0), right + 2))
        if free[around].all():
            free[around] = False
            drawn.append((0, left, top, right, bottom))
    result = predictor(64, tile=64, overlap=0.25)(scene(150, 170, *drawn))
    assert boxes(result) == sorted(drawn)


def test_without_the_whole_image_parts_are_joined():
    """A model that cannot see the image as a whole, and an object through five tiles."""
    image = scene(60, 300, (0, 10, 20, 290, 30))
    model = predictor(64, least=5, tile=64, overlap=0.25)
    model.tiled.preprocess = SmallWhole(
        model.preprocess, predictor(16, least=5, resize="shorter").preprocess
    )
    assert boxes(model(image)) == [(0, 10, 20, 290, 30)]


def test_small_objects_are_found_that_the_whole_image_does_not_show():
    spots = [(0, x, y, x + 8, y + 8) for x, y in ((20, 30), (200, 50), (120, 180), (250, 250))]
    image = scene(300, 300, *spots, (1, 40, 90, 250, 170))
    options = {"size": 64, "least": 4, "resize": "shorter"}
    plain = np.array(boxes(predictor(**options)(image)))
    assert plain == pytest.approx(np.array([(1, 40, 90, 250, 170)]), abs=5)
    tiled = np.array(boxes(predictor(**options, tile=64)(image)))
    assert tiled == pytest.approx(np.array(sorted([*spots, (1, 40, 90, 250, 170)])), abs=5)


def test_batches_do_not_matter_and_bound_what_is_computed_at_once():
    image = scene(200, 230, *SCENES["many"], (1, 100, 5, 120, 190))
    results = []
    for batch in (1, 3, 8, None):
        model = predictor(64, tile=64, overlap=0.25)
        results.append(model(image, batch=batch))
        assert max(shape[0] for shape in model.model.calls) <= (batch or 8)
        assert {shape[2:] for shape in model.model.calls} == {(200, 230), (64, 64)}
    for result in results[1:]:
        assert np.array_equal(result.boxes, results[0].boxes)
        assert np.array_equal(result.scores, results[0].scores)


def test_scores_are_sorted_and_the_best_of_what_was_merged():
    result = predictor(64, tile=64, overlap=0.25)(scene(160, 160, (0, 50, 10, 60, 20)))
    assert (np.diff(result.scores) <= 0).all()
    (found,) = result.objects
    alone = predictor(64)(scene(64, 64, (0, 50, 10, 60, 20)))
    assert found.score == pytest.approx(alone.objects[0].score)


def test_boxes_of_one_tile_do_not_suppress_each_other():
    """A DETR may well mean two boxes at one place; only --nms says otherwise."""
    twice = BoxPrediction(
        torch.tensor([[10.0, 10, 30, 30], [11.0, 10, 30, 30]]),
        torch.zeros(2, dtype=torch.int64),
        torch.tensor([0.9, 0.8]),
        torch.arange(2),
        (64, 64),
    )
    none = BoxPrediction(*(column[:0] for column in twice[:4]), (64, 128))
    tiles = [Tile(0, 0, 64, 128), Tile(0, 0, 64, 64), Tile(0, 64, 64, 64)]
    empty = none._replace(size=(64, 64))
    assert len(merge([none, twice, empty], tiles)[0].boxes) == 2
    assert len(merge([none, empty, empty], tiles)[0].boxes) == 0


def test_merging_suppresses_whatever_nms_would():
    """Between tiles: two boxes agree in what both tiles see at least as much as by their IoU."""
    random = np.random.default_rng(0)
    tiles = [Tile(0, 0, 100, 160), Tile(0, 0, 100, 100), Tile(0, 60, 100, 100)]
    for _ in range(20):
        found = []
        for tile in tiles:
            corner = random.uniform(0, 60, (12, 2))
            ends = np.minimum(corner + random.uniform(5, 60, (12, 2)), tile.size[::-1])
            places = torch.from_numpy(np.concatenate((corner, ends), 1))
            numbers = torch.arange(12)
            scores = torch.from_numpy(np.sort(random.random(12))[::-1].copy())
            found.append(BoxPrediction(places, numbers % 2, scores, numbers, tile.size))
        merged, _ = merge(found, tiles)
        shifted = {tuple(box) for box in (found[2].boxes + torch.tensor([60, 0, 60, 0])).tolist()}
        origin = torch.tensor([tuple(box) in shifted for box in merged.boxes.tolist()])
        pairs = (iou(merged.boxes[:, None], merged.boxes) > 0.5) & (
            merged.labels[:, None] == merged.labels
        )
        whole = {tuple(box) for each in found[:2] for box in each.boxes.tolist()} | shifted
        kept = torch.tensor([tuple(box) in whole for box in merged.boxes.tolist()])  # not joined
        crossing = origin[:, None] != origin
        first = {tuple(box) for box in found[0].boxes.tolist()}
        coarse = torch.tensor([tuple(box) in first for box in merged.boxes.tolist()])
        plain = kept & ~coarse
        assert not (pairs & crossing & plain[:, None] & plain).any()


def noisy_views(objects, tiles, random):
    """What an imperfect detector would say of objects (n, 4) in each tile; the first is the image
    at a third of its resolution. Boxes are off by some pixels, the less is seen of an object the
    lower is its score, some are nearly missed, and there is noise with low scores."""
    found = []
    for number, tile in enumerate(tiles):
        corner, far = np.array([tile.left, tile.top]), np.array([tile.width, tile.height])
        pixel = 1 if number else 3
        begin, end = (np.clip(part - corner, 0, far) for part in (objects[:, :2], objects[:, 2:]))
        sides = end - begin
        share = sides.prod(1) / (objects[:, 2:] - objects[:, :2]).prod(1)
        seen = (sides.min(1) >= 8 * pixel) & (share > 0.15)
        places = np.concatenate((begin, end), 1)[seen]
        off = random.normal(0, 2 * pixel, places.shape) + random.normal(0, 0.03, places.shape) * (
            np.tile(sides[seen], 2)
        )
        on_border = (places == 0) | (places == np.tile(far, 2))
        places = np.clip(np.where(on_border, places, places + off), 0, np.tile(far, 2))
        scores = np.clip(random.normal(0.55 + 0.35 * share[seen], 0.12), 0.02, 0.99)
        scores *= np.where(random.random(len(scores)) < 0.1, 0.3, 1)
        noise = random.uniform(0, 0.7, (20, 2)) * far
        noise = np.concatenate((noise, noise + random.uniform(2, 0.3 * far, (20, 2))), 1)
        places = np.concatenate((places, noise))
        scores = np.concatenate((scores, random.uniform(0, 0.08, 20)))
        order = np.argsort(-scores)
        columns = (places[order], np.zeros(len(order), int), scores[order], np.arange(len(order)))
        found.append(BoxPrediction(*map(torch.from_numpy, columns), tile.size))
    return found


def count_right(places, scores, objects):
    """How many boxes above 0.4 are an object at an IoU of 0.5, and how many are wrong."""
    overlap = iou(places[scores >= 0.4][:, None], torch.from_numpy(objects))
    best = overlap.argmax(1)[overlap.max(1).values >= 0.5]
    return np.array([len(set(best.tolist())), len(overlap) - len(set(best.tolist()))])


def test_of_noisy_views_few_are_wrong_and_few_are_missed():
    """Objects of 16 to 1,200 pixels in images of 2,000, tiles of 640: NMS would keep the parts."""
    random, total = np.random.default_rng(0), 0
    merged, by_nms, plain = np.zeros(2, int), np.zeros(2, int), np.zeros(2, int)
    tiles = [Tile(0, 0, 2000, 2000), *tiles_of((2000, 2000), 640, 0.2)]
    for _ in range(12):
        sides = np.exp(random.uniform(np.log(16), np.log(1200), (40, 1))) * random.uniform(
            1, 1.5, 2
        )
        corners = random.uniform(0, 1, (40, 2)) * (2000 - sides)
        objects = np.concatenate((corners, corners + sides), 1)
        apart = iou(torch.from_numpy(objects)[:, None], torch.from_numpy(objects)).triu(1) < 0.4
        objects = objects[apart.all(0).numpy()]
        total += len(objects)
        found = noisy_views(objects, tiles, random)
        merged += count_right((one := merge(found, tiles)[0]).boxes, one.scores, objects)
        plain += count_right(found[0].boxes, found[0].scores, objects)
        shifts = [torch.tensor([tile.left, tile.top] * 2) for tile in tiles]
        places = torch.cat([each.boxes + s for each, s in zip(found, shifts, strict=True)])
        scores, order = torch.cat([each.scores for each in found]).sort(descending=True)
        kept = nms(places[order], torch.zeros(len(order)), 0.5)
        by_nms += count_right(places[order][kept], scores[kept], objects)
    told = {"objects": total, "merged": merged, "nms": by_nms, "plain": plain}
    assert merged[0] > 0.95 * total > 0.88 * total > plain[0], told
    assert merged[1] < 0.02 * total < 0.5 * total < by_nms[1], told


@pytest.mark.parametrize("most", [0.0, 0.3, 0.7, 1.0])
def test_nms_is_torchvision_s(most):
    from torchvision.ops import batched_nms

    generator = torch.Generator().manual_seed(1)
    for count in (0, 1, 40):
        corners = torch.rand(count, 2, generator=generator) * 50
        places = torch.cat((corners, corners + 40 * torch.rand(count, 2, generator=generator)), 1)
        labels = torch.randint(3, (count,), generator=generator)
        scores = torch.rand(count, generator=generator).sort(descending=True).values
        expected = batched_nms(places, scores, labels, most)
        assert nms(places, labels, most).nonzero().flatten().tolist() == expected.tolist()


def test_nms_in_prediction():
    """A model that says everything twice."""

    class Twice(BrightRectangles):
        def look(self, image):
            logits, places = super().look(image)
            return logits.repeat(2, 1), places.repeat(2, 1)

    image = scene(60, 60, (0, 5, 5, 20, 20), (1, 5, 5, 20, 20), (0, 30, 30, 50, 50))
    for options, count in (({}, 6), ({"nms": 0.7}, 3)):
        model = predictor(64, **options)
        model.engine.model = Twice((64, 64))
        assert len(model(image).objects) == count
        assert model.task.nms == options.get("nms")


class Spots(Source):
    """Images with small objects."""

    def image(self, sample):
        return torch.from_numpy(scene(300, 300, *self.spots(sample))).permute(2, 0, 1)

    def spots(self, sample):
        shift = 13 * sample.target
        return [(0, x + shift, y, x + shift + 8, y + 8) for x, y in ((20, 30), (180, 50))]

    def truth(self, sample, size=None):
        places = torch.tensor([spot[1:] for spot in self.spots(sample)], dtype=torch.float32)
        zeros = torch.zeros(len(places), dtype=torch.int64)
        return {"boxes": places, "labels": zeros, "crowd": zeros.bool()}


def test_evaluate_measures_what_tiles_bring():
    samples = [Sample(str(number), number) for number in range(4)]
    options = {"size": 64, "least": 4, "resize": "shorter"}
    plain, tiled = (
        predictor(**options, **tile).evaluate(
            Spots("spots", "test", predictor().task.labels, {"test": samples}, "boxes"), "test"
        )
        for tile in ({}, {"tile": 64})
    )
    assert plain["ap"] == 0
    assert tiled["ap50"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tile": 0}, "tile = 0: expected a whole number of pixels"),
        ({"tile": 6.5}, r"tile = 6\.5: expected a whole number"),
        ({"tile": True}, "tile = True: expected"),
        ({"tile": 64, "overlap": 0}, r"overlap = 0: expected a part of a tile, from 0\.05 to 0\.9"),
        ({"tile": 64, "overlap": 1.0}, r"overlap = 1\.0: expected"),
        ({"overlap": 0.3}, r"overlap = 0\.3 is that of tiles: pass tile=PIXELS"),
        ({"nms": 1.5}, r"nms = 1\.5: expected an IoU from 0 to 1"),
        ({"nms": True}, "nms = True: expected"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ConfigError, match=words):
        predictor(**options)


def test_an_image_that_would_be_enlarged_too_far_is_named():
    model = predictor(64, resize="shorter", tile=3000, max_pixels=50_000)
    told = []
    assert not list(model.stream([scene(4, 300)], bad=told.append))
    assert isinstance(told[0], DataError)
    assert "array: is 4x300" in str(told[0])


def test_tiled_inference_is_for_tasks_that_merge():
    from vitreous.labels import LabelMap
    from vitreous.tasks import TASKS, task_class
    from vitreous.tasks.objects.object_task import ObjectTask

    for name in TASKS:
        task = task_class(name)(LabelMap.of_names("ab"))
        if isinstance(task, ObjectTask):
            assert task.with_nms(0.5).nms == 0.5
            continue
        with pytest.raises(ConfigError, match=f"tile = 9: a model for the task {name} .* leave"):
            TiledInference(task, predictor().preprocess, 9)
        with pytest.raises(ConfigError, match=f"nms = 0.5: a model for the task {name} pred"):
            Predictor(
                predictor().model, predictor().preprocess, task, options=InferenceOptions(nms=0.5)
            )


# ---- the commands


def test_predict_in_tiles(detector, photos, printed):
    words = ("predict", detector.path, *photos, "--threshold=0", "--json")
    plain, one, many = (
        [json.loads(line) for line in printed(*words, *options.split()).splitlines()]
        for options in ("", "--tile 200", "--tile 24 --overlap 0.3 --nms 0.6 --batch 3")
    )
    assert one == plain
    for line, other in zip(plain, many, strict=True):
        assert line["size"] == other["size"]
        height, width = line["size"]
        for found in other["objects"]:
            left, top, right, bottom = found["box"]
            assert 0 <= left <= right <= width
            assert 0 <= top <= bottom <= height
        assert other["objects"] != line["objects"] or max(line["size"]) <= 24
    python = vitreous.predict(detector.path, photos[0], 3, tile=24, overlap=0.3, nms=0.6).above(0)
    assert python.to_dict() == many[0]


def test_evaluate_in_tiles(detector, coco, printed, refused):
    words = ("evaluate", detector.path, coco, "--json")
    plain, one, many = (
        json.loads(printed(*words, *options.split()))["ap"]
        for options in ("", "--tile 200", "--tile 24 --nms 0.5")
    )
    assert plain == one != many
    told = refused(*words, "--from", "x.json", "--tile=24")
    assert "--from: boxes of a file are evaluated as they are: leave --tile out" in told


def test_options_that_a_task_has_not(photos, tmp_path, refused):
    segmenter = segment_runs.make_run(tmp_path / "segmenter")
    for option, words in (
        ("--tile 64", "tile = 64: a model for the task segment goes over large images in windows"),
        ("--nms 0.5", "nms = 0.5: a model for the task segment predicts no boxes: leave nms out"),
    ):
        assert words in refused("predict", segmenter.path, photos[0], *option.split())
