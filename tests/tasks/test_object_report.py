"""The report of a detector, its figures, and what counts as found."""

import pytest
import torch
from browser import assert_all_is_shown
from tasks.detect_runs import make_run, objects
from tasks.report_page import assert_report

import vitreous
from vitreous.api.report import write_report
from vitreous.data.formats import open_source
from vitreous.pages import charts
from vitreous.pages.figure import save
from vitreous.tasks.detect.show import SHOW
from vitreous.tasks.objects.metrics import NUMBERS
from vitreous.tasks.objects.report import judge


def test_evaluation_is_printed_and_drawn(detector, coco, tmp_path, printed):
    folder = tmp_path / "figures"
    text = printed("evaluate", detector.path, coco, f"--figures={folder}")
    result = vitreous.load(detector.path).evaluate(
        open_source(coco, truth="boxes", val_fraction=0), "train"
    )
    for name in NUMBERS:
        value = result[name]
        assert f"{name:<18} {'-' if value is None else f'{value:.4f}'}" in text
    assert result["ap_large"] is None
    lines = [line.split() for line in text.splitlines()]
    assert ["class", "ap", "ap50", "ap75", "ar100", "objects"] in lines
    assert ["fox", "-", "-", "-", "-", "0"] in lines
    assert sorted(p.name for p in folder.iterdir()) == ["classes.png", "precision.png"]


def test_curves_are_of_classes_or_of_their_mean():
    recall = [i / 100 for i in range(101)]
    few = {f"class {i}": [i / 10] * 101 for i in range(9)} | {"nowhere": None}
    drawn = charts.precision_recall({"recall": recall, "precision": few}).axes[0]
    assert [line.get_label() for line in drawn.lines] == [f"class {i} (0.{i}0)" for i in range(9)]
    many = {f"class {i}": [i / 20] * 101 for i in range(11)}
    (line,) = charts.precision_recall({"recall": recall, "precision": many}).axes[0].lines
    assert line.get_label() == "mean of 11 classes (0.25)"
    nothing = {"recall": recall, "precision": {"a": None}}
    assert not charts.precision_recall(nothing).axes[0].lines


def test_figures_of_classes_that_are_nowhere(tmp_path):
    curves = {"recall": [0.0, 1.0], "precision": {"a": None}}
    result = {"classes": {"a": {"ap": None}}, "curves": curves}
    drawn = SHOW.figures(result)
    assert list(drawn) == ["classes", "precision"]
    for name, figure in drawn.items():
        save(figure, tmp_path / f"{name}.png")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write_report(make_run(tmp_path_factory.mktemp("report") / "detector"), objects(), "test")


def test_the_report_has_what_it_promises(report):
    # loss, its terms, those of earlier layers, AP, learning rate; precision; inside: four images,
    # distances, filters
    drawn = ("F1", ["Precision and recall"], 5 + 1 + 6, "ap")
    text, rows = assert_report(report, ("ap", "ap50", "ap75"), 1, *drawn)
    assert f" of {report[2]['objects']} objects" in text
    assert text.count('alt="ground truth"') == text.count('alt="prediction"') > 2
    assert "test/1&lt;b&gt;.png" in text
    assert report[2]["classes"]["fox"]["ap"] is None
    assert rows["fox"].count("–") == 4


def judged(said, truth):
    """said: (box, class); truth: (box, class, crowd)"""
    return judge(
        torch.tensor([box for box, _ in said]).reshape(-1, 4).float(),
        torch.tensor([label for _, label in said], dtype=torch.int64),
        torch.tensor([box for box, _, _ in truth]).reshape(-1, 4).float(),
        torch.tensor([label for _, label, _ in truth], dtype=torch.int64),
        torch.tensor([crowd for _, _, crowd in truth], dtype=torch.bool),
    )


def test_what_counts_as_found():
    a, b, c = (0, 0, 10, 10), (20, 0, 30, 10), (0, 0, 10, 6)
    whole = judged([(a, 0), (b, 1)], [(b, 1, False), (a, 0, False)])
    assert (whole.missed, whole.false, whole.f1) == (0, 0, 1)
    twice = judged([(c, 0), (a, 0)], [(a, 0, False)])
    # the most confident has it, though the other fits better
    assert twice.right.tolist() == [True, False]
    assert (twice.missed, twice.false, twice.f1) == (0, 1, pytest.approx(2 / 3))
    other = judged([(a, 1)], [(a, 0, False), (b, 0, False)])
    assert (other.missed, other.false, other.f1) == (2, 1, 0)
    crowd = judged([(c, 0), (a, 0), (b, 0)], [(a, 0, True)])
    assert crowd.counted.tolist() == [False, False, True]
    assert (crowd.objects, crowd.missed, crowd.false, crowd.f1) == (0, 0, 1, 0)
    assert judged([], []).f1 is None
    assert judged([(a, 0)], [(a, 0, True)]).f1 is None
    assert judged([], [(a, 0, False)]).f1 == 0
    assert judged([(a, 0)], []).f1 == 0


def test_the_report_in_a_browser(chromium, report):
    assert_all_is_shown(chromium, report[0])
