"""The page about several runs beside each other. It draws what `study/compare.py` has found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from vitreous.pages import charts
from vitreous.pages.content import CaptionedImage, Cell, Section, Table, percent, picture
from vitreous.pages.pictures import as_picture, thumbnail
from vitreous.pages.template import render
from vitreous.pages.words import WORDS, words_for
from vitreous.tasks import show_of
from vitreous.tasks.metric import Metric

if TYPE_CHECKING:
    from vitreous.study.comparison import ComparedRun, Comparison, Contrast, Disagreement

WORD = {key: text for key, (text, _) in WORDS["compare"].items()}
SMALL, LARGE = 160, 360
"""Pixels of the longer side of pictures, alone and beside others."""
WIDE = 6
"""Runs up to which each has a column of the fields that differ."""


def comparison_page(found: Comparison) -> str:
    return render(
        "comparison.html",
        title=_title(found),
        words=words_for("compare"),
        lede=_lede(found),
        verdicts=found.deciding,
        notes=found.notes,
        sections=_sections(found),
    )


def comparison_fragment(found: Comparison) -> str:
    """For a notebook: the verdicts and the tables."""
    tables = [values_table(found), cost_table(found)]
    fields = fields_table(found)
    return render(
        "comparison_fragment.html",
        title=_title(found),
        lede=_lede(found),
        verdicts=[str(each) for each in found.deciding],
        notes=found.notes,
        tables=[table for table in (*tables, fields) if table is not None],
    )


def _title(found: Comparison) -> str:
    names = [group.name for group in found.groups] or found.names
    others = [name for name in names if name != found.baseline] or [found.names[0]]
    shown = others if len(others) <= 3 else [*others[:2], f"{len(others) - 2} more"]
    return f"{', '.join(shown)} against {found.baseline}"


def _lede(found: Comparison) -> str:
    return " · ".join(filter(None, (found.task, found.measured_on)))


def _sections(found: Comparison) -> list[Section]:
    sections: list[Section] = []
    if found.contrasts:
        note = "seedsNote" if found.groups else "metricsNote"
        drawn, table = _gains(found), _contrast_table(found)
        sections.append(Section(WORD["metrics"], WORD[note], drawn, table, least=22))
    if (values := values_table(found)) is not None:
        note = WORD["valuesNote"] if any(run.intervals for run in found.runs) else ""
        sections.append(Section(WORD["values"], note, table=values))
    fields = fields_table(found)
    nothing = "" if fields else WORD["noFields"]
    sections.append(Section(WORD["fields"], nothing, table=fields))
    timed = any(run.milliseconds is not None for run in found.runs)
    note = WORD["costNote"] if timed else ""
    sections.append(Section(WORD["cost"], note, table=cost_table(found)))
    if drawn := _curves(found):
        sections.append(Section(WORD["learning"], WORD["learningNote"], drawn))
    if found.agreements:
        note = WORD["agreementNote"] if found.agreements[0].mcnemar is not None else ""
        sections.append(Section(WORD["agreement"], note, table=_agreement_table(found)))
        sections.append(_disagreements(found))
    return sections


# ---- tables, which the command line prints as well


def values_table(found: Comparison) -> Table | None:
    """The metrics of each run, or of each group of seeds with mean and standard deviation."""
    keys = dict.fromkeys(key for run in found.runs for key in run.numbers)
    metrics = {each.key: each for each in found.metrics}
    if not keys:
        return None
    if found.groups:
        rows = [
            (
                Cell(group.name),
                *(Cell(_over_seeds(metrics[key], group, key)) for key in keys),
                Cell(", ".join(map(str, group.seeds))),
            )
            for group in found.groups
        ]
        headings = [f"{metrics[key].name}>" for key in keys]
        return Table((WORD["run"], *headings, WORD["seeds"]), rows)
    names = [metrics[key].name if key in metrics else key.replace("_", " ") for key in keys]
    rows = [
        (Cell(run.name), *(Cell(_value(run, metrics, key)) for key in keys)) for run in found.runs
    ]
    return Table((WORD["run"], *(f"{name}>" for name in names)), rows)


def _value(run: ComparedRun, metrics: dict[str, Metric], key: str) -> str:
    """98.3 % (96.9 to 99.4)"""
    if key not in run.numbers:
        return "–"
    if key not in metrics:
        return f"{run.numbers[key]:.3g}"
    text = metrics[key].with_interval(run.numbers[key], run.intervals.get(key))
    return text.replace("95 % interval ", "")


def _over_seeds(metric: Metric, group: Any, key: str) -> str:
    """98.3 % ± 0.4 points"""
    if key not in group.values:
        return "–"
    spread = group.spread(key)
    if spread is None:
        return metric.text(group.mean(key))
    (apart,) = metric.difference_texts(spread)
    return f"{metric.text(group.mean(key))} ± {apart} {metric.difference_unit}".rstrip()


def fields_table(found: Comparison) -> Table | None:
    """Fields that differ, with a column for each run; of many runs the values that there are."""
    if not found.differences:
        return None
    start = (WORD["part"], WORD["field"])
    if len(found.runs) <= WIDE:
        rows = [
            (Cell(each.part), Cell(each.field), *map(Cell, each.texts))
            for each in found.differences
        ]
        return Table((*start, *found.names), rows)
    rows = [
        (Cell(each.part), Cell(each.field), Cell("; ".join(dict.fromkeys(each.texts))))
        for each in found.differences
    ]
    return Table((*start, WORD["values"]), rows)


def cost_table(found: Comparison) -> Table:
    """Columns of which nothing is known are left out."""
    columns: dict[str, list[str]] = {
        WORD["model"]: [run.model for run in found.runs],
        WORD["engine"]: [_engine(run) for run in found.runs],
        f"{WORD['imageSize']}>": ["{}x{}".format(*run.image_size) for run in found.runs],
        f"{WORD['parameters']}>": [f"{run.parameters:,}" for run in found.runs],
        f"{WORD['file']}>": [_megabytes(run.bytes) for run in found.runs],
        "FLOPs>": ["" if run.flops is None else _flops(run.flops) for run in found.runs],
        f"{WORD['perImage']}>": [_known(run.milliseconds, "{:.2f}") for run in found.runs],
        f"{WORD['imagesSeen']}>": [_known(run.images_seen, "{:,}") for run in found.runs],
        f"{WORD['cpuTime']}>": [_known(run.cpu_seconds, "{:,.0f} s") for run in found.runs],
    }
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    rows = [
        (Cell(run.name), *(Cell(cells[i] or "–") for cells in columns.values()))
        for i, run in enumerate(found.runs)
    ]
    return Table((WORD["run"], *columns), rows)


def _engine(run: ComparedRun) -> str:
    return run.engine if run.precision == "float32" else f"{run.engine}, {run.precision}"


def _known(value: float | None, pattern: str) -> str:
    return "" if value is None else pattern.format(value)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"


def _flops(count: int) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6)):
        if count >= size:
            return f"{count / size:,.2f} {unit}"
    return f"{count:,}"


def _contrast_table(found: Comparison) -> Table:
    rows = []
    for each in found.contrasts:
        text = "–"
        if each.difference is not None:
            mean, *limits = (each.difference.mean, each.difference.low, each.difference.high)
            known = all(map(math.isfinite, limits))
            texts = each.metric.difference_texts(mean, *(limits if known else ()))
            sign = "+" if mean > 0 else ""
            text = f"{sign}{texts[0]} {each.metric.difference_unit}".rstrip()
            text += f" ({texts[1]} to {texts[2]})" if known else ""
        p = each.p_text.removeprefix("= ") or "–"
        cells = (each.metric.name, each.run, each.baseline, text, p)
        rows.append(tuple(map(Cell, cells)))
    headings = (WORD["metric"], WORD["run"], WORD["baseline"], f"{WORD['difference']}>", "p>")
    return Table(headings, rows)


def _agreement_table(found: Comparison) -> Table:
    judged = found.agreements[0].mcnemar is not None
    rows = []
    for each in found.agreements:
        cells = [each.run, each.baseline, percent(each.mean), f"{each.differ:,}"]
        if judged:
            kappa = "–" if each.kappa is None else f"{each.kappa:.3f}"
            cells += [kappa, f"{each.only_run:,}", f"{each.only_baseline:,}", f"{each.mcnemar:.3f}"]
        rows.append(tuple(map(Cell, cells)))
    right: tuple[str, ...] = (WORD["sameAnswer"], WORD["differ"])
    if judged:
        right = (*right, "kappa", WORD["onlyRun"], WORD["onlyBaseline"], "p")
    return Table((WORD["run"], WORD["baseline"], *(f"{name}>" for name in right)), rows)


# ---- pictures


def _gains(found: Comparison) -> list[tuple[Any, str]]:
    """A figure for each unit that metrics have: points, kilograms."""
    units: dict[str, dict[str, tuple[float, float, float]]] = {}
    several = len({(each.run, each.baseline) for each in found.contrasts}) > 1
    for each in found.contrasts:
        if each.gain is not None:
            row = f"{each.run}: {each.metric.name}" if several else each.metric.name
            factor = 100 if each.metric.difference_unit == "points" else 1
            gain = tuple(factor * value for value in each.gain)
            units.setdefault(each.metric.difference_unit, {})[row] = gain  # type: ignore[assignment]
    first: Contrast = found.contrasts[0]
    return [
        (charts.gains(f"better than {first.baseline}", unit, rows), "")
        for unit, rows in units.items()
    ]


def _curves(found: Comparison) -> list[tuple[Any, str]]:
    """The metric that decides, and the loss of training, over steps, images and CPU time."""
    keys: dict[str, str] = {each.key: each.name for each in found.metrics[:1]}
    keys["train_loss"] = "training loss"
    over = {"step": "steps", "images": "images seen", "cpu_seconds": "CPU seconds"}
    drawn = []
    for key, name in keys.items():
        for axis, words in over.items():
            lines = {
                run: [
                    (point[axis], point[key])
                    for point in points
                    if point.get(axis) is not None and point.get(key) is not None
                ]
                for run, points in found.curves.items()
            }
            lines = {run: points for run, points in lines.items() if points}
            if lines:
                drawn.append((charts.curves(name, lines, over=words), ""))
    return drawn


def _disagreements(found: Comparison) -> Section:
    if not found.disagreements:
        return Section(WORD["disagreements"], WORD["agreeOnAll"])
    assert found.labels is not None
    examples = [_example(found, each) for each in found.disagreements]
    beside = len(examples[0].pictures) > 1
    return Section(
        WORD["disagreements"],
        WORD["disagreementsPictures" if beside else "disagreementsNote"],
        examples=examples,
        legend=show_of(found.task).legend(found.labels) if beside else None,
    )


def _example(found: Comparison, each: Disagreement) -> CaptionedImage:
    assert found.source is not None
    assert found.labels is not None
    image = found.source.image(each.sample)
    small = (thumbnail(image, LARGE) * 255).round().to(torch.uint8)
    drawn = show_of(found.task).beside(small, each.target, each.results, found.labels)
    names: Sequence[str] = ("ground truth", *found.names)
    if drawn:
        pictures = [picture(part, name) for part, name in zip(drawn, names, strict=True)]
    else:
        pictures = [picture(as_picture(thumbnail(image, SMALL)), "input")]
    said = "\n".join(
        f"{name}: {text}" for name, text in zip(found.names, each.answers, strict=True)
    )
    return CaptionedImage(pictures, each.image, each.truth, said)
