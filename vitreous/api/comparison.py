"""`vitreous compare`: which runs, and on which images."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import Data, Folder, to_stderr
from vitreous.errors import ConfigError, DataError
from vitreous.inference import InferenceOptions
from vitreous.progress import Log
from vitreous.wording import and_between, counted

if TYPE_CHECKING:
    from vitreous.data.source import Sample, Source
    from vitreous.run_folder import OpenedRun
    from vitreous.study.comparison import Comparison
    from vitreous.train.recipe import Recipe


def compare(
    run: Folder,
    *others: Folder,
    data: Data = None,
    split: str | None = None,
    baseline: Folder | None = None,
    by_seed: bool = False,
    speed: bool = True,
    images: int = 24,
    batch: int | None = None,
    workers: int = 0,
    out: Folder | None = None,
    progress: bool = False,
    log: Log | None = None,
    **options: Any,
) -> Comparison:
    """Several runs beside each other: run folders, imported models and exported files of one task.

    All are measured on the same images: a split (test, else val, else train) of the data that they
    were trained on, or of `data`. Images that one of them has not held out are left out. Each is
    compared with the first, or with `baseline`, on the same draws of images, and p-values are
    corrected for several comparisons (Holm). With `by_seed`, runs that differ in their seed alone
    are one group, and groups are compared seed by seed.

    `images` is how many are kept on which they disagree. `out` is a page to write, an .html file or
    a folder for it. Without `speed` they are not timed. `options` are those of `load`, for all
    runs.
    """
    from vitreous.api.deployment import load_run
    from vitreous.import_run import ExportedRun, open_run
    from vitreous.loading import adapted
    from vitreous.study.compare import compare_runs
    from vitreous.study.compare_seeds import compare_seeds
    from vitreous.study.contenders import Contender, ContenderOptions

    if not others:
        raise ConfigError("one run is compared with nothing: give two or more")
    if images < 1:
        raise ConfigError(f"images = {images!r}: expected at least 1")
    page = None if out is None else _page(Path(out))
    log = log or to_stderr
    inference = InferenceOptions.of(options)
    references = [run, *others]
    opened = [open_run(each, verify=inference.verify) for each in references]
    names = _names([os.fspath(each.reference) for each in opened])
    _check_tasks(opened, names)
    base = 0 if baseline is None else _number_of(baseline, references, names)
    chosen, split, notes = _test_images(opened, names, data, split, by_seed, inference, log)
    contenders = []
    for each, name, source in zip(opened, names, chosen, strict=True):
        predictor = load_run(each, inference, log)
        sized = each
        if not isinstance(each, ExportedRun):
            sized = adapted(each, inference)
        contenders.append(Contender(name, sized, predictor, source, split))
    more = ContenderOptions(base, speed, images, batch, workers, progress)
    found = (compare_seeds if by_seed else compare_runs)(contenders, more, log)
    found = replace(found, notes=(*notes, *found.notes))
    if page is not None:
        log(f"written: {found.save(page)}")
    return found


PAGE = "comparison.html"


def _page(out: Path) -> Path:
    """The file that is meant by --out."""
    return out if out.suffix.lower() in (".html", ".htm") else out / PAGE


def _names(paths: Sequence[str]) -> list[str]:
    """Short, and different from each other: the last part of each path, or as much as it takes."""
    parts = [Path(path).parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = [str(Path(*each[-length:])) for each in parts]
        if len(set(names)) == len(set(paths)):
            break
    seen: Counter[str] = Counter()
    for number, name in enumerate(names):
        seen[name] += 1
        names[number] = f"{name} ({seen[name]})" if seen[name] > 1 else name
    return names


def _number_of(baseline: Folder, references: Sequence[Folder], names: Sequence[str]) -> int:
    wanted, given = os.fspath(baseline), [os.fspath(each) for each in references]
    for known in (given, [str(Path(each)) for each in given], list(names)):
        if wanted in known:
            return known.index(wanted)
    raise ConfigError(f"baseline = {wanted!r}: expected one of the runs, {', '.join(names)}")


def _check_tasks(opened: Sequence[OpenedRun], names: Sequence[str]) -> None:
    from vitreous.tasks import task_class

    kinds = dict.fromkeys(run.config.task for run in opened)
    if len(kinds) == 1 or all(task_class(kind).pretrains for kind in kinds):
        return
    each = (f"{name} is to {run.config.task}" for name, run in zip(names, opened, strict=True))
    raise ConfigError(
        f"runs of different tasks cannot be compared: {', '.join(each)}. Compare runs of one task"
    )


def _test_images(
    opened: Sequence[OpenedRun],
    names: Sequence[str],
    data: Data,
    split: str | None,
    by_seed: bool,
    inference: InferenceOptions,
    log: Log,
) -> tuple[list[Source | None], str, list[str]]:
    """What each run is measured on, the split, and what to know about it."""
    from vitreous.api.evaluation import labelled_source
    from vitreous.measure import chosen_split
    from vitreous.tasks import task_class
    from vitreous.train.open_data import stored_recipe

    task = task_class(opened[0].config.task)
    if task.pretrains or not task.metric.key:
        return [None] * len(opened), "", []
    recipes = [stored_recipe(run) for run in opened]
    sources: dict[Any, tuple[Source, bool]] = {}
    own: list[Source | None] = []
    for run, recipe in zip(opened, recipes, strict=True):
        if recipe is None:
            own.append(None)
            continue
        key = _split_by(recipe)
        if key not in sources:
            sources[key] = labelled_source(run, data, log, max_pixels=inference.max_pixels)
        source, is_own = sources[key]
        own.append(source if is_own else None)
    if not sources and data is None:
        raise ConfigError(f"{and_between(names)} have no data of their own: give some, with --data")
    if not sources:
        sources[None] = labelled_source(opened[0], data, log, max_pixels=inference.max_pixels)
    first = next((each for each in own if each is not None), next(iter(sources.values()))[0])
    _check_data(own, recipes, names)
    held = [each for each in own if each is not None] or [first]
    shared = [name for name in ("test", "val", "train") if all(name in s.splits for s in held)]
    split = chosen_split(first, split or next(iter(shared), None))
    notes = []
    if split == "train" and any(each is not None for each in own):
        notes.append("these images were trained on: the numbers are better than they will be")
    if by_seed:
        return [first if each is None else each for each in own], split, notes
    common, note = _held_out_by_all(first, split, held)
    return [common] * len(opened), split, [*notes, *note]


def _split_by(recipe: Recipe) -> tuple[Any, ...]:
    """What decides which images a run has held out."""
    return (
        *(recipe.data, recipe.names, recipe.val_fraction, recipe.test_fraction, recipe.data_seed),
        *(recipe.path_column, recipe.label_column, recipe.split_column),
        *(recipe.on_bad, recipe.overfit, recipe.fraction, recipe.seed),
    )


def _check_data(
    own: Sequence[Source | None], recipes: Sequence[Recipe | None], names: Sequence[str]
) -> None:
    """Runs that have data of their own must have the same."""
    from vitreous.data.formats import same_source

    there = [
        (name, recipe.data)
        for name, source, recipe in zip(names, own, recipes, strict=True)
        if source is not None and recipe is not None
    ]
    for name, theirs in there[1:]:
        if not same_source(theirs, there[0][1]):
            raise ConfigError(
                f"{there[0][0]} was trained on {there[0][1]}, {name} on {theirs}: say which images "
                "to compare them on, with --data"
            )


def _held_out_by_all(first: Source, split: str, held: Sequence[Source]) -> tuple[Source, list[str]]:
    """The first source with those images of the split that no run has learned from."""
    samples = first.splits[split]
    for source in held:
        if source is first:
            continue
        there = {sample.id: sample for sample in source.splits[split]}
        samples = [sample for sample in samples if sample.id in there]
        if samples and not _same_image(first, samples[0], source, there[samples[0].id]):
            raise ConfigError(
                f"{first.name}: the runs have seen other images, as these are generated by the "
                "seed: train with one split_seed, or say which images to compare on, with --data"
            )
    count = len(first.splits[split])
    if len(samples) == count:
        return first, []
    if not samples:
        raise DataError(
            f"no image of {first.name} was in {split} of all runs: each has learned from what "
            "others held out. Train them with one split_seed, or give other images, with --data"
        )
    common = copy(first)
    common.splits = {**first.splits, split: samples}
    images = counted(count, "image")
    return common, [
        f"only {len(samples):,} of {images} were in {split} of all runs, and are compared: others "
        "were trained on by some"
    ]


def _same_image(one: Source, sample: Sample, other: Source, theirs: Sample) -> bool:
    ours, again = one.image(sample), other.image(theirs)
    return ours.shape == again.shape and bool((ours == again).all())
