"""What a result means, for models that are made to collapse in each way, and for good ones.

The answers are made by hand: everything but the model is as in `vitreous evaluate`.
"""

import itertools
import json
import shlex
from dataclasses import fields

import numpy as np
import pytest
import torch
from shared import printed
from train.tiny import CLASSIFY, class_folder, teacher
from train.undrawn import undrawn

import vitreous
from vitreous.cli.main import main
from vitreous.cli.train import TrainArguments
from vitreous.data.formats.python_data import FROM_PYTHON, from_python
from vitreous.data.preprocess import Preprocess
from vitreous.labels import IGNORED
from vitreous.predict import Predictor
from vitreous.run_folder import Run
from vitreous.tasks import task_class, task_for
from vitreous.tasks.objects.boxes import clipped
from vitreous.tasks.objects.metrics import BoxPrediction
from vitreous.tasks.segment.metrics import MaskPrediction
from vitreous.train import baselines
from vitreous.train.recipe import Recipe, write_recipe
from vitreous.train.verdicts import Curve, Remedies, evaluate

COUNTS = {"train": 60, "val": 120, "test": 120}
SIZE = 40
SEEN_IN_TRAIN = 1
"""The value of a pixel that tells training images from others."""


def noise(random):
    return random.integers(0, 256, (SIZE, SIZE), dtype=np.uint8)


def data(make, **counts):
    """`make(random, number)` gives image and target."""
    random = np.random.default_rng(0)
    splits = {}
    for split, count in (COUNTS | counts).items():
        splits[split] = [make(random, number) for number in range(count)]
        for image, _ in splits[split]:
            image[0, 1] = SEEN_IN_TRAIN if split == "train" else 0
    return from_python(splits)


def judged(tmp_path, source, answer, split="test", *, name="run", own=True, log=(), **options):
    """The result of a model that answers `answer(images, sizes)`; images (b, h, w) of uint8."""
    run = Run(tmp_path / name)
    run.path.mkdir()
    for line in log:
        run.log(**line)
    recipe = Recipe(data="photos", epochs=3, **options)
    run.write_text("recipe.toml", write_recipe(recipe))
    shape = {"patch": 8, "dim": 8, "depth": 1, "heads": 1, "classes": len(source.labels)}
    model = vitreous.create("vit", image_size=SIZE, channels=1, **shape)
    task = task_for(source.truth_kind)(source.labels)

    def infer(engine, images, sizes):
        stored = torch.as_tensor(images)[:, 0] * 127.5 + 127.5
        return answer(stored.round().to(torch.uint8), sizes)

    task.infer = infer
    preprocess = Preprocess(image_size=SIZE, channels=1, mean=(0.5,), std=(0.5,))
    predictor = Predictor(model, preprocess, task)
    return evaluate(run, predictor, source, split, own=own)


def severities(result):
    return [each["severity"] for each in result["verdicts"]]


# ---- one class per image


def marked(random, number):
    """One of three classes, told by the first pixel alone, between two of noise."""
    image = noise(random)
    image[0, 0] = 100 * (number % 3)
    return image, "abc"[number % 3]


def seen_classes(images):
    return (images[:, 0, 0].long() + 50) // 100


def logits(classes, sure=5.0):
    return sure * torch.nn.functional.one_hot(classes, 3).float()


def bright(random, number):
    """One of three classes, told by the brightness."""
    return noise(random) // 4 + np.uint8(60 * (number % 3)), "abc"[number % 3]


def by_brightness(images):
    return (images.float().mean(dim=(1, 2)) / 60 - 0.5).round().long().clamp(0, 2)


def rare(random, number):
    """Two images of c, the others of a and b."""
    return marked(random, 2 if number in (4, 5) else number % 2)


