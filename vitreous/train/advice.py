"""Advice to fine-tune: from random weights, few images teach a transformer little."""

from __future__ import annotations

import functools
import shlex
from typing import NamedTuple

from vitreous.config import read_toml
from vitreous.data.formats import BUILT_IN
from vitreous.data.formats.python_data import FROM_PYTHON
from vitreous.data.source import Source
from vitreous.engines.counts import PATH as COUNTS
from vitreous.models import configure, create
from vitreous.tasks.defaults import Glance, glance_at
from vitreous.tasks.task import Task, is_classifier
from vitreous.train.recipe import Recipe
from vitreous.weights.blank import without_values
from vitreous.weights.catalog import CatalogEntry, catalog

FEW = 5_000
"""Training images below which the advice is given."""
LEAST_SIDE = 24
"""Images that are smaller have nothing in them that was learned from photographs."""
PERMISSIVE = ("Apache-2.0", "MIT", "BSD-3-Clause")
LARGEST_SIZE = 256
LARGEST_PATCH = 16
"""Pixels of a position in the last map: small images and objects need several of them."""
FLOPS_ON_CPU, FLOPS_ON_GPU = 3e9, 40e9
"""For one image: as much as a ViT-Ti/16 or a ViT-B/16 at 224 pixels needs."""


class Advice(NamedTuple):
    """To fine-tune."""

    why: str
    command: str
    weights: str
    """Licence and size of what the command downloads."""


def fine_tuning_advice(
    recipe: Recipe, task: type[Task], source: Source, on_cpu: bool
) -> Advice | None:
    """For a run from random weights on few photographs; nothing for any other run."""
    count = len(source.splits["train"])
    built_in = recipe.data.partition(":")[0] in (*BUILT_IN, FROM_PYTHON)
    if recipe.weights or recipe.method or recipe.overfit or built_in or count >= FEW:
        return None
    glance = glance_at(source, on_cpu)
    large = max(glance.height, glance.width) >= LEAST_SIDE
    entry = fitting_weights(task, glance) if large else None
    if entry is None:
        return None
    words = ["vitreous", "train", recipe.data, "--weights", entry.name]
    for name in ("task", "names", "path_column", "label_column", "split_column"):
        if value := getattr(recipe, name):
            words += [f"--{name.replace('_', '-')}", value]
    megabytes = 4e-6 * read_toml(COUNTS, "counts")[entry.model][0]
    return Advice(
        f"{count:,} images are few to learn from random weights; pre-trained ones bring more: "
        f"{task.defaults.fine_tuning_gain}",
        shlex.join(words),
        f"{entry.licence}, {megabytes:,.0f} MB",
    )


def fitting_weights(task: type[Task], glance: Glance) -> CatalogEntry | None:
    """The public checkpoint to fine-tune for a task: made for it, or else a classifier; with a
    permissive licence, at a usual image size and within what the machine can compute. Of these the
    most accurate one; if all are too large, the smallest."""
    flops = {name: row[1] for name, row in read_toml(COUNTS, "counts").items()}
    known = [e for e in catalog().values() if e.licence in PERMISSIVE and e.model in flops]
    usable = [e for e in known if task.takes(e.model) and task.has_required(configure(e.model)[1])]
    usable = usable or [e for e in known if task.families and is_classifier(e.model)]
    limit = FLOPS_ON_CPU if glance.on_cpu else FLOPS_ON_GPU
    within = [e for e in usable if flops[e.model] <= limit and e.accuracy is not None]
    within = [e for e in within if e.preprocessing.image_size <= LARGEST_SIZE]
    best = sorted(within, key=lambda e: -(e.accuracy or 0))
    smallest = min(usable, key=lambda e: (not e.default, flops[e.model]), default=None)
    return next((e for e in best if _patch(e.model) <= LARGEST_PATCH), smallest)


@functools.cache
def _patch(model: str) -> int:
    """Pixels of a position in the last map of a model."""
    with without_values():
        made = create(model)
    return max(made.levels(made.own_size())[-1].pixels)
