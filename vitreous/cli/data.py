"""Check data before training: what was recognised, and every problem with its file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from vitreous import api
from vitreous.cli.options import options_besides
from vitreous.cli.printing import TextTable, print_json
from vitreous.errors import DataError
from vitreous.tasks import TASKS
from vitreous.terminal import print
from vitreous.train.recipe import Flag, option
from vitreous.wording import counted

if TYPE_CHECKING:
    from vitreous.data.check.report import CheckReport


@dataclass(frozen=True)
class DataArguments:
    action: Annotated[tyro.conf.Positional[Literal["check"]], option("check")]
    """Decode every image once and report what is there."""
    path: tyro.conf.Positional[str]
    """A folder: class folders, images with masks, IDX files, Pascal VOC, COCO or YOLO.
    A file: a .csv table (path,label), a COCO .json or YOLO's data.yaml.
    A name: digits, handwriting, relations, shapes or torchvision:NAME.
    To choose how PATH is read, write folder:PATH, csv:, idx:, masks:, coco:, voc: or yolo:PATH."""
    task: Annotated[str | None, option("{" + ",".join(TASKS) + "}", "the data's own")] = None
    """Task that the data is meant for, if it allows several (shapes, COCO, Pascal VOC)."""
    names: Annotated[Path | None, option("FILE", "the data's own")] = None
    """File with the classes' names: JSON or YAML from ids (or mask colours) to names, or text with
    one name per line."""
    path_column: Annotated[str | None, option("NAME", "path")] = None
    """Column of a table with the images' paths."""
    label_column: Annotated[str | None, option("NAME", "label")] = None
    """Column of a table with the images' classes or labels."""
    split_column: Annotated[str | None, option("NAME", "split")] = None
    """Column of a table with the images' splits."""
    queries: Annotated[int | None, option("N", "100, for boxes")] = None
    """Report images with more objects than this, which a model with N queries cannot detect."""
    download: Flag = False
    """Allow downloading a public dataset."""
    seed: Annotated[int, option("N")] = 0
    """Seed of the held-out split, if the data has no val split."""
    val_fraction: Annotated[float, option("F")] = 0.1
    """Fraction of each class in that split."""
    test_fraction: Annotated[float, option("F")] = 0.0
    """Fraction of each class that is held out before that as a test split, if the data has none."""
    max_pixels: Annotated[int, option("N")] = 50_000_000
    """Report images with more pixels than this, or that would be enlarged to more, instead of
    decoding them."""
    json: Flag = False
    """Print one JSON object."""


def run(arguments: DataArguments) -> None:
    unused = () if arguments.queries is not None else ("queries",)
    report = api.check_data(**options_besides(arguments, "action", "json", *unused))
    if arguments.json:
        print_json(report.to_dict(), indent=2)
    else:
        _print(report)
    if report.fatal:
        count = len(report.fatal)
        raise DataError(
            f"{report.name}: {counted(count, 'fatal problem')}, with which 'train' "
            "would stop: see above"
        )


def _print(report: CheckReport) -> None:
    from vitreous.data.check.report import listing
    from vitreous.data.check.truth_check import by_split, copies
    from vitreous.tasks import task_for

    print(f"{report.name}: {task_for(report.truth_kind).name}, read as {report.kind}")
    print(f"images      {by_split(report.splits)}")
    if report.sizes:
        sizes = report.sizes
        size = " ".join(f"{k} {_size(sizes[k])}" for k in ("smallest", "median", "largest"))
        usual = f"; {sizes['most_common_count']:,} are {_size(sizes['most_common'])}"
        same = sizes["different"] == 1
        print(f"sizes       {_size(sizes['median']) if same else size + usual}")
        print(f"channels    {_counted(report.channels)}; values {_counted(report.dtypes)}")
    if report.bytes is not None:
        print(f"bytes       {report.bytes:,}")
    if report.mean:
        print(f"mean        {_numbers(report.mean)}   (train, in 0..1, as 'train' measures them)")
        print(f"std         {_numbers(report.std)}")
    print(f"duplicates  {copies(report.duplicates)}")
    for word, text in report.truth.lines():
        print(f"{word:<11} {text}")
    for note in report.notes:
        print(f"note        {note}")
    if report.ids:
        _print_classes(report)
    if not report.problems:
        print("\nno problems")
        return
    count = len(report.problems)
    print(f"\n{counted(count, 'problem')}, {len(report.fatal)} of them fatal:")
    lines = list(listing(report.problems))
    for level, text in lines:
        print(f"  {level:<5}  {text}")
    if len(lines) < count:
        print("  --json lists all of them")


def _print_classes(report: CheckReport) -> None:
    print(f"\n{counted(len(report.ids), 'class')}, in the order the model will have them:")
    headings, rows, what = report.truth.table(list(report.splits))
    table = TextTable("id>", "class", *(f"{heading}>" for heading in headings))
    for number, (name, cells) in enumerate(rows.items()):
        table.row(_id(report, number, name), name, *cells)
    table.print()
    if what:
        print(what)


def _id(report: CheckReport, number: int, name: str) -> str:
    """What the data calls a class, or its index where that is just its name."""
    id = report.ids.get(name, "")
    return str(number) if id == name else str(id)


def _size(size: list[int]) -> str:
    return f"{size[0]}x{size[1]}"


def _counted(counts: dict[int, int] | dict[str, int]) -> str:
    if len(counts) == 1:
        return str(next(iter(counts)))
    return ", ".join(f"{what} ({count:,})" for what, count in counts.items())


def _numbers(values: list[float]) -> str:
    return " ".join(f"{value:.4f}" for value in values)