def test_a_good_model_is_told_beside_what_knows_nothing(tmp_path):
    result = judged(tmp_path, data(marked), lambda x, sizes: logits(seen_classes(x)))
    (verdict,) = result["verdicts"]
    assert verdict["severity"] == "good"
    assert verdict["next"] == ""
    knn, constant = (
        f"{100 * result['baselines'][name]['accuracy']:.1f} % for {name}"
        for name in ("k-NN on pixels", "the most frequent class")
    )
    assert verdict["seen"].startswith("accuracy 100.0 % (95 % interval 97.0 to 100.0), against")
    assert verdict["seen"].endswith(f"against {knn} and {constant}")
    assert result["train"]["accuracy"] == 1
    assert result["train"]["samples"] == COUNTS["train"]


def test_one_class_for_everything(tmp_path):
    result = judged(tmp_path, data(marked), lambda x, sizes: logits(torch.ones(len(x)).long()))
    first, second = result["verdicts"]
    assert first["seen"] == "the model predicts b for every image"
    # photographs of 40 pixels: pre-trained weights help, and the command is a real one
    assert first["next"].startswith("start from weights: vitreous train photos --weights ")
    assert second["next"] == ""  # it is told once
    assert severities(result) == ["bad", "bad"]
    assert second["seen"].endswith("has not learned more than the most frequent class")


def test_a_class_that_is_never_predicted(tmp_path):
    def answer(x, sizes):
        return logits(seen_classes(x).clamp(max=1))

    result = judged(tmp_path, data(marked), answer)
    never, compared = result["verdicts"]
    assert severities(result) == ["warn", "warn"]  # 66.7 % are no success
    assert never["seen"] == "1 class never predicted: c (40 images)"
    assert "--class-weights auto" in never["next"]
    assert "66.7 %" in compared["seen"]
    again = judged(tmp_path, data(marked), answer, name="again", class_weights="auto")
    assert again["verdicts"][0]["next"].startswith("label more of them, or train longer: ")


def test_few_validation_images(tmp_path):
    source, steps = data(marked, val=12), [(1, 0.5), (2, 0.9), (3, 0.9)]
    lines = [{"step": step, "kind": "evaluation", "accuracy": value} for step, value in steps]
    result = judged(tmp_path, source, lambda x, s: logits(seen_classes(x)), log=lines)
    few, _ = result["verdicts"]
    assert severities(result) == ["warn", "good"]
    assert few["seen"].startswith(
        "only 12 validation images chose the weights of step 2, which may be chance: accuracy "
        "100.0 % (95 % interval 73.5 to 100.0) on them"
    )
    assert f"{tmp_path / 'run'}@last" in few["seen"]
    assert "from train to val" in few["next"]  # these have a val of their own


def test_worse_in_training(tmp_path):
    def answer(x, sizes):
        wrong = x[:, 0, 1] == SEEN_IN_TRAIN
        return logits((seen_classes(x) + wrong) % 3)

    result = judged(tmp_path, data(marked), answer)
    (worse, _) = result["verdicts"]
    assert severities(result) == ["warn", "good"]
    assert "on 60 training images is worse than 100.0 % on test" in worse["seen"]
    assert worse["next"] == "look for both: vitreous data check photos"


def test_other_data_is_compared_with_its_own_frequencies(tmp_path):
    source = data(marked)
    source.splits = {"test": source.splits["test"]}
    result = judged(tmp_path, source, lambda x, s: logits(0 * seen_classes(x)), own=False)
    assert list(result["baselines"]) == [OF_THESE]
    assert result["baselines"][OF_THESE]["accuracy"] == pytest.approx(1 / 3)
    assert severities(result)[0] == "bad"
    weights = shlex.quote(str(tmp_path / "run"))
    assert result["verdicts"][0]["next"].endswith(f"vitreous train DATA --weights {weights}")
    assert "train" not in result


OF_THESE = "the most frequent class in these images"


