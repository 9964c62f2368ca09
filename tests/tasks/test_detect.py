"""Detection: boxes, matching, losses and AP against brute force and libraries that have them."""

import itertools
import json
import math

import pytest
import torch
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st
from tasks.detect_runs import make_model
from tasks.pycocotools_numbers import by_pycocotools

from vitreous.data.objects.overlap import giou
from vitreous.engines.torch import TorchEngine
from vitreous.labels import LabelMap
from vitreous.models.detr import DETROutput
from vitreous.tasks.detect.task import Detect
from vitreous.tasks.objects.boxes import cxcywh_to_xyxy, normalised, to_pixels, xyxy_to_cxcywh
from vitreous.tasks.objects.losses import by_probability, costs, match
from vitreous.tasks.objects.metrics import NUMBERS, BoxPrediction

LABELS = LabelMap.of_names(["cat", "dog", "owl"])
CLASSES = len(LABELS)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def some_boxes(count, seed=0):
    """In parts, mostly inside of the image."""
    random = torch.rand(count, 4, generator=generator(seed))
    return torch.cat((0.1 + 0.8 * random[:, :2], 0.05 + 0.4 * random[:, 2:]), dim=1)


def target(count, seed=0):
    labels = torch.randint(0, CLASSES, (count,), generator=generator(seed))
    return {"labels": labels, "boxes": some_boxes(count, seed + 100)}


def said(layers=2, batch=3, queries=5, seed=0, classes=CLASSES):
    logits = torch.randn(layers, batch, queries, classes + 1, generator=generator(seed))
    boxes = some_boxes(layers * batch * queries, seed + 1).view(layers, batch, queries, 4)
    return DETROutput(logits, boxes)


# Boxes

numbers = st.floats(0, 1, width=32)
box = st.tuples(numbers, numbers, numbers, numbers).map(
    lambda b: (min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]) + 0.01, max(b[1], b[3]) + 0.01)
)


@given(a=st.lists(box, min_size=1, max_size=4), b=st.lists(box, min_size=1, max_size=4))
def test_giou_is_torchvisions(a, b):
    a, b = torch.tensor(a), torch.tensor(b)
    theirs = torchvision.ops.generalized_box_iou(a, b)
    torch.testing.assert_close(giou(a[:, None], b), theirs, rtol=1e-5, atol=1e-6)
    n = min(len(a), len(b))
    torch.testing.assert_close(giou(a[:n], b[:n]), theirs.diagonal(), rtol=1e-5, atol=1e-6)


def test_boxes_without_area():
    nothing, some = torch.zeros(1, 4), torch.tensor([[0.5, 0.5, 1.0, 1.0]])
    assert giou(nothing, nothing).item() == 0
    assert giou(nothing, some).item() == pytest.approx(-0.75)


@given(boxes=st.lists(box, max_size=4), size=st.tuples(st.integers(1, 2000), st.integers(1, 2000)))
def test_forms_of_boxes_are_told_apart_and_come_back(boxes, size):
    pixels = torch.tensor(boxes, dtype=torch.float64).reshape(-1, 4)
    torch.testing.assert_close(cxcywh_to_xyxy(xyxy_to_cxcywh(pixels)), pixels)
    torch.testing.assert_close(to_pixels(normalised(pixels, size), size), pixels)
    assert torch.equal(
        torchvision.ops.box_convert(pixels, "xyxy", "cxcywh").isclose(xyxy_to_cxcywh(pixels)),
        torch.ones_like(pixels, dtype=torch.bool),
    )


def test_height_and_width_are_not_confused():
    pixels = torch.tensor([[10.0, 20.0, 30.0, 60.0]])  # left, top, right, bottom
    parts = normalised(pixels, (80, 40))  # twice as high as wide
    torch.testing.assert_close(parts, torch.tensor([[0.5, 0.5, 0.5, 0.5]]))


# Matching


