"""Show how a tensor passes through a model: each stage with its shape, parameters and FLOPs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated

import tyro

from vitreous.cli.options import ConfigOptions
from vitreous.cli.show import Table, thousands
from vitreous.train.recipe import Flag, option


@dataclass(frozen=True)
class Arguments:
    model: tyro.conf.Positional[str]
    """Name of the model ('vitreous models' lists them); other libraries' names are known too."""
    options: Annotated[ConfigOptions, option(name="model")] = field(default_factory=ConfigOptions)
    all: Flag = False
    """Show every block instead of merging identical ones."""
    json: Flag = False
    """Print one JSON object."""


def run(arguments: Arguments) -> None:
    from vitreous.models.summary import SummaryRow, summarise_name

    stages = summarise_name(arguments.model, **arguments.options.changes())
    parameters, flops = sum(s.parameters for s in stages), sum(s.flops for s in stages)
    if arguments.json:
        result = {
            "model": arguments.model,
            "parameters": parameters,
            "flops": flops,
            "stages": [asdict(stage) for stage in stages],
        }
        print(json.dumps(result, indent=2))
        return

    def merged() -> list[SummaryRow]:
        """Blocks in a row that are alike become one line with their sums."""
        lines: list[SummaryRow] = []
        alike: list[SummaryRow] = []
        for stage in stages:
            same = alike and (
                (stage.shape, stage.parameters, stage.flops)
                == (alike[0].shape, alike[0].parameters, alike[0].flops)
                and stage.name.startswith("blocks.")
                and alike[0].name.startswith("blocks.")
            )
            if same and not arguments.all:
                alike.append(stage)
                lines[-1] = replace(
                    stage,
                    name=f"{alike[0].name} to {stage.name.rpartition('.')[2]}",
                    parameters=sum(s.parameters for s in alike),
                    flops=sum(s.flops for s in alike),
                )
            else:
                alike = [stage]
                lines.append(stage)
        return lines

    table = Table("stage", "shape", "parameters>", "MFLOPs>")
    for stage in merged():
        shape = "x".join(map(str, stage.shape))
        table.row(stage.name, shape, thousands(stage.parameters), f"{stage.flops / 1e6:,.1f}")
    table.row("total", "", thousands(parameters), f"{flops / 1e6:,.1f}")
    table.print()
