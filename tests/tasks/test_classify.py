"""The metrics are scikit-learn's; the losses are their formulas."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn import metrics as sk

from vitreous.labels import LabelMap
from vitreous.layers.head import DistilledOutput
from vitreous.tasks.classify.task import Classify, Mixed


def predictions(seed, n=200, classes=7):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, classes, generator=generator)
    targets = torch.randint(classes, (n,), generator=generator)
    logits[torch.arange(n), targets] += 1.0
    return logits, targets


def measured(logits, targets, classes=7):
    metrics = Classify(LabelMap.of_ids(range(classes))).metrics()
    metrics.update(logits, targets)
    return metrics.compute(metrics.counts())


def test_numbers_are_scikit_learns():
    logits, targets = predictions(0)
    result = measured(logits, targets)
    said, truth = logits.argmax(1).numpy(), targets.numpy()
    probability = logits.softmax(1).numpy()
    assert result["accuracy"] == pytest.approx(sk.accuracy_score(truth, said))
    assert result["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(truth, said))
    assert result["f1"] == pytest.approx(sk.f1_score(truth, said, average="macro"))
    assert result["top5"] == pytest.approx(sk.top_k_accuracy_score(truth, probability, k=5))
    assert result["loss"] == pytest.approx(sk.log_loss(truth, probability), rel=1e-5)
    assert np.array_equal(result["confusion"], sk.confusion_matrix(truth, said))
    precision, recall, _, support = sk.precision_recall_fscore_support(truth, said)
    for i, row in enumerate(result["classes"].values()):
        assert row["precision"] == pytest.approx(precision[i])
        assert row["recall"] == pytest.approx(recall[i])
        assert row["samples"] == support[i]


def test_perfect_and_missing_classes():
    targets = torch.tensor([0, 0, 2, 2])
    result = measured(F.one_hot(targets, 3).float() * 50, targets, classes=3)
    assert result["accuracy"] == result["f1"] == result["balanced_accuracy"] == 1.0
    assert result["classes"]["1"]["samples"] == 0
    assert result["classes"]["1"]["f1"] is None
    assert result["calibration_error"] == pytest.approx(0, abs=1e-6)


def plain(targets):
    return Mixed(targets, targets, torch.ones(len(targets)))


def test_mixed_labels_are_the_mean_of_both_losses():
    logits, targets = predictions(1, 8)
    other, share = targets.roll(1), torch.linspace(0, 1, 8)
    task = Classify(LabelMap.of_ids(range(7)), smoothing=0.1)
    loss = task.loss(logits, Mixed(targets, other, share))["loss"]
    both = [
        F.cross_entropy(logits, t, reduction="none", label_smoothing=0.1) for t in (targets, other)
    ]
    assert torch.allclose(loss, (share * both[0] + (1 - share) * both[1]).mean())
    assert torch.allclose(
        task.loss(logits, plain(targets))["loss"],
        F.cross_entropy(logits, targets, label_smoothing=0.1),
    )


def test_class_weights_do_not_depend_on_the_batch():
    """A weighted loss over a batch is the mean over its halves, as several processes need it."""
    logits, targets = predictions(2, 16)
    weights = torch.linspace(0.5, 2, 7)
    task = Classify(LabelMap.of_ids(range(7)), class_weights=weights)
    whole = task.loss(logits, plain(targets))["loss"]
    halves = [
        task.loss(a, plain(b))["loss"]
        for a, b in zip(logits.split(8), targets.split(8), strict=True)
    ]
    assert torch.allclose(whole, sum(halves) / 2)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_distillation_is_deits(kind):
    logits, targets = predictions(3, 8)
    taught, teacher = predictions(4, 8)[0], predictions(5, 8)[0]
    task = Classify(LabelMap.of_ids(range(7)), distill=kind, temperature=3.0)
    terms = task.loss(DistilledOutput(logits, taught), plain(targets), teacher=teacher)
    assert torch.allclose(terms["loss"], F.cross_entropy(logits, targets) / 2)
    if kind == "hard":
        expected = F.cross_entropy(taught, teacher.argmax(1)) / 2
    else:
        p, q = (teacher / 3).softmax(1), (taught / 3).softmax(1)
        expected = (p * (p / q).log()).sum(1).mean() * 9 / 2
    assert torch.allclose(terms["distillation"], expected, atol=1e-6)


def test_decode_gives_the_datas_own_ids():
    labels = LabelMap(("cat", "dog", "eel"), (10, 7, 99))
    (result,) = Classify(labels).decode(torch.tensor([[0.0, 2.0, 1.0]]), ["a.png"])
    assert (result.label, result.id, result.image) == ("dog", 7, "a.png")
    assert list(result.scores) == ["dog", "eel", "cat"]
    assert sum(result.scores.values()) == pytest.approx(1)