@pytest.mark.parametrize(("queries", "objects"), [(5, 3), (4, 4), (3, 5), (6, 1), (3, 0)])
def test_matching_is_the_cheapest_of_all(queries, objects):
    for seed in range(4):
        output = said(1, 1, queries, seed)
        targets = [target(objects, seed)]
        cost = costs(*output, targets, by_probability)[0, 0]
        if objects <= queries:
            ways = itertools.permutations(range(queries), objects)
            least = min(sum(cost[q, o].item() for o, q in enumerate(way)) for way in ways)
        else:
            ways = itertools.permutations(range(objects), queries)
            least = min(sum(cost[q, o].item() for q, o in enumerate(way)) for way in ways)
        found = match(*output, targets)
        assert len(found.query) == len(set(found.query.tolist())) == min(queries, objects)
        assert len(set(found.target.tolist())) == min(queries, objects)
        assert cost[found.query, found.target].sum().item() == pytest.approx(least, abs=1e-5)


def test_cost_by_hand():
    output, targets = said(1, 1, 2), [target(2)]
    cost = costs(*output, targets, by_probability)[0, 0]
    for query, thing in itertools.product(range(2), range(2)):
        chance = output.logits[0, 0, query].softmax(0)[targets[0]["labels"][thing]]
        a, b = output.boxes[0, 0, query], targets[0]["boxes"][thing]
        alike = torchvision.ops.generalized_box_iou(
            cxcywh_to_xyxy(a[None]), cxcywh_to_xyxy(b[None])
        )
        by_hand = -chance + 5 * (a - b).abs().sum() - 2 * alike
        assert cost[query, thing].item() == pytest.approx(by_hand.item(), rel=1e-5)


def test_layers_and_images_are_matched_each_by_itself():
    output, targets = said(3, 3), [target(2, 1), target(0), target(4, 2)]
    together = match(*output, targets)
    assert together.layer.tolist() == [0] * 6 + [1] * 6 + [2] * 6
    first = 0
    for image, one in enumerate(targets):
        for layer in range(3):
            alone = match(
                output.logits[layer : layer + 1, image : image + 1],
                output.boxes[layer : layer + 1, image : image + 1],
                [one],
            )
            mine = (together.layer == layer) & (together.image == image)
            assert torch.equal(together.query[mine], alone.query)
            assert torch.equal(together.target[mine], alone.target + first)
        first += len(one["labels"])


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("logits", "predicted class scores"),
        ("boxes", "predicted boxes"),
        ("data", "boxes in the data"),
    ],
)
def test_what_is_no_number_is_named(part, says):
    output, targets = said(), [target(2), target(1), target(2)]
    if part == "data":
        targets[2]["boxes"][1, 2] = math.nan
    else:
        getattr(output, part)[1, 2, 3] = math.nan
    task = Detect(LABELS)
    assert not math.isfinite(sum(task.loss(output, targets).values()))
    assert task.not_finite(output, targets) == (2, says)


# Losses


def loss_by_hand(logits, boxes, targets, no_object=0.1):
    """One layer, query by query: logits (b, q, c + 1), boxes (b, q, 4)."""
    weighted, weights, apart, missed = 0.0, 0.0, 0.0, 0.0
    count = max(sum(len(t["labels"]) for t in targets), 1)
    for image, one in enumerate(targets):
        found = match(logits[None, image : image + 1], boxes[None, image : image + 1], [one])
        partner = dict(zip(found.query.tolist(), found.target.tolist(), strict=True))
        for query in range(logits.shape[1]):
            number = partner.get(query)
            label = CLASSES if number is None else int(one["labels"][number])
            weight = no_object if number is None else 1.0
            weighted -= weight * logits[image, query].log_softmax(0)[label].item()
            weights += weight
            if number is not None:
                a, b = boxes[image, query], one["boxes"][number]
                apart += (a - b).abs().sum().item()
                alike = torchvision.ops.generalized_box_iou(
                    cxcywh_to_xyxy(a[None]), cxcywh_to_xyxy(b[None])
                )
                missed += 1 - alike.item()
    return weighted / weights, 5 * apart / count, 2 * missed / count


