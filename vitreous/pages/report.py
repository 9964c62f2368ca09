"""`report.html`: one self-contained page that shows how good a run is, and where it is wrong.

It draws what it is given: `api/report.py` evaluates."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vitreous.config import to_dict
from vitreous.data.source import Source
from vitreous.pages import charts
from vitreous.pages.content import Section
from vitreous.pages.inside import inside_sections
from vitreous.pages.template import render
from vitreous.pages.words import words_for
from vitreous.predict import Predictor
from vitreous.run_folder import OpenedRun, Run, RunConfig
from vitreous.train.advice import Advice
from vitreous.train.optimizer import lr_factor
from vitreous.train.recipe import Recipe
from vitreous.wording import counted

if TYPE_CHECKING:
    from vitreous.tasks.show import TaskReport

Evaluations = list[dict[str, Any]]


def report_page(
    run: OpenedRun,
    predictor: Predictor,
    source: Source,
    split: str,
    result: Mapping[str, Any],
    part: TaskReport,
    recipe: Recipe | None,
    advice: Advice | None,
) -> str:
    """The page about a run whose evaluation on a split gave `result`, which `part` has seen."""
    config = run.config
    evaluations = [m for m in run.metrics() if m.get("kind") == "evaluation"]
    best = predictor.task.metric.best_of(evaluations)
    part.evaluations = evaluations
    parameters = sum(p.numel() for p in predictor.model.parameters())
    here = f"{split}, {counted(result['samples'], 'image')}"
    learning = [_learning(run, evaluations, part, best["epoch"], recipe)] if best else []
    lede = [
        *([f"{counted(len(config.labels), 'class')}"] if config.labels.names else ()),
        *([f"best at epoch {best['epoch']:g} of {evaluations[-1]['epoch']:g}"] if best else ()),
        f"measured on {here}",
    ]
    return render(
        "report.html",
        title=f"{config.model} on {_name_of(config.data)}",
        words=words_for("report"),
        lede=" · ".join(lede),
        learned_from=split == "train",
        verdicts=result["verdicts"],
        split=split,
        headline=part.headline(result),
        sections=[
            *(replace(each, measured_on=_measured_while_training(source)) for each in learning),
            *(replace(each, measured_on=here) for each in part.sections(result)),
            *(
                replace(each, measured_on=f"images of {split}")
                for each in inside_sections(predictor, source, source.splits[split])
            ),
        ],
        facts=_facts(recipe, config, source, parameters, evaluations),
        advice=advice,
        next={**({"Fine-tune": advice.command} if advice else {}), **part.commands(run.path)},
    )


def _measured_while_training(source: Source) -> str:
    """Of the learning curves: the split that chose the weights."""
    split = next((name for name in ("val", "train") if name in source.splits), None)
    return f"{split}, {counted(len(source.splits[split]), 'image')}" if split else ""


def _name_of(data: str) -> str:
    """A folder or file without where it is, and without the format that may stand before it."""
    path = data if os.path.isabs(data) else data.partition(":")[2]
    return os.path.basename(path.rstrip(os.sep)) if os.path.isabs(path) else data


def _learning(
    run: Run, evaluations: Evaluations, part: TaskReport, best: float, recipe: Recipe | None
) -> Section:
    """Loss, with its terms where it has several, the task's metrics, and the learning rate."""

    def lines(keys: Mapping[str, str]) -> dict[str, list[tuple[float, float]]]:
        found = {
            name: [(m["epoch"], m[key]) for m in evaluations if m.get(key) is not None]
            for key, name in keys.items()
        }
        return {name: points for name, points in found.items() if points}

    drawn = {
        "loss": lines({"train_loss": "training", "loss": "validation"}),
        next(iter(part.curves.values())): lines(part.curves),
        **{title: lines(keys) for title, keys in part.more_curves.items()},
        "learning rate": scheduled(evaluations, recipe) or logged_lr(run.metrics()),
        **{title: lines(keys) for title, keys in loss_terms(evaluations).items()},
    }
    figures = [(charts.curves(name, each, best), "") for name, each in drawn.items() if each]
    least = 15 if len(figures) == 4 else 19  # four side by side, not three and one
    note = "Dotted: the epoch that was kept."
    return Section("Learning curves", note, figures=figures, least=least)


