"""Predict what images and videos show, with the model of a run folder."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from vitreous import api
from vitreous.api.arguments import to_stderr
from vitreous.cli.options import ImagePaths, PredictionOptions, WordOptions
from vitreous.cli.printing import Complaints, TextLines, TextTable, print_json
from vitreous.config import positive
from vitreous.errors import ConfigError, DataError
from vitreous.progress import CountProgress, silent
from vitreous.terminal import print
from vitreous.train.recipe import Flag, option
from vitreous.wording import counted

if TYPE_CHECKING:
    from vitreous.engines.world import World
    from vitreous.predict import Predictor
    from vitreous.tasks.show import Show


@dataclass(frozen=True)
class PredictArguments:
    run: tyro.conf.Positional[Path]
    """Run folder of a trained or imported model, hf:OWNER/NAME, or a name from the catalog."""
    images: ImagePaths
    """Files, folders, patterns like 'photos/*.jpg', or - for a list of files on standard input; and
    videos: files like clip.mp4, 0 for the first camera, addresses like rtsp://HOST/STREAM."""
    top: Annotated[int, option("N")] = 5
    """Number of classes or objects to show per image."""
    threshold: Annotated[float | None, option("T", "0.5, or chosen in training")] = None
    """Smallest score, from 0 to 1, at which an object or a label counts as found."""
    batch: Annotated[int | None, option("N", "32, or fewer if images are not cropped")] = None
    """Images (or tiles) per forward pass."""
    out: Annotated[Path | None, option("FOLDER", "none")] = None
    """Folder for masks, overlays or drawn boxes, with a JSON file per image; of a video for one
    with boxes or masks drawn into it, with a JSON line per frame."""
    every: Annotated[int, option("N")] = 1
    """Of a video, look at every N-th frame."""
    track: Flag = False
    """Of a video, number the objects, each with the same number in all frames: simple tracking, by
    the overlap of boxes alone."""
    save_labels: Annotated[str | None, option("FORMAT", "none")] = None
    """Write what was found to --out as labels of a data set instead: yolo or coco."""
    data: Annotated[Path | None, option("FILE", "images are numbered")] = None
    """Take the ids of images and categories in what is written from this COCO file."""
    json: Flag = False
    """Print one line of JSON per image or frame."""
    words: WordOptions = field(default_factory=WordOptions)
    inference: PredictionOptions = field(default_factory=PredictionOptions)


REFUSED = {
    "labels": "a model predicts the classes that it was trained for; one with a text tower (CLIP, "
    "SigLIP, PE) takes others by words: --classes WORDS... or FILE"
}


def run(arguments: PredictArguments) -> None:
    from vitreous.data.image_paths import paths_of
    from vitreous.data.video import IN_FOLDERS, is_video, video_name
    from vitreous.pages.prediction_files import video_file_names
    from vitreous.train.distributed import sharing

    positive(arguments, "top", "every", *(["batch"] if arguments.batch is not None else []))
    bad = Complaints()
    with sharing() as world:
        paths = world.lead(lambda: list(paths_of(arguments.images, bad, IN_FOLDERS)))
        videos = [path for path in paths if is_video(path)]
        images = [path for path in paths if not is_video(path)]
        _check_options(arguments, videos)
        with world.first_leads():
            log = to_stderr if world.is_first else silent
            given = {**arguments.words.given(), **arguments.inference.given()}
            predictor = api.load(arguments.run, log=log, **given)
        names = {} if arguments.out is None else video_file_names(videos, arguments.out)
        if images:
            _predict_images(arguments, predictor, images, bad, world)
    if not world.is_first:
        return  # of several processes the first one reads videos, whose frames follow each other
    for video in videos:
        try:
            _predict_video(arguments, predictor, video, names.get(video_name(video)))
        except DataError as error:
            bad(error)
    kinds = {"images": images, "videos": videos}
    bad.raise_if_any(len(paths), " and ".join(name for name, some in kinds.items() if some))


def _check_options(arguments: PredictArguments, videos: list[str]) -> None:
    if not videos and (arguments.track or arguments.every > 1):
        what = "--track" if arguments.track else f"--every {arguments.every}"
        raise ConfigError(f"{what} is about the frames of a video, and no video is given")
    if videos and (arguments.save_labels or arguments.data):
        what = "--save-labels" if arguments.save_labels else "--data"
        raise ConfigError(f"{what} is about image files, and {videos[0]} is a video: leave it out")


def _predict_images(
    arguments: PredictArguments,
    predictor: Predictor,
    images: list[str],
    bad: Complaints,
    world: World,
) -> None:
    from vitreous.tasks import show_of

    show: Show = show_of(predictor.task.name)
    table = TextTable("image", *show.headings)
    for result in api.predict_files(
        predictor,
        images,
        arguments.batch,
        threshold=arguments.threshold,
        out=arguments.out,
        save_labels=arguments.save_labels,
        data=arguments.data,
        bad=bad,
        world=world,
    ):
        if arguments.json:
            print_json(show.record(result, arguments.top))
        else:
            table.row(result.image, *show.row(result, arguments.top))
    if table.rows:
        table.print()


def _predict_video(
    arguments: PredictArguments, predictor: Predictor, source: str, name: str | None
) -> None:
    from vitreous.data.video import Video
    from vitreous.pages.prediction_files import frame_record
    from vitreous.tasks import show_of

    show: Show = show_of(predictor.task.name)
    options = {key: getattr(arguments, key) for key in ("threshold", "track", "out")}
    with (
        Video(source, arguments.every, max_pixels=predictor.max_pixels) as video,
        CountProgress(video.total, to_stderr, "frames", visible=True) as progress,
        closing(
            api.predict_video(predictor, video, arguments.batch, name=name, **options)
        ) as results,
    ):
        lines = None
        for frame, result in results:
            progress.add(1)
            if arguments.json:
                print_json(frame_record(show, video, frame, result, arguments.top))
                continue
            if lines is None:
                print(video.name)
                lines = TextLines("frame>", "seconds>", *show.headings)
            cells = show.row(result, arguments.top)
            lines.row(str(frame.number), f"{frame.seconds:.3f}", *cells)
        to_stderr(f"{video.name}: {counted(progress.done, 'frame')}, {progress.rate:.1f} frames/s")
