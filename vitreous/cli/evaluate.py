"""Evaluate a trained model on labelled data: metrics, metrics per class, confusion matrix."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vitreous.cli.show import Table
from vitreous.errors import ConfigError
from vitreous.tasks import TASKS, task_for
from vitreous.train.recipe import Flag, option

if TYPE_CHECKING:
    from vitreous.data.source import Source

MOST_CLASSES = 20
"""Up to which the confusion matrix is printed: more would not fit on a line."""
MOST_COUNTED = 99_999
"""Up to which it shows counts: of pixels there are more, and shares say more."""


@dataclass(frozen=True)
class Arguments:
    run: tyro.conf.Positional[Path]
    """Run folder of a trained model."""
    data: Annotated[tyro.conf.Positional[str | None], option("[DATA]", "the run's own")] = None
    """Labelled data to evaluate on; classes are matched by name."""
    split: Annotated[str | None, option("{train,val,test}", "test, else val, else all")] = None
    """Split to evaluate on."""
    batch: Annotated[int | None, option("N", "64, or fewer for images of any size")] = None
    """Images per forward pass."""
    workers: Annotated[int, option("N")] = 0
    """Processes that read images."""
    figures: Annotated[Path | None, option("FOLDER", "none")] = None
    """Folder for figures: scores per class, confusion matrix, calibration, precision-recall."""
    results: Annotated[Path | None, option("FILE.json", "none")] = None
    """Write all detected boxes to a COCO results file, with the data's image and category ids."""
    from_: Annotated[Path | None, option("FILE.json", "the model's boxes", name="from")] = None
    """Evaluate the boxes of a COCO results file, written by any program."""
    json: Flag = False
    """Print one JSON object with metric names as keys."""


def run(arguments: Arguments) -> None:
    source = _source(arguments)
    split = arguments.split or next(s for s in ("test", "val", "train") if s in source.splits)
    result = _measure(arguments, source, split)
    if arguments.figures is not None:
        from vitreous.pages.figure import save
        from vitreous.run_folder import Run
        from vitreous.tasks import show_of

        drawn = show_of(Run(arguments.run).read_config().task).figures(result)
        for name, figure in drawn.items():
            path = save(figure, arguments.figures / f"{name}.png")
            print(f"drawn: {path}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"split": split, **result}))
        return
    print(f"{source.name}, {split}: {result['samples']:,} images")
    _print(result)


def _measure(arguments: Arguments, source: Source, split: str) -> dict[str, Any]:
    """Of the model's predictions, or of a file of results."""
    from vitreous.predict import check_split, load

    check_split(source, split)
    if arguments.from_ is not None:
        if arguments.results is not None:
            raise ConfigError("--results writes predictions, --from reads them: use one of them")
        return task_for(source.truth_kind).measure_results(arguments.from_, source, split)
    predictor = load(arguments.run)
    numbers = arguments.batch, arguments.workers
    if arguments.results is None:
        return predictor.evaluate(source, split, *numbers)
    with predictor.task.writing_results(arguments.results, source, split, _log) as see:
        return predictor.evaluate(source, split, *numbers, see)


def _log(text: str) -> None:
    print(text, file=sys.stderr)


def _source(arguments: Arguments) -> Source:
    """The run's own data divided as it was for training; other data as it is, nothing held out."""
    from vitreous.data.formats import open_source, same_source
    from vitreous.run_folder import Run
    from vitreous.train.open_data import open_usable, stored_recipe

    config = Run(arguments.run).read_config()
    own = config.data
    if arguments.data is not None and not same_source(arguments.data, own):
        return open_source(arguments.data, truth=TASKS[config.task], val_fraction=0)
    recipe = stored_recipe(Run(arguments.run))
    if recipe is None:
        raise ConfigError(
            f"{arguments.run / 'recipe.toml'}: there is no such file, which says how {own} was "
            "divided for training: give other data to evaluate on"
        )
    return open_usable(recipe, _log)


def _print(result: dict[str, Any]) -> None:
    """Whatever the task measures: its numbers, those of each class, and what is taken for what."""
    for name, value in result.items():
        if isinstance(value, int | float | None) and name != "samples":
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
