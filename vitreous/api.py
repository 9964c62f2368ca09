"""What the commands do, as functions: `vitreous.train(...)` is `vitreous train`, and so on.

The command line calls these functions, and the public names of `vitreous` come from here. Modules
are imported when a function needs them: `vitreous --help` must not wait for torch.
"""

from __future__ import annotations

import fnmatch
import importlib
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.config import checked
from vitreous.errors import ConfigError, DataError, did_you_mean
from vitreous.terminal import print
from vitreous.train.recipe import NO_RECIPE, Recipe, default_recipe, find_recipe, read_recipe

if TYPE_CHECKING:
    from vitreous.data.check.report import CheckReport
    from vitreous.data.source import Source
    from vitreous.embed.embeddings import Embeddings
    from vitreous.embed.images import Images
    from vitreous.import_run import Imported
    from vitreous.labels import LabelMap
    from vitreous.models import create as create
    from vitreous.models.summary import SummaryRow
    from vitreous.predict import Bad, Predictor
    from vitreous.predict import load as load
    from vitreous.run_folder import Run
    from vitreous.train.open_data import FromPython
    from vitreous.train.rehearsal import Rehearsal
    from vitreous.weights.catalog import CatalogEntry
    from vitreous.weights.convert import Conversion
    from vitreous.weights.listing import WeightListing
    from vitreous.weights.rules.exporting import export_weights as export_weights
    from vitreous.weights.rules.importing import import_weights as import_weights

Folder = str | os.PathLike[str]
Data = Any
"""A path or a built-in name; or from Python a sequence of (image, target), a torch Dataset of such,
a dict with one for each of train, val and test, or a `Source`."""
Log = Callable[[str], None]

_ELSEWHERE = {
    "create": "vitreous.models",
    "export_weights": "vitreous.weights.rules.exporting",
    "import_weights": "vitreous.weights.rules.importing",
    "load": "vitreous.predict",
}
"""Public functions that lower modules define as they are."""


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module 'vitreous.api' has no attribute {name!r}")


@dataclass(frozen=True)
class TrainedRun:
    """A run folder that `train` wrote. Every function that takes a run folder takes it."""

    path: Path
    metric: str = ""
    """The metric that decides which weights are kept."""
    split: str = ""
    """What `metrics` were measured on: test, else val."""
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        if not self.metrics:
            return f"TrainedRun({str(self.path)!r})"
        value = self.metrics[self.metric]
        return f"TrainedRun({str(self.path)!r}: {self.metric} {value:.4f} on {self.split})"


def train(
    data: Data = None,
    *,
    recipe: Folder | Recipe | None = None,
    out: Folder | None = None,
    resume: bool = False,
    progress: bool = True,
    augment: Callable[..., Any] | None = None,
    **options: Any,
) -> TrainedRun:
    """Train or fine-tune a model, into the run folder `out` (runs/NAME), and write its report.

    `options` are the fields of a recipe, which `vitreous train --help` describes: model, weights,
    epochs, batch, lr, … They override those of `recipe`, a file or a name in recipes/; with
    weights to start from it is fine-tune unless given, and "none" means none. With
    `resume`, the run in `out` continues where it stopped. `progress` is shown on stderr.

    `data` is a path or a built-in name, or what Python has: a list of (image, target), a torch
    Dataset of such, a dict with one for each of train, val and test. An image is a path, array, PIL
    image or tensor; a target is a class, a set of them, a mask or a dict of boxes and labels (see
    `vitreous.data.formats.python_data`). `augment` is a function of an image (c, h, w) as it is
    stored, or of the image and its ground truth, which gives the same back; it runs before the
    augmentation of the recipe. The run folder cannot keep either: to resume, give them again.
    """
    from vitreous.pages.report import write_report
    from vitreous.tasks import task_class
    from vitreous.train.progress import ProgressBar
    from vitreous.train.rehearsal import within_time
    from vitreous.train.run import train as fit

    folder = None if out is None else Path(out)
    with ProgressBar() if progress else nullcontext() as bar:
        shown: dict[str, Any] = {"log": bar.line, "watch": bar.event} if bar else {}
        log = shown.get("log", lambda text: None)
        settings, own = _settings(data, recipe, out, resume, options, augment, log)
        reports: list[tuple[str, dict[str, Any]]] = []

        def report(run: Run, source: Source) -> None:
            reports.append(write_report(run, source)[1:])

        if settings.time is not None:
            settings = within_time(settings, shown.get("log", _to_stderr), own=own)
        run = fit(settings, folder, resume=resume, report=report, own=own, **shown)
    if not reports:
        return TrainedRun(run.path)  # of several processes the first one writes
    split, metrics = reports[-1]
    metric = task_class(run.read_config().task).primary
    return TrainedRun(run.path, metric, split, metrics)


