"""Charts of numbers, as files and inside pages."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch

from vitreous.pages import charts
from vitreous.pages.figure import VARIABLES, save, svg

BINS = {"confidence": [0.2, 0.9, 0.0], "accuracy": [0.5, 0.8, 0.0], "samples": [10, 30, 0]}
AWKWARD = ("$\\frac$", "<b>&", 'a "very" long name of a class, the last', "50 %")


def texts(figure):
    """What is written in a chart that is part of a page."""
    root = ElementTree.fromstring(svg(figure))
    return ["".join(each.itertext()).strip() for each in root.iter() if each.tag.endswith("text")]


@pytest.mark.parametrize("values", [[2.3, 1.1], [1e-7, 9e-8], [123456.0, 7.0], [0.5]])
def test_learning_curves(values):
    points = [(float(epoch + 1), value) for epoch, value in enumerate(values)]
    figure = charts.curves("loss", {"training": points, "validation": points[:1]}, best=1.0)
    axes = figure.axes[0]
    np.testing.assert_allclose(axes.lines[0].get_xydata(), points)
    assert {"loss", "epoch", "training", "validation"} <= set(texts(figure))
    assert [line.get_marker() == "o" for line in axes.lines[:2]] == [len(values) == 1, True]


def test_what_is_not_finite_is_left_out():
    figure = charts.curves("loss", {"training": [(1, 2.0), (2, float("nan")), (3, 1.0)]})
    assert figure.axes[0].lines[0].get_xdata().tolist() == [1, 3]


def test_the_confusion_matrix_has_counts_or_percent():
    figure = charts.confusion_matrix(["a", "b"], [[3, 1], [0, 0]])
    assert [text.get_text() for text in figure.axes[0].texts] == ["3", "1"]
    shade = figure.axes[0].images[0].get_array()[..., 3]
    np.testing.assert_allclose(shade / charts.STRONGEST, [[0.75, 0.25], [0, 0]])
    figure = charts.confusion_matrix(["a", "b"], [[300_000, 100], [1, 10**6]])
    assert [text.get_text() for text in figure.axes[0].texts] == ["100", "·", "·", "100"]
    many = charts.confusion_matrix([f"{i}" for i in range(50)], np.eye(50, dtype=int).tolist())
    assert not many.axes[0].texts


def test_the_reliability_diagram_has_bins_with_images():
    figure = charts.reliability_diagram(BINS, 0.15)
    axes, below = figure.axes
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == [0.5, 0.8]
    assert [bar.get_height() for bar in below.patches] == [10, 30]
    assert "15.0 %" in axes.get_title("left")


def test_names_are_no_formulas(tmp_path):
    """Neither matplotlib's mathtext nor HTML."""
    counts = np.eye(len(AWKWARD), dtype=int).tolist()
    curves = {"recall": [0.0, 1.0], "precision": {name: [1.0, 0.5] for name in AWKWARD}}
    scores = charts.class_scores({name: {"f1": 0.5} for name in AWKWARD}, "f1", "F1")
    drawn = (charts.confusion_matrix(AWKWARD, counts), charts.precision_recall(curves), scores)
    for number, figure in enumerate(drawn):
        save(figure, tmp_path / f"{number}.png")
        written = " ".join(texts(figure))
        for name in ("$\\frac$", "<b>&", 'a "very" long', "50 %"):
            assert name in written, name


def test_charts_follow_the_page():
    lines = {"a": [(1, 2.0), (2, 1.0)], "b": [(1, 3.0), (2, 2.0)]}
    text, again = (svg(charts.curves("loss", lines)) for _ in range(2))
    assert text == again, "the same bytes each time"
    assert not re.search("|".join(VARIABLES), text), "colours are the page's"
    for name in ("ink", "soft", "line", "a", "b"):
        assert f"var(--{name})" in text
    assert "<style" not in text
    assert "<g id=" not in text
    assert len(text) < 20_000


@pytest.mark.parametrize("layers", [1, 2, 12])
def test_layers_are_whole_numbers(layers):
    """Also of a detector's encoder that has one layer, whose mean is seen, too."""
    drawn = charts.attention_distances([torch.tensor([3.0, 5.0])] * layers, 10.0)
    drawn.draw_without_rendering()
    axes = drawn.axes[0]
    low, high = axes.get_xlim()
    assert (low, high) == (0.5, layers + 0.5)
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
    assert ticks == sorted({round(tick) for tick in ticks})
    assert ticks
    (mean,) = axes.lines
    assert mean.get_ydata() == pytest.approx([4.0] * layers)
    assert (mean.get_marker() == "_") == (layers == 1)
