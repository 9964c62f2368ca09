"""Several labels per image: scikit-learn's metrics, thresholds chosen on val, and the way from a
table to a page."""

import csv
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn import metrics as sk

import vitreous
from vitreous.cli.main import main
from vitreous.data.formats import open_source
from vitreous.errors import ConfigError, DataError
from vitreous.labels import IGNORED, LabelMap
from vitreous.layers.head import DistilledOutput
from vitreous.run_folder import Run
from vitreous.tasks.data_check import check
from vitreous.tasks.tag.task import Tag, best_threshold, best_thresholds

LABELS = LabelMap.of_names(["blue", "green", "red"])


def predictions(seed, n=80, classes=3):
    generator = torch.Generator().manual_seed(seed)
    targets = (torch.rand(n, classes, generator=generator) < 0.3).float()
    return torch.randn(n, classes, generator=generator) + 1.5 * targets - 1, targets


def measured(logits, targets, **options):
    metrics = Tag(LABELS, **options).metrics()
    metrics.update(logits, targets)
    return metrics.compute(metrics.counts())


def test_numbers_are_scikit_learns():
    logits, targets = predictions(0)
    thresholds = [0.3, 0.5, 0.7]
    result = measured(logits, targets, thresholds=thresholds)
    scores, truth = logits.sigmoid().numpy(), targets.numpy()
    predicted = scores >= np.array(thresholds, dtype=np.float32)
    assert result["map"] == pytest.approx(sk.average_precision_score(truth, scores))
    assert result["f1"] == pytest.approx(sk.f1_score(truth, predicted, average="macro"))
    assert result["micro_f1"] == pytest.approx(sk.f1_score(truth, predicted, average="micro"))
    assert result["exact_match"] == pytest.approx(sk.accuracy_score(truth, predicted))
    assert result["map_chance"] == pytest.approx(truth.mean())
    assert result["loss"] == pytest.approx(
        F.binary_cross_entropy_with_logits(logits, targets).item(), rel=1e-6
    )
    precision, recall, f1, support = sk.precision_recall_fscore_support(truth, predicted)
    for i, row in enumerate(result["classes"].values()):
        assert row["precision"] == pytest.approx(precision[i])
        assert row["recall"] == pytest.approx(recall[i])
        assert row["f1"] == pytest.approx(f1[i])
        assert (row["samples"], row["threshold"]) == (support[i], pytest.approx(thresholds[i]))


def test_a_label_that_no_image_has_says_nothing():
    logits, targets = predictions(1)
    targets[:, 1] = 0
    result = measured(logits, targets)
    assert result["classes"]["green"]["ap"] is None
    assert result["curves"]["precision"]["green"] is None
    others = sk.average_precision_score(targets[:, ::2], logits.sigmoid()[:, ::2])
    assert result["map"] == pytest.approx(others)


def test_labels_that_other_data_does_not_have_are_not_measured():
    task = Tag(LABELS)
    logits, targets = predictions(2)
    renamed = task.renamed(targets[:, :2], [2, 0])  # the data has red and blue
    assert (renamed[:, 1] == IGNORED).all()
    assert torch.equal(renamed[:, [2, 0]], targets[:, :2])
    result = measured(logits, renamed)
    assert result["classes"]["green"]["ap"] is None
    assert result["classes"]["red"]["ap"] == pytest.approx(
        sk.average_precision_score(targets[:, 0], logits[:, 2])
    )
    known = logits.sigmoid()[:, [2, 0]] >= 0.5
    assert result["exact_match"] == pytest.approx(
        sk.accuracy_score(targets[:, :2].numpy(), known.numpy())
    )