def dry_run(
    data: Data = None,
    *,
    recipe: Folder | Recipe | None = None,
    out: Folder | None = None,
    log: Log | None = None,
    augment: Callable[..., Any] | None = None,
    **options: Any,
) -> tuple[Rehearsal, Path]:
    """What `train` would do, after one step: choices, shapes, memory, time, unreadable images; and
    a picture of the first batch, beside where the run would be."""
    from vitreous.pages.batch import batch_figure
    from vitreous.pages.figure import save
    from vitreous.train.claim import folder_names
    from vitreous.train.rehearsal import dry_run as rehearse

    settings, own = _settings(data, recipe, None, False, options, augment, log or _to_stderr)
    free = (path for path in folder_names(settings.data) if not path.exists())
    folder = next(free) if out is None else Path(out)
    found = rehearse(settings, log or _to_stderr, own)
    picture = folder.with_name(f"{folder.name}-first-batch.png")
    figure = batch_figure(found.batch, found.task, found.labels, found.preprocess)
    return found, save(figure, picture)


def find_lr(
    data: Data = None,
    *,
    recipe: Folder | Recipe | None = None,
    log: Log | None = None,
    augment: Callable[..., Any] | None = None,
    **options: Any,
) -> tuple[float, list[tuple[float, float]]]:
    """A learning rate to start with, and the loss after a short run with each one tried."""
    from vitreous.train.rehearsal import find_lr as search

    settings, own = _settings(data, recipe, None, False, options, augment, log or _to_stderr)
    return search(settings, log or _to_stderr, own=own)


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
    log: Log | None = None,
) -> dict[str, Any]:
    """The metrics of a run by name, on its own data or on other labelled data.

    `split` is test, else val, else train. `names` is a file with the names of other data's classes.
    The columns are those of a table, if they are called otherwise than in the run's own data.
    `figures` is a folder to draw the metrics into. `results` is a COCO results file to write with
    the detected boxes; `from_results` one whose boxes are evaluated instead of the model's.
    `max_pixels` is the limit of an image, the run's own unless given.
    """
    from vitreous.pages.figure import save
    from vitreous.predict import check_split, load
    from vitreous.tasks import show_of, task_for

    log = log or _to_stderr
    if results is not None and from_results is not None:
        raise ConfigError("--results writes predictions, --from reads them: use one of them")
    columns = (path_column, label_column, split_column)
    source = _labelled_source(run, data, columns, max_pixels, log, names)
    split = split or next(name for name in ("test", "val", "train") if name in source.splits)
    check_split(source, split)
    task = task_for(source.truth_kind)
    if from_results is not None:
        metrics = task.measure_results(Path(from_results), source, split)
    else:
        predictor = load(Path(run))
        writing: Any = nullcontext()
        if results is not None:
            writing = predictor.task.writing_results(Path(results), source, split, log)
        with writing as see:
            metrics = predictor.evaluate(source, split, batch, workers, see, log)
    if figures is not None:
        for name, figure in show_of(task.name).figures(metrics).items():
            log(f"drawn: {save(figure, Path(figures) / f'{name}.png')}")
    return {"data": source.name, "split": split, **metrics}


