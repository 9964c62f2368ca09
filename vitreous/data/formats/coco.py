"""COCO's JSON of objects, `instances_train2017.json`, and its images.

Their boxes are data to detect (`coco_boxes.py`), their outlines data to segment (`coco_masks.py`).
"""

from __future__ import annotations

import os
import re
from collections import Counter

from vitreous.data.decode.images import shown
from vitreous.data.formats.coco_boxes import CocoBoxSource, check_boxes_there, put_boxes
from vitreous.data.formats.coco_json import Coco, read_coco
from vitreous.data.formats.coco_masks import (
    BACKGROUND,
    CocoMaskSource,
    check_outlines_there,
    mask_notes,
    put_outlines,
)
from vitreous.data.formats.folder import SPLIT_FOLDERS
from vitreous.data.formats.names import Names, changed_names
from vitreous.data.formats.pairing import below
from vitreous.data.source import IGNORED, Sample
from vitreous.data.split import VAL_FRACTION, check_apart, with_val
from vitreous.errors import DataError
from vitreous.labels import External, LabelMap, natural

CocoSource = CocoBoxSource | CocoMaskSource

_SPLIT = "|".join(sorted(SPLIT_FOLDERS, key=len, reverse=True))
_FILES = {
    "annotations": re.compile(rf"(?:instances_)?({_SPLIT})[\d_-]*\.json", re.IGNORECASE),
    ".": re.compile(rf"instances_({_SPLIT})[\d_-]*\.json", re.IGNORECASE),
}
"""In these folders, JSON files of these names are COCO's, one for each split."""
_BEGINNING = re.compile(r'\s*\{\s*"(info|licenses|images|annotations|categories|type)"\s*:')
_BESIDE = "_annotations.coco.json"
"""What Roboflow calls the file that lies among the images of each split."""

_PLACES = (
    *(".", "images", "{0}", "images/{0}", "data"),
    *("..", "../images", "../{0}", "../images/{0}", "../data"),
)
"""Where images may be, seen from their JSON file; {0} is the end of its name, as train2017."""


def find_coco(folder: str) -> dict[str, str]:
    """The JSON file of each split in a folder laid out as COCO's, or as Roboflow's."""
    found: dict[str, str] = {}

    def put(split: str, path: str) -> None:
        if split in found:
            both = f"{below(found[split], folder)} and {below(path, folder)}"
            raise DataError(f"{shown(folder)}: {both} both are for {split}: keep one")
        found[split] = path

    for inner, pattern in _FILES.items():
        place = os.path.normpath(os.path.join(folder, inner))
        for name in sorted(os.listdir(place)) if os.path.isdir(place) else ():
            match = pattern.fullmatch(name)
            if match and _begins_as_coco(os.path.join(place, name)):
                put(SPLIT_FOLDERS[match[1].lower()], os.path.join(place, name))
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name, _BESIDE)
        if name.lower() in SPLIT_FOLDERS and os.path.isfile(path):
            put(SPLIT_FOLDERS[name.lower()], path)
    return found


def _begins_as_coco(path: str) -> bool:
    """Other JSON files may be called train.json too; large ones are not read to find out."""
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            return _BEGINNING.match(file.read(200)) is not None
    except OSError:
        return False


