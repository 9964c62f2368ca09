"""The runs that a study needs: which recipe each has, and the name of its folder.

A folder is named after its row, its seed and its recipe, so that a run is found again by what it
is: after a kill, with another tier, or when the study has been changed elsewhere. How many threads
computed is not part of the name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitreous.config import merged
from vitreous.errors import ConfigError
from vitreous.study.spec import BEYOND, Axis, Before, Study, Table, Variant, text_of
from vitreous.tasks import PRETRAINING
from vitreous.train.recipe import Recipe, find_recipe, read_recipe, recipe_fields, write_recipe

TEST_FRACTION = 0.2
"""Held out where the data has no test images of its own."""
ANYWHERE = ("threads", "workers", "device")
"""Keys that change how a run is computed, not what is learned."""
Row = Before | Variant


@dataclass(frozen=True)
class StudyJob:
    """A run folder, and what trains it."""

    name: str
    """Of its folder."""
    row: str
    """The variant, or what is trained before."""
    recipe: Recipe
    value: Any = None
    """Of the axis; None where it has none, or where one run has them all."""
    needs: tuple[str, ...] = ()
    """The folders that its recipe names."""
    trained: bool = True
    """Whether this study trains it, not its [[before]]."""

    @property
    def seed(self) -> int:
        return self.recipe.seed

    @property
    def title(self) -> str:
        at = "" if self.value is None else f" at {text_of(self.value)}"
        lr = "" if self.recipe.lr is None else f", lr {self.recipe.lr:g}"
        return f"{self.row}{at}{lr}, seed {self.seed}"


class Jobs:
    """Makes the jobs of a study, at a tier, whose runs are in a folder."""

    def __init__(self, study: Study, runs: Path) -> None:
        self.study, self.runs = study, runs
        self.before = {row.name: row for row in study.before}

    def values(self) -> tuple[Any, ...]:
        """Of the axis, those that need runs of their own."""
        axis = self.study.axis
        return axis.values if axis is not None and axis.trains else (None,)

    def of(
        self,
        row: Row,
        seed: int,
        value: Any = None,
        lr: float | None = None,
        epochs: int | None = None,
    ) -> StudyJob:
        """One run of a row. A variant that is only measured is the run of its [[before]]."""
        if isinstance(row, Variant) and row.run:
            return replace(self.of(self._behind(row.run), seed, value), row=row.name, trained=False)
        if isinstance(row, Before):
            seed = 0 if row.per == "study" else seed
            value = value if row.per == "run" else None
        table = self._table(row, value, lr, epochs)
        needs: list[str] = []
        for key, name in table.items():
            if isinstance(name, str) and name.startswith(BEYOND):
                other = self.of(self._behind(name), seed, value)
                needs.append(other.name)
                table[key] = str(self.runs / other.name)
        table["seed"] = seed
        where = f"{self.study.file}: {row.name}"
        recipe = Recipe(**recipe_fields(table, where))
        name = self._folder(row, recipe, value, lr)
        return StudyJob(name, row.name, recipe, value, tuple(needs))

    def needed(self, job: StudyJob) -> list[StudyJob]:
        """The runs that this one needs, the first first."""
        found: dict[str, StudyJob] = {}
        for key in ("weights", "teacher"):
            path = getattr(job.recipe, key)
            for row in self.study.before if path else ():
                other = self.of(row, job.seed, job.value)
                if str(self.runs / other.name) == path:
                    found |= {each.name: each for each in (*self.needed(other), other)}
        return list(found.values())

    def _behind(self, name: str) -> Before:
        return self.before[name.removeprefix(BEYOND)]

    def _table(self, row: Row, value: Any, lr: float | None, epochs: int | None) -> dict[str, Any]:
        """The keys of the recipe; fields of the model as `fields`."""
        common = dict(self.study.recipe)
        if (name := common.pop("from", None)) is not None:
            common = {**read_recipe(find_recipe(name)), **common}
        own = dict(row.recipe)
        model = own.get("model", common.get("model"))
        inherited = {} if model != common.get("model") else common.get("set", {})
        fields: Table = merged(inherited, row.set)
        table = {**common, **own}
        for key in ("set", *row.without):
            if key != "set" and key not in table and key not in fields:
                raise ConfigError(
                    f"{self.study.file}: {row.name}: without {key!r}: the study's recipe has none"
                )
            table.pop(key, None)
            fields.pop(key, None)
        axis = self.study.axis
        if axis is not None and value is not None:
            _place(table, fields, axis, value)
        if isinstance(row, Before) and row.command == "pretrain":
            table.setdefault("method", PRETRAINING[0])
        else:
            table.pop("method", None)
        table |= {} if lr is None else {"lr": lr}
        table |= {} if epochs is None else {"epochs": epochs}
        usual = {"split_seed": 0, "test_fraction": TEST_FRACTION, "precision": "float32", "keep": 1}
        if self.study.equal.what == "cpu" and isinstance(row, Variant):
            table.pop("epochs", None)
            table["time"] = self.study.equal.time
        stated = [f"{name}={json.dumps(each)}" for name, each in fields.items()]
        if isinstance(table.get("image_size"), int):
            table["image_size"] = [table["image_size"]]
        return {**usual, **table, "fields": [*table.get("fields", ()), *stated]}

    def _folder(self, row: Row, recipe: Recipe, value: Any, lr: float | None) -> str:
        plain = replace(recipe, **{name: getattr(Recipe, name) for name in ANYWHERE})
        text = write_recipe(plain).replace(str(self.runs), "")
        mark = hashlib.sha256(text.encode()).hexdigest()[:6]
        parts = [row.name, *([] if value is None else [text_of(value).replace("/", "-")])]
        parts += [] if lr is None else [f"lr{lr:g}"]
        return "-".join((*parts, f"s{recipe.seed}", mark))


def _place(table: dict[str, Any], fields: Table, axis: Axis, value: Any) -> None:
    plain = list(value) if isinstance(value, tuple) else value
    if axis.place == "set":
        fields[axis.name] = plain
    elif axis.place == "recipe":
        table[axis.name] = plain


def with_threads(job: StudyJob, threads: int) -> StudyJob:
    """As it is computed here; what the study says itself stays."""
    recipe = job.recipe
    changes: Mapping[str, Any] = {
        "threads": recipe.threads or threads,
        "workers": 0 if recipe.workers is None else recipe.workers,
    }
    return replace(job, recipe=replace(recipe, **changes))