def _labelled_source(
    run: Folder,
    data: Data,
    columns: tuple[str | None, ...],
    max_pixels: int | None,
    log: Log,
    names: Any = None,
) -> Source:
    """The run's own data, split as it was for training; other data is used as it is."""
    from vitreous.data.formats import Columns, is_table, is_there, open_source, same_source
    from vitreous.data.formats.python_data import FROM_PYTHON
    from vitreous.import_run import open_run
    from vitreous.tasks import truth_kind_of
    from vitreous.train.open_data import NOTHING, columns_of, open_usable, stored_recipe

    folder = open_run(run)
    config, recipe = folder.read_config(), stored_recipe(folder)
    truth_kind = truth_kind_of(config.task)
    if data is None and config.origin:
        raise ConfigError(f"{folder.path} was imported and has no data of its own: give some")
    if recipe is not None:
        recipe = replace(recipe, max_pixels=max_pixels or recipe.max_pixels)
    if data is not None and not isinstance(data, str | os.PathLike):
        source = _python_source(data, Recipe(task=config.task, val_fraction=0), names)
        source.max_pixels = max_pixels or source.max_pixels
        return source
    if data is None and recipe is not None:
        NOTHING.check(replace(recipe, augment=None))
    if data is not None and not same_source(os.fspath(data), config.data):
        name = os.fspath(data)
        known = config.data == FROM_PYTHON or is_there(config.data)
        if recipe is not None and not known and names is None:
            moved = _moved_source(replace(recipe, data=name, task=config.task), config.labels)
            if moved is not None:
                log(f"{config.data} is not there: {name} is taken for it, split as in training")
                return moved
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
        return source
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
    return open_usable(recipe, log)


def _moved_source(recipe: Recipe, labels: LabelMap) -> Source | None:
    """The data of a run at another place, if it looks like it."""
    from vitreous.train.open_data import open_usable

    try:
        source = open_usable(recipe, lambda note: None)
    except (ConfigError, DataError):
        return None
    return source if source.labels == labels else None


def predict(run: Folder, images: Any, batch: int | None = None, **limits: Any) -> Any:
    """The prediction for an image, or for each of several: paths, arrays, PIL images, tensors.

    `limits` are those of `load`: max_pixels.
    """
    from vitreous.predict import load

    return load(Path(run), **limits)(images, batch)


def predict_files(
    predictor: Predictor,
    paths: Sequence[str],
    batch: int | None = None,
    *,
    threshold: float | None = None,
    out: Folder | None = None,
    save_labels: str | None = None,
    data: Folder | None = None,
    bad: Bad | None = None,
    log: Log | None = None,
) -> Iterator[Any]:
    """The predictions for image files, as they are made.

    `threshold` is the smallest score of what counts as found, for tasks that have one. `out` is a
    folder for what the task draws, or with `save_labels` (yolo, voc, coco) for a data set with what
    was found as its labels. `data` is a COCO file whose ids the written files have. An image that
    cannot be used is an error, unless `bad` takes it.
    """
    from vitreous.pages.prediction_files import labelling, writing
    from vitreous.tasks import show_of

    if threshold is not None and not show_of(predictor.task.name).has_threshold:
        raise ConfigError(
            f"--threshold {threshold:g}: a model for the task {predictor.task.name} has no "
            "threshold: leave it out"
        )
    log = log or _to_stderr
    if out is None and (save_labels or data):
        needs = "--save-labels" if save_labels else "--data"
        raise ConfigError(f"{needs} is about what is written: give --out FOLDER")
    ids = None if data is None else Path(data)
    files: Any = nullcontext()
    if out is not None and save_labels:
        files = labelling(predictor, paths, Path(out), save_labels, ids, log)
    elif out is not None:
        files = writing(predictor, paths, Path(out), ids, log)
    with files as write:
        for result in predictor.stream(paths, batch, bad=bad):
            if threshold is not None:
                result = result.above(threshold)
            if write is not None:
                write(result)
            yield result


def embed(
    run: Folder,
    images: Any,
    out: Folder | None = None,
    *,
    pool: str = "head",
    split: str | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
    batch: int | None = None,
    threads: int = 2,
    on_bad: str = "error",
    progress: bool = True,
    log: Log | None = None,
    **limits: Any,
) -> Embeddings:
    """A vector for each image, with what can be asked of them: `near`, `duplicates`, `suspects`,
    `knn`, `plane`.

    `images` are paths, folders and patterns; or labelled data, as `train` takes it, all of it or
    one `split`. The run's own data is split as it was for training; of other data that has no
    splits, a tenth is val, as `train` would hold it out.
    `pool` is head (what the model's head sees), class, mean, class+mean or pixels. With `out`, a
    .npz or .parquet, what was computed is kept: started again, the command computes only what is
    missing. With on_bad="skip", images that cannot be used are left out. `limits` are those of
    `load`: max_pixels.
    """
    from vitreous.embed.compute import embed
    from vitreous.predict import load

    log = log or _to_stderr
    predictor = load(os.fspath(run), **limits)
    columns = (path_column, label_column, split_column)
    return embed(
        predictor,
        _images(run, images, split, columns, predictor.max_pixels, log),
        None if out is None else Path(out),
        pool=pool,
        batch=batch,
        threads=threads,
        on_bad=on_bad,
        log=log,
        progress=progress,
    )


