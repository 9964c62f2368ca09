"""Differences beyond chance, against scipy, sklearn and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from vitreous.labels import LabelMap
from vitreous.study.statistics import Difference, difference, holm, kappa, mcnemar, paired_bootstrap
from vitreous.tasks.classify.task import Classify

LABELS = LabelMap.of_names(("a", "b", "c"))


@pytest.mark.parametrize("count", [2, 3, 10])
def test_a_difference_over_seeds_is_scipys_paired_t_test(count):
    random = np.random.default_rng(count)
    a, b = random.normal(0.8, 0.1, count), random.normal(0.7, 0.1, count)
    expected = stats.ttest_rel(a, b)
    found, limits = difference(a, b), expected.confidence_interval(0.95)
    assert found.mean == pytest.approx((a - b).mean())
    assert (found.low, found.high) == pytest.approx((limits.low, limits.high))
    assert found.p == pytest.approx(expected.pvalue)
    assert found.beyond_chance == (expected.pvalue < 0.05)


def test_a_difference_turns_around_with_its_sides():
    a, b = [0.9, 0.8, 0.85], [0.7, 0.75, 0.6]
    one, other = difference(a, b), difference(b, a)
    assert (one.mean, one.low, one.high, one.p) == pytest.approx(
        (-other.mean, -other.high, -other.low, other.p)
    )


def test_one_seed_says_nothing_about_chance():
    found = difference([0.9], [0.1])
    assert found == Difference(0.8, -math.inf, math.inf, 1.0)
    assert not found.beyond_chance


def test_equal_values_do_not_differ_and_a_constant_difference_does():
    assert not difference([0.5, 0.6], [0.5, 0.6]).beyond_chance
    assert difference([3.0, 4.0], [1.0, 2.0]) == Difference(2.0, 2.0, 2.0, 0.0)


@pytest.mark.parametrize("values", [([], []), ([1.0], [1.0, 2.0])])
def test_values_that_are_no_pairs_are_an_error(values):
    with pytest.raises(ValueError, match="equal length"):
        difference(*values)


def seen(predicted, targets):
    """The metrics of a classifier that predicts these classes."""
    metrics = Classify(LABELS).metrics()
    metrics.update(torch.nn.functional.one_hot(torch.tensor(predicted), 3).float(), targets)
    return metrics


def test_the_bootstrap_draws_the_same_images_for_both_models():
    """Against a loop over draws, image by image; and about as scipy's bootstrap has it."""
    random = np.random.default_rng(3)
    targets = torch.from_numpy(random.integers(3, size=120))
    a, b = (
        np.where(random.random(120) < right, targets.numpy(), (targets.numpy() + 1) % 3)
        for right in (0.9, 0.7)
    )
    found = paired_bootstrap(seen(a, targets), seen(b, targets), "accuracy")
    apart = (a == targets.numpy()).astype(float) - (b == targets.numpy())
    same = np.random.default_rng(0)
    drawn = [apart[same.integers(120, size=120)].mean() for _ in range(1000)]
    assert found.mean == pytest.approx(apart.mean())
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))
    theirs = stats.bootstrap(
        (apart,), np.mean, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.02)
    assert found.beyond_chance
    assert found.p < 0.05


def test_a_model_does_not_differ_from_itself():
    targets = torch.arange(30) % 3
    same = [seen((targets.numpy() + (np.arange(30) < 5)) % 3, targets) for _ in range(2)]
    assert paired_bootstrap(*same, "accuracy") == Difference(0.0, 0.0, 0.0, 1.0)


def test_without_single_images_there_is_no_bootstrap():
    class Silent(type(seen([0], torch.tensor([0])))):
        def resampled(self):
            return iter(())

    metrics = [Silent(LABELS), Silent(LABELS)]
    for each in metrics:
        each.update(torch.eye(3), torch.arange(3))
    assert paired_bootstrap(*metrics, "accuracy") is None


@pytest.mark.parametrize(("a", "b"), [(0, 0), (0, 5), (1, 6), (7, 7), (30, 12), (400, 460)])
def test_mcnemar_is_scipys_binomial_test_and_every_way_to_fall(a, b):
    p = mcnemar(a, b)
    assert p == pytest.approx(stats.binomtest(a, a + b).pvalue if a + b else 1.0)
    if 0 < a + b <= 14:
        ways = [sum(coins) for coins in itertools.product((0, 1), repeat=a + b)]
        far = sum(abs(way - (a + b) / 2) >= abs(a - b) / 2 for way in ways)
        assert p == pytest.approx(far / len(ways))


def test_holm_corrects_each_of_several_comparisons():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.7, 0.6]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


def test_holm_keeps_the_rate_of_false_alarms():
    """Of five comparisons without any difference, at most one in twenty sets has a false alarm."""
    sets = np.random.default_rng(0).random((2000, 5))
    alarms = np.mean([min(holm(each)) <= 0.05 for each in sets])
    assert alarms == pytest.approx(0.05, abs=0.015)


def test_kappa_is_sklearns():
    random = np.random.default_rng(5)
    a = random.integers(4, size=200)
    b = np.where(random.random(200) < 0.6, a, random.integers(4, size=200))
    assert kappa(a.tolist(), b.tolist()) == pytest.approx(cohen_kappa_score(a, b))
    assert kappa(["x", "y"], ["x", "y"]) == 1.0
    assert kappa(["x", "x"], ["x", "x"]) is None
    with pytest.raises(ValueError, match="equal length"):
        kappa([], [])
