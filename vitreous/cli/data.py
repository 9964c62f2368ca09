"""Check data before training: what was recognised, and every problem with its file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from vitreous.cli.show import Table, thousands
from vitreous.errors import DataError
from vitreous.tasks import TASKS
from vitreous.train.recipe import Flag, option

if TYPE_CHECKING:
    from vitreous.data.check.report import CheckReport


@dataclass(frozen=True)
class Arguments:
    action: Annotated[tyro.conf.Positional[Literal["check"]], option("check")]
    """Decode every image once and report what is there."""
    path: tyro.conf.Positional[str]
    """A folder: class folders, images with masks, IDX files, Pascal VOC, COCO or YOLO.
    A file: a .csv table (path,label), a COCO .json or YOLO's data.yaml.
    A name: digits, shapes or torchvision:NAME.
    To choose how PATH is read, write folder:PATH, csv:, idx:, masks:, coco:, voc: or yolo:PATH."""
    task: Annotated[str | None, option("{" + ",".join(TASKS) + "}", "what the data is for")] = None
    """Task that the data is meant for, if it allows several (shapes, COCO, Pascal VOC)."""
    names: Annotated[Path | None, option("FILE", "the data's own")] = None
    """Names of the classes: JSON from ids (or mask colours) to names, or one name per line."""
    queries: Annotated[int, option("N")] = 100
    """Report images with more objects than this, the most that a model could find."""
    download: Flag = False
    """Allow downloading a public dataset."""
    seed: Annotated[int, option("N")] = 0
    """Seed of the held-out split, if the data has no val split."""
    val_fraction: Annotated[float, option("F")] = 0.1
    """Fraction of each class in that split."""
    max_pixels: Annotated[int, option("N")] = 50_000_000
    """Report images with more pixels than this instead of decoding them."""
    json: Flag = False
    """Print one JSON object."""


def run(arguments: Arguments) -> None:
    from vitreous.data.check.report import check
    from vitreous.data.formats import open_source

    source = open_source(
        arguments.path,
        truth=None if arguments.task is None else TASKS[arguments.task],
        download=arguments.download,
        seed=arguments.seed,
        val_fraction=arguments.val_fraction,
        names=arguments.names,
    )
    report = check(source, max_pixels=arguments.max_pixels, queries=arguments.queries)
    if arguments.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        _print(report)
    if report.fatal:
        count = len(report.fatal)
        raise DataError(
            f"{report.name}: {count} {'problem makes' if count == 1 else 'problems make'} "
            "images unusable: see above"
        )


def _print(report: CheckReport) -> None:
    from vitreous.tasks import task_for

    print(f"{report.name}: {task_for(report.truth).name}, read as {report.kind}")
    print(f"images      {_counted_by_split(report.splits)}")
    if report.sizes:
        sizes = report.sizes
        size = " ".join(f"{k} {_size(sizes[k])}" for k in ("smallest", "median", "largest"))
        usual = f"; {thousands(sizes['most_common_count'])} are {_size(sizes['most_common'])}"
        same = sizes["different"] == 1
        print(f"sizes       {_size(sizes['median']) if same else size + usual}")
        print(f"channels    {_counted(report.channels)}; values {_counted(report.dtypes)}")
    if report.bytes is not None:
        print(f"bytes       {thousands(report.bytes)}")
    if report.mean:
        print(f"mean        {_numbers(report.mean)}   (train, in 0..1)")
        print(f"std         {_numbers(report.std)}")
    copies = {where: count for where, count in report.duplicates.items() if count}
    print(f"duplicates  {_duplicates(copies)}")
    if report.alike:
        print(f"near alike  {_duplicates({k: n for k, n in report.alike.items() if n})}")
    if report.objects:
        _print_objects(report)
    if report.pixels:
        parts = ((split, _part(n, _all_pixels(report, split))) for split, n in report.lone.items())
        lone = ", ".join(f"{split} {part}" for split, part in parts)
        print(f"lone        {lone} of the pixels are unlike all four around them")
    for note in report.notes:
        print(f"note        {note}")
    print(f"\n{len(report.classes)} classes, in the order the model will have them:")
    if report.pixels:
        _print_pixels(report)
    elif report.objects:
        _print_counts(report)
    else:
        table = Table("id>", "class", *(f"{split}>" for split in report.splits))
        for number, (name, counts) in enumerate(report.classes.items()):
            table.row(
                _id(report, number, name),
                name,
                *(thousands(counts[split]) for split in report.splits),
            )
        table.print()
    if not report.problems:
        print("\nno problems")
        return
    count = len(report.problems)
    print(f"\n{count} problem{'s' if count > 1 else ''}, {len(report.fatal)} of them fatal:")
    for problem in sorted(report.problems, key=lambda problem: not problem.fatal):
        print(f"  {'fatal' if problem.fatal else 'note '}  {problem.file}: {problem.what}")


def _id(report: CheckReport, number: int, name: str) -> str:
    """What the data calls a class, or its place where that is just its name."""
    return str(number) if report.ids[name] == name else str(report.ids[name])


def _print_objects(report: CheckReport) -> None:
    """How many, how large, and what about them is not to be overlooked."""
    for split, of in report.per_image.items():
        count = thousands(sum(report.object_sizes[split].values()))
        empty = thousands(report.empty[split]) if report.empty[split] else "no"
        print(
            f"objects     {split} {count}; in an image {of['median']:g} (median), at most "
            f"{of['largest']:g}; {empty} images without objects"
        )
    for split, sizes in report.object_sizes.items():
        each = ", ".join(f"{size} {thousands(count)}" for size, count in sizes.items())
        print(f"boxes       {split} {each}   (below 32x32, below 96x96, and above)")
    if any(report.cut.values()):
        print(f"cut off     {_counted_by_split(report.cut)} boxes, at the edge of the image")
    if any(report.crowd.values()):
        crowd = _counted_by_split(report.crowd)
        print(f"crowd       {crowd} boxes are neither learned nor counted (crowds, difficult)")


def _counted_by_split(counts: dict[str, int]) -> str:
    return ", ".join(f"{split} {thousands(count)}" for split, count in counts.items())


def _print_counts(report: CheckReport) -> None:
    """For each split, the images that have some of a class, and its objects."""
    splits = list(report.splits)
    table = Table("id>", "class", *(f"{what}>" for split in splits for what in (split, "objects")))
    for number, (name, objects) in enumerate(report.objects.items()):
        cells = [_id(report, number, name), name]
        for split in splits:
            cells += [thousands(report.classes[name][split]), thousands(objects[split])]
        table.row(*cells)
    table.print()
    print("In each split: images that have some of it, and its objects.")


def _print_pixels(report: CheckReport) -> None:
    """For each split, the images that have some of a class, and its part of all labelled pixels."""
    splits = list(report.splits)
    table = Table("id>", "class", *(f"{what}>" for split in splits for what in (split, "pixels")))
    for number, (name, pixels) in enumerate(report.pixels.items()):
        cells = [_id(report, number, name), name]
        for split in splits:
            labelled = _all_pixels(report, split) - report.ignored[split]
            cells += [thousands(report.classes[name][split]), _part(pixels[split], labelled)]
        table.row(*cells)
    if any(report.ignored.values()):
        cells = ["", "(ignored, of all)"]
        for split in splits:
            cells += ["", _part(report.ignored[split], _all_pixels(report, split))]
        table.row(*cells)
    table.print()
    print("In each split: images that have some of it, and its part of the labelled pixels.")


def _all_pixels(report: CheckReport, split: str) -> int:
    return report.ignored[split] + sum(pixels[split] for pixels in report.pixels.values())


def _part(count: int, total: int) -> str:
    """Also of very little it must be seen that it is not nothing."""
    if not count or not total:
        return "-"
    return f"{count / total:.2%}" if count / total >= 0.0001 else "<0.01%"


def _size(size: list[int]) -> str:
    return f"{size[0]}x{size[1]}"


def _counted(counts: dict[int, int] | dict[str, int]) -> str:
    if len(counts) == 1:
        return str(next(iter(counts)))
    return ", ".join(f"{what} ({thousands(count)})" for what, count in counts.items())


def _numbers(values: list[float]) -> str:
    return " ".join(f"{value:.4f}" for value in values)


def _duplicates(copies: dict[str, int]) -> str:
    if not copies:
        return "none"
    within = [f"{thousands(n)} within {split}" for split, n in copies.items() if split != "across"]
    across = copies.get("across")
    return ", ".join(within + ([f"{thousands(across)} in several splits"] if across else []))
