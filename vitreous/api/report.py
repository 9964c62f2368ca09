"""The report of a run: its best weights are evaluated, and what that shows is drawn and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vitreous.data.loader import Batch
from vitreous.data.source import Source
from vitreous.inference import InferenceOptions
from vitreous.loading import predictor_of
from vitreous.measure import chosen_split
from vitreous.pages.report import report_page
from vitreous.progress import CountProgress
from vitreous.run_folder import OpenedRun, Run
from vitreous.tasks import show_of
from vitreous.tasks.task import Log
from vitreous.train.advice import fine_tuning_advice
from vitreous.train.open_data import stored_recipe
from vitreous.train.verdicts import evaluate
from vitreous.wording import counted


def write_report(
    written: Run,
    source: Source,
    split: str | None = None,
    *,
    log: Log = lambda text: None,
    progress: bool = False,
) -> tuple[Path, str, dict[str, Any]]:
    """Evaluate the run on a split (test, or else val, or else train) of the data that it was
    trained on, and write report.html and verdict.json. `progress` is shown on stderr.

    Returns the page's path, the split and the metrics, with verdicts.
    """
    run = OpenedRun(written)
    recipe = stored_recipe(run)
    device = None if recipe is None else recipe.device
    predictor = predictor_of(run, InferenceOptions(device=device))
    split = chosen_split(source, split)
    part = show_of(predictor.task.name).report(predictor)
    count = len(source.splits[split])
    log(f"report: evaluating the best weights on {split}, {counted(count, 'image')}")
    with CountProgress(count, log, visible=progress) as shown:

        def see(batch: Batch, output: Any, targets: Any) -> None:
            part.see(batch, output, targets)
            shown.add(len(batch.ids))

        result = evaluate(run, predictor, source, split, own=True, watchers=[see], log=log)
    log(f"report: drawing {run.path / 'report.html'}")
    advice = None
    if recipe is not None and "train" in source.splits:
        on_cpu = predictor.device.type == "cpu"
        advice = fine_tuning_advice(recipe, type(predictor.task), source, on_cpu)
    page = report_page(run, predictor, source, split, result, part, recipe, advice)
    run.write_text("report.html", page)
    numbers = {name: value for name, value in result.items() if isinstance(value, int | float)}
    names = ("intervals", "baselines", "train", "selection", "verdicts")
    parts = {name: result[name] for name in names if name in result}
    verdict = json.dumps({"split": split, **numbers, **parts}, indent=2)
    run.write_text("verdict.json", f"{verdict}\n")
    return run.path / "report.html", split, result