def _images(
    run: Folder,
    images: Any,
    split: str | None,
    columns: tuple[str | None, ...],
    max_pixels: int,
    log: Log,
) -> Images:
    """What is to be embedded: labelled data, or else files."""
    from vitreous.data.image_paths import paths_of
    from vitreous.embed.images import of_paths, of_source
    from vitreous.predict import check_split

    many = list(images) if isinstance(images, list | tuple) else [images]
    files = all(isinstance(each, str | os.PathLike) for each in many)
    source = None
    if not files:
        source = _python_source(images, Recipe(val_fraction=0))
        source.max_pixels = max_pixels
    elif len(many) == 1:
        source = _source_to_embed(
            run, os.fspath(many[0]), columns, max_pixels, log, needed=split is not None
        )
    if source is not None:
        if split is not None:
            check_split(source, split)
        return of_source(source, list(source.splits) if split is None else [split])
    if split is not None or any(columns):
        raise ConfigError(
            "--split and the columns are those of labelled data: name one folder or table"
        )
    names = [os.fspath(each) for each in many]
    return of_paths(paths_of(names, lambda what: log(str(what))), max_pixels)


def _source_to_embed(
    run: Folder,
    name: str,
    columns: tuple[str | None, ...],
    max_pixels: int,
    log: Log,
    needed: bool,
) -> Source | None:
    """Labelled data of this name; None if these are just images."""
    from vitreous.data.formats import FORMATS, Columns, open_source, same_source
    from vitreous.run_folder import Run

    endings = tuple(end for format in FORMATS.values() for end in format.extensions)
    named = name.partition(":")[0] in FORMATS
    if not named and not os.path.isdir(name) and not name.lower().endswith(endings):
        return None
    folder = Run(os.fspath(run))
    own = folder.exists and (folder.path / "recipe.toml").is_file()
    if own and not any(columns) and same_source(name, folder.read_config().data):
        return _labelled_source(run, name, columns, max_pixels, log)
    try:
        source = open_source(name, columns=Columns(*columns))
        if {"val", "test"} <= source.splits.keys():  # a val held out from train is not needed
            whole = open_source(name, val_fraction=0, columns=Columns(*columns))
            source = source if "val" in whole.splits else whole
    except DataError as error:
        if needed or named or any(columns) or not os.path.isdir(name):
            raise
        log(f"{str(error).partition(': looked for')[0]}: the images are embedded without labels")
        return None
    source.max_pixels = max_pixels
    for note in source.notes:
        log(note)
    return source


def write_map(found: Embeddings, path: Folder, layout: str = "auto") -> tuple[Path, str]:
    """One self-contained page with the images on a plane, similar ones near each other; and how
    they were laid out: t-sne or pca. `layout` is auto (t-SNE for a few thousand), t-sne or pca."""
    from vitreous.pages.vector_map import write_map

    return write_map(found, Path(path), layout)


def write_sheet(
    found: Embeddings,
    path: Folder,
    *,
    near: tuple[Any, Sequence[Any]] | None = None,
    duplicates: Sequence[Any] | None = None,
    suspects: Sequence[Any] | None = None,
) -> Path:
    """One self-contained page with the pictures of what was found: the image that was asked about
    and those near it, pairs of duplicates, images with doubtful labels."""
    from vitreous.pages.vector_sheet import write_sheet

    return write_sheet(found, Path(path), near, duplicates, suspects)


def explain(
    run: Folder,
    images: Any,
    out: Folder | None = None,
    *,
    classes: Sequence[str] | int = 3,
    pixel: tuple[int, int] | None = None,
    **limits: Any,
) -> list[Path]:
    """Write the figures and pages that show what the model does with each image, to RUN/explain
    unless `out` is given; returns the files. `predictor.explain(image)` gives the arrays instead.

    `classes` are names, or how many of the most likely ones; `pixel` (y, x) is the one whose class
    and attention are explained, if there is one for each. `limits` are those of `load`: max_pixels.
    """
    from vitreous.predict import load

    many = list(images) if isinstance(images, list | tuple) else [images]
    folder = explanation_folder(run) if out is None else Path(out)
    return list(write_explanations(load(Path(run), **limits), many, folder, classes, pixel))


