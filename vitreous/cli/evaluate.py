"""Evaluate a trained model on labelled data: metrics, metrics per class, confusion matrix."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from vitreous import api
from vitreous.api.evaluation import ALL
from vitreous.cli.options import Merge, PredictionOptions, WordOptions, Words, options_besides
from vitreous.cli.printing import TextTable, number_text, print_json, print_verdicts
from vitreous.terminal import print
from vitreous.train.recipe import Flag, option
from vitreous.wording import counted

MOST_CLASSES = 20
"""Up to which the confusion matrix is printed: more would not fit on a line."""
MOST_ROWS = 40
"""Classes up to which all are printed; of more, the worst and the best."""
ENDS = 10
"""How many of the worst, and of the best."""
MOST_COUNTED = 99_999
"""Up to which it shows counts: of pixels there are more, and percentages say more."""


@dataclass(frozen=True)
class EvaluationOptions(PredictionOptions):
    """What computes the model, and how."""

    max_pixels: Annotated[int | None, option("N", "the run's own, 50000000")] = None
    """Refuse images with more pixels than this, or that would be enlarged to more."""
    image_size: Annotated[tuple[int, ...], option("H [W]", "the run's own")] = ()
    """Height and width that images are resized to, other than in training: positions are resampled,
    or computed anew."""
    merge: Merge = None
    """Merge R patches in each block of a ViT with others like them; compared with the model without
    merging."""


@dataclass(frozen=True)
class EvaluatedWords(WordOptions):
    """Classes by words, for models that were trained with texts."""

    classes: Words = None
    """With names, the data's own class names are the words; or words, a .txt file with a class per
    line or a .json file, which are matched with the data by name or id."""


@dataclass(frozen=True)
class EvaluateArguments:
    run: tyro.conf.Positional[Path]
    """Run folder of a trained or imported model, hf:OWNER/NAME, or a name from the catalog."""
    data: Annotated[tyro.conf.Positional[str | None], option("[DATA]", "the run's own")] = None
    """Labelled data to evaluate on; classes are matched by name."""
    split: Annotated[str | None, option("{train,val,test}", "test, else val, else train")] = None
    """Split to evaluate on."""
    names: Annotated[Path | None, option("FILE", "the data's own")] = None
    """File with the names of other data's classes, as in training."""
    path_column: Annotated[str | None, option("NAME", "as in training")] = None
    """Column of a table with the images' paths."""
    label_column: Annotated[str | None, option("NAME", "as in training")] = None
    """Column of a table with the images' classes or labels."""
    split_column: Annotated[str | None, option("NAME", "as in training")] = None
    """Column of a table with the images' splits."""
    batch: Annotated[int | None, option("N", "64, or fewer if images are not cropped")] = None
    """Images (or tiles) per forward pass."""
    workers: Annotated[int, option("N")] = 0
    """Processes that read images."""
    figures: Annotated[Path | None, option("FOLDER", "none")] = None
    """Folder for figures: scores per class, confusion matrix, calibration, precision-recall."""
    results: Annotated[Path | None, option("FILE.json", "none")] = None
    """Write all detected objects to a COCO results file, with the data's image and category ids."""
    from_results: Annotated[Path | None, option("FILE.json", "the model's own", name="from")] = None
    """Evaluate the boxes or masks of a COCO results file, written by any program."""
    json: Flag = False
    """Print one JSON object with metric names as keys."""
    words: EvaluatedWords = field(default_factory=EvaluatedWords)
    inference: EvaluationOptions = field(default_factory=EvaluationOptions)


REFUSED = {
    "merge-curve": "it is gone: --merge R compares one number with none; measure several in turn"
}


def run(arguments: EvaluateArguments) -> None:
    from vitreous.train.distributed import sharing

    with sharing() as world:
        options = options_besides(arguments, "json", "words", "inference")
        options |= {**arguments.words.given(), **arguments.inference.given()}
        result = api.evaluate(**options, world=world)
    if not world.is_first:
        return
    if arguments.json:
        print_json(result)
        return
    part = "" if result["split"] == ALL else f", {result['split']}"
    print(f"{result['data']}{part}: {counted(result['samples'], 'image')}")
    if "probe" in result:
        seed = f" (seed {result['probe_seed']})" if "probe_seed" in result else ""
        print(f"probe: {', '.join(result['probe'])}{seed}")
    print_verdicts(result)
    _print(result)
    if "merging" in result:
        _print_merging(result["merging"])


def _print(result: dict[str, Any]) -> None:
    """Whatever the task measures: its numbers, those of each class, and the confusion matrix."""
    intervals = result.get("intervals", {})
    for name, value in result.items():
        if isinstance(value, int | float | None) and name not in ("samples", "probe_seed"):
            text = number_text(name, result) if name in intervals else _number(value, 4)
            print(f"  {name:<18} {text}")
    classes: dict[str, dict[str, float | None]] = result.get("classes", {})
    if not classes:
        return
    columns = list(next(iter(classes.values())))
    table = TextTable("class", *(f"{column}>" for column in columns))
    shown, note = _worth_printing(classes, columns)
    for name in shown:
        table.row(name, *(_number(classes[name][column], 3) for column in columns))
    table.print()
    if note:
        print(note)
    if "confusion" in result and len(classes) <= MOST_CLASSES:
        _print_confusion(list(classes), result["confusion"])


def _print_merging(rows: list[dict[str, Any]]) -> None:
    print("\nmerging R patches in each block, beside the model without merging")
    table = TextTable("R>", "images/s>", "speed>", "agreement>", "score>", "points lost>")
    for row in rows:
        table.row(
            str(row["merge"]),
            f"{row['images_per_second']:.1f}",
            f"{row['speed']:.2f}x",
            f"{row['agreement']:.2%}",
            _number(row["score"], 4),
            _number(row["points_lost"], 2),
        )
    table.print()


def _worth_printing(
    classes: dict[str, dict[str, float | None]], columns: list[str]
) -> tuple[list[str], str]:
    """The classes to print, and a line about the others: of many, the worst and the best."""
    if len(classes) <= MOST_ROWS:
        return list(classes), ""
    score = "f1" if "f1" in columns else columns[0]
    known = {name: value for name, row in classes.items() if (value := row[score]) is not None}
    ordered = sorted(known, key=lambda name: known[name])
    without = len(classes) - len(ordered)
    note = [f"{without:,} of {len(classes):,} classes have no images here"] if without else []
    if len(ordered) > MOST_ROWS:
        note.append(f"the {ENDS} worst and the {ENDS} best of {len(ordered):,} classes by {score}")
        ordered = ordered[:ENDS] + ordered[-ENDS:]
    return ordered, "; ".join([*note, "--json has all classes"])


def _number(value: float | None, digits: int) -> str:
    """A count, a fraction, or a dash for what a class without any samples does not have."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}f}"


def _print_confusion(names: list[str], counts: list[list[int]]) -> None:
    large = max(map(max, counts)) > MOST_COUNTED
    unit = " in % of the row" if large else ""
    print(f"\nconfusion matrix{unit}; rows: ground truth, columns: predicted class by its id")
    table = TextTable("id>", "class", *(f"{number}>" for number in range(len(names))))
    for number, (name, row) in enumerate(zip(names, counts, strict=True)):
        total = max(sum(row), 1)
        cells = (f"{100 * count / total:.1f}" if large else str(count) for count in row)
        table.row(str(number), name, *cells)
    table.print()
