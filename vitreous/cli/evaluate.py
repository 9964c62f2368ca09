"""Measure how good a trained model is on data that it did not see."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vitreous.cli.show import Table
from vitreous.errors import ConfigError

if TYPE_CHECKING:
    from vitreous.data.source import Source

MOST_CLASSES = 20
"""Up to which the confusion matrix is printed: more would not fit on a line."""


@dataclass(frozen=True)
class Arguments:
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A run folder that 'vitreous train' made."""
    data: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="DATA")] = None
    """Data with labels, whose classes are matched by name; what the run was trained on unless
    given."""
    split: Annotated[str | None, tyro.conf.arg(metavar="SPLIT")] = None
    """train, val or test; unless given test, or val where there is no test, or all of other data
    that is not divided."""
    batch: int = 64
    """Images at a time."""
    workers: int = 0
    """Processes that read images."""
    figures: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Draw the confusion matrix, the calibration and the classes' scores into this folder."""
    json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Print one JSON object with metric names as keys."""


def run(arguments: Arguments) -> None:
    from vitreous.predict import load

    predictor = load(arguments.run)
    source = _source(arguments)
    split = arguments.split or next(s for s in ("test", "val", "train") if s in source.splits)
    result = predictor.evaluate(source, split, arguments.batch, arguments.workers)
    if arguments.figures is not None:
        from vitreous.explain.figures import write_evaluation

        for path in write_evaluation(result, arguments.figures):
            print(f"drawn: {path}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"split": split, **result}))
        return
    print(f"{source.name}, {split}: {result['samples']:,} images")
    _print(result)


def _source(arguments: Arguments) -> Source:
    """The run's own data divided as it was for training; other data as it is, nothing held out."""
    from vitreous.data.sources import open_source, same_source
    from vitreous.run_folder import Run
    from vitreous.train.start import open_usable, stored_recipe

    own = Run(arguments.run).read_config().data
    if arguments.data is not None and not same_source(arguments.data, own):
        return open_source(arguments.data, val_fraction=0)
    recipe = stored_recipe(Run(arguments.run))
    if recipe is None:
        raise ConfigError(
            f"{arguments.run / 'recipe.toml'}: there is no such file, which says how {own} was "
            "divided for training: give other data to evaluate on"
        )
    return open_usable(recipe, lambda note: print(note, file=sys.stderr))


def _print(result: dict[str, Any]) -> None:
    for name in ("accuracy", "top5", "balanced_accuracy", "f1", "loss", "calibration_error"):
        print(f"  {name:<18} {result[name]:.4f}")
    table = Table("class", "images>", "precision>", "recall>", "f1>")
    for name, row in result["classes"].items():
        numbers = (f"{row[key]:.3f}" for key in ("precision", "recall", "f1"))
        table.row(name, str(row["samples"]), *numbers)
    table.print()
    if len(result["classes"]) <= MOST_CLASSES:
        print("\nwhat is taken for what; rows: truth, columns: the id of what the model says")
        _print_confusion(list(result["classes"]), result["confusion"])


def _print_confusion(names: list[str], counts: list[list[int]]) -> None:
    table = Table("id>", "truth", *(f"{number}>" for number in range(len(names))))
    for number, (name, row) in enumerate(zip(names, counts, strict=True)):
        table.row(str(number), name, *map(str, row))
    table.print()