def explanation_folder(run: Folder) -> Path:
    """RUN/explain; for a name of the hub or the catalog, `explain` in the working folder."""
    return Path(run, "explain") if Path(run).exists() else Path("explain")


def write_explanations(
    predictor: Predictor,
    images: Sequence[Any],
    out: Path,
    classes: Sequence[str] | int = 3,
    pixel: tuple[int, int] | None = None,
    bad: Bad | None = None,
) -> Iterator[Path]:
    """The files of `explain`, as they are written. An image that cannot be used is an error, unless
    `bad` takes it."""
    from vitreous.pages.explanation_files import write_image, write_model

    good = []
    for number, image in enumerate(images, 1):
        name = Path(image).stem if isinstance(image, str | os.PathLike) else "image"
        stem = re.sub(r"[^\w.-]+", "-", name)
        folder = out / (stem if len(images) == 1 else f"{number:03d}-{stem}")
        try:
            yield from write_image(predictor, image, folder, classes, pixel)
            good.append(image)
        except DataError as error:
            if bad is None:
                raise
            bad(error)
        except OSError as error:
            raise ConfigError(f"--out {out}: cannot be written: {error}") from error
    if good:
        yield from write_model(predictor, good, out)


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

    kind = None if task is None else TASKS[task]
    source: Source
    if isinstance(path, str | os.PathLike):
        source = open_source(
            os.fspath(path),
            truth=kind,
            download=download,
            seed=seed,
            val_fraction=val_fraction,
            names=None if names is None else Path(names),
            columns=Columns(path_column, label_column, split_column),
        )
    else:
        source = from_python(path, truth=kind, seed=seed, val_fraction=val_fraction, names=names)
    return check(source, max_pixels=max_pixels, **options)


def convert(source: Folder, target: Folder, **options: Any) -> Conversion:
    """Convert weights between formats, verified: `vitreous.weights.convert.convert`, whose options
    these are. The source may also be RUN@last or RUN/checkpoints/step-N."""
    from vitreous.run_folder import Run
    from vitreous.weights.convert import convert

    run = Run(os.fspath(source))
    given = os.fspath(source) if run.checkpoint is None else run.as_checkpoint()
    return convert(given, Path(target), **options)


def import_run(
    source: Folder,
    out: Folder | None = None,
    *,
    from_format: Folder | None = None,
    model: str | None = None,
    changes: dict[str, Any] | None = None,
    inside: str | None = None,
    resize: str | None = None,
    crop: float | None = None,
    interpolation: str | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    **options: Any,
) -> Imported:
    """Make a run folder, `out` (runs/NAME), of weights from elsewhere, verified: it is taken like a
    trained one.

    `source` is a file, a folder of transformers or timm, hf:OWNER/NAME[@REVISION], or a name from
    the catalog. `model`, `changes` (fields of its config) and the preprocessing override what the
    source states; what it does not state must be given. `options` are those of
    `vitreous.import_run.import_into`: labels, task, reinit, drop, resample, source_grid,
    adapt_channels, force.
    """
    from vitreous.import_run import import_into
    from vitreous.train.claim import claimed
    from vitreous.train.distributed import ALONE
    from vitreous.weights.adopt import find

    given: dict[str, Any] = {"resize": resize, "crop": crop, "interpolation": interpolation}
    for name, value in (("mean", mean), ("std", std)):
        if value is not None:
            given[name] = (value,) if isinstance(value, int | float) else tuple(value)
    known = {name: value for name, value in given.items() if value not in (None, ())}
    found = find(
        os.fspath(source),
        format=None if from_format is None else os.fspath(from_format),
        model=model,
        changes=changes,
        inside=inside,
    )
    name = Path(source).stem if Path(source).is_file() else os.fspath(source)
    with claimed(None if out is None else Path(out), name, ALONE) as claim:
        return import_into(claim.run.path, found, preprocessing=known, **options)


def list_weights(source: Folder, **options: Any) -> WeightListing:
    """What a weight file holds: tensors, metadata, the entries of a training checkpoint, and which
    model it is for. options: inside, format, model, as in `import_weights`."""
    from vitreous.weights.listing import list_weights

    return list_weights(os.fspath(source), **options)


def models(pattern: str = "*") -> list[str]:
    """The names of the models that match."""
    from vitreous.models import names

    return names(pattern)


