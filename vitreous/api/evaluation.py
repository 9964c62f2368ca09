"""`vitreous evaluate` and `vitreous data check`: labelled data, a run's own or other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import Data, Folder, Log, python_source, to_stderr
from vitreous.config import choice
from vitreous.errors import ConfigError, DataError
from vitreous.train.recipe import Recipe

if TYPE_CHECKING:
    from vitreous.data.check.report import CheckReport
    from vitreous.data.source import Source
    from vitreous.deploy.merging import Comparison
    from vitreous.engines.world import World
    from vitreous.predict import Predictor
    from vitreous.run_folder import RunConfig

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
    max_pixels: int | None = None,
    tile: int | None = None,
    overlap: float | None = None,
    nms: float | None = None,
    engine: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    merge: int | None = None,
    merge_curve: Sequence[int] = (),
    verify: bool = True,
    log: Log | None = None,
    world: World | None = None,
) -> dict[str, Any]:
    """The metrics of a run by name, on its own data or on other labelled data; with 95 % confidence
    intervals of the main ones (`intervals`), what knows nothing to compare with (`baselines`), and
    sentences on what that means and what to do next (`verdicts`).

    `split` is test, else val, else train; the result calls it "all" where other data has no splits.
    `names` is a file with the names of other data's classes.
    The columns are those of a table, if they are called otherwise than in the run's own data.
    `figures` is a folder to draw the metrics into. `results` is a COCO results file to write with
    the detected boxes; `from_results` one whose boxes are evaluated instead of the model's.
    `max_pixels` is the limit of an image, the run's own unless given. `tile`, `overlap`, `nms`,
    `engine`, `precision`, `threads`, `merge` and `verify` are those of `load`. With `merge`, or
    with several numbers of patches to merge in `merge_curve`, `merging` says for each what it gains
    and loses: see `vitreous.deploy.merging.Merged`. The processes of a `world` share the work, and
    the first one has the metrics.
    """
    from vitreous.api.deployment import load
    from vitreous.engines.world import ALONE
    from vitreous.import_run import open_run
    from vitreous.pages.figure import save
    from vitreous.pages.merging import merging_curve
    from vitreous.predict import check_split
    from vitreous.tasks import show_of, task_class
    from vitreous.train.verdicts import evaluate as evaluate_run

    world = world or ALONE
    log = log or to_stderr if world.is_first else lambda text: None
    if results is not None and from_results is not None:
        raise ConfigError("--results writes predictions, --from reads them: use one of them")
    ways: dict[str, Any] = {"tile": tile, "overlap": overlap, "nms": nms, "merge": merge}
    ways |= {"engine": engine, "precision": precision, "threads": threads}
    if from_results is not None and (given := [f"--{k}" for k, v in ways.items() if v is not None]):
        raise ConfigError(
            f"--from: boxes of a file are evaluated as they are: leave {given[0]} out"
        )
    if merge_curve and (merge is not None or from_results is not None):
        raise ConfigError("--merge-curve evaluates several numbers: leave --merge and --from out")
    columns = (path_column, label_column, split_column)
    source, own = _labelled(run, data, columns, max_pixels, log, names)
    split = split or next(name for name in ("test", "val", "train") if name in source.splits)
    check_split(source, split)
    config = open_run(run).read_config()
    task = task_class(config.task).restored(config.labels, config.decoding)
    file = from_results or results
    refused = f"{file}: COCO files of results hold boxes, and this model is to {task.name}"
    if from_results is not None:
        metrics = task.objects(refused).measure_results(Path(from_results), source, split)
    else:
        with world.first_leads():
            predictor = load(run, log=log, verify=verify, **ways)
        comparison = None
        if world.is_first:
            way = {"engine": engine, "precision": precision, "threads": threads, "verify": verify}
            comparison = _comparison(run, predictor, way, merge or 0, merge_curve, log)
        writing: Any = nullcontext()
        if results is not None:
            objects = predictor.task.objects(refused)
            writing = objects.writing_results(Path(results), source, split, log)
        with world.only_first(lambda: writing) as see:
            metrics = evaluate_run(
                *(open_run(run), predictor, source, split),
                own=own,
                batch=batch,
                workers=workers,
                see=see if comparison is None else comparison.see,
                log=log,
                world=world,
            )
        if comparison is not None:
            metrics["merging"] = [asdict(each) for each in comparison.found(metrics)]
    if not world.is_first:
        return {}
    if figures is not None:
        for name, figure in show_of(task.name).figures(metrics).items():
            log(f"drawn: {save(figure, Path(figures) / f'{name}.png')}")
        if "merging" in metrics:
            curve = merging_curve(metrics["merging"], task.metric.name)
            log(f"drawn: {save(curve, Path(figures) / 'merging.png')}")
    # other data that has no splits was not trained on, though it is read as train
    shown = ALL if not own and list(source.splits) == ["train"] else split
    return {"data": source.name, "split": shown, **metrics}


def _comparison(
    run: Folder,
    predictor: Predictor,
    way: dict[str, Any],
    merge: int,
    curve: Sequence[int],
    log: Log,
) -> Comparison | None:
    """Of the model that is evaluated with the same one without merging, and with those of a
    curve."""
    from vitreous.api.deployment import load
    from vitreous.deploy.merging import Comparison

    if not merge and not curve:
        return None
    predictors = {merge: predictor}
    if "auto" in way.values():  # all take the way that was chosen for this one
        way |= {"engine": predictor.engine.name, "precision": predictor.engine.precision}
    for r in {0, *curve} - predictors.keys():
        predictors[r] = load(run, merge=r, log=log, **way)
    return Comparison(predictors, merge)


def labelled_source(
    run: Folder,
    data: Data,
    columns: tuple[str | None, ...],
    max_pixels: int | None,
    log: Log,
) -> Source:
    """The run's own data, split as it was for training; other data is used as it is."""
    return _labelled(run, data, columns, max_pixels, log)[0]


