"""Why somebody's own rules read no model in a checkpoint: keys without a rule, patterns that do not
fit, and what the nearest model lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vitreous.models import build
from vitreous.weights.blank import without_values
from vitreous.weights.fields import Inferred, parameter_names
from vitreous.weights.identify import infer_by_rules
from vitreous.weights.origin import WeightFile
from vitreous.weights.reading import Reading
from vitreous.weights.rules.formats import find_format
from vitreous.weights.rules.keys import gather
from vitreous.weights.rules.language import Shape
from vitreous.weights.rules.patterns import unit_advice

MAX_LISTED = 8
NEEDED = (
    "blocks.0.attention.qkv.weight",
    "blocks.0.mlp.fc1.weight",
    "blocks.0.mlp.fc2.weight",
)
"""Without these no ViT is seen at all."""


_INDEX = re.compile(r"(?<=[._])\d+(?=[._])")


def rule_problems(
    file: WeightFile,
    format: str | Path | None,
    seen: list[Reading],
    stated: Mapping[str, Any] | None = None,
) -> str:
    """A message; empty for a built-in format, and where a model was seen and all rules fit: if one
    has found its keys and does not fit them, that model is not the one that was meant.

    stated: config fields that are certain.
    """
    if format is None or not str(format).endswith(".toml"):
        return ""
    gathered = seen[0].gathered if seen else gather(find_format(format, ""), file.tensors)
    if seen and not gathered.problems:
        return ""
    rules, plain = gathered.rules, gathered.plain
    said = [f"the rules of {rules.name} find no model in {file.called}:"]
    without = [key for key in gathered.unused if rules.ours_of(key) is None]
    said += _listed("no rule", (f"{key} {plain[key]}" for key in without))
    said += _listed("does not fit", (f"{n}: {why}" for n, why in gathered.problems.items()))
    strange = [
        name
        for name in gathered.shapes
        if not _is_parameter(name) and not any(rule.unused for rule, _ in rules.rules_for(name))
    ]
    said += _listed(
        "no parameter", (f"{name}: no ViT has it ({gathered.keys[name][0]})" for name in strange)
    )
    nearest = infer_by_rules(gathered, None, stated or {}, search=True)
    if not nearest:
        lacks = [name for name in NEEDED if name not in gathered.shapes]
        if not {"patch.weight", "stem.layers.0.conv.weight"} & gathered.shapes.keys():
            lacks = ["patch.weight", *lacks]
        said += _listed("missing", (f"{name}: no rule gives it" for name in lacks))
    else:
        changes = ", ".join(f"{name}={value!r}" for name, value in nearest[0].changes.items())
        said.append(f"  nearest       {nearest[0].model} with {changes}, which")
        said += _listed("has besides", _misfits(nearest[0], gathered.shapes))
        unused = [key for key in nearest[0].unused if key not in gathered.unused]
        said += _listed("has not", unused)
    return "\n".join(
        [
            *said,
            f"'vitreous weights {file.called}' lists its tensors; docs/formats.md has the rules' "
            "language, docs/vit.md the fields that `numbers` or --set may state",
        ]
    )


def _is_parameter(name: str) -> bool:
    known = {re.sub(r"\.\d+\.", ".{i}.", each) for each in parameter_names("vit")}
    return name.startswith(("stem.", "grid_stem.")) or re.sub(r"\.\d+\.", ".{i}.", name) in known


def _listed(what: str, rows: Iterable[str]) -> list[str]:
    rows = _merged(rows)
    more = [f"  … and {len(rows) - MAX_LISTED} more"] if len(rows) > MAX_LISTED else []
    return [f"  {what:<13} {row}" for row in rows[:MAX_LISTED]] + more


def _merged(rows: Iterable[str]) -> list[str]:
    """Rows that differ in the number of a block or head only, as one with the first of them."""
    alike: dict[str, list[str]] = {}
    for row in rows:
        alike.setdefault(_INDEX.sub("#", row), []).append(row)
    return [
        rows[0] if len(rows) == 1 else f"{rows[0]} (and {len(rows) - 1} like it)"
        for rows in alike.values()
    ]


def _misfits(nearest: Inferred, shapes: Mapping[str, Shape]) -> Iterable[str]:
    with without_values():
        model = build(nearest.family, nearest.config)
    ours = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    for name in nearest.misfits:
        if name in shapes and name in ours:
            advice = unit_advice(shapes[name], ours[name])
            if (
                name == "position.table"
                and len(shapes[name]) == 2 < shapes[name][0] - ours[name][0]
            ):
                advice = ": if their code uses the first rows, give the rule rows = 'first'"
            yield f"{name} as {ours[name]}, not {shapes[name]}{advice}"
        elif name in ours:
            yield f"{name} {ours[name]}: give it a rule, a value, or state another field"
