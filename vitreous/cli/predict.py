"""Predict what images show, with the model of a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from vitreous import api
from vitreous.cli.image_paths import IMAGES, Complaints
from vitreous.cli.options import MaxPixels, Nms, Overlap, Tile
from vitreous.cli.print_json import print_json
from vitreous.cli.text_table import TextTable
from vitreous.config import positive
from vitreous.train.recipe import Flag, option

if TYPE_CHECKING:
    from vitreous.tasks.show import Show


@dataclass(frozen=True)
class PredictArguments:
    run: tyro.conf.Positional[Path]
    """Run folder of a trained or imported model, hf:OWNER/NAME, or a name from the catalog."""
    images: Annotated[tyro.conf.Positional[tuple[str, ...]], IMAGES]
    """Files, folders, patterns like 'photos/*.jpg', or - for a list of files on standard input."""
    top: Annotated[int, option("N")] = 5
    """Number of classes or objects to show per image."""
    threshold: Annotated[float | None, option("T", "0.5, or chosen in training")] = None
    """Smallest score, from 0 to 1, at which an object or a label counts as found."""
    batch: Annotated[int | None, option("N", "32, or fewer if images are not cropped")] = None
    """Images (or tiles) per forward pass."""
    tile: Tile = None
    """Look for objects in overlapping tiles of this size, and in the whole image: small objects in
    large images are found that way."""
    overlap: Overlap = None
    """Part of a tile that it shares with the next one."""
    nms: Nms = None
    """Largest IoU of two boxes of a class: of those that overlap more, only the best is kept."""
    out: Annotated[Path | None, option("FOLDER", "none")] = None
    """Folder for masks, overlays or drawn boxes, with a JSON file per image."""
    max_pixels: MaxPixels = 50_000_000
    """Refuse images with more pixels than this, or that would be enlarged to more."""
    save_labels: Annotated[str | None, option("FORMAT", "none")] = None
    """Write what was found to --out as labels of a data set instead: yolo, voc or coco."""
    data: Annotated[Path | None, option("FILE", "images are numbered")] = None
    """Take the ids of images and categories in what is written from this COCO file."""
    json: Flag = False
    """Print one line of JSON per image."""


REFUSED = {
    "labels": "a model predicts the classes that it was trained for. Naming others by words "
    "(zero-shot, with a CLIP or SigLIP) is not supported, as texts are not encoded here: train a "
    "head on a few images of each class: vitreous train FOLDER --weights RUN"
}


def run(arguments: PredictArguments) -> None:
    from vitreous.data.image_paths import paths_of
    from vitreous.tasks import show_of

    positive(arguments, "top", *(["batch"] if arguments.batch is not None else []))
    bad = Complaints()
    paths = list(paths_of(arguments.images, bad))
    predictor = api.load(
        arguments.run,
        max_pixels=arguments.max_pixels,
        tile=arguments.tile,
        overlap=arguments.overlap,
        nms=arguments.nms,
    )
    show: Show = show_of(predictor.task.name)
    table = TextTable("image", *show.headings)
    for result in api.predict_files(
        predictor,
        paths,
        arguments.batch,
        threshold=arguments.threshold,
        out=arguments.out,
        save_labels=arguments.save_labels,
        data=arguments.data,
        bad=bad,
    ):
        if arguments.json:
            print_json(show.record(result, arguments.top))
        else:
            table.row(result.image, *show.row(result, arguments.top))
    if table.rows:
        table.print()
    bad.raise_if_any(len(paths))