def open_coco(
    path: str,
    *,
    truth: str = "boxes",
    seed: int = 0,
    val_fraction: float = VAL_FRACTION,
    names: Names | None = None,
) -> CocoSource:
    """A JSON file, all of whose images are to train on, or a folder with one for each split."""
    given = os.path.normpath(os.path.expanduser(path))
    is_folder = os.path.isdir(given)
    files = find_coco(given) if is_folder else {"train": given}
    if not files:
        raise DataError(
            f"{shown(path)}: no COCO files: looked for annotations/instances_train.json (…val, "
            f"…test; digits behind them), instances_train.json and train/{_BESIDE}"
        )
    outlines = truth == "mask"
    parts = {split: read_coco(file, outlines=outlines) for split, file in files.items()}
    folders = {split: _image_folder(part) for split, part in parts.items()}
    first = next(iter(parts.values()))
    ids = _ids(first, outlines)
    kind: type[CocoSource] = CocoMaskSource if outlines else CocoBoxSource
    source = kind(
        name=shown(path),
        kind="coco",
        truth_kind=truth,
        labels=changed_names(LabelMap(tuple(ids), tuple(ids.values())), names),
        splits={},
        notes=[f"{split}: images in {shown(folder)}" for split, folder in folders.items()],
        problems=[problem for part in parts.values() for problem in part.problems],
        root=given if is_folder else folders["train"],
    )
    if isinstance(source, CocoMaskSource):
        check_outlines_there(first)
        source.ground = _class_of(BACKGROUND, ids, source.labels)
        source.notes += mask_notes(source, parts, ids[BACKGROUND])
    else:
        check_boxes_there(first)
    splits = {
        split: _fill(source, part, folders[split], ids, split) for split, part in parts.items()
    }
    check_apart(splits, source.name)
    source.splits = with_val(splits, val_fraction, seed, source.notes, by_class=False)
    if isinstance(source, CocoBoxSource):
        source.count()
    return source


def _fill(
    source: CocoSource, part: Coco, folder: str, ids: dict[str, External], split: str
) -> list[Sample]:
    """Puts what a file says into the source, and gives its samples."""
    unknown = [name for name in part.categories.values() if name not in ids]
    if unknown:
        raise DataError(
            f"{shown(part.path)}: has categories that the file of train has not: "
            f"{', '.join(unknown)}"
        )
    if any(ids[name] != id for id, name in part.categories.items()):
        what = "its categories have other ids than those of train; they are the same by name"
        source.notes.append(f"{split}: {what}, and the ids of train are used")
    file = below(part.path, source.root)
    samples = {
        id: Sample(_sample_id(source, os.path.join(folder, image.file)), f"{file}#{id}")
        for id, image in part.images.items()
    }
    classes = {id: _class_of(name, ids, source.labels) for id, name in part.categories.items()}
    if isinstance(source, CocoMaskSource):
        put_outlines(source, part, samples, classes)
    else:
        put_boxes(source, part, samples, classes)
    return sorted(samples.values(), key=lambda sample: natural(sample.id))


def _sample_id(source: CocoSource, path: str) -> str:
    """A path below the root as text; the real one is kept where that is not the same."""
    real = os.path.relpath(path, source.root)
    if (id := shown(real).replace(os.sep, "/")) != real:
        source.odd_names[id] = real
    return id


def _ids(part: Coco, outlines: bool) -> dict[str, External]:
    """What the data calls each category, by name; of outlines, the background too."""
    counts = Counter(part.categories.values())
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise DataError(f"{shown(part.path)}: two categories are called {', '.join(twice)}")
    ids: dict[str, External] = {name: id for id, name in sorted(part.categories.items())}
    if not outlines or BACKGROUND in ids:
        return ids
    return {BACKGROUND: BACKGROUND, **ids}


def _class_of(name: str, ids: dict[str, External], labels: LabelMap) -> int:
    return IGNORED if ids[name] in labels.ignored else labels.internal(ids[name])


def _image_folder(part: Coco) -> str:
    """Where the images of a file are: the folder, of those that are usual, that has most of them.

    Only some of the images are asked for; one that is missing is found when it is read.
    """
    beside = os.path.dirname(part.path)
    word = os.path.splitext(os.path.basename(part.path))[0].removeprefix("instances_")
    tries = [os.path.normpath(os.path.join(beside, place.format(word))) for place in _PLACES]
    files = [image.file for image in part.images.values()]
    some = files[:: max(len(files) // 20, 1)]

    def count(folder: str) -> int:
        return sum(os.path.exists(os.path.join(folder, file)) for file in some)

    best = max(tries, key=count)
    if not count(best):
        looked = ", ".join(dict.fromkeys(map(shown, tries)))
        raise DataError(f"{shown(part.path)}: its images ({files[0]} …) are not in any of {looked}")
    return best
