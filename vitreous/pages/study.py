"""The page of a study: the question, the paper's claim and its numbers, ours, and the verdict."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.pages.content import Cell, Table
from vitreous.pages.figure import ACCENTS, DASHES, INK, SOFT, new_figure, styled
from vitreous.pages.template import render
from vitreous.pages.words import words_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vitreous.study.numbers import Numbers, Point
    from vitreous.study.result import StudyResult

MARKERS = ("o", "s", "^", "D", "v", "P")
TONES = {"reproduced": "good", "contradicted": "bad", "undecided": "warn"}


def study_page(result: StudyResult, folder: Path) -> str:
    """`folder` is where the page will be, with the runs beside it."""
    headings, rows = result.table()
    right = {"lr", "GFLOP", "parameters", "runs"}
    table = Table(
        [f"{each}>" if each in right else each for each in headings],
        [[Cell(cell) for cell in row] for row in rows],
    )
    return render(
        "study.html",
        title=result.study.question,
        words=words_for("study"),
        result=result,
        study=result.study,
        tone=TONES[result.conclusion],
        figures=_figures(result),
        table=table,
        runs=_runs(result, folder),
        facts=_facts(result),
    )


def _figures(result: StudyResult) -> list[tuple[Figure, str]]:
    numbers = result.numbers
    found = [(drawn_numbers(numbers, result.metric), "ours")]
    if result.study.paper.values or result.study.paper.others:
        found.append((drawn_paper(result), "papers"))
    series = {name for point in numbers.points for name in point.series}
    found += [(drawn_series(numbers, name), "series") for name in sorted(series)]
    if numbers.axis is not None and numbers.axis.trains and _differ(numbers.points, "flops"):
        found.append((drawn_cost(numbers, result.metric), "cost"))
    return found


def _differ(points: Sequence[Point], name: str) -> bool:
    return len({point.mean(name) for point in points} - {None}) > 1


@styled
def drawn_numbers(numbers: Numbers, name: str) -> Figure:
    """Ours: a line for each variant along the axis, or without one a dot for each."""
    axis, study = numbers.axis, numbers.study
    along = axis is not None and len(axis.values) > 1
    figure = new_figure(5.2, 3.4 if along else 1.1 + 0.42 * len(study.variant))
    axes = figure.add_subplot()
    axes.grid(axis="y" if along else "x")
    label = _label(numbers, name)
    if not along:
        _dots(axes, numbers, name)
        axes.set_xlabel(label)
        return figure
    assert axis is not None
    plain = not any(isinstance(value, str | tuple) for value in axis.values)
    for number, variant in enumerate(study.variant):
        points = [p for p in numbers.along(variant.name) if p.mean(name) is not None]
        places = [p.value if plain else list(axis.values).index(p.value) for p in points]
        _line(axes, numbers, name, points, places, number, variant.title)
    if not plain:
        _name_places(axes, axis.texts)
    elif axis.scale == "log":
        axes.set_xscale("log")
        axes.set_xticks(axis.values, axis.texts)
        axes.minorticks_off()
    axes.set(xlabel=axis.title, ylabel=label)
    _legend(axes, len(study.variant))
    return figure


def _label(numbers: Numbers, name: str) -> str:
    metric = numbers.metric_of(name)
    unit = "%" if numbers.unit(name) == "points" else metric.unit
    return f"{metric.name}, {unit}" if unit else metric.name


def _line(
    axes: Axes,
    numbers: Numbers,
    name: str,
    points: Sequence[Point],
    places: Sequence[float],
    number: int,
    label: str,
) -> None:
    scale = numbers.scale(name)
    means = [scale * (point.mean(name) or 0.0) for point in points]
    axes.errorbar(
        places,
        means,
        yerr=_errors(numbers, name, points),
        color=ACCENTS[number % 3],
        linestyle=DASHES[(number // 3) % 3],
        marker=MARKERS[number % len(MARKERS)],
        ms=4,
        lw=1.6,
        capsize=2,
        elinewidth=1,
        label=label,
    )


def _errors(numbers: Numbers, name: str, points: Sequence[Point]) -> list[list[float]]:
    """Below and above, as matplotlib takes them; nothing where chance is not known."""
    scale = numbers.scale(name)
    found: list[list[float]] = [[], []]
    for point in points:
        mean, limits = point.mean(name) or 0.0, point.interval(name, numbers.metric_of(name).range)
        known = limits is not None and all(map(math.isfinite, limits))
        low, high = limits if known and limits is not None else (mean, mean)
        found[0].append(max(scale * (mean - low), 0.0))
        found[1].append(max(scale * (high - mean), 0.0))
    return found


def _dots(axes: Axes, numbers: Numbers, name: str) -> None:
    variants = numbers.study.variant
    for place, variant in enumerate(variants):
        point = numbers.at(variant.name)
        if point is None or point.mean(name) is None:
            continue
        scale = numbers.scale(name)
        axes.errorbar(
            scale * (point.mean(name) or 0.0),
            place,
            xerr=_errors(numbers, name, [point]),
            color=ACCENTS[0],
            marker="o",
            ms=5,
            capsize=3,
            elinewidth=1.2,
        )
        single = [scale * value for value in point.of(name).values()]
        axes.scatter(single, [place - 0.22] * len(single), s=8, color=SOFT, linewidths=0)
    axes.set_yticks(range(len(variants)), [each.title for each in variants])
    axes.set_ylim(len(variants) - 0.5, -0.5)


@styled
def drawn_paper(result: StudyResult) -> Figure:
    """The paper's numbers, drawn as ours are."""
    paper, study = result.study.paper, result.study
    titles = {each.name: each.title for each in study.variant}
    values = {titles.get(n, n): v for n, v in {**paper.values, **paper.others}.items()}
    series = {name: value for name, value in values.items() if isinstance(value, list)}
    figure = new_figure(5.2, 3.4 if series else 1.1 + 0.42 * len(values))
    axes = figure.add_subplot()
    words = f"{paper.what}, {paper.unit}" if paper.unit else paper.what
    label = "\n".join(textwrap.wrap(words, 52))
    if series:
        names = list(dict.fromkeys(f"{x}" for points in series.values() for x, _ in points))
        for number, (name, points) in enumerate(series.items()):
            places = [names.index(f"{x}") for x, _ in points]
            axes.plot(
                places,
                [y for _, y in points],
                color=ACCENTS[number % 3],
                linestyle=DASHES[(number // 3) % 3],
                marker=MARKERS[number % len(MARKERS)],
                ms=4,
                label=name,
            )
        axes.set_xticks(range(len(names)), names)
        axes.set(xlabel=paper.x, ylabel=label)
        axes.grid(axis="y")
        _legend(axes, len(series))
        return figure
    axes.plot(list(values.values()), range(len(values)), "o", color=ACCENTS[1], ms=5)
    for place, value in enumerate(values.values()):
        axes.annotate(f"{value:g}", (value, place), (6, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(values)), list(values))
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.set_xlabel(label)
    axes.margins(x=0.2)
    axes.grid(axis="x")
    return figure


@styled
def drawn_series(numbers: Numbers, name: str) -> Figure:
    """A number that has an axis of its own: by layer."""
    figure = new_figure(5.2, 3.2)
    axes = figure.add_subplot()
    names: list[str] = []
    for number, variant in enumerate(numbers.study.variant):
        points = numbers.along(variant.name, name)
        if points and points[0].on:
            names = names or [point.at for point in points]
            places = [float(names.index(point.at)) for point in points]
            _line(axes, numbers, name, points, places, number, variant.title)
    _name_places(axes, names)
    layers = all(name.isdecimal() for name in names)
    axes.set(xlabel="layer" if layers else "", ylabel=_label(numbers, name))
    axes.grid(axis="y")
    _legend(axes, len(numbers.study.variant))
    return figure


def _name_places(axes: Axes, names: Sequence[str]) -> None:
    """Of what is no number, along the x axis: long names at an angle, and no lines between."""
    axes.set_xticks(range(len(names)), names)
    if max(map(len, names), default=0) > 3:
        axes.tick_params("x", rotation=40)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
    if not all(name.isdecimal() for name in names):
        for line in axes.get_lines():
            line.set_linestyle("")


@styled
def drawn_cost(numbers: Numbers, name: str) -> Figure:
    """The metric over FLOPs."""
    figure = new_figure(5.2, 3.2)
    axes = figure.add_subplot()
    for number, variant in enumerate(numbers.study.variant):
        known = [p for p in numbers.along(variant.name) if p.mean(name) and p.mean("flops")]
        places = [point.mean("flops") or 0.0 for point in known]
        _line(axes, numbers, name, known, places, number, variant.title)
        for point, x in zip(known, places, strict=True):
            y = numbers.scale(name) * (point.mean(name) or 0.0)
            axes.annotate(point.at, (x, y), (4, 5), textcoords="offset points", color=INK)
    axes.set_xscale("log")
    axes.set(xlabel="GFLOP per image", ylabel=_label(numbers, name))
    axes.grid(axis="y")
    _legend(axes, len(numbers.study.variant))
    return figure


def _legend(axes: Axes, count: int) -> None:
    if count > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.16), ncols=2)


