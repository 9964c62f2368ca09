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
MOST_COUNTED = 99_999
"""Up to which it shows counts: of pixels there are more, and shares say more."""


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
    batch: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Images at a time; 64 unless given, or fewer where images are not cut to one size."""
    workers: int = 0
    """Processes that read images."""
    figures: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Draw the confusion matrix, the classes' scores and, of a classifier, the calibration into
    this folder."""
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
    from vitreous.train.opening import open_usable, stored_recipe

    config = Run(arguments.run).read_config()
    own = config.data
    if arguments.data is not None and not same_source(arguments.data, own):
        return open_source(arguments.data, task=config.task, val_fraction=0)
    recipe = stored_recipe(Run(arguments.run))
    if recipe is None:
        raise ConfigError(
            f"{arguments.run / 'recipe.toml'}: there is no such file, which says how {own} was "
            "divided for training: give other data to evaluate on"
        )
    return open_usable(recipe, lambda note: print(note, file=sys.stderr))


def _print(result: dict[str, Any]) -> None:
    """Whatever the task measures: its numbers, those of each class, and what is taken for what."""
    for name, value in result.items():
        if isinstance(value, int | float) and name != "samples":
            print(f"  {name:<18} {_number(value, 4)}")
    classes: dict[str, dict[str, float | None]] = result["classes"]
    columns = list(next(iter(classes.values())))
    table = Table("class", *(f"{column}>" for column in columns))
    for name, row in classes.items():
        table.row(name, *(_number(row[column], 3) for column in columns))
    table.print()
    if "confusion" in result and len(classes) <= MOST_CLASSES:
        _print_confusion(list(classes), result["confusion"])


def _number(value: float | None, digits: int) -> str:
    """A count, a share, or what cannot be known: of a class that is nowhere."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}f}"


def _print_confusion(names: list[str], counts: list[list[int]]) -> None:
    large = max(map(max, counts)) > MOST_COUNTED
    unit = ", in % of the truth" if large else ""
    print(f"\nwhat is taken for what{unit}; rows: truth, columns: the id of what the model says")
    table = Table("id>", "truth", *(f"{number}>" for number in range(len(names))))
    for number, (name, row) in enumerate(zip(names, counts, strict=True)):
        total = max(sum(row), 1)
        cells = (f"{100 * count / total:.1f}" if large else str(count) for count in row)
        table.row(str(number), name, *cells)
    table.print()
