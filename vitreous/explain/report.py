"""`report.html`: one self-contained page that shows how good a run is, and where it is wrong."""

from __future__ import annotations

import html
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from vitreous.config import pair
from vitreous.data.loader import Batch
from vitreous.data.source import Source
from vitreous.explain.charts import confusion_table, line_chart, picture
from vitreous.explain.inside import inside_views
from vitreous.explain.style import STYLE
from vitreous.predict import Predictor, load
from vitreous.run_folder import Run
from vitreous.train.recipe import Recipe, read_recipe
from vitreous.train.start import open_named


@dataclass
class Mistake:
    """An image that the model is sure about, and wrong."""

    id: str
    truth: str
    said: str
    confidence: float
    image: Tensor


def write_report(
    run: Run, source: Source, split: str | None = None
) -> tuple[Path, str, dict[str, Any]]:
    """Evaluate the run on a split (test, or else val) and write the page. All three, back."""
    predictor = load(run.path)
    split = split or ("test" if "test" in source.splits else "val")
    result, mistakes = examine(predictor, source, split)
    parameters = sum(p.numel() for p in predictor.model.parameters())
    told = story(run, source, parameters)
    inside = inside_views(predictor, source, source.splits[split])
    run.write_text("report.html", page(run, result, mistakes, split, told, inside))
    return run.path / "report.html", split, result


def examine(
    predictor: Predictor, source: Source, split: str, shown: int = 24
) -> tuple[dict[str, Any], list[Mistake]]:
    """The metrics, and the mistakes of which the model is most sure, in one pass."""
    mistakes: list[Mistake] = []
    names = predictor.labels

    def see(batch: Batch, logits: Tensor, targets: Tensor) -> None:
        confidence, said = logits.float().softmax(dim=1).max(dim=1)
        found = [
            Mistake(
                batch.ids[i],
                names[targets[i]],
                names[said[i]],
                confidence[i].item(),
                predictor.preprocess.restore(batch.images[i]),
            )
            for i in (said != targets).nonzero().flatten().tolist()
        ]
        mistakes[:] = sorted([*mistakes, *found], key=lambda m: -m.confidence)[:shown]

    return predictor.evaluate(source, split, see=see), mistakes


def story(run: Run, source: Source, parameters: int) -> dict[str, str]:
    """What was trained on what, for people: the data, the model, where it began, how it learned."""
    config, recipe = run.read_config(), _recipe(run)
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


def _recipe(run: Run) -> Recipe | None:
    path = run.path / "recipe.toml"
    return Recipe(**read_recipe(path)) if path.is_file() else None


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
    mistakes: list[Mistake],
    split: str,
    told: dict[str, str],
    inside: str = "",
) -> str:
    config = run.read_config()
    evaluations = _evaluations(run)
    best = max(evaluations, key=lambda m: m["accuracy"], default=None)
    numbers = {
        f"accuracy, {split}": f"{100 * result['accuracy']:.2f} %",
        "balanced accuracy": f"{100 * result['balanced_accuracy']:.2f} %",
        "F1, mean of classes": f"{result['f1']:.3f}",
        "calibration error": f"{100 * result['calibration_error']:.1f} %",
        "images": f"{result['samples']:,}",
    }
    tiles = "".join(
        f"<div><b>{value}</b>{html.escape(name)}</div>" for name, value in numbers.items()
    )
    classes = "".join(
        f"<tr><td>{html.escape(name)}</td><td class=num>{row['samples']}</td>"
        + "".join(f"<td class=num>{row[key]:.3f}</td>" for key in ("precision", "recall", "f1"))
        + "</tr>"
        for name, row in sorted(result["classes"].items(), key=lambda item: item[1]["f1"])
    )
    shots = "".join(
        f"<figure>{picture(m.image)}<figcaption>{html.escape(m.said)}, "
        f"{100 * m.confidence:.0f} % sure<br>is <b>{html.escape(m.truth)}</b><br>"
        f"<span class=soft>{html.escape(m.id)}</span></figcaption></figure>"
        for m in mistakes
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
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{html.escape(title)}</title><style>{STYLE}</style></head><body><main>
<p class="soft">Vitreous training report</p><h1>{html.escape(title)}</h1>
<p>{len(config.labels)} classes{at_best}. Measured on the split <b>{split}</b>.</p>
<div class="big">{tiles}</div>
<h2>Learning</h2><div class="charts">{_curves(evaluations)}</div>
<h2>Classes, the hardest first</h2><div class="wide"><table><tr><th>class</th>
<th class=num>images</th>
<th class=num>precision</th><th class=num>recall</th><th class=num>F1</th></tr>
{classes}</table></div>
<h2>What is taken for what</h2><p class="soft">Rows: truth. Columns: what the model says.</p>
<div class="wide">{confusion_table(list(result["classes"]), result["confusion"])}</div>
<h2>How sure it may be</h2><div class="charts">{_calibration(result["calibration"])}</div>
<h2>Surest mistakes</h2>{f'<div class="shots">{shots}</div>' if shots else "<p>None.</p>"}
{inside}<h2>What was trained on what</h2><table class="story">{trained}</table>
<h2>All settings of the model</h2><pre>{html.escape(json.dumps(facts, indent=2))}</pre>
<h2>To repeat it</h2><pre>{html.escape(repeat)}</pre></main></body></html>
"""


def _curves(evaluations: list[dict[str, Any]]) -> str:
    def line(key: str) -> list[tuple[float, float]]:
        return [(m["epoch"], m[key]) for m in evaluations if key in m]

    return (
        line_chart(
            "loss", {"training": line("train_loss"), "validation": line("loss")}, "epoch", "loss"
        )
        + line_chart("accuracy", {"validation": line("accuracy")}, "epoch", "part that is right")
        + line_chart("learning rate", {"rate": line("lr")}, "epoch", "rate")
    )


def _calibration(bins: dict[str, list[float]]) -> str:
    points = [
        (confidence, accuracy)
        for confidence, accuracy, n in zip(
            bins["confidence"], bins["accuracy"], bins["samples"], strict=True
        )
        if n
    ]
    return line_chart(
        "right, by how sure",
        {"measured": points, "ideal": [(0.0, 0.0), (1.0, 1.0)]},
        "how sure the model is",
        "how often it is right",
    )
