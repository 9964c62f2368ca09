"""`vitreous embed`: a vector for each image, and pages of what they show."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vitreous.api.arguments import Folder, is_named, source_of, to_stderr
from vitreous.api.deployment import load_run
from vitreous.api.evaluation import labelled_source
from vitreous.errors import ConfigError, DataError
from vitreous.inference import InferenceOptions
from vitreous.progress import Log, silent
from vitreous.train.recipe import Recipe

if TYPE_CHECKING:
    from vitreous.data.source import Source
    from vitreous.embed.embeddings import Embeddings
    from vitreous.embed.images import Images
    from vitreous.engines.world import World
    from vitreous.run_folder import OpenedRun


def embed(
    run: Folder,
    images: Any,
    out: Folder | None = None,
    *,
    pool: str = "head",
    split: str | Sequence[str] | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
    batch: int | None = None,
    readers: int = 2,
    on_bad: str = "error",
    progress: bool = True,
    log: Log | None = None,
    check: Callable[[Images], None] = lambda images: None,
    world: World | None = None,
    **options: Any,
) -> Embeddings:
    """A vector for each image, with what can be asked of them: `near`, `duplicates`, `suspects`,
    `knn`, `plane`.

    `images` are paths, folders and patterns; or labelled data, as `train` takes it, all of it or
    the `split` or splits that are named. The run's own data is split as it was for training; of
    other data that has no splits, a tenth is val, as `train` would hold it out.
    `pool` is head (what the model's head sees), class, mean, class+mean or pixels. With `out`, a
    .npz or .parquet, what was computed is kept: started again, the command computes only what is
    missing. With on_bad="skip", images that cannot be used are left out. `check` sees the images
    before any vector is computed. `options` are those of `load`. `readers` is how many threads read
    images. The processes of a `world` share the work; only the first one has the vectors.
    """
    from vitreous.embed.compute import embed
    from vitreous.engines.world import ALONE
    from vitreous.import_run import open_run

    world = world or ALONE
    log = log or to_stderr if world.is_first else silent
    inference = InferenceOptions.of(options)
    with world.first_leads():
        opened = open_run(run, verify=inference.verify)
        predictor = load_run(opened, inference, log)
    columns = (path_column, label_column, split_column)
    entries = _images(opened, images, split, columns, predictor.max_pixels, log, world)
    check(entries)
    found = embed(
        predictor,
        entries,
        Path(out) if out is not None and world.is_first else None,
        pool=pool,
        batch=batch,
        readers=readers,
        on_bad=on_bad,
        log=log,
        progress=progress,
        world=world,
    )
    return cast("Embeddings", found)


def _images(
    run: OpenedRun,
    images: Any,
    split: str | Sequence[str] | None,
    columns: tuple[str | None, ...],
    max_pixels: int,
    log: Log,
    world: World,
) -> Images:
    """What is to be embedded: labelled data, or else files."""
    from vitreous.data.image_paths import paths_of
    from vitreous.embed.images import of_paths, of_source
    from vitreous.measure import chosen_split

    many = list(images) if isinstance(images, list | tuple) else [images]
    files = all(map(is_named, many))
    source = None
    if not files:
        source = source_of(images, Recipe(val_fraction=0))
        source.max_pixels = max_pixels
    elif len(many) == 1:
        source = _source_to_embed(
            run, os.fspath(many[0]), columns, max_pixels, log, needed=split is not None
        )
    if source is not None:
        asked = [split] if isinstance(split, str) else split
        for name in asked or ():
            chosen_split(source, name)
        return of_source(source, list(source.splits) if asked is None else asked)
    if split is not None or any(columns):
        raise ConfigError(
            "--split and the columns are those of labelled data: name one folder or table"
        )
    names = [os.fspath(each) for each in many]
    found = world.lead(lambda: list(paths_of(names, lambda what: log(str(what)))))
    return of_paths(found, max_pixels)


def _source_to_embed(
    run: OpenedRun,
    name: str,
    columns: tuple[str | None, ...],
    max_pixels: int,
    log: Log,
    needed: bool,
) -> Source | None:
    """Labelled data of this name; None if these are just images."""
    from vitreous.data.formats import FORMATS, Columns, open_source, same_source

    endings = tuple(end for format in FORMATS.values() for end in format.extensions)
    named = name.partition(":")[0] in FORMATS
    if not named and not os.path.isdir(name) and not name.lower().endswith(endings):
        return None
    own = (run.path / "recipe.toml").is_file()  # not of an exported file
    if own and not any(columns) and same_source(name, run.config.data):
        # what was learned from without labels may have some
        return labelled_source(run, name, log, max_pixels=max_pixels)[0].with_labels()
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
