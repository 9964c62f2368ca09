"""`vitreous evaluate` and `vitreous data check`: labelled data, a run's own or other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import Data, Folder, is_named, source_of, to_stderr
from vitreous.errors import ConfigError, DataError, advice
from vitreous.inference import InferenceOptions
from vitreous.progress import Log, silent
from vitreous.train.recipe import Recipe
from vitreous.wording import listed

if TYPE_CHECKING:
    from vitreous.data.check.report import CheckReport
    from vitreous.data.source import Source
    from vitreous.engines.world import World
    from vitreous.predict import Predictor
    from vitreous.run_folder import OpenedRun, RunConfig

ALL = "all"
"""What a result calls the only split of data that has none."""


def evaluate(
    run: Folder,
    data: Data = None,
    split: str | None = None,
    *,
    names: Any = None,
    path_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
    batch: int | None = None,
    workers: int = 0,
    figures: Folder | None = None,
    results: Folder | None = None,
    from_results: Folder | None = None,
    log: Log | None = None,
    world: World | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The metrics of a run by name, on its own data or on other labelled data; with 95 % confidence
    intervals of the main ones (`intervals`), what knows nothing to compare with (`baselines`), and
    sentences on what that means and what to do next (`verdicts`).

    `split` is test, else val, else train; the result calls it "all" where other data has no splits.
    `names` is a file with the names of other data's classes.
    The columns are those of a table, if they are called otherwise than in the run's own data.
    `classes` are words for a model with a text tower, matched with the data's by name or id, or
    "names": the data's own names are the words. `templates` are the sentences that they stand in.
    `figures` is a folder to draw the metrics into. `results` is a COCO results file to write with
    the detected boxes; `from_results` one whose boxes are evaluated instead of the model's.
    `options` are those of `load`; `max_pixels` is the run's own unless given. With `image_size` the
    model sees images of that size. With `probe`, the result says what was changed inside the model,
    and has neither baselines nor verdicts: these are for the model as it is. With `merge`,
    `merging` says what merging tokens gains and loses: see `vitreous.deploy.merging.Merged`. The
    processes of a `world` share the work, and the first one has the metrics.
    """
    from vitreous.api.deployment import load_run
    from vitreous.config import pair
    from vitreous.engines.world import ALONE
    from vitreous.import_run import open_run
    from vitreous.measure import chosen_split
    from vitreous.pages.figure import save
    from vitreous.tasks import show_of, task_class
    from vitreous.train.verdicts import evaluate as evaluate_run

    world = world or ALONE
    log = log or to_stderr if world.is_first else silent
    inference = InferenceOptions.of(options)
    if results is not None and from_results is not None:
        raise ConfigError("--results writes predictions, --from reads them: use one of them")
    ways = inference.given(
        *("tile", "overlap", "nms", "merge", "engine", "precision", "threads"),
        *("image_size", "probe", "classes"),
    )
    if from_results is not None and ways:
        option = ways[0].replace("_", "-")
        raise ConfigError(
            f"--from: boxes of a file are evaluated as they are: leave --{option} out"
        )
    opened = open_run(run, verify=inference.verify)
    columns = (path_column, label_column, split_column)
    worded = inference.classes is not None
    source, own = labelled_source(
        opened, data, log, columns, inference.max_pixels, names, worded=worded
    )
    split = chosen_split(source, split)
    said: dict[str, Any] = {}
    """How the model is run other than it was trained."""
    if worded:
        with world.first_leads():
            opened, said["templates"] = in_words(opened, source, inference, log)
        inference = replace(inference, classes=None, templates=None)
    config = opened.config
    task = task_class(config.task).restored(config.labels, config.decoding)
    file = from_results or results
    refused = f"{file}: COCO files of results hold boxes, and this model is to {task.name}"
    if from_results is not None:
        metrics = task.objects(refused).measure_results(Path(from_results), source, split)
    else:
        with world.first_leads():
            predictor = load_run(opened, inference, log)
        if inference.image_size is not None:
            said["image_size"] = list(pair("image_size", predictor.preprocess.image_size))
        merging = None
        if inference.merge and world.is_first and predictor.tiled is None:
            merging = MergingComparison(opened, predictor, inference, log)
        writing: Any = nullcontext()
        if results is not None:
            objects = predictor.task.objects(refused)
            writing = objects.writing_results(Path(results), source, split, log)
        with world.only_first(lambda: writing) as write:
            if predictor.probes is not None:
                metrics = predictor.evaluate(source, split, batch, workers, write, log, world)
                said["probe"] = predictor.probes.texts
                if predictor.probes.random:
                    said["probe_seed"] = predictor.probes.seed
            else:
                watching = filter(None, (write, None if merging is None else merging.see))
                metrics = evaluate_run(
                    *(opened, predictor, source, split),
                    own=own,
                    batch=batch,
                    workers=workers,
                    watchers=tuple(watching),
                    log=log,
                    world=world,
                )
        if merging is not None:
            metrics["merging"] = merging.found(metrics)
    if not world.is_first:
        return {}
    if figures is not None:
        for name, figure in show_of(task.name).figures(metrics).items():
            log(f"drawn: {save(figure, Path(figures) / f'{name}.png')}")
    # other data that has no splits was not trained on, though it is read as train
    shown = ALL if not own and list(source.splits) == ["train"] else split
    return {"data": source.name, "split": shown, **said, **metrics}