def test_a_correct_model_is_good_on_images_that_are_sorted_by_class(tmp_path):
    """Baselines see all of the data: the first images of it are of one class."""
    source = data(marked, test=1200)
    source.splits = {"test": sorted(source.splits["test"], key=lambda sample: sample.target)}

    def answer(x, sizes):
        return logits(torch.where(x[:, 1, 1] < 6, 0, seen_classes(x)))

    result = judged(tmp_path, source, answer, own=False)
    assert 0.95 < result["accuracy"] < 1
    assert result["baselines"][OF_THESE]["accuracy"] == pytest.approx(1 / 3)
    assert result["baselines"][OF_THESE]["samples"] == 1200
    assert severities(result) == ["good"]


def test_images_of_one_class_do_not_show_whether_a_model_is_bad(tmp_path):
    source = data(lambda random, number: marked(random, number if number < 3 else 0))
    source.splits = {"test": source.splits["test"][3:]}

    def answer(x, sizes):
        return logits(torch.where(x[:, 1, 1] < 6, 1, seen_classes(x)))

    (only,) = judged(tmp_path, source, answer, own=False)["verdicts"]
    assert only["severity"] == "warn"
    assert only["seen"].endswith(
        ": one answer is right for all of these images, so they do not show more"
    )


def test_a_model_that_finds_rare_classes_has_learned(tmp_path):
    """Its accuracy is below that of the most frequent class: balanced accuracy is far above."""

    def rare(random, number):
        return marked(random, number % 3 if number % 20 == 0 else 0)

    def answer(x, sizes):
        return logits(torch.where(x[:, 1, 1] < 50, 1, seen_classes(x)))

    result = judged(tmp_path, data(rare, test=400, train=400), answer)
    constant = result["baselines"]["the most frequent class"]
    assert result["accuracy"] < constant["accuracy"]
    assert severities(result) == ["warn"]
    seen = result["verdicts"][0]["seen"]
    assert "has not learned" not in seen
    assert "but balanced accuracy" in seen
    assert seen.endswith(f"against {100 * constant['balanced_accuracy']:.1f} %")


def test_baselines_depend_on_the_data_alone(tmp_path, monkeypatch):
    """Not on the model's image size, mean and std; and a part of the data is always the same."""

    def bright(random, number):
        return noise(random) // 2 + np.uint8(5 * (number % 3)), "abc"[number % 3]

    source, task = data(bright, train=300), task_for("class")
    found = []
    for size, mean in ((40, 0.5), (16, 0.1), (32, 0.9)):
        shape = {"patch": 8, "dim": 8, "depth": 1, "heads": 1, "classes": 3, "channels": 1}
        model = vitreous.create("vit", image_size=size, **shape)
        prepared = Preprocess(image_size=size, channels=1, mean=(mean,), std=(0.3,))
        predictor = Predictor(model, prepared, task(source.labels))
        run = Run(tmp_path / str(size))
        found.append(evaluate(run, predictor, source, "test", own=True, batch=size))
    assert found[0]["baselines"] == found[1]["baselines"] == found[2]["baselines"]
    assert 0.4 < found[0]["baselines"]["k-NN on pixels"]["accuracy"] < 1
    assert "drawn by chance" not in found[0]["verdicts"][-1]["seen"]
    monkeypatch.setattr(baselines, "MOST_IMAGES", 50)
    parts = [
        evaluate(run, predictor, source, "test", own=True, workers=workers) for workers in (0, 2)
    ]
    assert parts[0]["baselines"] == parts[1]["baselines"] != found[0]["baselines"]
    seen = " ".join(each["seen"] for each in parts[0]["verdicts"])
    assert "learned from 50 of 300 images, drawn by chance" in seen
    assert "measured on 50 of 120 images, drawn by chance" in seen
    # what needs no images takes all of them
    whole = parts[0]["baselines"]["the most frequent class"]
    assert (whole["learned_from"], whole["samples"]) == (300, 120)


