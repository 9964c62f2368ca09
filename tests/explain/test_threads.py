"""A predictor is shared by threads: what one looks at does not change what another computes."""

from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice

import pytest
import torch

import vitreous
from vitreous.data.preprocess import Preprocess
from vitreous.labels import LabelMap
from vitreous.predict import Predictor
from vitreous.tasks import task_class

CALLS, PREDICTING, EXPLAINING = 500, 8, 4
MODELS = {
    "vit": {"patch": 4, "dim": 16, "depth": 3, "heads": 2, "image_size": 16},
    "swin": {
        "dim": 8,
        "depths": (2, 2),
        "heads": (1, 2),
        "window": 2,
        "image_size": 16,
        "patch": 2,
    },
}


@pytest.mark.parametrize("family", MODELS)
def test_explaining_threads_do_not_disturb_predicting_ones(family):
    torch.manual_seed(0)
    model = vitreous.create(family, **MODELS[family], classes=5)
    task = task_class("classify")(LabelMap.of_ids(range(5)))
    predictor = Predictor(model, Preprocess(image_size=16), task)
    images = [torch.randint(256, (3, 16, 16), dtype=torch.uint8) for _ in range(6)]

    def predict(number):
        return predictor(images[number]).scores

    def explain(number):
        found = predictor.explain(images[number], 2)
        return [found.rollout, *found.attention, *found.class_maps.values()]

    alone = {
        "predict": [predict(number) for number in range(len(images))],
        "explain": [explain(number) for number in range(len(images))],
    }
    hooks = sum(len(module._forward_hooks) for module in model.modules())
    with ThreadPoolExecutor(PREDICTING) as some, ThreadPoolExecutor(EXPLAINING) as others:
        numbers = list(islice(cycle(range(len(images))), CALLS // 2))
        predictions = some.map(predict, numbers)
        explanations = others.map(explain, numbers)
        for number, scores in zip(numbers, predictions, strict=True):
            assert scores == alone["predict"][number]
        for number, maps in zip(numbers, explanations, strict=True):
            assert all(map(torch.equal, maps, alone["explain"][number]))
    # nothing is left behind that would make later calls slower, or keep tensors
    assert sum(len(module._forward_hooks) for module in model.modules()) == hooks