def _runs(result: StudyResult, folder: Path) -> list[dict[str, Any]]:
    """A row for each run, with the links that are there."""
    found = []
    for point in result.numbers.points:
        for seed, name in point.runs.items():
            value = point.of(result.metric).get(seed)
            report = Path("runs", name, "report.html")
            found.append(
                {
                    "title": result.study.named(point.variant).title,
                    "value": point.at,
                    "seed": seed,
                    "lr": "" if point.lr is None else f"{point.lr:g}",
                    "result": "" if value is None else result.numbers.metric_of("").text(value),
                    "folder": f"runs/{name}",
                    "link": report.as_posix() if (folder / report).is_file() else f"runs/{name}/",
                }
            )
    return found


def _facts(result: StudyResult) -> list[tuple[str, str]]:
    """Keys of the table of words, and what is beside them."""
    study, tried = result.study, dict[str, None]()
    for point in result.numbers.points:
        lrs = ", ".join(
            f"{lr:g}: {'failed' if value is None else result.numbers.metric.text(value)}"
            for lr, value in sorted(point.tried.items())
        )
        if lrs:
            tried[f"{point.variant} ({lrs})"] = None
    rows = [
        ("data", result.data),
        ("tier", f"{result.tier}, {study.seeds} × seed"),
        ("baselines", _baselines(result)),
        ("searched", "; ".join(tried)),
        ("edges", ", ".join(result.edges)),
        ("cost", f"{result.cpu_seconds / 60:.1f} min, {result.machine}"),
    ]
    return [(name, text) for name, text in rows if text]


def _baselines(result: StudyResult) -> str:
    metric = result.numbers.metric
    known = {name: value for name, value in result.baselines.items() if value is not None}
    return ", ".join(f"{name} {metric.text(value)}" for name, value in known.items())
