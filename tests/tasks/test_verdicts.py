"""Intervals, thresholds and what knows nothing, against brute force and scipy."""

from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import average_precision_score
from tasks.test_detect import LABELS, scenes
from tasks.test_detect import measured as detected
from tasks.test_instance import scenes as masked

from vitreous.data.loader import Batch
from vitreous.data.objects.overlap import iou
from vitreous.labels import IGNORED, LabelMap
from vitreous.tasks import bootstrap, task_class
from vitreous.tasks.classify.task import MostFrequentClass, NearestImages
from vitreous.tasks.metric import best_threshold, percent
from vitreous.tasks.objects import metrics as detect_metrics
from vitreous.tasks.objects.boxes import cxcywh_to_xyxy, to_pixels
from vitreous.tasks.objects.metrics import judge
from vitreous.tasks.objects.verdict import ConstantBoxes, covering_boxes, repeated
from vitreous.tasks.segment.metrics import GRID, ClassPerPosition, MaskPrediction
from vitreous.tasks.tag.task import LabelFrequencies, weighted_ap
from vitreous.tasks.verdict import never_predicted, variation
from vitreous.wording import and_between

NAMES = LabelMap.of_names(["a", "b", "c"])


def metrics_of(task, *pairs):
    found = task_class(task)(NAMES).metrics()
    for output, targets in pairs:
        found.update(output, targets)
    return found


def batch(count, images=None, sizes=()):
    return Batch(images, None, [str(number) for number in range(count)], list(sizes))


def by_scipy(images, metric, resamples=1000):
    """Of a metric of image numbers."""
    found = stats.bootstrap(
        (np.arange(images),),
        lambda drawn: metric(drawn.astype(int)),
        n_resamples=resamples,
        vectorized=False,
        method="percentile",
        rng=np.random.default_rng(1),
    )
    return tuple(found.confidence_interval)


# ---- intervals


def test_accuracys_interval_is_scipys():
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(3, (90,), generator=generator)
    logits = torch.randn(90, 3, generator=generator) + torch.nn.functional.one_hot(targets, 3)
    found = metrics_of("classify", (logits[:40], targets[:40]), (logits[40:], targets[40:]))
    predicted = logits.argmax(dim=1)
    right = (predicted == targets).numpy()

    def balanced(drawn):
        classes = [right[drawn][targets.numpy()[drawn] == c].mean() for c in range(3)]
        return np.mean(classes)

    limits = found.intervals()
    assert limits["accuracy"] == pytest.approx(by_scipy(90, lambda d: right[d].mean()), abs=0.02)
    assert limits["balanced_accuracy"] == pytest.approx(by_scipy(90, balanced), abs=0.02)
    assert limits == found.intervals()  # the same every time
    low, high = limits["f1"]
    assert low < found.compute()["f1"] < high


@pytest.mark.parametrize("right", [0, 12])
def test_all_right_of_twelve_is_not_certain(right):
    targets = torch.zeros(12).long()
    logits = torch.nn.functional.one_hot(targets if right else targets + 1, 3).float()
    exact = stats.binomtest(right, 12).proportion_ci(0.95)
    limits = metrics_of("classify", (logits, targets)).intervals()["accuracy"]
    assert limits == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_mean_ious_interval_is_scipys():
    generator = torch.Generator().manual_seed(0)
    masks = torch.randint(3, (25, 6, 5), generator=generator)
    wrong = torch.rand(25, 6, 5, generator=generator) < torch.linspace(0, 0.9, 25)[:, None, None]
    answers = torch.where(wrong, (masks + 1) % 3, masks)
    masks[:, 0] = IGNORED
    pairs = [MaskPrediction(answer, answer.half()) for answer in answers]

    def miou(drawn):
        return metrics_of("segment", ([pairs[i] for i in drawn], masks[drawn])).compute()["miou"]

    found = metrics_of("segment", (pairs, masks)).intervals()
    assert found["miou"] == pytest.approx(by_scipy(25, miou, 400), abs=0.03)
    assert found.keys() == {"miou", "pixel_accuracy", "mean_accuracy"}


