"""Rules over numbers that are made up: when a claim holds, fails, or stays open."""

import pytest
from scipy import stats
from study.small_study import SMALL

from vitreous.study.numbers import Numbers, Point
from vitreous.study.read import parse_study
from vitreous.study.verdict import concluded, judged
from vitreous.tasks.metric import Metric

ACCURACY = Metric("accuracy")
ERROR = Metric("error", range=(0, float("inf")), lower_is_better=True, unit="kg")


def points(variant, *by_value, name="accuracy", values=(None,)):
    return [
        Point(variant, value, numbers={name: dict(enumerate(seeds))})
        for value, seeds in zip(values, by_value, strict=True)
    ]


def ruled(rule, *given, metric=ACCURACY, over=""):
    text = SMALL.partition("[[expect]]")[0] + f"[[expect]]\n{rule}\n{over}"
    made = Numbers(parse_study(text).at_tier("standard"), metric, (), [p for g in given for p in g])
    (ruling,) = judged(made)
    return ruling


PLAIN = points("plain", (0.70, 0.71, 0.69))


@pytest.mark.parametrize(
    ("wide", "outcome"),
    [
        ((0.80, 0.82, 0.81), "holds"),
        ((0.60, 0.62, 0.61), "fails"),
        ((0.70, 0.90, 0.60), "undecided"),
    ],
)
def test_better_holds_where_the_whole_interval_does(wide, outcome):
    ruling = ruled('better = "wide"\nthan = "plain"', PLAIN, points("wide", wide))
    assert ruling.outcome == outcome
    limits = stats.ttest_rel(wide, (0.70, 0.71, 0.69)).confidence_interval(0.95)
    assert f"{100 * abs(limits.high):.1f}" in ruling.seen


def test_of_an_error_the_smaller_is_better():
    light = points("wide", (1.0, 1.1, 0.9), name="error")
    heavy = points("plain", (2.0, 2.1, 1.9), name="error")
    ruling = ruled('better = "wide"\nthan = "plain"', heavy, light, metric=ERROR)
    assert ruling.outcome == "holds"
    assert "kg" in ruling.seen


def test_a_margin_counts():
    wide = points("wide", (0.72, 0.73, 0.71))
    assert ruled('better = "wide"\nthan = "plain"', PLAIN, wide).outcome == "holds"
    assert ruled('better = "wide"\nthan = "plain"\nby = 5.0', PLAIN, wide).outcome == "fails"
    assert ruled('better = "plain"\nthan = "wide"\nby = -5.0', PLAIN, wide).outcome == "holds"


@pytest.mark.parametrize(
    ("wide", "outcome"),
    [
        ((0.70, 0.711, 0.691), "holds"),
        ((0.80, 0.811, 0.791), "fails"),
        ((0.70, 0.75, 0.66), "undecided"),
    ],
)
def test_close_is_an_equivalence_not_a_missing_difference(wide, outcome):
    rule = 'close = ["plain", "wide"]\nwithin = 2.0'
    assert ruled(rule, PLAIN, points("wide", wide)).outcome == outcome


@pytest.mark.parametrize(
    ("last", "along", "outcome"),
    [
        ((0.90, 0.91, 0.92), "turns", "holds"),
        ((0.60, 0.61, 0.62), "turns", "fails"),
        ((0.69, 0.70, 0.71), "shrinks", "holds"),
        ((0.30, 0.31, 0.32), "shrinks", "fails"),
        ((0.30, 0.31, 0.32), "grows", "holds"),
    ],
)
def test_a_gap_moves_along_the_axis(last, along, outcome):
    values = (0.1, 1.0)
    plain = points("plain", (0.70, 0.71, 0.72), (0.70, 0.71, 0.72), values=values)
    wide = points("wide", (0.50, 0.51, 0.52), last, values=values)
    rule = f'gap = ["wide", "plain"]\nalong = "{along}"'
    over = "[over]\nfraction = [0.1, 1.0]\n"
    assert ruled(rule, plain, wide, over=over).outcome == outcome


def test_what_depends_on_no_chance_is_exact_with_one_seed():
    both = [
        Point("plain", 4, numbers={"flops": {0: 1.0}}),
        Point("plain", 2, numbers={"flops": {0: 4.0}}),
    ]
    ruling = ruled('rises = "plain"\non = "flops"', both, over="[over]\npatch = [4, 2]\n")
    assert ruling.outcome == "holds"
    assert "+3.0" in ruling.seen


def test_one_seed_is_judged_by_other_draws_of_the_images_and_without_them_not_at_all():
    def one(variant, value):
        spread = [value + 0.001 * (i % 10 - 5) for i in range(1000)]
        return [Point(variant, numbers={"accuracy": {0: value}}, draws={"accuracy": {0: spread}})]

    rule = 'better = "wide"\nthan = "plain"'
    assert ruled(rule, one("plain", 0.7), one("wide", 0.8)).outcome == "holds"
    bare = [points(name, (value,)) for name, value in (("plain", 0.7), ("wide", 0.8))]
    ruling = ruled(rule, *bare)
    assert ruling.outcome == "undecided"
    assert "chance" in ruling.seen


def test_what_was_not_measured_is_undecided():
    ruling = ruled('better = "wide"\nthan = "plain"', PLAIN)
    assert ruling.outcome == "undecided"
    assert "not measured" in ruling.seen


def test_the_conclusion_follows_from_all_rules():
    holds = ruled('better = "wide"\nthan = "plain"', PLAIN, points("wide", (0.8, 0.82, 0.81)))
    fails = ruled('better = "plain"\nthan = "wide"', PLAIN, points("wide", (0.8, 0.82, 0.81)))
    is_open = ruled('better = "wide"\nthan = "plain"', PLAIN)
    assert concluded([holds]) == "reproduced"
    assert concluded([holds, is_open]) == "undecided"
    assert concluded([holds, is_open, fails]) == "contradicted"
    assert concluded([]) == "undecided"
