"""List the models with their parameters and FLOPs, or the public checkpoints (--weights)."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import tyro

from vitreous import api
from vitreous.cli.printing import TextTable, print_json
from vitreous.train.recipe import Flag


@dataclass(frozen=True)
class ModelsArguments:
    pattern: tyro.conf.Positional[str] = "*"
    """List only names that contain this, or that match it if it is a pattern like 'vit-b*'."""
    weights: Flag = False
    """List public checkpoints instead, with format, size, accuracy, licence and address."""
    json: Flag = False
    """Print one JSON object with the names as keys."""


def run(arguments: ModelsArguments) -> None:
    if arguments.weights:
        _weights(arguments)
        return
    counts = api.model_counts(arguments.pattern)
    if arguments.json:
        print_json(counts, indent=2)
        return
    table = TextTable("model", "parameters>", "GFLOPs>")
    for name, count in counts.items():
        table.row(name, f"{count['parameters']:,}", f"{count['flops'] / 1e9:,.2f}")
    table.print()


def _weights(arguments: ModelsArguments) -> None:
    entries = api.public_weights(arguments.pattern)
    if arguments.json:
        print_json({name: asdict(entry) for name, entry in entries.items()}, indent=2)
        return
    table = TextTable("checkpoint", "format", "size>", "classes>", "top-1>", "licence", "address")
    for name, entry in entries.items():
        table.row(
            name,
            entry.format,
            str(entry.preprocessing.image_size),
            str(entry.classes or "-"),
            f"{100 * entry.accuracy:.1f}" if entry.accuracy else "-",
            entry.licence,
            entry.address,
        )
    table.print()