def test_average_precision_of_a_draw_is_scikit_learns():
    """With equal scores, labels that are not known, and draws without the label."""
    generator = torch.Generator().manual_seed(0)
    scores = (torch.randn(30, generator=generator) * 3).round().sigmoid()
    truth = torch.rand(30, generator=generator) < 0.2
    weights = next(bootstrap.resampled(30, 50))
    weights[0] = ~truth
    found = weighted_ap(scores, truth, weights)
    assert found[0].isnan()
    known = ~found.isnan()
    assert known.sum() > 40
    for drawn, ap in zip(weights[known], found[known], strict=True):
        theirs = average_precision_score(truth, scores, sample_weight=drawn)
        assert ap.item() == pytest.approx(theirs)


def test_a_draw_of_images_is_measured_as_if_they_were_the_data(monkeypatch):
    """COCO's AP of a draw, by the evaluator's accumulation, is that of a data set of its images."""
    pairs = scenes()
    draws = [np.arange(12), np.array([3, 3, 4, 9, 9, 9, 1, 2, 11, 8, 8, 7])]
    monkeypatch.setattr(detect_metrics, "draws", lambda images, count: iter(draws))
    rows = detect_metrics.BoxRows.of(detected(pairs).counts())
    found = list(detect_metrics.drawn_precisions(len(LABELS), rows, 2))
    for drawn, precision in zip(draws, found, strict=True):
        whole = detected([pairs[i] for i in drawn]).compute()
        assert precision[precision > -1].mean() == pytest.approx(whole["ap"])
        assert precision[0][precision[0] > -1].mean() == pytest.approx(whole["ap50"])


def answered(task, wrong=0):
    """Predictions and targets of some images, of which the first so many are answered wrongly."""
    generator = torch.Generator().manual_seed(0)
    if task in ("detect", "instance"):
        answers, targets = zip(*(scenes if task == "detect" else masked)(), strict=True)
        for answer in answers[:wrong]:
            answer.boxes[:] += 1000
        return answers, targets
    if task == "segment":
        masks = torch.randint(3, (40, 6, 5), generator=generator)
        answers = torch.where(torch.rand(masks.shape, generator=generator) < 0.2, 0, masks)
        answers[:wrong] = (masks[:wrong] + 1) % 3
        return [MaskPrediction(each, each.half()) for each in answers], masks
    targets = torch.randint(3, (40,), generator=generator)
    logits = torch.randn(40, 3, generator=generator) + 2 * torch.nn.functional.one_hot(targets, 3)
    logits[:wrong] *= -1
    if task == "tag":
        targets = torch.nn.functional.one_hot(targets, 3).float()
    return logits, targets


def scalars(task, counts):
    """All single numbers of an evaluation."""
    result = task_class(task)(NAMES).metrics().compute(counts)
    return {key: value for key, value in result.items() if isinstance(value, float | int)}


@pytest.mark.parametrize("task", ["classify", "tag", "segment", "detect", "instance"])
def test_order_batches_and_processes_do_not_matter(task):
    output, targets = answered(task)
    whole = metrics_of(task, (output, targets))
    expected = scalars(task, whole.counts())
    assert expected["samples"] == len(targets)
    low, high = whole.intervals()[task_class(task).metric.key]
    assert low < expected[task_class(task).metric.key] < high
    for cut in (1, 4, len(targets) - 1):
        one_by_one = [(output[i : i + 1], targets[i : i + 1]) for i in range(cut)]
        processes = ([(output[cut:], targets[cut:])], [], one_by_one)
        counts = [metrics_of(task, *batches).counts() for batches in processes]
        assert scalars(task, whole.merge(counts)) == pytest.approx(expected)
    assert metrics_of(task).intervals() == {}


@pytest.mark.parametrize("task", ["classify", "tag", "segment", "detect"])
def test_two_models_are_compared_on_the_same_draws(task):
    """Equal models never differ; one that is wrong about a few images is nowhere better, and the
    interval of the difference is narrower than that of the metric."""
    metric = task_class(task).metric.key
    exact, same, worse = (metrics_of(task, answered(task, wrong)) for wrong in (0, 0, 3))

    def apart(other):
        return bootstrap.differences(exact.resampled(), other.resampled(), metric)

    assert apart(same).abs().max() == 0
    found = apart(worse)
    assert len(found) >= 100
    low, high = bootstrap.interval(found)
    difference = exact.compute()[metric] - worse.compute()[metric]
    assert low < difference < high
    below, above = worse.intervals()[metric]
    assert high - low < above - below