def _labelled(
    run: Folder,
    data: Data,
    columns: tuple[str | None, ...],
    max_pixels: int | None,
    log: Log,
    names: Any = None,
) -> tuple[Source, bool]:
    """The same, and whether it is what the run was trained on."""
    from vitreous.data.formats import Columns, is_table, is_there, open_source, same_source
    from vitreous.data.formats.python_data import FROM_PYTHON
    from vitreous.import_run import open_run
    from vitreous.tasks import PRETRAINING, truth_kind_of
    from vitreous.train.open_data import NOTHING, columns_of, open_usable, stored_recipe

    folder = open_run(run)
    config, recipe = folder.read_config(), stored_recipe(folder)
    truth_kind = truth_kind_of(config.task)
    method = config.task if config.task in PRETRAINING else None
    task = None if method else config.task
    if data is None and config.origin:
        raise ConfigError(f"{folder.path} was imported and has no data of its own: give some")
    if recipe is not None:
        recipe = replace(recipe, max_pixels=max_pixels or recipe.max_pixels)
    if data is not None and not isinstance(data, str | os.PathLike):
        settings = Recipe(task=task, method=method, val_fraction=0)
        source = python_source(data, settings, names)
        source = source.unlabelled() if method else source
        source.max_pixels = max_pixels or source.max_pixels
        return source, False
    if data is None and recipe is not None:
        NOTHING.check(replace(recipe, augment=None))
    if data is not None and not same_source(os.fspath(data), config.data):
        name = os.fspath(data)
        known = config.data == FROM_PYTHON or is_there(config.data)
        if recipe is not None and not known and names is None:
            moved = _moved_source(replace(recipe, data=name, task=task), config)
            if moved is not None:
                log(f"{config.data} is not there: {name} is taken for it, split as in training")
                return moved, True
        own = columns_of(recipe) if recipe is not None and is_table(name) else Columns()
        both = Columns(*(given or usual for given, usual in zip(columns, own, strict=True)))
        source = open_source(
            name,
            truth=truth_kind,
            val_fraction=0,
            names=None if names is None else Path(names),
            columns=both,
        )
        source.max_pixels = max_pixels or source.max_pixels
        return source, False
    if any(columns) or names is not None:
        raise ConfigError(
            "the names and columns of the run's own data are known: leave out the options"
        )
    if recipe is None:
        raise ConfigError(
            f"{folder.path / 'recipe.toml'} is missing, which says how {config.data} was split for "
            "training: give other data to evaluate on"
        )
    if not is_there(config.data):
        raise DataError(
            f"{config.data}, the data of {folder.path}, is not there any more: if it was moved, "
            f"give its new path: vitreous evaluate {folder.path} DATA"
        )
    source = open_usable(recipe, log, choose_preprocess=lambda source: config.preprocess)
    return source, True


def _moved_source(recipe: Recipe, config: RunConfig) -> Source | None:
    """The data of a run at another place, if it looks like it."""
    from vitreous.train.open_data import open_usable

    try:
        source = open_usable(
            recipe, lambda note: None, choose_preprocess=lambda source: config.preprocess
        )
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
    from vitreous.data.formats import Columns, open_source
    from vitreous.data.formats.python_data import from_python
    from vitreous.tasks import TASKS
    from vitreous.tasks.data_check import check

    kind = None if task is None else TASKS[choice("task", task, TASKS)]
    source: Source
    if isinstance(path, str | os.PathLike):
        source = open_source(
            os.fspath(path),
            truth=kind,
            download=download,
            seed=seed,
            val_fraction=val_fraction,
            test_fraction=test_fraction,
            names=None if names is None else Path(names),
            columns=Columns(path_column, label_column, split_column),
        )
    else:
        held = {"val_fraction": val_fraction, "test_fraction": test_fraction}
        source = from_python(path, truth=kind, seed=seed, names=names, **held)
    return check(source, max_pixels=max_pixels, **options)
