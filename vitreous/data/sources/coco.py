"""COCO's JSON of objects with outlines as masks: `instances_train2017.json` and its images.

Where objects overlap, the smaller lies on the larger: a cup on a table is a cup. Crowds, in which
COCO did not tell objects apart, are ignored. Pixels of no object are the class `background`, unless
the names file says `{"background": null}`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from vitreous.data.coco import Coco, CocoObject, draw, read_coco
from vitreous.data.images import seen_size, shown
from vitreous.data.masks import unclear_turn
from vitreous.data.names import Names, changed_names
from vitreous.data.source import IGNORED, Sample
from vitreous.data.sources.files import FileSource
from vitreous.data.sources.folder import SPLIT_FOLDERS
from vitreous.data.sources.pairing import below
from vitreous.data.split import with_val
from vitreous.errors import DataError
from vitreous.labels import External, LabelMap, natural

BACKGROUND = "background"

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


@dataclass
class CocoSource(FileSource):
    """A sample's target is its file and number there: `annotations/instances_val.json#17`."""

    objects: dict[str, list[CocoObject]] = field(default_factory=dict, kw_only=True, repr=False)
    """By target, what is in the image."""
    classes: dict[str, dict[int, int]] = field(default_factory=dict, kw_only=True)
    """By the file, the class or IGNORED of each category."""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict, kw_only=True, repr=False)
    """By target, the height and width that the JSON says."""
    spoiled: dict[str, str] = field(default_factory=dict, kw_only=True)
    """By target, why it is not known what the image shows."""
    ground: int = field(default=IGNORED, kw_only=True)
    """The class of pixels that belong to no object."""

    def truth(self, sample: Sample) -> Tensor:
        try:
            return self._mask(sample)
        except DataError as error:
            if str(error).startswith(f"{self.where(sample)}: "):
                raise
            raise DataError(f"{self.where(sample)}: {error}") from None

    def _mask(self, sample: Sample) -> Tensor:
        if sample.target in self.spoiled:
            raise DataError(self.spoiled[sample.target])
        file = self.file(sample)
        height, width, turned = seen_size(file, max_pixels=self.max_pixels)
        part = str(sample.target).rpartition("#")[0]
        said = self.sizes.get(sample.target, (height, width))
        if said != (height, width):
            turn = f" (its EXIF turns it, orientation {turned})" if turned != 1 else ""
            raise DataError(
                f"is {height}x{width} (height x width){turn}, but {part} says {said[0]}x{said[1]}"
            )
        if unclear := unclear_turn(turned, height, width):
            raise DataError(unclear)
        drawn = [(draw(thing, height, width), thing) for thing in self.objects[sample.target]]
        drawn.sort(key=lambda pair: -int(pair[0].sum()))
        mask = np.full((height, width), self.ground, np.int16)
        for where, thing in drawn:
            mask[where] = IGNORED if thing.crowd else self.classes[part][thing.category]
        return torch.from_numpy(mask)


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
    seed: int = 0,
    val_fraction: float = 0.1,
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
    parts = {split: read_coco(file) for split, file in files.items()}
    first = next(iter(parts.values()))
    labels = _labels(first, names)
    folders = {split: _image_folder(part) for split, part in parts.items()}
    root = given if is_folder else folders["train"]
    source = CocoSource(
        name=shown(path),
        kind="coco",
        task="segment",
        labels=labels,
        splits={},
        notes=_notes(parts, folders, labels),
        problems=[problem for part in parts.values() for problem in part.problems],
        root=root,
        ground=_class_of(BACKGROUND, _ids(first), labels),
    )
    splits = {
        split: _fill(source, part, folders[split], _ids(first)) for split, part in parts.items()
    }
    _check_apart(splits, source.name)
    source.splits = with_val(splits, val_fraction, seed, source.notes, by_class=False)
    return source


def _fill(source: CocoSource, part: Coco, folder: str, ids: dict[str, External]) -> list[Sample]:
    """Puts what a file says into the source, and gives its samples."""
    file = below(part.path, source.root)
    unknown = [name for name in part.categories.values() if name not in ids]
    if unknown:
        raise DataError(
            f"{shown(part.path)}: has categories that the file of train has not: "
            f"{', '.join(unknown)}"
        )
    source.classes[file] = {
        id: _class_of(name, ids, source.labels) for id, name in part.categories.items()
    }
    samples = []
    for id, image in part.images.items():
        target = f"{file}#{id}"
        samples.append(Sample(_sample_id(source, os.path.join(folder, image.file)), target))
        source.objects[target] = part.objects[id]
        if image.size is not None:
            source.sizes[target] = image.size
        if id in part.spoiled:
            source.spoiled[target] = part.spoiled[id]
    return sorted(samples, key=lambda sample: natural(sample.id))


def _sample_id(source: CocoSource, path: str) -> str:
    """A path below the root as text; the real one is kept where that is not the same."""
    real = os.path.relpath(path, source.root)
    if (id := shown(real).replace(os.sep, "/")) != real:
        source.odd_names[id] = real
    return id


def _ids(part: Coco) -> dict[str, External]:
    """What the data calls each category, by name, and the background where none is called so."""
    ids: dict[str, External] = {name: id for id, name in sorted(part.categories.items())}
    return ids if BACKGROUND in ids else {BACKGROUND: BACKGROUND, **ids}


def _labels(part: Coco, names: Names | None) -> LabelMap:
    counts = Counter(part.categories.values())
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise DataError(f"{shown(part.path)}: two categories are called {', '.join(twice)}")
    if not any(thing.outline for things in part.objects.values() for thing in things):
        raise DataError(
            f"{shown(part.path)}: none of its objects has an outline (segmentation), which it "
            "takes to segment"
        )
    ids = _ids(part)
    return changed_names(LabelMap(tuple(ids), tuple(ids.values())), names)


def _class_of(name: str, ids: dict[str, External], labels: LabelMap) -> int:
    return IGNORED if ids[name] in labels.ignored else labels.internal(ids[name])


def _notes(parts: dict[str, Coco], folders: dict[str, str], labels: LabelMap) -> list[str]:
    first = next(iter(parts.values()))
    notes = [f"{split}: images in {shown(folder)}" for split, folder in folders.items()]
    ids = _ids(first)
    if ids[BACKGROUND] in labels.ignored:
        notes.append("pixels of no object are ignored")
    else:
        name = labels.names[labels.internal(ids[BACKGROUND])]
        notes.append(
            f"pixels of no object are the class {name!r}; "
            f'{{"{ids[BACKGROUND]}": null}} in a names file ignores them'
        )
    notes.append("where objects overlap, the smaller lies on the larger; crowds are ignored")
    for split, part in parts.items():
        empty = sum(not things for things in part.objects.values())
        if empty:
            notes.append(f"{split}: {empty} images have no objects")
    return notes


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


def _check_apart(splits: dict[str, list[Sample]], name: str) -> None:
    """An image belongs to one split: what is learned must not be what is tested."""
    seen: dict[str, str] = {}
    for split, samples in splits.items():
        for sample in samples:
            if seen.setdefault(sample.id, split) != split:
                both = f"{seen[sample.id]} and {split}"
                raise DataError(f"{name}: {sample.id} is in both {both}: keep it in one")