def model_counts(pattern: str = "*") -> dict[str, dict[str, int]]:
    """Parameters and FLOPs of the models that match, from a table: it does not wait for torch."""
    table = Path(__file__).with_name("models") / "counts.toml"
    counts = tomllib.loads(table.read_text(encoding="utf-8"))
    return {
        name: dict(zip(("parameters", "flops"), counts[name], strict=True))
        for name in _matching(list(counts), pattern)
    }


def public_weights(pattern: str = "*") -> dict[str, CatalogEntry]:
    """The public checkpoints that match, by name."""
    from vitreous.weights.catalog import catalog

    known = catalog()
    return {name: known[name] for name in _matching(list(known), pattern)}


def _matching(known: list[str], pattern: str) -> list[str]:
    """The names that match a pattern, or contain a word; none is an error."""
    names = [name for name in known if fnmatch.fnmatchcase(name, pattern)]
    if not names and not set("*?[") & set(pattern):
        names = [name for name in known if pattern in name]
    if not names:
        hint = did_you_mean(pattern, known) or ": 'vitreous models' lists them all"
        raise ConfigError(f"no name matches {pattern!r}{hint}")
    return names


def summary(model: str, **changes: Any) -> list[SummaryRow]:
    """The walk of an image through a model, stage by stage: shape, parameters and FLOPs."""
    from vitreous.models.summary import summarise_name

    return summarise_name(model, **changes)


def stored_values(
    recipe: Folder | None, out: Folder | None = None, resume: bool = False
) -> dict[str, Any]:
    """The fields that a recipe file sets, or with `resume` those of the run in `out`."""
    if not resume:
        none = recipe is None or recipe == NO_RECIPE
        return {} if none else read_recipe(find_recipe(str(recipe)))
    if recipe is not None:
        raise ConfigError("--resume continues with the run's own recipe: leave out --recipe")
    if out is None:
        raise ConfigError("which run should be resumed? pass --out RUN")
    path = Path(out) / "recipe.toml"
    if not path.exists():
        raise ConfigError(f"{out} has no run to resume")
    return read_recipe(path)


def recipe_for_weights(weights: Any, lora: Any, log: Log) -> str | None:
    """The recipe that applies where none is given; for weights to start from there is one."""
    chosen = default_recipe(weights, lora)
    if chosen is not None:
        log(f"recipe: {chosen}, because weights are given (--recipe {NO_RECIPE} uses none)")
    return chosen


def _settings(
    data: Data,
    recipe: Folder | Recipe | None,
    out: Folder | None,
    resume: bool,
    options: Mapping[str, Any],
    augment: Callable[..., Any] | None,
    log: Log,
) -> tuple[Recipe, FromPython]:
    """The recipe with options from Python in place, those that may be repeated are added; and what
    it cannot hold."""
    from vitreous.data.augment import OwnAugment
    from vitreous.data.formats.python_data import FROM_PYTHON
    from vitreous.train.open_data import FromPython

    given = {**({} if data is None else {"data": data}), **options}
    names = None
    if program := data is not None and not isinstance(data, str | os.PathLike):
        given["data"] = FROM_PYTHON
        names = given.pop("names", None)  # also a list or a dict
    own = None if augment is None else OwnAugment(augment)
    if own is not None:
        given["augment"] = own.name
    given = checked(Recipe, {name: _plain(name, value) for name, value in given.items()})
    if isinstance(recipe, Recipe):
        base = recipe
    else:
        if recipe is None and not resume:
            recipe = recipe_for_weights(given.get("weights"), given.get("lora"), log)
        base = Recipe(**stored_values(recipe, out, resume))
    for name in ("fields", "freeze"):
        if name in given:
            given[name] = (*getattr(base, name), *given[name])
    settings = replace(base, **given)
    source = _python_source(data, settings, names) if program else None
    return settings, FromPython(source, own)


def _python_source(data: Any, settings: Recipe, names: Any = None) -> Source:
    """Data that a program has, split by the recipe."""
    from vitreous.data.formats.python_data import from_python
    from vitreous.tasks import TASKS

    return from_python(
        data,
        truth=None if settings.task is None else TASKS[settings.task],
        seed=settings.seed,
        val_fraction=settings.val_fraction,
        names=names,
    )


def _plain(name: str, value: Any) -> Any:
    """A value from Python as recipe files have it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if name == "fields" and isinstance(value, Mapping):
        return tuple(f"{field}={json.dumps(each)}" for field, each in value.items())
    return (value,) if name == "image_size" and isinstance(value, int) else value


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