def in_words(
    run: OpenedRun, source: Source, options: InferenceOptions, log: Log
) -> tuple[OpenedRun, list[str]]:
    """The run with words for the classes of labelled data, as its task is by that data; and the
    templates."""
    from vitreous.text.words import words_of
    from vitreous.worded_run import with_words

    if source.truth_kind not in IN_WORDS:
        raise ConfigError(
            f"classes: {source.name} has {source.truth_kind} as its ground truth; words are for "
            "data with a class or labels for each image"
        )
    classes: Any = options.classes
    if classes == NAMES or (isinstance(classes, Sequence) and list(classes) == [NAMES]):
        classes = words_of(source.labels)
    found = with_words(run, classes, options.templates, truth_kind=source.truth_kind, log=log)
    templates = found.config.origin["words"]["templates"]
    some = listed([repr(words[0]) for words in found.config.origin["words"]["classes"]])
    many = f" and {len(templates) - 1} more" if len(templates) > 1 else ""
    log(
        f"classes are the words {some} in {templates[0]!r}{many}; describe them by others in a "
        "file: --classes FILE"
    )
    return found, templates


NAMES = "names"
"""Instead of words: the names that the data has."""
IN_WORDS = ("class", "labels")
"""Ground truth that words can be compared with."""


class MergingComparison:
    """The model that is evaluated, which merges tokens, beside itself without merging."""

    def __init__(
        self, run: OpenedRun, merged: Predictor, options: InferenceOptions, log: Log
    ) -> None:
        from vitreous.api.deployment import load_run
        from vitreous.deploy.loss import Beside

        way = merged.engine  # where auto was asked for, the same one
        plain = replace(options, merge=0, engine=way.name, precision=way.precision)
        self.plain = load_run(run, plain, log)
        self.merged, self.merge = merged, options.merge or 0
        self.beside = Beside(merged.task, self.plain.engine)
        self.images: Any = None
        """Of the first batch, on which both are timed."""

    def see(self, batch: Any, output: Any, targets: Any) -> None:
        self.images = batch.images if self.images is None else self.images
        self.beside.see(batch, output, targets)

    def found(self, metrics: dict[str, Any]) -> list[dict[str, Any]]:
        import torch

        from vitreous.deploy.merging import merging_cost

        scores = (self.beside.score, metrics[self.merged.task.metric.key])
        timed, agreement = torch.stack(list(self.images)), self.beside.agreement
        both = merging_cost(self.plain, self.merged, self.merge, timed, agreement, scores)
        return [asdict(each) for each in both]


