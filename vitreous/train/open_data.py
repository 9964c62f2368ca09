"""The data of a recipe, opened and found to be usable."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from vitreous.data.augment import OwnAugment
from vitreous.data.check.report import listing
from vitreous.data.formats import BUILT_IN, ON_DISK, Columns, open_source
from vitreous.data.formats.python_data import FROM_PYTHON
from vitreous.data.preprocess import Preprocess
from vitreous.data.source import Sample, Source
from vitreous.data.split import few_of, part_of
from vitreous.engines.world import World
from vitreous.errors import ConfigError, DataError
from vitreous.progress import Log
from vitreous.run_folder import Run
from vitreous.tasks import TASKS, UNLABELLED
from vitreous.tasks.data_check import bad_samples, check_trainable, usual_preprocess
from vitreous.train.recipe import Recipe, parse_recipe
from vitreous.wording import counted

REPEATED = 50
"""How often each of a few images is seen between two evaluations."""


def stored_recipe(run: Run) -> Recipe | None:
    """The recipe of a run, or None if there is no run yet."""
    text = run.recipe_text()
    return None if text is None else parse_recipe(text, str(run.path / "recipe.toml"))


def resuming(recipe: Recipe, run: Run) -> str:
    """The command that continues a run."""
    return f"vitreous {recipe.command} --resume --out {shlex.quote(str(run.path))}"


def absolute(recipe: Recipe) -> Recipe:
    """The recipe with paths that mean the same from any folder."""

    def resolved(name: str | None) -> str | None:
        if name is None:
            return None
        kind, _, rest = name.partition(":")
        if kind in ON_DISK and rest:
            return f"{kind}:{resolved(rest)}"
        path = Path(name).expanduser()
        return str(path.resolve()) if path.exists() and name not in BUILT_IN else name

    return replace(
        recipe,
        data=resolved(recipe.data) or recipe.data,
        weights=resolved(recipe.weights),
        weights_format=resolved(recipe.weights_format),
        teacher=resolved(recipe.teacher),
        names=resolved(recipe.names),
    )


class FromPython(NamedTuple):
    """What a recipe cannot hold: data and an augmentation that a program has."""

    source: Source | None = None
    augment: OwnAugment | None = None

    def check(self, recipe: Recipe) -> None:
        """A recipe that needs what was not given again is an error."""
        if recipe.data == FROM_PYTHON and self.source is None:
            raise ConfigError(
                "the data of this run came from Python: give it again, as vitreous.train(data, "
                "out=RUN, resume=True) or vitreous.evaluate(RUN, data)"
            )
        if recipe.augment is not None and self.augment is None:
            raise ConfigError(
                f"this run was trained with an augmentation from Python, {recipe.augment!r}: give "
                "it again, as vitreous.train(…, augment=…, out=RUN, resume=True)"
            )


NOTHING = FromPython()


def open_named(recipe: Recipe, own: Source | None = None) -> Source:
    """The recipe's data as it is: the same split and the same part, by its seeds, whoever asks."""
    if own is not None:
        return _part(recipe, copy(own) if recipe.method is None else own.unlabelled())
    FromPython().check(replace(recipe, augment=None))
    names = None if recipe.names is None else Path(recipe.names)
    source = open_source(
        recipe.data,
        truth=truth_of(recipe),
        download=recipe.download,
        seed=recipe.data_seed,
        val_fraction=recipe.val_fraction,
        test_fraction=recipe.test_fraction,
        names=names,
        columns=columns_of(recipe),
    )
    return _part(recipe, source)


def _part(recipe: Recipe, source: Source) -> Source:
    """The source with the fraction of its training images that the recipe asks for. The run's own
    seed chooses them: runs that share `split_seed` learn from other images. Classes that
    pre-training does not see count, too, so that `pretrain` and `train` take the same images."""
    train = source.splits.get("train")
    if recipe.fraction == 1 or not train:
        return source
    kind = source.with_labels().truth_kind
    part = part_of(train, recipe.fraction, recipe.seed, truth_kind=kind)
    source.splits = {**source.splits, "train": part}
    of = f"{len(part):,} of {counted(len(train), 'image')}"
    note = f"train: {of} (fraction {recipe.fraction:g}, seed {recipe.seed})"
    source.notes = [*source.notes, note]
    return source


def truth_of(recipe: Recipe) -> str | None:
    """The kind of ground truth that the recipe names; None: the data's own."""
    return UNLABELLED if recipe.method else None if recipe.task is None else TASKS[recipe.task]


def columns_of(recipe: Recipe) -> Columns:
    return Columns(recipe.path_column, recipe.label_column, recipe.split_column)


def open_usable(
    recipe: Recipe,
    log: Log,
    world: World | None = None,
    own: Source | None = None,
    choose_preprocess: Callable[[Source], Preprocess] = usual_preprocess,
) -> Source:
    """The recipe's data; what cannot be used is left out only if asked, and logged. The first
    process of several looks for it. `choose_preprocess` is for the model that is to see it."""
    source = open_named(recipe, own)
    source.max_pixels = recipe.max_pixels
    for note in source.notes:
        log(note)
    for level, text in listing(source.problems):
        log(f"leak: {text}" if level == "leak" else text)
    if recipe.on_bad == "skip":
        bad = {}
        if world is None or world.is_first:
            bad = bad_samples(
                source,
                max_pixels=recipe.max_pixels,
                channels=recipe.channels,
                choose_preprocess=choose_preprocess,
            )
        bad = bad if world is None else world.broadcast(bad)
        for problem in bad.values():
            log(f"left out: {problem.file}: {problem.what}")
        samples = (sample for each in source.splits.values() for sample in each)
        source.left_out = [sample.id for sample in samples if sample.id in bad]
        source.splits = {
            split: [sample for sample in samples if sample.id not in bad]
            for split, samples in source.splits.items()
        }
    if recipe.overfit:
        train = source.splits.get("train", ())
        few = few_of(train, recipe.overfit, recipe.seed, truth_kind=source.truth_kind)
        log(
            f"overfit: {counted(len(few), 'image')}, {REPEATED} times in each epoch, and measured "
            "on the same"
        )
        source.splits = {"train": few}
        if not few:
            raise DataError(f"{source.name} has no images in the split 'train'")
    else:
        check_trainable(source)
    return source


@contextmanager
def advising(recipe: Recipe) -> Iterator[None]:
    """Inside, where samples are read, the error of a bad one tells what can be done about all."""
    try:
        yield
    except DataError as error:
        if recipe.on_bad == "skip":
            raise
        check = f"'vitreous data check {shlex.quote(recipe.data)}'"
        skip = "--on-bad skip"
        if recipe.data == FROM_PYTHON:
            check, skip = "vitreous.check_data(data)", "on_bad='skip'"
        raise DataError(
            f"{error}\n{check} lists every image that cannot be used; {skip} trains without them"
        ) from None


def parts(recipe: Recipe, source: Source) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """What an epoch learns from, and what is measured after it."""
    train = source.splits["train"]
    return (list(train) * REPEATED, train) if recipe.overfit else (train, source.splits["val"])