@pytest.mark.parametrize("task", ["classify", "tag", "segment", "detect", "instance"])
def test_each_image_is_judged_by_itself(task):
    """As by metrics that have seen that image alone; images that are all wrong are the worst."""
    output, targets = answered(task, 3)
    each = metrics_of(task, (output, targets)).each()
    alone = [metrics_of(task, (output[i : i + 1], targets[i : i + 1])) for i in range(len(targets))]
    assert len(each) == len(targets)
    assert each == pytest.approx(torch.cat([one.each() for one in alone]), nan_ok=True)
    key = {"classify": "accuracy", "segment": "miou", "tag": None}.get(task, "f1")
    if key is not None:
        expected = [one.compute()[key] for one in alone]
        # of an image without objects and predictions COCO's F1 is 0, and nothing is wrong
        assert [a for a, b in zip(each, expected, strict=True) if b] == pytest.approx(
            [b for b in expected if b]
        )
    else:
        wrong = ((output >= 0) != (targets == 1)).float().mean(dim=1)
        assert torch.allclose(each, 1 - wrong)
    assert task == "instance" or each[:3].mean() < each[3:].mean()  # which `answered` leaves right
    assert metrics_of(task).each().tolist() == []


def test_draws_in_blocks_are_the_same(monkeypatch):
    whole = torch.cat(list(bootstrap.resampled(7, 20)))
    monkeypatch.setattr(bootstrap, "AT_ONCE", 30)
    blocks = list(bootstrap.resampled(7, 20))
    assert len(blocks) > 3
    assert torch.equal(torch.cat(blocks), whole)
    assert whole.sum(dim=1).eq(7).all()


# ---- thresholds


@pytest.mark.parametrize("seed", range(3))
def test_the_threshold_of_boxes_is_the_best_of_all(seed):
    pairs = scenes(seed=seed)
    result = detected(pairs).compute()

    def f1(threshold):
        found = missed = false = 0
        for answer, target in pairs:
            above = answer.scores >= threshold
            crowd = target.get("crowd", torch.zeros(len(target["labels"]))).bool()
            truth = to_pixels(target["boxes"], answer.size)
            judged = judge(
                answer.boxes[above], answer.labels[above], truth, target["labels"], crowd
            )
            found, missed = found + int(judged.found.sum()), missed + judged.missed
            false += judged.false
        return 2 * found / (2 * found + missed + false)

    scores = torch.cat([answer.scores for answer, _ in pairs]).tolist()
    assert f1(result["best_threshold"]) == pytest.approx(max(map(f1, scores)))
    assert result["best_f1"] == pytest.approx(max(map(f1, scores)))
    assert result["f1"] == pytest.approx(f1(0.5))


def test_a_threshold_where_nothing_is_right():
    assert best_threshold(torch.tensor([0.9, 0.1]), torch.tensor([False, False]), 3) == 0.5
    assert best_threshold(torch.zeros(0), torch.zeros(0).bool(), 0) == 0.5
    # what is not found counts: of two objects one is found, by the second box
    right = torch.tensor([False, True, False])
    assert best_threshold(torch.tensor([0.9, 0.5, 0.3]), right, 2) == pytest.approx(0.4)


# ---- what knows nothing


def test_most_frequent_class():
    targets = torch.tensor([1] * 5 + [0] * 3 + [2] * 2)
    baseline = MostFrequentClass(3)
    baseline.learn(batch(4), targets[:4])
    baseline.learn(batch(6), targets[4:])
    output = baseline.answer(batch(10))
    assert metrics_of("classify", (output, targets)).compute()["accuracy"] == 0.5
    assert output[0].exp() == pytest.approx(torch.tensor([0.3, 0.5, 0.2]))


def test_nearest_images_are_those_of_brute_force():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(60, 1, 8, 6, generator=generator)
    targets = torch.randint(2, (60,), generator=generator)  # of five neighbours one class wins
    baseline = NearestImages(3)
    for part in (slice(0, 20), slice(20, 40)):
        baseline.learn(batch(20, images[part]), targets[part])
    found = baseline.answer(batch(20, images[40:])).argmax(dim=1).tolist()
    for image, answer in zip(images[40:], found, strict=True):
        distances = (images[:40] - image).square().sum(dim=(1, 2, 3))
        votes = Counter(targets[distances.argsort()[:5]].tolist())
        assert answer == votes.most_common(1)[0][0]


def test_label_frequencies():
    targets = torch.tensor([[1.0, 0, IGNORED], [1, 1, 1], [0, 0, 0], [1, 0, 1]])
    baseline = LabelFrequencies(3)
    baseline.learn(batch(4), targets)
    shares = baseline.answer(batch(1)).sigmoid()[0]
    assert shares == pytest.approx(torch.tensor([0.75, 0.25, 2 / 3]))


