"""List the models with their parameters and FLOPs, or the public checkpoints (--weights)."""

from __future__ import annotations

import fnmatch
import json
import tomllib
from dataclasses import asdict, dataclass
from importlib import resources

import tyro

from vitreous.cli.show import Table, giga, thousands
from vitreous.errors import ConfigError, did_you_mean
from vitreous.train.recipe import Flag


@dataclass(frozen=True)
class Arguments:
    pattern: tyro.conf.Positional[str] = "*"
    """List only names that contain this, or that match it if it is a pattern like 'vit-b*'."""
    weights: Flag = False
    """List public checkpoints instead, with format, size, accuracy, licence and address."""
    json: Flag = False
    """Print one JSON object with the names as keys."""


def run(arguments: Arguments) -> None:
    if arguments.weights:
        _weights(arguments)
        return
    # The counts are kept as data, so that listing does not wait for torch.
    text = (resources.files("vitreous") / "models" / "counts.toml").read_text(encoding="utf-8")
    counts = tomllib.loads(text)
    names = _matching(list(counts), arguments.pattern)
    if arguments.json:
        rows = {
            name: dict(zip(("parameters", "flops"), counts[name], strict=True)) for name in names
        }
        print(json.dumps(rows, indent=2))
        return
    table = Table("model", "parameters>", "GFLOPs>")
    for name in names:
        parameters, flops = counts[name]
        table.row(name, thousands(parameters), giga(flops))
    table.print()


def _weights(arguments: Arguments) -> None:
    from vitreous.weights.catalog import catalog

    known = catalog()
    names = _matching(list(known), arguments.pattern)
    if arguments.json:
        print(json.dumps({name: asdict(known[name]) for name in names}, indent=2))
        return
    table = Table("checkpoint", "format", "size>", "classes>", "top-1>", "licence", "address")
    for name in names:
        entry = known[name]
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


def _matching(known: list[str], pattern: str) -> list[str]:
    names = [name for name in known if fnmatch.fnmatchcase(name, pattern)]
    if not names and not set("*?[") & set(pattern):
        names = [name for name in known if pattern in name]
    if not names:
        hint = did_you_mean(pattern, known) or ": 'vitreous models' lists them all"
        raise ConfigError(f"no name matches {pattern!r}{hint}")
    return names
