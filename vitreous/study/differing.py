"""Which fields of their recipes, models and preprocessing several runs do not have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vitreous.config import to_dict
from vitreous.run_folder import OpenedRun
from vitreous.train.open_data import stored_recipe

SEED = "seed"
IN_THE_MODEL = ("model", "fields", "task")
"""Keys of a recipe that the model's own config shows, whole and with its defaults."""


@dataclass(frozen=True)
class FieldDifference:
    """A field that differs, and its value in each run; None: it is not set, or not known."""

    part: str
    """recipe, model, preprocessing or file."""
    field: str
    values: tuple[Any, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(_text(value) for value in self.values)


def differing_fields(runs: Sequence[OpenedRun]) -> list[FieldDifference]:
    """A run without a recipe (imported) takes part with its model. Of models of several families
    the fields are compared that all of them have."""
    models = [_flat(run.config.config) for run in runs]
    if len({run.config.family for run in runs}) > 1:
        models = _common(models)
    found: dict[Any, FieldDifference] = {}
    for part, tables in (
        ("model", [_name_of(run) for run in runs]),
        ("model", models),
        ("recipe", [recipe_of(run) for run in runs]),
        ("preprocessing", [_flat(to_dict(run.config.preprocess)) for run in runs]),
    ):
        for each in _differing(part, tables):
            found.setdefault((each.field, repr(each.values)), each)  # the image size is in all
    return list(found.values())


def recipe_of(run: OpenedRun) -> dict[str, Any] | None:
    """What a run was trained by, field by field."""
    recipe = stored_recipe(run)
    if recipe is None:
        return None
    return {name: value for name, value in to_dict(recipe).items() if name not in IN_THE_MODEL}


def setting_of(run: OpenedRun) -> tuple[Any, ...] | None:
    """What is equal for runs that differ in their seed alone; None of a run without a recipe."""
    recipe = recipe_of(run)
    if recipe is None:
        return None
    fields = {name: value for name, value in recipe.items() if name != SEED}
    model = {**_name_of(run), **_flat(run.config.config)}
    return tuple(sorted((name, repr(value)) for name, value in {**fields, **model}.items()))


def _name_of(run: OpenedRun) -> dict[str, Any]:
    config = run.config
    found: dict[str, Any] = {"name": config.model, "family": config.family}
    if config.merge:
        found["merge"] = config.merge
    if recipe_of(run) is None and config.weights:
        found["weights"] = config.weights
    return found


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Fields by name, those of a part behind its name, which has its kind."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        else:
            found[before.removesuffix(".") if before and name == "kind" else before + name] = value
    return found


def _common(tables: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    names = set(tables[0]).intersection(*tables)
    return [{name: value for name, value in each.items() if name in names} for each in tables]


def _differing(part: str, tables: Sequence[dict[str, Any] | None]) -> Iterator[FieldDifference]:
    """Runs without a table do not count, but have their place in the values."""
    known = [table for table in tables if table is not None]
    for name in dict.fromkeys(name for table in known for name in table):
        here = [table.get(name) for table in known]
        if any(_plain(value) != _plain(here[0]) for value in here):
            values = (None if table is None else table.get(name) for table in tables)
            yield FieldDifference(part, name, tuple(map(_plain, values)))


def _plain(value: Any) -> Any:
    """As JSON has it: lists for tuples."""
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _text(value: Any) -> str:
    if value is None or value in ([], ""):
        return "–"
    if isinstance(value, list):
        if len(value) == 2 and all(isinstance(each, int) for each in value):
            return "{}x{}".format(*value)
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