def test_class_of_each_position():
    generator = torch.Generator().manual_seed(0)
    masks = torch.randint(3, (9, *GRID), generator=generator)
    masks[:5, 0, 0] = IGNORED
    masks[:, 5, 5] = IGNORED
    baseline = ClassPerPosition(3)
    baseline.learn(batch(9), masks)
    small, large = baseline.answer(batch(2, sizes=[GRID, (64, 96)]))
    for y, x in np.ndindex(*GRID):
        there = masks[:, y, x][masks[:, y, x] != IGNORED]
        known = there if len(there) else masks[masks != IGNORED]
        assert small.classes[y, x] == torch.bincount(known, minlength=3).argmax()
    assert torch.equal(large.classes[1::2, 1::3], small.classes)


def some_boxes(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    centre = 0.5 + 0.15 * torch.randn(count, 2, generator=generator)
    return torch.cat((centre, 0.2 + 0.3 * torch.rand(count, 2, generator=generator)), dim=1)


def test_constant_boxes_cover_most():
    boxes = some_boxes(50)
    (first, gain), *others = covering_boxes(boxes)
    overlaps = iou(cxcywh_to_xyxy(boxes)[:, None], cxcywh_to_xyxy(boxes))
    steps = torch.linspace(0.5, 0.95, 10)
    worth = (overlaps[..., None] >= steps - 1e-5).float().mean(dim=-1).sum(dim=1)
    assert torch.equal(first, boxes[worth.argmax()])
    assert gain == pytest.approx(worth.max().item(), abs=1e-4)
    gains = [gain, *(each for _, each in others)]
    assert gains == sorted(gains, reverse=True)


def test_constant_boxes_are_right_where_objects_do_not_move():
    boxes = torch.tensor([[0.3, 0.3, 0.2, 0.2], [0.7, 0.6, 0.3, 0.3]])
    target = {"labels": torch.tensor([2, 0]), "boxes": boxes}
    crowd = {
        "labels": torch.tensor([1]),
        "boxes": torch.tensor([[0.5, 0.5, 1.0, 1.0]]),
        "crowd": torch.tensor([True]),
    }
    baseline = ConstantBoxes()
    baseline.learn(batch(2), [target, crowd])
    answers = baseline.answer(batch(2, sizes=[(40, 60), (30, 20)]))
    assert answers[0].labels.sort().values.tolist() == [0, 2]  # crowds are not learned
    assert answers[0].scores.tolist() == pytest.approx([0.5, 0.5])  # in one image of two
    result = metrics_of("detect", (answers, [target, target])).compute()
    assert result["ap"] == pytest.approx(1)
    nothing = ConstantBoxes()
    assert len(nothing.answer(batch(1, sizes=[(9, 9)]))[0].boxes) == 0


def test_what_repeats():
    same = [cxcywh_to_xyxy(some_boxes(3))] * 5
    assert repeated(same) == 1
    assert repeated([each.roll(i, 0) for i, each in enumerate(same)]) == 1
    apart = [torch.tensor([[i, 0, i + 1, 1.0]]) for i in range(5)]
    assert repeated(apart) == 0
    assert repeated([*same[:2], *apart[2:]]) == pytest.approx(2 / 20)
    assert repeated(same[:4]) == 0  # too few to tell


def test_how_much_probabilities_vary():
    sure = torch.eye(3).repeat(4, 1)
    torch.testing.assert_close(*variation(sure))
    for one in (sure.mean(dim=0), torch.tensor([1.0, 0, 0])):
        apart, _ = variation(one.expand(5, -1))
        assert apart.sum().item() == pytest.approx(0, abs=1e-6)


# ---- sentences


def test_sentences():
    assert never_predicted({"a": 4}, "images") == []
    (found,) = never_predicted(dict.fromkeys("abcdefg", 9), "objects")
    assert found.seen.startswith("7 classes never predicted: a (9 objects), b")
    assert found.seen.endswith("e (9 objects) and 2 more")
    assert [and_between("abc"[:n]) for n in range(1, 4)] == ["a", "a and b", "a, b and c"]
    assert [percent(each) for each in (0.9833, 0.0004, 0)] == ["98.3 %", "0.04 %", "0.0 %"]