def labelled_source(
    run: OpenedRun,
    data: Data,
    log: Log,
    columns: tuple[str | None, ...] = (None, None, None),
    max_pixels: int | None = None,
    names: Any = None,
    *,
    worded: bool = False,
) -> tuple[Source, bool]:
    """The run's own data, split as it was for training, or other data as it is; and whether it is
    what the run was trained on. worded: words will be its classes, and the data says what they are
    for."""
    from vitreous.data.formats import is_table, is_there, same_source
    from vitreous.data.formats.python_data import FROM_PYTHON
    from vitreous.tasks import PRETRAINING, truth_kind_of
    from vitreous.train.open_data import NOTHING, columns_of, open_usable, stored_recipe

    config, recipe = run.config, stored_recipe(run)
    if config.text is not None and not worded:
        raise ConfigError(
            f"{run.reference} has no classes of its own, but takes words"
            f"{advice(': pass ', classes=NAMES)} for the names that the data has"
        )
    if not worded:
        truth_kind_of(config.task)  # a model without a head cannot be evaluated
    method = config.task if config.task in PRETRAINING else None
    task = None if method or worded else config.task
    if data is None and config.origin:
        raise ConfigError(f"{run.path} was imported and has no data of its own: give some")
    if recipe is not None:
        recipe = replace(recipe, max_pixels=max_pixels or recipe.max_pixels)
    if data is None and recipe is not None:
        NOTHING.check(replace(recipe, augment=None))
    if data is not None and not (is_named(data) and same_source(os.fspath(data), config.data)):
        if recipe is not None and is_named(data):
            known = config.data == FROM_PYTHON or is_there(config.data)
            moved = replace(recipe, data=os.fspath(data), task=task)
            if not known and names is None and (source := _moved_source(moved, config)):
                log(f"{config.data} is not there: {data} is taken for it, split as in training")
                return source, True
            if is_table(os.fspath(data)):
                usual = columns_of(recipe)
                columns = tuple(a or b for a, b in zip(columns, usual, strict=True))
        path, label, split = columns
        called = Recipe(path_column=path, label_column=label, split_column=split)
        settings = replace(called, task=task, method=method, val_fraction=0)
        source = source_of(data, settings, names)
        source.max_pixels = max_pixels or source.max_pixels
        return source, False
    if any(columns) or names is not None:
        raise ConfigError(
            "the names and columns of the run's own data are known: leave out the options"
        )
    if recipe is None:
        raise ConfigError(
            f"{run.path / 'recipe.toml'} is missing, which says how {config.data} was split for "
            "training: give other data to evaluate on"
        )
    if not is_there(config.data):
        raise DataError(
            f"{config.data}, the data of {run.path}, is not there any more: if it was moved, "
            f"give its new path: vitreous evaluate {run.path} DATA"
        )
    source = open_usable(recipe, log, choose_preprocess=lambda source: config.preprocess)
    return source, True


def _moved_source(recipe: Recipe, config: RunConfig) -> Source | None:
    """The data of a run at another place, if it looks like it."""
    from vitreous.train.open_data import open_usable

    try:
        source = open_usable(recipe, silent, choose_preprocess=lambda source: config.preprocess)
    except (ConfigError, DataError):
        return None
    return source if source.labels == config.labels else None


def check_data(
    path: Data,
    *,
    task: str | None = None,
    names: Any = None,
    path_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
    download: bool = False,
    seed: int = 0,
    val_fraction: float = 0.1,
    test_fraction: float = 0.0,
    max_pixels: int = 50_000_000,
    **options: Any,
) -> CheckReport:
    """What data holds, and every problem with its file. Data from Python is taken as by `train`.

    `options` are the task's own: for boxes `queries`, how many objects a model can find.
    """
    from vitreous.tasks.data_check import check

    settings = Recipe(
        task=task,
        path_column=path_column,
        label_column=label_column,
        split_column=split_column,
        download=download,
        seed=seed,
        val_fraction=val_fraction,
        test_fraction=test_fraction,
    )
    return check(source_of(path, settings, names), max_pixels=max_pixels, **options)