@pytest.mark.parametrize("counts", [(2, 0, 4), (0, 0, 0), (1, 1, 1), (6, 7, 0)], ids=str)
def test_loss_by_hand(counts):
    output = said(3, 3)
    targets = [target(n, n) for n in counts]
    terms = Detect(LABELS).loss(output, targets)
    each = [loss_by_hand(*layer, targets) for layer in zip(*output, strict=True)]
    last, others = each[-1], [sum(column) for column in zip(*each[:-1], strict=True)]
    assert [terms[n].item() for n in ("class", "box", "giou")] == pytest.approx(last, rel=1e-4)
    aux = [terms[n].item() for n in ("aux_class", "aux_box", "aux_giou")]
    assert aux == pytest.approx(others, rel=1e-4)
    assert len(terms) == 6
    assert list(Detect(LABELS).loss(DETROutput(*(p[-1:] for p in output)), targets)) == [
        "class",
        "box",
        "giou",
    ]


def test_losses_do_not_depend_on_how_samples_are_divided():
    """With `count`, as the loop gives it: the mean number of objects per process and part."""
    task, output = Detect(LABELS), said(2, 4)
    targets = [target(n, n) for n in (3, 0, 1, 4)]

    def total(rows, count):
        part = DETROutput(output.logits[:, rows], output.boxes[:, rows])
        return sum(t.item() for t in task.loss(part, targets[rows], count=count).values())

    objects = task.count_of(targets)
    assert objects == 8
    whole = total(slice(None), None)
    assert total(slice(None), objects) == pytest.approx(whole, rel=1e-6)
    halves = [total(slice(i, i + 2), objects / 2) for i in (0, 2)]
    assert sum(halves) / 2 == pytest.approx(whole, rel=1e-5)
    singles = [total(slice(i, i + 1), objects / 4) for i in range(4)]
    assert sum(singles) / 4 == pytest.approx(whole, rel=1e-5)


def test_crowds_are_not_learnt():
    task, output = Detect(LABELS), said(2, 2)
    plain = [target(2, 1), target(1, 2)]
    crowded = [
        {
            "labels": torch.cat((one["labels"], torch.tensor([1]))),
            "boxes": torch.cat((one["boxes"], some_boxes(1, 9))),
            "crowd": torch.tensor([False] * len(one["labels"]) + [True]),
        }
        for one in plain
    ]
    assert task.count_of(crowded) == task.count_of(plain) == 3
    ours, theirs = task.loss(output, crowded), task.loss(output, plain)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_perfect_answers_cost_nothing_and_gradients_are_finite():
    targets = [target(2, 1), target(0), target(3, 2)]
    logits, boxes = torch.full((1, 3, 5, CLASSES + 1), -30.0), said(1).boxes.clone()
    logits[..., -1] = 30.0
    for image, one in enumerate(targets):
        for number, label in enumerate(one["labels"]):
            logits[0, image, number + 1] = -30.0
            logits[0, image, number + 1, label] = 30.0
            boxes[0, image, number + 1] = one["boxes"][number]
    output = DETROutput(logits.requires_grad_(), boxes.requires_grad_())
    terms = Detect(LABELS).loss(output, targets)
    assert all(abs(term.item()) < 1e-5 for term in terms.values())
    sum(terms.values()).backward()
    assert logits.grad.isfinite().all()
    assert boxes.grad.isfinite().all()


def small_detr():
    return make_model(classes=CLASSES, queries=6, decoder_depth=3)


@pytest.mark.parametrize("counts", [(2, 1), (0, 0)])
def test_every_parameter_learns_even_without_objects(counts):
    model = small_detr().train()
    output = model([torch.randn(3, 40, 32), torch.randn(3, 24, 48)])
    assert len(output.logits) == 3
    sum(Detect(LABELS).loss(output, [target(n, n) for n in counts]).values()).backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]


# Answers