def test_the_score_of_the_images_that_chose_the_weights_is_optimistic(tmp_path):
    lines = [
        {"step": step, "kind": "evaluation", "accuracy": value, "epoch": float(step)}
        for step, value in ((1, 0.5), (2, 0.9), (3, 0.9))
    ]
    source = data(marked)
    right = lambda x, s: logits(seen_classes(x))  # noqa: E731
    result = judged(tmp_path, source, right, split="val", log=lines)
    assert result["selection"] == {"split": "val", "samples": 120, "evaluations": 3}
    told, _ = result["verdicts"]
    assert told["seen"] == (
        "this score is optimistic: the same 120 validation images chose the weights, the best of 3 "
        "evaluations"
    )
    assert told["next"].endswith("recipe.toml --test-fraction 0.1")
    on_test = judged(tmp_path, source, right, log=lines, name="test")
    assert severities(on_test) == ["good"]  # that split has chosen nothing
    once = judged(tmp_path, source, right, split="val", log=lines[:1], name="once")
    assert severities(once) == ["good"]  # of one evaluation there is no best
    few = judged(tmp_path, data(marked, val=12), right, split="val", log=lines, name="few")
    assert "the same 12 validation images" in few["verdicts"][0]["seen"]
    assert "and so few choose by chance; " in few["verdicts"][0]["seen"]


# ---- several labels per image


def tagged(random, number):
    image = noise(random)
    image[0, 0] = 100 * (number % 3)
    return image, {"a", "b"} if number % 3 == 2 else {"ab"[number % 3]}


def tag_logits(images):
    classes = seen_classes(images)
    return torch.stack([classes != 1, classes != 0], dim=1).float() * 8 - 4


def test_tags(tmp_path):
    source = data(tagged)
    result = judged(tmp_path, source, lambda x, s: tag_logits(x))
    assert severities(result) == ["good"]
    assert result["verdicts"][0]["seen"].startswith("mAP 100.0 %")
    share = result["baselines"]["the labels' frequencies"]["map"]
    assert share == pytest.approx(result["map_chance"]) == pytest.approx(2 / 3)

    def nearly(x, sizes):
        return tag_logits(0 * x) + x[:, 1, :2] / 5000

    still = judged(tmp_path, source, nearly, name="still")
    assert severities(still)[0] == "bad"
    assert "nearly the same probabilities" in still["verdicts"][0]["seen"]


# ---- one class per pixel


def masked(random, number):
    """Ground, and a block of grass or water somewhere."""
    image, mask = noise(random) // 4, np.zeros((SIZE, SIZE), np.int64)
    y, x = random.integers(1, SIZE - 16, 2)
    mask[y : y + 16, x : x + 16] = 1 + number % 2
    mask[-1] = IGNORED
    return image + (60 * mask.clip(min=0)).astype(np.uint8), mask


def found_masks(images):
    return (images.float() / 60 - 0.5).round().clamp(0, 2).to(torch.int16)


def mask_answers(masks):
    return [MaskPrediction(mask, torch.ones(mask.shape).half()) for mask in masks]


@pytest.fixture(scope="module")
def masks():
    return data(masked, val=12)


def test_masks(masks, tmp_path):
    source = masks
    result = judged(tmp_path, source, lambda x, s: mask_answers(found_masks(x)))
    assert severities(result) == ["warn", "good"]
    assert "only 12 validation images" in result["verdicts"][0]["seen"]
    text = "% for the most frequent class of each position"
    assert result["verdicts"][1]["seen"].endswith(text)


# ---- boxes


def boxed(random, number):
    """One bright block, of one of two classes, somewhere."""
    image = noise(random) // 4
    top, left = random.integers(1, SIZE - 12, 2)
    tall, wide = random.integers(6, 12, 2)
    image[top : top + tall, left : left + wide] = 200 + 40 * (number % 2)
    box = [left, top, left + wide, top + tall]
    return image, {"boxes": np.array([box], np.float32), "labels": ["ab"[number % 2]]}


def prediction(boxes, labels, scores, size):
    return BoxPrediction(
        *(boxes, torch.tensor(labels), torch.tensor(scores), torch.arange(len(labels)), size)
    )


