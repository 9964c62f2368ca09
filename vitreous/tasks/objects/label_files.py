"""Detections as a data set with labels, in formats that `train` and other tools read back.

The folder has the images too, as they are. Only one whose EXIF rotates it is saved upright, because
readers of labels disagree about such images.

    yolo   images/  labels/  data.yaml  train.txt  val.txt
    coco   images/  annotations/instances_train.json
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from vitreous.atomic_write import making_folder, replacing, write_bytes, write_text
from vitreous.data.decode.images import displayed_size
from vitreous.data.source import Sample
from vitreous.data.split import HoldOut, hold_out
from vitreous.results import Detection, SegmentedObject
from vitreous.tasks.objects.coco_results import CocoIds
from vitreous.tasks.task import Log
from vitreous.wording import counted

Add = Callable[[Detection, str], None]
"""Is given a result and the path of its image."""
Points = NDArray[np.int64]
"""(n, 2): x and y of the corners of pixels, from 0 to the image's width and height."""


class LabelFolder(NamedTuple):
    """Where a data set is written, and what each image is called there, without its ending."""

    out: Path
    names: Mapping[str, str]

    def save_image(self, path: str) -> str:
        """The image in the data set, which is called so."""
        upright = displayed_size(path)[2] == 1
        name = f"{self.names[path]}{Path(path).suffix if upright else '.png'}"
        with self.writing("images", name) as temporary:
            if upright:
                shutil.copyfile(path, temporary)
            else:
                from PIL import Image, ImageOps

                with Image.open(path) as image:
                    ImageOps.exif_transpose(image).save(temporary, "PNG")
        return name

    @contextmanager
    def writing(self, inside: str, name: str) -> Iterator[Path]:
        """Inside, where to write a file of the data set to; see `replacing`."""
        folder = self.out / inside
        with making_folder(folder), replacing(folder / name, sync=False) as temporary:
            yield temporary


@contextmanager
def yolo(folder: LabelFolder, classes: tuple[str, ...], ids: CocoIds, log: Log) -> Iterator[Add]:
    """A line for each object: the class from 0, then normalised cxcywh, or of a mask x and y of the
    points of its outline."""
    empty, images = 0, list[str]()

    def add(result: Detection, path: str) -> None:
        nonlocal empty
        images.append(folder.save_image(path))
        height, width = result.size
        lines = []
        for found in result.objects:
            if isinstance(found, SegmentedObject):
                points = polygon(found.mask) / (width, height)
                values = points.ravel().tolist()
                empty += not values
            else:
                left, top, right, bottom = found.box
                centre = (left + right) / 2 / width, (top + bottom) / 2 / height
                values = [*centre, (right - left) / width, (bottom - top) / height]
            if values:
                numbers = " ".join(f"{value:.8f}" for value in values)
                lines.append(f"{classes.index(found.label)} {numbers}\n")
        with folder.writing("labels", f"{folder.names[path]}.txt") as file:
            file.write_text("".join(lines), encoding="utf-8")

    yield add
    if empty:
        log(f"left out, as their masks have no pixel: {counted(empty, 'object')}")
    _write_data_yaml(folder.out, images, classes)


def _write_data_yaml(out: Path, images: Sequence[str], classes: Sequence[str]) -> None:
    """As Ultralytics reads it, too: that needs a val, and takes a path that is not absolute as one
    below a folder of its own. A part of the images is held out, as `train` would do it."""
    samples = [Sample(name, None) for name in images]
    train, val = hold_out(samples, HoldOut().val, 0, truth_kind="boxes")
    for split, part in {"train": train, "val": val or train}.items():
        lines = "".join(f"./images/{sample.id}\n" for sample in part)
        write_text(out / f"{split}.txt", lines)
    names = "".join(f"  {number}: {_quoted(name)}\n" for number, name in enumerate(classes))
    path = f"path: {_quoted(str(out.resolve()))}  # of this folder: change it if that is moved\n"
    text = f"{path}train: train.txt\nval: val.txt\nnames:\n{names}"
    write_bytes(out / "data.yaml", text.encode(errors="surrogateescape"))


def _quoted(text: str) -> str:
    """As YAML and JSON write it."""
    return json.dumps(text, ensure_ascii=False)


