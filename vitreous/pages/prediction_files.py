"""What `vitreous predict --out` writes: the files of each image, and one about them all; of each
video, one that is drawn into, and a line about each frame."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from vitreous.atomic_write import making_folder, naming_file, replacing
from vitreous.data.decode.images import shown
from vitreous.data.video import Frame, Video, video_name
from vitreous.data.video_writer import VideoWriter
from vitreous.errors import ConfigError, WriteError
from vitreous.predict import Predictor
from vitreous.tasks import show_of
from vitreous.tasks.task import Log
from vitreous.wording import counted

VIDEO_ENDINGS = ("-annotated.mp4", ".jsonl")


@contextmanager
def writing(
    predictor: Predictor,
    paths: Sequence[str],
    out: Path,
    data: Path | None = None,
    log: Log = lambda text: None,
) -> Iterator[Callable[[Any], None]]:
    """Inside, a function that writes a result to `out`; what cannot be written is an error before
    any work is done."""
    show = show_of(predictor.task.name)
    if not show.endings:
        raise ConfigError(
            f"--out {out}: nothing is drawn for the task {predictor.task.name}: use --json > FILE "
            "to keep the predictions"
        )
    if data is not None and not show.has_ids:
        raise ConfigError(
            f"--data {data}: no ids are written for the task {predictor.task.name}: leave it out"
        )
    names = file_names(paths, show.reserved)
    _check_free(paths, names.values(), show.endings, out)
    files = {shown(path): path for path in paths}
    with show.collecting(out, paths, predictor.task.labels, data, log) as collect:

        def write(result: Any) -> None:
            path = files[result.image]
            image, _ = predictor.read(path)
            with making_folder(out, named=f"--out {out}"), naming_file(f"--out {out}"):
                show.write(result, image, out, names[path], predictor)
            collect(result, path)

        yield write


def video_file_names(sources: Sequence[str], out: Path) -> dict[str, str]:
    """A name for the files of each video in `out`, by the video's; none is written over."""
    names = file_names([video_name(source) for source in sources])
    _check_free(sources, names.values(), VIDEO_ENDINGS, out)
    return names


@contextmanager
def writing_video(
    predictor: Predictor, video: Video, out: Path, name: str, log: Log = lambda text: None
) -> Iterator[Callable[[Frame, Any], None]]:
    """Inside, a function that adds a frame and its result to the video `name` in `out`, and a line
    to a file beside it. However this ends, both are there."""
    show = show_of(predictor.task.name)
    if not show.has_picture:
        raise ConfigError(
            f"--out {out}: nothing is drawn into videos for the task {predictor.task.name}: use "
            "--json > FILE to keep the predictions"
        )
    drawn, data = (out / f"{name}{ending}" for ending in VIDEO_ENDINGS)
    pictures = VideoWriter(drawn)
    try:
        with making_folder(out, named=f"--out {out}"), pictures, _kept_lines(data) as lines:

            def write(frame: Frame, result: Any) -> None:
                picture = np.asarray(show.picture(result, frame.image))
                with naming_file(drawn):
                    pictures.add(picture, frame.seconds)
                with naming_file(data):
                    lines.write(json.dumps(frame_record(show, video, frame, result)) + "\n")

            yield write
    finally:
        if pictures.frames:
            log(f"written: {drawn} and {data.name}, {counted(pictures.frames, 'frame')}")


@contextmanager
def _kept_lines(path: Path) -> Iterator[TextIO]:
    """A file that is there however this ends, unless it cannot be written."""
    stopped: BaseException | None = None
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        try:
            yield file
        except WriteError:
            raise
        except BaseException as error:
            stopped = error
    if stopped is not None:
        raise stopped


def frame_record(
    show: Any, video: Video, frame: Frame, result: Any, top: int = 5
) -> dict[str, Any]:
    """What JSON says about a frame: which one it is, and what would be said about an image."""
    found = show.record(result, top)
    found.pop("image", None)
    return {"video": video.name, "frame": frame.number, "time": round(frame.seconds, 6), **found}


@contextmanager
def labelling(
    predictor: Predictor,
    paths: Sequence[str],
    out: Path,
    format: str,
    data: Path | None = None,
    log: Log = lambda text: None,
) -> Iterator[Callable[[Any], None]]:
    """Inside, a function that adds a result to the data set in the new folder `out`."""
    show, task = show_of(predictor.task.name), predictor.task
    if format not in show.label_formats:
        formats = ", ".join(show.label_formats)
        known = f"for the task {task.name} use one of {formats}" if formats else ""
        reason = known or f"there is no format of labels for the task {task.name}: leave it out"
        raise ConfigError(f"--save-labels {format}: {reason}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out}: already exists: labels are written into a new folder")
    files = {shown(path): path for path in paths}
    done: set[str] = set()
    with (
        making_folder(out, named=f"--out {out}"),
        show.labelling(format, out, file_names(paths), task.labels, data, log) as add,
    ):

        def write(result: Any) -> None:
            if result.image not in done:  # an image may be named twice
                add(result, files[result.image])
                done.add(result.image)

        yield write


def _check_free(
    paths: Sequence[str], names: Iterable[str], endings: Iterable[str], out: Path
) -> None:
    """No image is written over."""
    given = {os.path.realpath(path): path for path in paths}
    for name, ending in itertools.product(names, endings):
        lost = given.get(os.path.realpath(out / f"{name}{ending}"))
        if lost is not None:
            raise ConfigError(
                f"--out {out}: {lost} would be written over, which is one of the inputs: give "
                "another folder"
            )


def file_names(paths: Sequence[str], taken: Sequence[str] = ()) -> dict[str, str]:
    """A name for each image's files, and no two the same: its own without its ending; where another
    has that already, with its folders before it; and where that does not help, with a number."""
    names: dict[str, str] = {}
    gone = set(taken)
    for path in dict.fromkeys(paths):
        # names that differ only in their case are the same on some disks
        names[path] = next(name for name in _ways(path) if name.casefold() not in gone)
        gone.add(names[path].casefold())
    return names


def _ways(path: str) -> Iterator[str]:
    """What an image may be called, the best first, in characters that all disks take."""
    *folders, file = Path(shown(path)).parts
    for count in range(len(folders) + 1):
        text = "-".join((*folders[len(folders) - count :], Path(file).stem))
        plain = re.sub(r"[^\w.-]+", "-", text).strip("-") or "image"
        yield plain
    yield from (f"{plain}-{number}" for number in itertools.count(2))