def found_boxes(image, size):
    """The block, then two boxes of nothing."""
    rows, columns = (image >= 190).nonzero().unbind(1)
    edges = torch.stack((columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)).float()
    others = torch.tensor([[0.0, 0, 9, 9], [20, 20, 30, 30]])
    label = int(image.max() >= 230)
    return prediction(torch.cat((edges[None], others)), [label, 0, 1], [0.9, 0.2, 0.1], size)


@pytest.fixture(scope="module")
def blocks():
    return data(boxed)


def test_boxes(blocks, tmp_path):
    answer = lambda x, sizes: [found_boxes(*each) for each in zip(x, sizes, strict=True)]  # noqa: E731
    result = judged(tmp_path, blocks, answer)
    assert severities(result) == ["good"]
    assert result["verdicts"][0]["seen"].startswith("AP 100.0 %")
    assert 0 < result["baselines"]["the best constant boxes"]["ap"] < 0.3
    # between the score of what is right and the next
    assert result["best_threshold"] == pytest.approx(0.55)
    assert result["f1"] == 1


@pytest.mark.parametrize("alternating", [False, True])
def test_the_same_boxes_for_every_image(blocks, tmp_path, alternating):
    """Also where now one, now the other of the same boxes is the most confident."""
    same = torch.tensor([[0.3, 0.3, 0.3, 0.3], [0.6, 0.6, 0.4, 0.4], [0.5, 0.2, 0.3, 0.3]])

    def answer(x, sizes):
        found = []
        for number, (image, size) in enumerate(zip(x, sizes, strict=True)):
            boxes = same + 0.01 * (image[1, 1].float() / 255 - 0.5)
            order = same.roll(number % 3, 0) if alternating else boxes
            found.append(prediction(clipped(order, size), [0, 1, 0], [0.6, 0.5, 0.4], size))
        return found

    result = judged(tmp_path, blocks, answer)
    assert severities(result)[0] == "bad"
    assert result["verdicts"][0]["seen"] == (
        "the detector answers the same for every image: it has learned where objects usually are, "
        "not what they look like"
    )
    assert " --weights " in result["verdicts"][0]["next"]


# ---- single findings


def hardly_different(images):
    return 0.01 * torch.randn(len(images), 3, generator=torch.Generator().manual_seed(0))


def same_map(images):
    """Not to the pixel."""
    always = torch.zeros(SIZE, SIZE, dtype=torch.int16)
    always[10:20] = 1
    return mask_answers([always.roll(int(image[1, 1]) % 2, 0) for image in images])


def hardly_found(images):
    """Some pixels are right by chance, which is not to find a class."""
    found = found_masks(images).clamp(max=1)
    found[:, 5, 5] = 2
    return mask_answers(found)


def often_the_first(images):
    return logits(torch.where(torch.arange(len(images)) % 4 > 0, by_brightness(images), 0))


def blocks_of_one_class(images):
    found = [found_boxes(image, (SIZE, SIZE)) for image in images]
    return [each._replace(labels=0 * each.labels) for each in found]


NEVER_FOUND = "1 class never found (IoU below 0.01): 2 (60 images)"
FINDINGS = {
    "probabilities that do not depend on the image": (
        *(marked, hardly_different, "bad", "nearly the same probabilities"),
    ),
    "few images of a class, missed by chance": (
        *(rare, lambda x: logits(seen_classes(x).clamp(max=1)), "good", "accuracy"),
    ),
    "k-NN on pixels is better": (bright, often_the_first, "warn", ": k-NN on pixels is better"),
    "pixels tell images apart, which is no fault of the model": (
        *(bright, lambda x: logits(by_brightness(x)), "good"),
        "against 33.3 % for the most frequent class; 100.0 % for k-NN on pixels, too: these images "
        "can be told apart by their pixels",
    ),
    "the same map for every image": (masked, same_map, "bad", "the same map for every image"),
    "one class of pixels": (
        *(masked, lambda x: mask_answers(0 * found_masks(x)), "bad", "the model predicts only 0"),
    ),
    "a class of pixels that is never predicted": (
        *(masked, lambda x: mask_answers(found_masks(x).clamp(max=1)), "warn", NEVER_FOUND),
    ),
    "a class of pixels that is hardly found": (masked, hardly_found, "warn", NEVER_FOUND),
    "a class of objects that is never predicted": (
        *(boxed, blocks_of_one_class, "warn", "1 class never predicted: b (60 objects)"),
    ),
}