def test_infer_batch_equals_singles_and_speaks_in_pixels_of_the_image():
    model, task = small_detr().eval(), Detect(LABELS)
    images = torch.randn(3, 3, 32, 48)
    sizes = [(32, 48), (320, 480), (100, 30)]
    together = task.infer(TorchEngine(model), images, sizes)
    with torch.no_grad():
        output = model(images)
    chances = output.logits[-1].softmax(-1)
    for i, size in enumerate(sizes):
        (alone,) = task.infer(TorchEngine(model), [images[i]], [size])
        torch.testing.assert_close(alone.boxes, together[i].boxes, rtol=1e-3, atol=1e-3)
        answer = together[i]
        assert answer.size == size
        assert sorted(answer.queries.tolist()) == list(range(6))
        assert (answer.scores.diff() <= 0).all()
        for box, label, score, query in zip(*answer[:4], strict=True):
            x, y, w, h = output.boxes[-1, i, query].tolist()
            edges = (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
            sides = (size[1], size[0]) * 2
            by_hand = [min(max(e, 0), 1) * side for e, side in zip(edges, sides, strict=True)]
            assert box.tolist() == pytest.approx(by_hand, rel=1e-4, abs=1e-4)
            assert score.item() == pytest.approx(chances[i, query, :CLASSES].max().item())
            assert label == chances[i, query, :CLASSES].argmax()
    mixed = task.infer(
        TorchEngine(model), [images[0], torch.randn(3, 40, 21)], [(32, 48), (40, 21)]
    )
    assert [answer.size for answer in mixed] == [(32, 48), (40, 21)]


def answer(boxes, labels, scores, size=(100, 200)):
    boxes, scores = torch.tensor(boxes).reshape(-1, 4), torch.tensor(scores)
    return BoxPrediction(boxes, torch.tensor(labels), scores, torch.arange(len(scores)), size)


def test_results():
    labels = LabelMap(("cat", "dog", "owl"), (7, 9, 12))
    found = answer([[10.0, 20, 50, 40], [0, 0, 20, 10], [5, 5, 6, 6]], [2, 0, 2], [0.9, 0.5, 0.2])
    (result,) = Detect(labels).decode([found], ["a.png"])
    assert [thing.label for thing in result.objects] == ["owl", "cat"]
    assert result.counts == {"cat": 1, "owl": 1}
    assert [thing.label for thing in result.above(0.6).objects] == ["owl"]
    assert len(result.above(0.0).objects) == 3
    assert json.loads(json.dumps(result.to_dict())) == {
        "image": "a.png",
        "size": [100, 200],
        "objects": [
            {"label": "owl", "id": 12, "score": pytest.approx(0.9), "box": [10, 20, 50, 40]},
            {"label": "cat", "id": 7, "score": 0.5, "box": [0, 0, 20, 10]},
        ],
    }
    rows = json.loads(json.dumps(result.to_coco(42)))
    assert [row["category_id"] for row in rows] == [12, 7, 12], "without a threshold"
    assert rows[0] == {
        "image_id": 42,
        "category_id": 12,
        "bbox": [10, 20, 40, 20],
        "score": pytest.approx(0.9),
    }


ids = st.one_of(
    st.sets(st.integers(0, 10**6), min_size=1, max_size=8),
    st.sets(st.text(min_size=1, max_size=8), min_size=1, max_size=8),
)


@settings(deadline=None)
@given(ids=ids, data=st.data())
def test_whatever_the_ids_they_come_out_as_they_were(ids, data):
    """Gapped, counted from 1 or from 0, or text; and names that are not in their order."""
    external = data.draw(st.permutations(sorted(ids)))
    names = tuple(f"name of {id}" for id in external)
    labels = LabelMap(names, tuple(external))
    truth = data.draw(st.lists(st.sampled_from(external), min_size=1, max_size=5))
    inside = [labels.internal(id) for id in truth]
    boxes = some_boxes(len(truth))
    found = answer(to_pixels(boxes, (100, 200)).tolist(), inside, [0.9] * len(truth))
    task = Detect(labels)
    (result,) = task.decode([found], [""])
    numbers = dict(zip(external, labels.numbers, strict=True))
    assert [thing.id for thing in result.objects] == [numbers[id] for id in truth]
    assert all(numbers[id] == id for id in ids if isinstance(id, int))
    assert [thing.label for thing in result.objects] == [f"name of {id}" for id in truth]
    assert [row["category_id"] for row in result.to_coco(1)] == [numbers[id] for id in truth]
    metrics = task.metrics()
    metrics.update([found], [{"labels": torch.tensor(inside), "boxes": boxes}])
    there = {f"name of {id}" for id in truth}
    for name, row in metrics.compute()["classes"].items():
        assert row["objects"] == sum(f"name of {id}" == name for id in truth)
        assert (row["ap"] is not None) == (name in there)


def test_other_data_is_renamed():
    one = {**target(3), "crowd": torch.tensor([False, True, False])}
    (renamed,) = Detect(LABELS).renamed([one], (2, 0, 1))
    assert renamed["labels"].tolist() == [(2, 0, 1)[label] for label in one["labels"]]
    assert torch.equal(renamed["boxes"], one["boxes"])
    assert torch.equal(renamed["crowd"], one["crowd"])


# Metrics


def scenes(count=12, seed=0, crowds=True):
    """Images of several sizes, objects of all areas, and answers that are right now and then."""
    random = generator(seed)
    made = []
    for number in range(count):
        size = (300 + 40 * number, 500 - 10 * number)
        things = number % 5
        truth = target(things, 7 * number + seed)
        truth["boxes"][:, 2:] *= torch.rand(things, 2, generator=random)
        if crowds and things > 2:
            truth["crowd"] = torch.tensor([True] + [False] * (things - 1))
            truth["area"] = to_pixels(truth["boxes"], size).diff(dim=1)[:, 0] * 50.0
        boxes = torch.cat((truth["boxes"].repeat(2, 1), some_boxes(4, number + seed)))
        boxes = boxes + 0.02 * torch.randn(boxes.shape, generator=random)
        boxes[:, 2:] = boxes[:, 2:].clamp(min=0.01)
        labels = torch.cat((truth["labels"].repeat(2), target(4, number)["labels"]))
        scores = torch.rand(len(labels), generator=random).sort(descending=True).values
        order = torch.randperm(len(labels), generator=random)
        pixels = to_pixels(boxes[order], size)
        made.append((BoxPrediction(pixels, labels[order], scores, order, size), truth))
    return made


def measured(pairs):
    metrics = Detect(LABELS).metrics()
    for found, truth in pairs:
        metrics.update([found], [truth])
    return metrics


@pytest.mark.parametrize("crowds", [False, True])
def test_ap_is_pycocotools(crowds):
    task, pairs = Detect(LabelMap(LABELS.names, (3, 14, 90))), scenes(crowds=crowds)
    result, theirs = measured(pairs).compute(), by_pycocotools(task, pairs)
    numbers = [-1 if result[name] is None else result[name] for name in NUMBERS]
    assert numbers == pytest.approx(theirs.stats.tolist(), abs=1e-9)
    assert 0.05 < result["ap"] < 0.9
    for i, row in enumerate(result["classes"].values()):
        precision = theirs.eval["precision"][:, :, i, 0, 2]
        assert row["ap"] == pytest.approx(precision.mean(), abs=1e-9)
        assert row["ap50"] == pytest.approx(precision[0].mean(), abs=1e-9)
        assert row["ar100"] == pytest.approx(theirs.eval["recall"][:, i, 0, 2].mean(), abs=1e-9)
        curve = result["curves"]["precision"][LABELS.names[i]]
        assert curve == pytest.approx(precision[0].tolist(), abs=1e-9)
    assert len(result["curves"]["recall"]) == 101
    assert result["samples"] == 12
    assert result["objects"] == Detect(LABELS).count_of([truth for _, truth in pairs])
    json.dumps(result)


def test_perfect_answers_have_ap_one():
    pairs = []
    for number in range(4):
        truth = target(number, number)
        pixels = to_pixels(truth["boxes"], (300, 400))
        found = answer(pixels.tolist(), truth["labels"].tolist(), [0.9] * number, (300, 400))
        pairs.append((found, truth))
    result = measured(pairs).compute()
    assert result["ap"] == result["ap50"] == result["ar100"] == pytest.approx(1)
    assert result["samples"] == 4


def test_where_there_is_nothing_to_find():
    found = answer([[0.0, 0, 10, 10]], [1], [0.9])
    nothing = {"labels": torch.zeros(0, dtype=torch.int64), "boxes": torch.zeros(0, 4)}
    result = measured([(found, nothing)]).compute()
    assert (result["ap"], result["ap50"], result["objects"]) == (0.0, None, 0)
    assert Detect(LABELS).metrics().compute()["samples"] == 0
