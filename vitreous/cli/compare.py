"""Compare trained runs, imported models and exported files: what differs, which is better, and
whether that is more than chance."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from vitreous import api
from vitreous.cli.options import PredictionOptions, options_besides
from vitreous.cli.printing import TextTable, print_json
from vitreous.errors import ConfigError
from vitreous.terminal import print
from vitreous.train.recipe import Flag, option

if TYPE_CHECKING:
    from vitreous.pages.content import Table
    from vitreous.study.comparison import Comparison


@dataclass(frozen=True)
class ComparisonOptions(PredictionOptions):
    """What computes the models, and how."""

    image_size: Annotated[tuple[int, ...], option("H [W]", "each run's own")] = ()
    """Height and width that images are resized to, other than in training."""


@dataclass(frozen=True)
class CompareArguments:
    runs: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="RUN RUN...", help_behavior_hint="(required)"),
    ]
    """Run folders, exported files, hf:OWNER/NAME, or names from the catalog; all of one task."""
    data: Annotated[str | None, option("DATA", "the runs' own")] = None
    """Labelled data to compare on; classes are matched by name."""
    split: Annotated[str | None, option("{train,val,test}", "test, else val, else train")] = None
    """Split to compare on."""
    baseline: Annotated[str | None, option("RUN", "the first")] = None
    """The run that the others are compared with."""
    by_seed: Flag = False
    """Runs that differ in their seed alone are one group; compare groups, seed by seed."""
    images: Annotated[int, option("N")] = 24
    """How many images to list on which runs disagree."""
    no_speed: Flag = False
    """Do not time the runs."""
    batch: Annotated[int | None, option("N", "64, or fewer if images are not cropped")] = None
    """Images per forward pass."""
    workers: Annotated[int, option("N")] = 0
    """Processes that read images, for each run."""
    out: Annotated[Path | None, option("FILE.html", "none")] = None
    """Page to write, or a folder for it."""
    json: Flag = False
    """Print one JSON object."""
    inference: ComparisonOptions = field(default_factory=ComparisonOptions)


def run(arguments: CompareArguments) -> None:
    first, others = arguments.runs[:1], arguments.runs[1:]
    if not first:
        raise ConfigError("which runs? give two or more: vitreous compare RUN RUN")
    options = options_besides(arguments, "runs", "json", "inference", "no_speed")
    options |= {"speed": not arguments.no_speed, "progress": True}
    found = api.compare(first[0], *others, **options, **arguments.inference.given())
    if arguments.json:
        print_json(found.to_dict())
    else:
        _print(found)


def _print(found: Comparison) -> None:
    from vitreous.pages.comparison import cost_table, fields_table, values_table
    from vitreous.study.comparison import LISTED

    print("; ".join(filter(None, (found.measured_on, f"baseline: {found.baseline}"))))
    for each in found.contrasts:
        print(f"  {each}")
    for note in found.notes:
        print(f"  note: {note}")
    for table in (values_table(found), cost_table(found), fields_table(found)):
        if table is not None:
            print()
            _print_table(table)
    for pair in found.agreements:
        of = f"{pair.run} and {pair.baseline}: {pair.mean:.1%} the same"
        kappa = "" if pair.kappa is None else f", kappa {pair.kappa:.3f}"
        alone = ""
        if pair.mcnemar is not None:
            alone = (
                f"; right alone: {pair.run} {pair.only_run:,}, {pair.baseline} "
                f"{pair.only_baseline:,} (McNemar p {pair.mcnemar:.3f})"
            )
        print(f"\n{of}{kappa}; {pair.differ:,} answers differ{alone}")
    if found.disagreements:
        listed = TextTable("image", "ground truth", *found.names)
        for disagreement in found.disagreements[:LISTED]:
            listed.row(disagreement.image, disagreement.truth, *disagreement.answers)
        listed.print()


def _print_table(content: Table) -> None:
    table = TextTable(*content.headings)
    for row in content.rows:
        table.row(*(cell.text for cell in row))
    table.print()