@given(st.integers(0, 500))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_best_threshold_is_the_best_of_all(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(30, generator=generator).mul(10).round() / 10  # with equal ones
    truth = torch.rand(30, generator=generator) < scores
    if not truth.any():
        return
    chosen = best_threshold(scores, truth)

    def f1(threshold):
        predicted = scores >= threshold
        return 2 * (predicted & truth).sum().item() / (predicted.sum() + truth.sum()).item()

    assert f1(chosen) == pytest.approx(max(map(f1, np.linspace(0, 1, 41))))


def test_rare_labels_share_a_threshold():
    logits, targets = predictions(3)
    targets[:, 2] = 0
    targets[:4, 2] = 1  # four images: too few for a threshold of its own
    scores, truth = logits.sigmoid(), targets.bool()
    chosen = best_thresholds(scores, truth, torch.ones_like(truth))
    assert chosen[2] == best_threshold(scores.flatten(), truth.flatten())
    assert chosen[0] == best_threshold(scores[:, 0], truth[:, 0])
    assert best_thresholds(scores, torch.zeros_like(truth), torch.ones_like(truth)) == [0.5] * 3


def test_loss_is_the_binary_cross_entropy():
    logits, targets = predictions(4, 6)
    expected = F.binary_cross_entropy_with_logits(logits, targets)
    assert torch.allclose(Tag(LABELS).loss(logits, targets)["loss"], expected)
    smooth = Tag(LABELS, smoothing=0.2).loss(logits, targets)["loss"]
    assert torch.allclose(smooth, F.binary_cross_entropy_with_logits(logits, 0.1 + 0.8 * targets))
    both = Tag(LABELS).loss(DistilledOutput(logits, 2 * logits), targets)["loss"]
    other = F.binary_cross_entropy_with_logits(2 * logits, targets)
    assert torch.allclose(both, (expected + other) / 2)
    mixed = Tag.truth.mix(targets[0], targets[1], 0.25)
    assert torch.allclose(mixed, 0.25 * targets[0] + 0.75 * targets[1])


# ---- from a table to a page

COLOURS = {"red": (220, 40, 40), "green": (40, 200, 60), "blue": (50, 60, 220)}
FIELDS = ("patch=4", "dim=32", "depth=2", "heads=2")
TRAIN = (
    *("--model=vit", *(f"--set={field}" for field in FIELDS), "--image-size=8"),
    *("--epochs=25", "--batch=32", "--lr=0.01", "--crop=none"),
)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Images of four squares, each black or in one of three colours: which colours are there?"""
    folder = tmp_path_factory.mktemp("colours")
    generator = np.random.default_rng(0)
    rows = []
    for number in range(240):
        image = np.full((8, 8, 3), 20, np.uint8)
        found = set()
        for corner in range(4):
            name = [*COLOURS, ""][generator.integers(4)]
            y, x = 4 * (corner // 2), 4 * (corner % 2)
            image[y : y + 4, x : x + 4] = COLOURS.get(name, (20, 20, 20))
            found |= {name} - {""}
        noise = generator.integers(-15, 16, image.shape)
        Image.fromarray(np.clip(image + noise, 0, 255).astype(np.uint8)).save(
            folder / f"{number}.png"
        )
        split = ("train", "train", "train", "val", "test")[number % 5]
        rows.append((f"{number}.png", ";".join(sorted(found)), split))
    path = folder / "table.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("path", "labels", "split"), *rows])
    return path


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "colours"
    assert main(["train", str(table), *TRAIN, "--out", str(out)]) == 0
    return out


def test_a_table_is_learned_and_evaluated(run, printed):
    result = json.loads(printed("evaluate", run, "--json"))
    assert result["split"] == "test"
    # what knows nothing reaches the labels' share of images; the colours are easy to see
    assert result["map"] > 0.9 > result["map_chance"] + 0.2
    stored = Run(run).read_config().decoding["thresholds"]
    used = [row["threshold"] for row in result["classes"].values()]
    assert used == pytest.approx(stored)
    assert stored != [0.5] * 3
    page = (run / "report.html").read_text()
    for heading in ("Precision and recall", "Labels, the hardest first"):
        assert f"<h2>{heading}</h2>" in page
    printed("evaluate", run, "--figures", run / "figures")
    assert {path.name for path in (run / "figures").iterdir()} == {"classes.png", "precision.png"}


def test_predict_uses_the_stored_thresholds(run, table, printed):
    predictor = vitreous.load(run)
    image = table.parent / "4.png"
    found = predictor(image)
    stored = dict(zip(predictor.labels, Run(run).read_config().decoding["thresholds"], strict=True))
    assert set(found.labels) == {
        name for name, score in found.scores.items() if score >= stored[name] - 1e-6
    }
    assert set(found.above(0).labels) == set(COLOURS)
    assert found.above(1).labels == ()
    with pytest.raises(ConfigError, match=r"2.*0 to 1"):
        found.above(2)
    record = json.loads(printed("predict", run, image, "--json"))
    assert [row["label"] for row in record["labels"]] == list(found.labels)
    text = printed("predict", run, image, "--threshold=0")
    assert all(name in text for name in COLOURS)


def test_explain_draws_a_map_for_each_label(run, table, tmp_path, printed):
    image = table.parent / "4.png"
    found = vitreous.load(run).explain(image, ["red", "blue"])
    assert set(found.class_maps) == {"red", "blue"}
    printed("explain", run, image, "--out", tmp_path)
    names = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert {"maps.png", "heads.png", "look.html"} <= names


def test_resumed_runs_keep_their_thresholds(run, printed):
    before = Run(run).read_config().decoding
    printed("train", "--resume", "--out", run)
    assert Run(run).read_config().decoding == before


def test_a_dry_run_shows_the_labels(table, tmp_path, printed):
    out = tmp_path / "never"
    printed("train", table, *TRAIN, "--set-recipe=mixup=0.2", "--dry-run", "--out", out)
    assert (tmp_path / "never-first-batch.png").exists()
    assert not out.exists()


def test_data_check_counts_labels(table, tmp_path):
    report = check(open_source(table))
    assert report.truth.without_label == sum(
        line.split(",")[1] == "" for line in table.read_text().splitlines()[1:]
    )
    assert report.truth.labels_per_image == pytest.approx(
        sum(sum(counts.values()) for counts in report.truth.classes.values()) / 240
    )
    assert not report.fatal
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    Image.new("RGB", (8, 8), "red").save(tmp_path / "b.png")
    odd = tmp_path / "odd.csv"
    odd.write_text("path,labels\na.png,x;y\nb.png,x\n")
    problems = [problem.what for problem in check(open_source(odd, val_fraction=0)).problems]
    assert any("'y'" in what and "1 image" in what for what in problems)
    assert any("'x'" in what and "every image" in what for what in problems)


def test_what_cannot_be_learned_is_refused(table, tmp_path, refused):
    for number in range(4):
        Image.new("RGB", (8, 8), (number * 60, 0, 0)).save(tmp_path / f"{number}.png")
    path = tmp_path / "t.csv"
    rows = "".join(f"{n}.png,always{';some' if n % 2 else ''}\n" for n in range(4))
    path.write_text("path,labels\n" + rows)
    with pytest.raises(DataError, match=r"'always'.*every image"):
        Tag.check_trainable(open_source(path, val_fraction=0))
    words = ("train", table, "--set-recipe=sampler=balanced", "--out", tmp_path / "run")
    assert "sampler" in refused(*words)


@pytest.mark.parametrize(
    "decoding", [{"thresholds": [0.5]}, {"thresholds": [0.5, 2, 0.1]}, {"other": 1}]
)
def test_thresholds_that_do_not_fit_are_refused(decoding):
    with pytest.raises(ConfigError):
        Tag.restored(LABELS, decoding)
