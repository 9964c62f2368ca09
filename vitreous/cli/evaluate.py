"""Measure how good a trained model is on data that it did not see."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vitreous.cli.show import Table


@dataclass(frozen=True)
class Arguments:
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A run folder that 'vitreous train' made."""
    data: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="DATA")] = None
    """Data with labels, whose classes are matched by name; what the run was trained on unless
    given."""
    split: Annotated[str | None, tyro.conf.arg(metavar="SPLIT")] = None
    """train, val or test; test unless given, or val where there is no test."""
    batch: int = 64
    """Images at a time."""
    workers: int = 0
    """Processes that read images."""
    figures: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Draw the confusion matrix, the calibration and the classes' scores into this folder."""
    json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Print one JSON object with metric names as keys."""


def run(arguments: Arguments) -> None:
    from vitreous.data.sources import open_source
    from vitreous.predict import load
    from vitreous.train.recipe import Recipe, read_recipe
    from vitreous.train.start import open_usable

    predictor = load(arguments.run)
    if arguments.data is None:
        # Split as it was for training: what is held out depends on the recipe's seed.
        recipe = Recipe(**read_recipe(arguments.run / "recipe.toml"))
        source = open_usable(recipe, lambda note: print(note, file=sys.stderr))
    else:
        source = open_source(arguments.data)
    split = arguments.split or ("test" if "test" in source.splits else "val")
    result = predictor.evaluate(source, split, arguments.batch, arguments.workers)
    if arguments.figures is not None:
        from vitreous.explain.figures import write_evaluation

        for path in write_evaluation(result, arguments.figures):
            print(f"drawn: {path}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"split": split, **result}))
        return
    print(f"{source.name}, {split}: {result['samples']:,} images")
    for name in ("accuracy", "top5", "balanced_accuracy", "f1", "loss", "calibration_error"):
        print(f"  {name:<18} {result[name]:.4f}")
    table = Table("class", "images>", "precision>", "recall>", "f1>")
    for name, row in result["classes"].items():
        numbers = (f"{row[key]:.3f}" for key in ("precision", "recall", "f1"))
        table.row(name, str(row["samples"]), *numbers)
    table.print()
