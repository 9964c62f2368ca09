"""Show how a tensor passes through a model: each stage with its shape, parameters and FLOPs."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated

import tyro

from vitreous import api
from vitreous.cli.options import ConfigOptions
from vitreous.cli.printing import TextTable, print_json
from vitreous.train.recipe import Flag, option

if TYPE_CHECKING:
    from vitreous.engines.summary import SummaryRow


@dataclass(frozen=True)
class SummaryArguments:
    model: tyro.conf.Positional[str]
    """Name of the model ('vitreous models' lists them); other libraries' names are known too."""
    options: Annotated[ConfigOptions, option(name="model")] = field(default_factory=ConfigOptions)
    all: Flag = False
    """Show every block instead of merging identical ones."""
    json: Flag = False
    """Print one JSON object."""


def run(arguments: SummaryArguments) -> None:
    stages = api.summary(arguments.model, **arguments.options.changes())
    parameters, flops = sum(s.parameters for s in stages), sum(s.flops for s in stages)
    if arguments.json:
        result = {
            "model": arguments.model,
            "parameters": parameters,
            "flops": flops,
            "stages": [asdict(stage) for stage in stages],
        }
        print_json(result, indent=2)
        return
    table = TextTable("stage", "shape", "parameters>", "MFLOPs>")
    # Blocks in a row that are alike become one line with their sums.
    for _, rows in itertools.groupby(stages, (lambda row: row.name) if arguments.all else _kind):
        alike = list(rows)
        first, last = alike[0], alike[-1]
        to = f" to {last.name.rpartition('.')[2]}" if len(alike) > 1 else ""
        table.row(
            f"{first.name}{to}",
            "x".join(map(str, first.shape)),
            f"{sum(row.parameters for row in alike):,}",
            f"{sum(row.flops for row in alike) / 1e6:,.1f}",
        )
    table.row("total", "", f"{parameters:,}", f"{flops / 1e6:,.1f}")
    table.print()


def _kind(row: SummaryRow) -> tuple[object, ...]:
    """The same for blocks that are alike, and its own for every other stage."""
    block = row.name.startswith("blocks.")
    return ("" if block else row.name, row.shape, row.parameters, row.flops)
