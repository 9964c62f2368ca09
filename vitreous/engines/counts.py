"""Parameters and FLOPs of every variant, kept in `models/counts.toml` so that to list them needs
no torch.

`python -m vitreous.engines.counts` writes the table anew; a test compares it with the models.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

PATH = Path(__file__).parents[1] / "models" / "counts.toml"


def recorded() -> dict[str, tuple[int, int]]:
    """Parameters and FLOPs of every variant, from the table."""
    counts = tomllib.loads(PATH.read_text(encoding="utf-8"))
    return {name: (parameters, flops) for name, (parameters, flops) in counts.items()}


def count(name: str) -> tuple[int, int]:
    """Parameters, and FLOPs for one image of the variant's own size (and one text of its own
    length, where it has a tower for them)."""
    from vitreous.engines.summary import summarise_name

    stages = summarise_name(name)
    return sum(s.parameters for s in stages), sum(s.flops for s in stages)


def table() -> str:
    """The text of `counts.toml`."""
    from vitreous.models import names

    lines = ["# [parameters, FLOPs for one image]; written by python -m vitreous.engines.counts"]
    for name in names():
        parameters, flops = count(name)
        lines.append(f'"{name}" = [{parameters:_}, {flops:_}]')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PATH.write_text(table(), encoding="utf-8")