@pytest.mark.parametrize("what", FINDINGS)
def test_a_finding(tmp_path, what):
    make, answer, severity, words = FINDINGS[what]
    result = judged(tmp_path, data(make), lambda x, sizes: answer(x))
    assert severities(result)[0] == severity
    (told,) = [each for each in result["verdicts"] if words in each["seen"]]
    assert told["severity"] == severity
    if severity == "good":
        assert (len(result["verdicts"]), told["next"]) == (1, "")


# ---- what to do next, and where it is told


def test_every_next_step_is_a_command_that_exists(tmp_path):
    source = data(marked, val=12)
    answers = [
        lambda x, s: logits(seen_classes(x).clamp(max=1)),
        lambda x, s: logits(0 * seen_classes(x)),
        lambda x, s: logits((seen_classes(x) + (x[:, 0, 1] == SEEN_IN_TRAIN)) % 3),
    ]
    weighted = ({"weights": "w.safetensors"}, {})
    commands = set()
    for number, (answer, given) in enumerate(itertools.product(answers, weighted)):
        result = judged(tmp_path, source, answer, name=str(number), **given)
        for verdict in result["verdicts"]:
            commands |= {text.split(", or ")[0] for text in verdict["next"].split("vitreous ")[1:]}
    assert len(commands) > 5
    for command in commands:
        verb, *words = shlex.split(command.rstrip(","))
        if verb == "data":
            assert words == ["check", "photos"]
            continue
        assert verb == "train"
        known = {f"--{name.replace('_', '-')}" for name in options()}
        assert known.issuperset(word for word in words if word.startswith("--")), command


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "photos",
            {
                "hold out": "hold out more: vitreous train --recipe RUN/recipe.toml "
                "--val-fraction 0.3",
                "balance": "let rare classes count more: vitreous train --recipe RUN/recipe.toml "
                "--class-weights auto",
                "learn": "train longer: vitreous train --resume --out RUN --epochs 8, or look for "
                "a better learning rate: vitreous train --recipe RUN/recipe.toml --lr-find",
            },
        ),
        (
            FROM_PYTHON,
            {
                "data": "look for both: vitreous.check_data(data)",
                "hold out": "hold out more: vitreous.train(data, recipe='RUN/recipe.toml', "
                "val_fraction=0.3)",
                "learn": "train longer: vitreous.train(data, out='RUN', resume=True, epochs=8), or "
                "look for a better learning rate: vitreous.find_lr(data, recipe='RUN/recipe.toml')",
            },
        ),
    ],
)
def test_next_steps(tmp_path, name, expected):
    """With weights to start from already, and a val that was held out; also for Python's data."""
    run = Run(tmp_path)
    recipe = Recipe(data=name, epochs=4, weights="w.safetensors")
    run.write_text("recipe.toml", write_recipe(recipe))
    source = from_python([marked(np.random.default_rng(0), n) for n in range(30)], val_fraction=0.1)
    remedies = Remedies(run, task_for("class")(source.labels), source)
    found = {remedy: remedies.next(remedy) for remedy in expected}
    assert {k: v.replace(str(tmp_path), "RUN") for k, v in found.items()} == expected