@contextmanager
def coco(folder: LabelFolder, classes: tuple[str, ...], ids: CocoIds, log: Log) -> Iterator[Add]:
    """One file for all images; objects also have their `score`, and their mask if it is known."""
    images: list[dict[str, Any]] = []
    objects: list[dict[str, Any]] = []

    def add(result: Detection, path: str) -> None:
        height, width = result.size
        entry = {"id": ids.images[path], "file_name": folder.save_image(path)}
        images.append(entry | {"height": height, "width": width})
        for found in result.objects:
            category = ids.categories[classes.index(found.label)]
            left, top, right, bottom = found.box
            box = [left, top, right - left, bottom - top]
            if category is not None:
                kind = {"image_id": ids.images[path], "category_id": category, "iscrowd": 0}
                measures = {"bbox": box, "area": box[2] * box[3], "score": found.score}
                if isinstance(found, SegmentedObject):
                    measures |= {"area": found.area, "segmentation": found.rle}
                objects.append({"id": len(objects) + 1, **kind, **measures})

    yield add
    pairs = zip(classes, ids.categories, strict=True)
    categories = [{"id": id, "name": name} for name, id in pairs if id is not None]
    values = {"images": images, "categories": categories, "annotations": objects}
    path = folder.out / "annotations" / "instances_train.json"
    with making_folder(path.parent):
        write_text(path, json.dumps(values))


FORMATS = {"yolo": yolo, "coco": coco}


def polygon(mask: NDArray[np.bool_]) -> Points:
    """(h, w) -> its outline, for formats that have one polygon for each object; without points if
    the mask is empty.

    It goes along the edges of pixels, so that nothing is lost. A mask may have several parts, and
    holes in them: all of their outlines become one polygon, connected by lines that go there and
    back at the same place and so enclose nothing. Whoever fills it by the even-odd rule, as readers
    of polygons do, gets the mask.
    """
    loops = sorted(outlines(mask), key=len, reverse=True)
    if len(loops) < 2:
        return loops[0] if loops else np.zeros((0, 2), np.int64)
    longest, path, last = loops[0], [], 0
    for here, loop in sorted(_bridges(longest, loops[1:]), key=itemgetter(0)):
        path += [longest[last : here + 1], loop, loop[:1]]
        last = here
    return np.concatenate((*path, longest[last:]))


def _bridges(longest: Points, others: Sequence[Points]) -> Iterator[tuple[int, Points]]:
    """To which point of the longest each of the others is connected, and that from its nearest
    point on."""
    tree = KDTree(longest)
    for loop in others:
        far, near = tree.query(loop)
        first = int(far.argmin())
        yield int(near[first]), np.roll(loop, -first, axis=0)


def outlines(mask: NDArray[np.bool_]) -> list[Points]:
    """Of every part and every hole, without points inside of straight lines; the first point is not
    repeated."""
    padded = np.pad(mask, 1).astype(np.int8)
    follows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    # Lines between a pixel inside and one outside, with the inside on their right.
    for axis, along in enumerate(((1, 0), (0, 1))):
        step = np.diff(padded, axis=axis)
        y, x = np.nonzero(step)
        ends = np.stack((x, y), axis=1)
        begins = ends - along
        forward = ((step[y, x] > 0) == (axis == 0))[:, None]
        first, last = np.where(forward, begins, ends), np.where(forward, ends, begins)
        for at, to in zip(first.tolist(), last.tolist(), strict=True):
            follows.setdefault((at[0], at[1]), []).append((to[0], to[1]))
    found = []
    while follows:
        at = start = next(iter(follows))
        loop: list[tuple[int, int]] = []
        while not loop or at != start:
            loop.append(at)
            ways = follows[at]  # two where pixels touch at a corner: either encloses the same
            at = ways.pop()
            if not ways:
                del follows[loop[-1]]
        found.append(_turns(np.array(loop)))
    return found


def _turns(loop: Points) -> Points:
    """Where the direction changes."""
    before, after = loop - np.roll(loop, 1, axis=0), np.roll(loop, -1, axis=0) - loop
    return loop[(before != after).any(axis=1)]
