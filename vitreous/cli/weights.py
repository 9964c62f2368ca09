"""List what a weight file holds: tensors (alike ones in one row), metadata, the entries of a
training checkpoint; and the format and model that its tensors show. Nothing in the file is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from vitreous import api
from vitreous.cli.printing import TextTable, print_json
from vitreous.terminal import print, printable
from vitreous.train.recipe import Flag, option
from vitreous.wording import counted


@dataclass(frozen=True)
class WeightsArguments:
    source: Annotated[tyro.conf.Positional[str], option("FILE")]
    """Weights to read: a file or folder, hf:OWNER/NAME[@REVISION], or a name from the catalog."""
    from_format: Annotated[str | None, option("FORMAT", "recognised", name="from")] = None
    """Format to read it in, or a .toml file with your own rules."""
    model: Annotated[str | None, option("MODEL", "found in FILE")] = None
    """Name or family of the model, if several are possible."""
    inside: Annotated[str | None, option("KEY", "the first")] = None
    """Entry of a training checkpoint to list, like model_ema."""
    all: Flag = False
    """List every tensor instead of merging alike ones."""
    json: Flag = False
    """Print one JSON object."""


def run(arguments: WeightsArguments) -> None:
    found = api.list_weights(
        arguments.source,
        inside=arguments.inside,
        format=arguments.from_format,
        model=arguments.model,
    )
    tensors = {
        name: {"shape": list(shape), "dtype": found.dtypes[name]}
        for name, shape in found.shapes.items()
    }
    if arguments.json:
        print_json(
            {
                "path": str(found.path),
                "numbers": found.numbers,
                "bytes": found.size_bytes,
                "metadata": found.metadata,
                "inside": found.inside,
                "entries": found.entries,
                "readings": [reading.to_dict() for reading in found.readings],
                "tensors": tensors,
            },
            indent=2,
        )
        return
    size = f"{found.size_bytes / 1e6:,.1f} MB"
    print(f"{found.path}: {counted(len(tensors), 'tensor')}, {found.numbers:,} numbers, {size}")
    for title, table in (("metadata", found.metadata), ("entry", found.entries)):
        for name, value in table.items():
            print(f"  {title:<9} {_line(name)}: {_line(value)}")
    if found.inside is not None:
        print(f"  these are the tensors of {_line(found.inside)}; --inside lists another entry's")
    from vitreous.weights.reading import assumptions  # needs torch, which --help does not

    for number, reading in enumerate(found.readings):
        print(f"  {'or' if number else 'model':<9} {reading}")
        for line in assumptions(reading.assumed):
            print(f"  {'assumed':<9} {line}")
        for key in reading.unused[:5]:
            print(f"  {'not used':<9} {_line(key)}")
    if found.problem:
        print(found.problem)
    elif not found.readings:
        print("  model     unknown: no known format and model have these tensors (docs/formats.md)")
    rows = TextTable("tensor", "shape>", "type", "count>")
    if arguments.all:
        for name, shape in found.shapes.items():
            rows.row(_line(name), "x".join(map(str, shape)) or "1 number", found.dtypes[name], "1")
    else:
        for group in found.groups():
            sides = "x".join(map(str, group.shape)) or "1 number"
            rows.row(_line(group.name), sides, group.dtype, str(group.tensors))
    rows.print()


def _line(text: str) -> str:
    """Of other people's files: on one line, and not without end."""
    safe = printable(text[:201], one_line=True)
    return safe if len(safe) <= 200 else f"{safe[:200]}…"