@pytest.mark.parametrize(
    ("values", "flat"),
    [
        ([0.1, 0.5, 0.6, 0.6, 0.6, 0.6, 0.5, 0.6, 0.6], True),  # the best is the third
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], False),
        ([0.6, 0.1, 0.1], False),  # too few to know
    ],
)
def test_longer_training_is_advised_where_the_curve_rises(tmp_path, values, flat):
    run = Run(tmp_path)
    for number, value in enumerate(values, start=1):
        run.log(step=10 * number, kind="evaluation", epoch=float(number), accuracy=value)
    run.write_text("recipe.toml", write_recipe(Recipe(data="photos", epochs=9, weights="w.npz")))
    source = from_python([marked(np.random.default_rng(0), n) for n in range(30)], val_fraction=0.1)
    remedies = Remedies(run, task_for("class")(source.labels), source)
    found = remedies.next("longer" if remedies.still_rising else "learn")
    assert found.startswith(
        "nothing was gained behind epoch 3 of 9: add images, or " if flat else "train longer: "
    )
    assert "--lr-find" in remedies.next("learn")
    assert bool(remedies.still_rising) == (values[-1] == max(values) and not flat)


CURVES = {
    "flattens": ([0.2, 0.4, 0.45, 0.48, 0.49, 0.492], False),
    "rises": ([0.31, 0.38, 0.45, 0.45, 0.46, 0.46, 0.47, 0.48], True),
    "rises, with few evaluations": ([0.3, 0.5], True),
    "one evaluation": ([0.3], False),
    "was better before": ([0.5, 0.3, 0.4, 0.45], False),
    "is nearly perfect": ([0.95, 0.985, 0.99, 0.994], False),
}


@pytest.mark.parametrize("curve", CURVES)
def test_a_curve_that_rises_at_the_end_is_told_before_other_advice(masks, tmp_path, curve):
    """A run that was too short needs no class weights yet."""
    values, rises = CURVES[curve]
    lines = [
        {"step": 10 * number, "kind": "evaluation", "epoch": float(number), "miou": value}
        for number, value in enumerate(values, start=1)
    ]
    answer = lambda x, s: mask_answers(found_masks(x).clamp(max=1))  # noqa: E731
    verdicts = judged(tmp_path, masks, answer, log=lines, weights="w.npz")["verdicts"]
    balance = next(each["next"] for each in verdicts if "never found" in each["seen"])
    run = tmp_path / "run"
    weights = f"let rare classes count more: vitreous train --recipe {run}/recipe.toml"
    if not rises:
        assert not any("still rising" in each["seen"] for each in verdicts)
        assert balance.startswith(weights)
        return
    seen = f"mean IoU on val was still rising when training ended: {100 * values[-2]:.1f}"
    if len(values) == 2:
        assert verdicts[0]["seen"].startswith(f"{seen} % by epoch 1, 50.0 % by epoch 2")
    assert "still rising" in verdicts[0]["seen"]
    assert verdicts[0]["next"] == f"train longer: vitreous train --resume --out {run} --epochs 6"
    assert balance.startswith(f"if longer training does not help, {weights}")
    other = judged(tmp_path, masks, answer, log=lines, name="other", own=False)["verdicts"]
    assert not any("still rising" in each["seen"] for each in other)


def test_a_run_that_was_made_for_a_time_is_made_longer_by_time(tmp_path):
    run = Run(tmp_path)
    run.write_text("recipe.toml", write_recipe(Recipe(data="photos", time="30m", weights="w.npz")))
    source = from_python([marked(np.random.default_rng(0), n) for n in range(30)], val_fraction=0.1)
    found = Remedies(run, task_for("class")(source.labels), source).next("longer")
    assert found == f"train longer: vitreous train --resume --out {tmp_path} --time 60m"


def test_a_loss_that_still_falls(tmp_path):
    """Of tasks whose metric is better when it is lower, too."""
    run = Run(tmp_path)
    for number, value in enumerate((0.9, 0.8, 0.7), start=1):
        run.log(step=number, kind="evaluation", epoch=float(number), loss=value)
    (found,) = Curve(run, task_class("mae").metric).still_rising
    assert "was still falling when training ended: 0.8 by epoch 2, 0.7 by epoch 3" in found.seen


