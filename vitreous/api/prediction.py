"""`vitreous predict` and `vitreous explain`: what a model does with images."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import Folder, to_stderr
from vitreous.api.deployment import load
from vitreous.atomic_write import check_writable
from vitreous.errors import ConfigError, DataError
from vitreous.progress import Log, silent

if TYPE_CHECKING:
    from vitreous.data.video import Frame, Video
    from vitreous.engines.world import World
    from vitreous.predict import Bad, Predictor


def predict(run: Folder, images: Any, batch: int | None = None, **options: Any) -> Any:
    """The prediction for an image, or for each of several: paths, arrays, PIL images, tensors.

    `options` are those of `load`.
    """
    return load(run, **options)(images, batch)


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
    world: World | None = None,
) -> Iterator[Any]:
    """The predictions for image files, as they are made.

    `threshold` is the smallest score of what counts as found, for tasks that have one. `out` is a
    folder for what the task draws, or with `save_labels` (yolo, coco) for a data set with what
    was found as its labels. `data` is a COCO file whose ids the written files have. An image that
    cannot be used is an error, unless `bad` takes it. The processes of a `world` share the work;
    the first one has the predictions, and writes them.
    """
    from vitreous.data.decode.images import shown, unread_pages
    from vitreous.engines.world import ALONE
    from vitreous.pages.prediction_files import labelling, writing

    _check_threshold(predictor, threshold)
    world = world or ALONE
    log = log or to_stderr if world.is_first else silent
    if out is None and (save_labels or data):
        needs = "--save-labels" if save_labels else "--data"
        raise ConfigError(f"{needs} is about what is written: give --out FOLDER")
    ids = None if data is None else Path(data)
    files: Any = nullcontext()
    if out is not None and save_labels:
        files = labelling(predictor, paths, Path(out), save_labels, ids, log)
    elif out is not None:
        files = writing(predictor, paths, Path(out), ids, log)
    with world.only_first(lambda: files) as write:
        for result in predictor.stream(paths, batch, bad=bad, world=world):
            if threshold is not None:
                result = result.above(threshold)
            if write is not None:
                write(result)
            yield result
    if world.is_first and (several := [path for path in paths if unread_pages(path)]):
        more = len(several) - 1
        others = f" and {more:,} other{'s' * (more > 1)} have" if more else " has"
        log(f"{shown(several[0])}{others} several pages or frames: only the first is read")


def predict_video(
    predictor: Predictor,
    video: Video,
    batch: int | None = None,
    *,
    threshold: float | None = None,
    track: bool = False,
    out: Folder | None = None,
    name: str | None = None,
    log: Log | None = None,
) -> Generator[tuple[Frame, Any], None, None]:
    """The frames of a video with their predictions, as they are made.

    `track` gives each object of a detector a number, the same in all frames. `out` is a folder for
    the video with what the task draws into it, and a JSON line about each frame; `name` is what
    these files are called, by default like the video. See `Predictor.video` and `predict_files`.
    """
    from vitreous.pages.prediction_files import video_file_names, writing_video

    _check_threshold(predictor, threshold)
    task, tracked = predictor.task, None
    if track:
        refused = f"a model for the task {task.name} finds no objects to follow: leave track out"
        tracked = task.objects(f"track: {refused}").tracker()
    files: Any = nullcontext()
    if out is not None:
        name = name or video_file_names([os.fspath(video.source)], Path(out))[video.name]
        files = writing_video(predictor, video, Path(out), name, log or to_stderr)
    with files as write:
        for frame, result in predictor.video(video, batch=batch):
            if threshold is not None:
                result = result.above(threshold)
            if tracked is not None:
                result = tracked(result)
            if write is not None:
                write(frame, result)
            yield frame, result


def _check_threshold(predictor: Predictor, threshold: float | None) -> None:
    from vitreous.tasks import show_of

    if threshold is not None and not show_of(predictor.task.name).has_threshold:
        raise ConfigError(
            f"--threshold {threshold:g}: a model for the task {predictor.task.name} has no "
            "threshold: leave it out"
        )


def explain(
    run: Folder,
    images: Any,
    out: Folder | None = None,
    *,
    classes: Sequence[str] | int = 3,
    pixel: tuple[int, int] | None = None,
    page: bool = True,
    **options: Any,
) -> list[Path]:
    """Write the figures and pages that show what the model does with each image, to RUN/explain
    unless `out` is given; returns the files. `page` adds page.html, in which the model itself runs.
    `predictor.explain(image)` gives the arrays instead.

    `classes` are names, or how many of the most likely ones; `pixel` (y, x) is the one whose class
    and attention are explained, if there is one for each. `options` are those of `load`.
    """
    from vitreous.data.decode.images import several

    found = several(images)
    many = [images] if found is None else list(found)
    folder = explanation_folder(run) if out is None else Path(out)
    return list(write_explanations(load(run, **options), many, folder, classes, pixel, page=page))


def score_maps(
    predictor: Predictor, images: Sequence[Any], bad: Bad | None = None
) -> dict[str, dict[str, Any]]:
    """How far each kind of map may be trusted, by its name: deletion and insertion scores over the
    images with their intervals (`vitreous.explain.map_scores`). An image that cannot be used is an
    error, unless `bad` takes it."""
    from vitreous.explain.map_scores import map_scores

    values = []
    for image in images:
        try:
            values.append(predictor.view(*predictor.read(image)).values)
        except DataError as error:
            if bad is None:
                raise
            bad(error)
    return {kind: each.summary() for kind, each in map_scores(predictor, values).items()}


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
    *,
    page: bool = True,
    log: Log | None = None,
) -> Iterator[Path]:
    """The files of `explain`, as they are written. An image that cannot be used is an error, unless
    `bad` takes it."""
    from vitreous.pages.explanation_files import write_image, write_living, write_model

    _ = predictor.model  # an exported file has none to look into
    check_writable(out, named=f"--out {out}")
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
    if good:
        yield from write_model(predictor, good, out)
        if page:
            yield from write_living(predictor, good, out, log or to_stderr)
