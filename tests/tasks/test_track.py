"""Objects keep their numbers from frame to frame."""

import numpy as np
import pytest
from bright import boxes, predictor, scene

from vitreous.errors import ConfigError
from vitreous.labels import LabelMap
from vitreous.results import Detection
from vitreous.tasks import TASKS, task_class
from vitreous.tasks.objects.draw import frame_marks
from vitreous.tasks.objects.object_task import ObjectTask
from vitreous.tasks.objects.track import PATIENCE, Tracker


def result(*objects, threshold=0.5):
    """Objects: class, left, top, side, and a score unless that is 0.9."""
    rows = [(*each, 0.9)[:5] for each in objects]
    places = np.array([(x, y, x + side, y + side) for _, x, y, side, _ in rows], np.float32)
    return Detection(
        places.reshape(-1, 4),
        np.array([row[0] for row in rows], np.int64),
        np.array([row[4] for row in rows], np.float32),
        np.arange(len(rows)),
        ("cat", "dog"),
        (0, 1),
        (100, 100),
        threshold,
    )


CAT, DOG, ELSEWHERE = (0, 10, 10, 20), (1, 10, 10, 20), (0, 50, 50, 20)
TRACKED = {
    "moving, in any order": (
        [[CAT, (0, 60, 10, 20)], [(0, 56, 12, 20), (0, 15, 11, 20)], [(0, 20, 12, 20)]],
        [(1, 2), (2, 1), (1,)],
    ),
    "the best for all: greedily, the first would take the place of the second": (
        [[CAT, (0, 24, 10, 20)], [(0, 19, 10, 20), (0, 31, 10, 20)]],
        [(1, 2), (1, 2)],
    ),
    "classes are apart": ([[CAT], [DOG], [CAT]], [(1,), (2,), (1,)]),
    "what is far away is another object": ([[CAT], [ELSEWHERE]], [(1,), (2,)]),
    "missing once": ([[CAT], [], [CAT]], [(1,), (), (1,)]),
    "missing long": ([[CAT], *[[]] * PATIENCE, [CAT]], [(1,), *[()] * PATIENCE, (1,)]),
    "forgotten": ([[CAT], *[[]] * (PATIENCE + 1), [CAT]], [(1,), *[()] * (PATIENCE + 1), (2,)]),
}


@pytest.mark.parametrize("what", TRACKED)
def test_objects_keep_their_numbers(what):
    frames, numbers = TRACKED[what]
    track = Tracker()
    assert [track(result(*frame)).tracks for frame in frames] == numbers


def test_only_what_is_above_the_threshold_is_tracked():
    frame = Tracker()(result((0, 10, 10, 20), (0, 50, 10, 20, 0.3)))
    assert [found.track for found in frame.objects] == [1]
    assert frame.to_dict()["objects"][0]["track"] == 1
    assert "track" not in frame.above(0.1).to_dict()["objects"][0]
    assert Tracker()(result()).objects == []


def test_a_number_has_one_colour_and_its_box_says_it():
    track = Tracker()
    drawn = [
        frame_marks(track(frame))
        for frame in (result((0, 10, 10, 20), (0, 20, 10, 20)), result((0, 19, 11, 20)))
    ]
    assert [mark.words for mark in drawn[0]] == ["cat #1", "cat #2"]
    small, large = result((0, 50, 50, 9, 0.6)), result((0, 40, 40, 30), (0, 50, 50, 9, 0.6))
    assert frame_marks(large)[0] == frame_marks(small)[0], "neither order nor colour flickers"
    assert drawn[1][0].words == "cat #2"
    assert drawn[1][0].colour == drawn[0][1].colour != drawn[0][0].colour


def test_of_a_detector():
    model = predictor(64)
    track = model.task.tracker()
    for step in range(20):
        image = scene(60, 60, (0, step, 5, step + 12, 17), (0, 40 - step, 30, 52 - step, 42))
        found = track(model(image))
        assert len(boxes(found)) == 2
        assert {each.track: each.box[1] for each in found.objects} == {1: 5, 2: 30}


@pytest.mark.parametrize("name", TASKS)
def test_other_tasks_say_that_they_have_no_objects(name):
    task = task_class(name)(LabelMap.of_names("ab"))
    if isinstance(task, ObjectTask):
        assert task.objects("refused") is task
    else:
        with pytest.raises(ConfigError, match="refused"):
            task.objects("refused")