def options():
    return [each.name for each in (*fields(Recipe), *fields(TrainArguments))]


def test_training_and_evaluation_tell_it(tmp_path, capsys):
    out = tmp_path / "run"
    words = ["train", str(class_folder()), *CLASSIFY, "--epochs=1", "--out", str(out)]
    result = json.loads(printed(*words, "--json"))
    assert result["run"] == str(out)
    assert result["intervals"]["accuracy"][0] <= result["accuracy"]
    kept = json.loads((out / "verdict.json").read_text())
    assert (kept["split"], kept["samples"]) == ("test", 20)
    for name in ("verdicts", "intervals", "baselines", "train"):
        assert result[name] == kept[name]
    page = (out / "report.html").read_text()
    assert page.index(kept["verdicts"][0]["seen"]) < page.index('class="headline"')
    assert "k-NN on pixels: 100.00 %" in page[page.index('class="headline"') :]
    assert main(["evaluate", str(out)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told[1:3]] == severities(kept)[:2]
    assert any("only 20 validation images" in line for line in told)
    accuracy = next(line for line in told if line.strip().startswith("accuracy  "))
    assert all(name in accuracy for name in ("k-NN on pixels 1.", "the most frequent class 0.25"))


def test_a_test_split_is_held_out_for_good(tmp_path, capsys):
    """It is measured after training and later, and a run that is resumed keeps it."""
    out, folder = tmp_path / "run", class_folder() / "train"  # which has no splits of its own
    words = [str(folder), *CLASSIFY, "--test-fraction=0.2", "--epochs=2", "--out", str(out)]
    with undrawn():
        result = json.loads(printed("train", *words, "--json"))
    assert (result["split"], result["samples"]) == ("test", 32)
    assert result["selection"] == {"split": "val", "samples": 12, "evaluations": 2}
    kept = json.loads((out / "verdict.json").read_text())
    assert kept["selection"] == result["selection"]
    assert "test_fraction = 0.2" in (out / "recipe.toml").read_text()
    again = json.loads(printed("evaluate", out, "--json"))
    assert {name: again[name] for name in result.keys() & again.keys()} == {
        name: result[name] for name in result.keys() & again.keys()
    }
    resume = ["train", "--resume", "--out", str(out), "--epochs=3"]
    assert main([*resume, "--test-fraction=0.1"]) == 2
    assert "test_fraction = 0.1, but the run to resume has 0.2" in capsys.readouterr().err
    with undrawn():
        assert main([*resume, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["baselines"] == result["baselines"]


def test_without_a_test_split_the_score_is_told_to_be_optimistic(tmp_path):
    out, folder = tmp_path / "run", class_folder() / "train"
    told = printed("train", folder, *CLASSIFY, "--epochs=2", "--out", out)
    assert "on val (16 images)" in told.splitlines()[0]
    sentence = "this score is optimistic: the same 16 validation images chose the weights, the best"
    assert sentence in told
    assert sentence in (out / "report.html").read_text()
    assert sentence in (out / "verdict.json").read_text()


def test_other_data_is_called_by_its_path(capsys):
    folder = class_folder()
    assert main(["evaluate", str(teacher()), str(folder / "test")]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"{folder / 'test'}: 20 images"
    assert not any("train" in line.split("vitreous train")[0] for line in told)


def test_the_most_frequent_class_is_the_same_for_training_and_for_vectors(capsys):
    trained = json.loads((teacher() / "verdict.json").read_text())
    assert main(["embed", str(teacher()), str(class_folder()), "--knn", "--json"]) == 0
    embedded = json.loads(capsys.readouterr().out)["knn"]
    constant = trained["baselines"]["the most frequent class"]["accuracy"]
    assert embedded["majority_accuracy"] == constant