def scheduled(
    evaluations: Evaluations, recipe: Recipe | None, most: int = 400
) -> dict[str, list[tuple[float, float]]]:
    """The learning rate of every step that was taken, or of at most about `most` of them: at the
    evaluations alone, its warm-up could not be seen.

    Nothing where the recipe's schedule is not the one that all evaluations have: a run that was
    made longer or shorter has had another one before.
    """
    taken, epochs = evaluations[-1]["step"], evaluations[-1]["epoch"]
    if recipe is None or recipe.lr is None or recipe.epochs is None or not taken or not epochs:
        return {}
    peak, per_epoch = recipe.lr, taken / epochs
    steps, head = (round(n * per_epoch) for n in (recipe.epochs, recipe.unfreeze_after))
    schedule = {"warmup": recipe.warmup, "final": recipe.final_lr}

    def lr(step: int) -> float:
        return peak * lr_factor(step, steps, **schedule, head_steps=head)

    if not all(
        math.isclose(m.get("lr") or 0, lr(m["step"] - 1), rel_tol=1e-6) for m in evaluations
    ):
        return {}
    warm = head + round(recipe.warmup * (steps - head))
    bends = {*range(taken)[warm - 1 : warm + 1], *range(taken)[max(head - 1, 0) : head + 1]}
    shown = {*range(0, taken, -(-taken // most)), *bends, taken - 1}
    return {"learning rate": [((step + 1) / per_epoch, lr(step)) for step in sorted(shown)]}


def logged_lr(lines: Evaluations) -> dict[str, list[tuple[float, float]]]:
    """The learning rate wherever it was logged: a run that is made for a time has no schedule that
    its recipe shows."""
    found = {m["epoch"]: m["lr"] for m in lines if m.get("lr") is not None and "epoch" in m}
    return {"learning rate": sorted(found.items())} if found else {}


def loss_terms(evaluations: Evaluations, most: int = 3) -> dict[str, dict[str, str]]:
    """The terms of a loss that has several, by the title of the chart that has them, and by their
    keys: those of the output, and those of the layers before it (aux), at most so many in one."""
    keys = list(dict.fromkeys(key for m in evaluations for key in m if key.startswith("loss_")))
    charts = {}
    for title, start in (("loss, by term", "loss_"), ("loss of earlier layers", "loss_aux_")):
        aux = start != "loss_"
        own = [key for key in keys if key.startswith("loss_aux_") == aux]
        for first in range(0, len(own), most):
            number = f" ({first // most + 1})" if len(own) > most else ""
            part = own[first : first + most]
            charts[title + number] = {key: key.removeprefix(start) for key in part}
    return charts


def _facts(
    recipe: Recipe | None,
    config: RunConfig,
    source: Source,
    parameters: int,
    evaluations: Evaluations,
) -> dict[str, dict[str, str]]:
    """What was trained on what, and all settings: by group, then by name."""
    data = {
        "data": config.data,
        "images": ", ".join(
            f"{len(source.splits[s]):,} {s}" for s in ("train", "val", "test") if s in source.splits
        ),
        "classes": f"{len(config.labels)}" if config.labels.names else "",
        "notes": "; ".join(source.notes),
        "left out": _left_out(recipe, source),
    }
    training = {"started from": config.weights or "random weights"}
    if recipe is not None:
        done = evaluations[-1]["epoch"] if evaluations else 0
        of = f"in {recipe.time}" if recipe.epochs is None else f"of {recipe.epochs}"
        early = recipe.epochs is not None and done > recipe.epochs
        training |= {
            "epochs": f"{done:g}, ended early" if early else f"{done:g} {of}",
            "batch size": f"{recipe.batch}",
            "learning rate": "" if recipe.lr is None else f"{recipe.lr:g}",
            "seed": f"{recipe.seed}",
        }
    model = {"name": config.model, "parameters": f"{parameters:,}", **_flat(config.config)}
    groups = {
        "Data": data,
        "Training": training,
        "Preprocessing": _flat(to_dict(config.preprocess)),
        "Versions": config.versions,
        "Model": model,
    }
    return {
        title: {name: value for name, value in rows.items() if value}
        for title, rows in groups.items()
    }


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Fields by name, those of a part behind its name; what is not set is left out."""
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        elif isinstance(value, list | tuple):
            whole = len(value) == 2 and all(isinstance(each, int) for each in value)
            found[before + name] = (" × " if whole else ", ").join(map(str, value))
        elif value is not None:
            found[before + name] = f"{value:g}" if isinstance(value, float) else str(value)
    return found


def _left_out(recipe: Recipe | None, source: Source, most: int = 20) -> str:
    """The files that the data has and the run has not used."""
    if recipe is None or recipe.on_bad != "skip":
        return ""
    files = source.left_out
    if not files:
        return "nothing"
    more = f" and {len(files) - most:,} more" if len(files) > most else ""
    return f"{len(files):,} that cannot be used: {', '.join(files[:most])}{more}"
