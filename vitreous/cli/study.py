"""Measure a paper's claim again on this machine: several variants, several seeds, one verdict.
Without a name, the studies that ship are listed; a TOML file is a study of your own."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from vitreous import api
from vitreous.cli.printing import TextTable, print_json
from vitreous.terminal import print
from vitreous.train.recipe import Flag, option


@dataclass(frozen=True)
class StudyArguments:
    name: Annotated[tyro.conf.Positional[str | None], option("NAME|FILE", "list all")] = None
    """A study that ships, or a TOML file (docs/studies.md says how to write one)."""
    tier: Literal["quick", "standard", "full"] = "standard"
    """How thorough: one seed and little training, three seeds, or for a GPU or a night."""
    data: Annotated[str | None, option("DATA", "the study's own")] = None
    """Your own images in place of the study's."""
    seeds: Annotated[int | None, option("N", "by the tier")] = None
    """Runs of each variant, with seeds of their own."""
    jobs: Annotated[int | None, option("N", "one per core")] = None
    """Runs side by side; the cores are shared out among them."""
    out: Annotated[Path | None, option("DIR", "runs/study-NAME-TIER")] = None
    """Folder of the runs, the result and its page. What is there already is not trained again."""
    dry_run: Flag = False
    """Only say what it would cost."""
    json: Flag = False
    """Print the result as one JSON object."""


def run(arguments: StudyArguments) -> None:
    if arguments.name is None:
        _list(arguments.json)
        return
    options = {each: getattr(arguments, each) for each in ("data", "seeds", "jobs", "out")}
    if arguments.dry_run:
        api.study_cost(arguments.name, tier=arguments.tier, **options)
        return
    result = api.study(arguments.name, tier=arguments.tier, **options)
    folder = arguments.out or api.study_folder(result.study.name, arguments.tier)
    if arguments.json:
        print_json(result.to_dict())
        return
    headings, rows = result.table()
    right = {"lr", "GFLOP", "parameters", "runs"}
    table = TextTable(*(f"{each}>" if each in right else each for each in headings))
    for row in rows:
        table.row(*row)
    table.print()
    print()
    print(result)
    for what, why in result.failures.items():
        print(f"failed: {what}: {why}", file=sys.stderr)
    print(f"cost     {result.cpu_seconds / 60:.1f} CPU minutes on {result.machine}")
    print(f"page     {(folder / 'index.html').resolve().as_uri()}")


def _list(as_json: bool) -> None:
    found = api.studies()
    if as_json:
        rows = [{"study": s.name, "question": s.question, "claim": vars(s.claim)} for s in found]
        print_json(rows)
        return
    table = TextTable("study", "question", "claim of")
    for each in found:
        table.row(each.name, each.question, each.claim.source)
    table.print()
