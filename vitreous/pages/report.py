"""`report.html`: one self-contained page that shows how good a run is, and where it is wrong."""

from __future__ import annotations

import html
import json
import shlex
from pathlib import Path
from typing import Any

from vitreous.config import pair
from vitreous.data.source import Source
from vitreous.pages.charts import line_chart
from vitreous.pages.findings import Findings
from vitreous.pages.inside import inside_views
from vitreous.pages.style import STYLE
from vitreous.predict import load
from vitreous.run_folder import Run
from vitreous.tasks import task_class
from vitreous.tasks.classify.report import Mistakes
from vitreous.tasks.detect.report import WorstBoxes
from vitreous.tasks.segment.report import WorstMasks
from vitreous.train.open_data import open_named, stored_recipe
from vitreous.train.recipe import Recipe

FINDINGS: dict[str, type[Findings]] = {
    "classify": Mistakes,
    "segment": WorstMasks,
    "detect": WorstBoxes,
}
"""What the page shows of each task."""


def write_report(
    run: Run, source: Source, split: str | None = None
) -> tuple[Path, str, dict[str, Any]]:
    """Evaluate the run on a split (test, or else val; what it has learned by heart, if it was to)
    and write the page. All three, back."""
    predictor = load(run.path)
    split = split or next(s for s in ("test", "val", "train") if s in source.splits)
    found = FINDINGS[predictor.task.name](predictor)
    result = predictor.evaluate(source, split, see=found.see)
    parameters = sum(p.numel() for p in predictor.model.parameters())
    told = story(run, source, parameters)
    inside = inside_views(predictor, source, source.splits[split])
    run.write_text("report.html", page(run, result, found, split, told, inside))
    return run.path / "report.html", split, result


def story(run: Run, source: Source, parameters: int) -> dict[str, str]:
    """What was trained on what, for people: the data, the model, where it began, how it learned."""
    config, recipe = run.read_config(), stored_recipe(run)
    does = {"train": "to learn from", "val": "to choose the best epoch", "test": "to test"}
    images = ", ".join(f"{len(source.splits[s]):,} {does[s]}" for s in does if s in source.splits)
    height, width = pair("image_size", config.preprocess.image_size)
    channels = config.preprocess.channels
    told = {
        "data": f"{config.data}, {len(config.labels)} classes",
        "images": images,
        "notes": "; ".join(source.notes),
        "left out": _left_out(recipe, source),
        "model": f"{config.model}, {parameters:,} parameters",
        "image size": f"{height}x{width} pixels, {channels} channel{'s' if channels > 1 else ''}",
        "started from": f"the weights {config.weights}" if config.weights else "random weights",
        "trained": "" if recipe is None else _training(run, recipe),
    }
    return {what: text for what, text in told.items() if text}


def _left_out(recipe: Recipe | None, source: Source, most: int = 20) -> str:
    """The files that the data has and the run has not used."""
    if recipe is None or recipe.on_bad != "skip":
        return ""
    used = {sample.id for samples in source.splits.values() for sample in samples}
    everything = [s.id for samples in open_named(recipe).splits.values() for s in samples]
    files = [id for id in everything if id not in used]
    if not files:
        return "nothing"
    more = f" and {len(files) - most:,} more" if len(files) > most else ""
    return f"{len(files):,} that cannot be used: {', '.join(files[:most])}{more}"


def _training(run: Run, recipe: Recipe) -> str:
    evaluations = _evaluations(run)
    done = f"{evaluations[-1]['epoch']:g} of " if evaluations else ""
    rate = "" if recipe.lr is None else f", a learning rate of at most {recipe.lr:g}"
    return f"{done}{recipe.epochs} epochs in batches of {recipe.batch}{rate}, seed {recipe.seed}"


def _evaluations(run: Run) -> list[dict[str, Any]]:
    return [m for m in run.metrics() if m.get("kind") == "evaluation"]


def page(
    run: Run,
    result: dict[str, Any],
    found: Findings,
    split: str,
    told: dict[str, str],
    inside: str = "",
) -> str:
    config = run.read_config()
    evaluations = _evaluations(run)
    primary = task_class(config.task).primary
    best = max(evaluations, key=lambda m: m[primary], default=None)
    tiles = "".join(
        f"<div><b>{value}</b>{html.escape(name)}</div>"
        for name, value in found.tiles(result, split).items()
    )
    trained = "".join(
        f"<tr><th>{what}</th><td>{html.escape(text)}</td></tr>" for what, text in told.items()
    )
    title = f"{config.model} on {config.data}"
    repeat = f"vitreous train --recipe {shlex.quote(str(run.path / 'recipe.toml'))}"
    facts = {
        "model": config.model,
        "config": config.config,
        "preprocess": {k: getattr(config.preprocess, k) for k in ("image_size", "mean", "std")},
        "weights": config.weights or "random",
        "versions": config.versions,
    }
    at_best = f", best at epoch {best['epoch']:g} of {evaluations[-1]['epoch']:g}" if best else ""
    heart = "" if split != "train" else " <b>These images were learned from.</b>"
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{html.escape(title)}</title><style>{STYLE}</style></head><body><main>
<p class="soft">Vitreous training report</p><h1>{html.escape(title)}</h1>
<p>{len(config.labels)} classes{at_best}. Measured on the split <b>{split}</b>.{heart}</p>
<div class="big">{tiles}</div>
<h2>Learning</h2><div class="charts">{_curves(evaluations, primary, found)}</div>
{found.sections(result)}
{inside}<h2>What was trained on what</h2><table class="story">{trained}</table>
<h2>All settings of the model</h2><pre>{html.escape(json.dumps(facts, indent=2))}</pre>
<h2>To repeat it</h2><pre>{html.escape(repeat)}</pre></main></body></html>
"""


def _curves(evaluations: list[dict[str, Any]], primary: str, found: Findings) -> str:
    """Loss, with its terms where it has several, the numbers that decide, and the learning rate."""

    def line(key: str) -> list[tuple[float, float]]:
        return [(m["epoch"], m[key]) for m in evaluations if m.get(key) is not None]

    def lines(keys: dict[str, str]) -> dict[str, list[tuple[float, float]]]:
        return {name: points for key, name in keys.items() if (points := line(key))}

    name, says = found.primary
    numbers = {primary: name, **found.beside} if found.beside else {primary: "validation"}
    losses = {"train_loss": "training", "loss": "validation"}
    return (
        line_chart("loss", lines(losses), "epoch", "loss")
        + "".join(
            line_chart(title, lines(terms), "epoch", "loss")
            for title, terms in loss_terms(evaluations).items()
        )
        + line_chart(name, lines(numbers), "epoch", says)
        + line_chart("learning rate", {"rate": line("lr")}, "epoch", "rate")
    )


def loss_terms(evaluations: list[dict[str, Any]], most: int = 3) -> dict[str, dict[str, str]]:
    """The terms of a loss that has several, by the title of the chart that has them, and by their
    keys: those of the output, and those of the layers before it (aux), at most so many in one."""
    keys = list(dict.fromkeys(key for m in evaluations for key in m if key.startswith("loss_")))
    charts = {}
    for title, start in (("loss, by term", "loss_"), ("of earlier layers", "loss_aux_")):
        aux = start != "loss_"
        own = [key for key in keys if key.startswith("loss_aux_") == aux]
        for first in range(0, len(own), most):
            number = f" ({first // most + 1})" if len(own) > most else ""
            part = own[first : first + most]
            charts[title + number] = {key: key.removeprefix(start) for key in part}
    return charts
