"""YOLO: images, and for each a text file with one line per object.

    data.yaml  images/train/1.jpg  labels/train/1.txt

`data.yaml` gives the folders of the images and the names of the classes. Without it the folders are
found by their names, and the classes are those of `classes.txt`, or the numbers that occur. An
image without a text file has no objects.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vitreous.data.decode.images import shown
from vitreous.data.formats.box_source import BoxSource
from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.files import below, read_text
from vitreous.data.formats.instances import Annotation
from vitreous.data.formats.names import numbered_labels, with_names
from vitreous.data.formats.pairing import LabelFiles, Pairing, has_pairs
from vitreous.data.formats.yolo_text import (
    YoloData,
    begins_with_labels,
    is_data_yaml,
    read_data_yaml,
    read_labels,
)
from vitreous.data.source import Sample
from vitreous.errors import DataError
from vitreous.labels import LabelMap

NAMES_FILES = ("classes.txt", "obj.names", "classes.names", "classes.json", "names.json")

TEXTS = LabelFiles("label file", (".txt",), ".txt", apart=False, needed=False, others=NAMES_FILES)

_YAML = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
_LAYOUTS = (
    "data.yaml, images/train + labels/train, train/images + train/labels, images + labels, and "
    "text files beside images"
)


def recognise(folder: str) -> bool:
    return bool(_find_yaml(folder)) or has_pairs(folder, TEXTS, begins_with_labels)


def _find_yaml(folder: str) -> str | None:
    """YOLO's data.yaml in a folder."""
    names = sorted(name for name in os.listdir(folder) if name.lower().endswith((".yaml", ".yml")))
    found = [name for name in names if is_data_yaml(os.path.join(folder, name))]
    usual = [name for name in _YAML if name in found]
    if len(found) > 1 and not usual:
        raise DataError(f"{shown(folder)}: has {' and '.join(found)}: give the path of one of them")
    return os.path.join(folder, (usual or found)[0]) if found else None


def read(builder: SourceBuilder) -> BoxSource:
    """A folder, or its data.yaml."""
    given = builder.root
    if not os.path.exists(given):
        raise DataError(f"{builder.name}: there is no such file or folder")
    file: str | None = given
    if os.path.isdir(given):
        # one that does not look like YOLO's is read too, for its error
        named = [os.path.join(given, name) for name in _YAML[:2]]
        file = _find_yaml(given) or next(filter(os.path.isfile, named), None)
    pairing, labels = Pairing(builder, TEXTS), None
    if file:
        data = read_data_yaml(file)
        labels = data.labels
        _YamlReader(builder, pairing, file).read(data)
        builder.check_images()
    else:
        pairing.read_folders("", _LAYOUTS)
    without = [sample for sample in builder.samples() if not sample.target]
    if len(without) == len(builder.samples()):
        looked = ", ".join(dict.fromkeys(shown(folder) for folder in pairing.folders))
        raise DataError(f"{builder.name}: no image has a label file: looked in {looked}")
    found = pairing.read_label_files(read_labels, "reading label files")
    labels = _named(builder, pairing, labels, found)
    if count := sum(sample.id not in pairing.unpaired for sample in without):
        builder.notes.append(f"{count} images have no label file, which means no objects")
    classes = labels.by_external()
    return builder.build(
        BoxSource, labels, annotations=found, classes=classes, normalised=True
    ).check_boxes()


# ---- the folders and lists of data.yaml


@dataclass
class _YamlReader:
    """Fills the builder with the images that a data.yaml means."""

    builder: SourceBuilder
    pairing: Pairing
    file: str

    def read(self, data: YoloData) -> None:
        beside = os.path.dirname(self.file)
        # Folders are relative to the file's `path`, or to the file itself.
        path = os.path.normpath(os.path.join(beside, os.path.expanduser(data.path)))
        self.roots = list(dict.fromkeys((path, beside)))
        builder, name = self.builder, shown(os.path.basename(self.file))
        builder.root = path if os.path.isdir(path) else beside
        builder.notes.append(f"folders and names of the classes: {name}")
        if builder.root != path:
            builder.notes.append(f"{name}: path: there is no {shown(path)}; looked beside the file")
        places = {
            split: [self._place(part, split) for part in parts]
            for split, parts in data.splits.items()
        }
        for split, parts in places.items():
            for part in parts:
                if os.path.isdir(part):
                    self.pairing.pair(split, *_images_and_texts(part))
                else:
                    self._add_listed(split, part)
            # folders may lie in each other
            builder.splits[split] = list(dict.fromkeys(builder.splits[split]))

    def _place(self, part: str, split: str) -> str:
        """A folder or list of images. Roboflow writes ../train/images for train/images."""
        tries = [os.path.join(root, part) for root in self.roots]
        tries += [os.path.join(root, part[3:]) for root in self.roots if part.startswith("../")]
        tries = [os.path.normpath(each) for each in tries]
        for each in tries:
            if os.path.exists(each):
                return each
        looked = " or ".join(map(shown, tries))
        raise DataError(f"{shown(self.file)}: {split}: there is no {looked}")

    def _add_listed(self, split: str, file: str) -> None:
        """The images that a text file lists, one path per line."""
        builder = self.builder
        listed = dict.fromkeys(_listed(file, [os.path.dirname(file), *self.roots]))
        samples: dict[str, Sample] = {}
        for folder in dict.fromkeys(map(os.path.dirname, listed)):
            if os.path.isdir(folder):
                paired = self.pairing.samples(folder, _texts_of(folder))
                samples |= {sample.id: sample for sample in paired}
        ids = [builder.id(path) for path in listed]
        what = f"{len(ids)} images listed in {below(file, builder.root)}"
        builder.notes.append(f"{split}: {what}")
        builder.splits.setdefault(split, []).extend(samples.get(id) or Sample(id, "") for id in ids)


def _images_and_texts(folder: str) -> tuple[str, str]:
    """The folders of images and of text files that a folder in data.yaml means."""
    inner = [os.path.join(folder, name) for name in ("images", "labels")]
    if all(map(os.path.isdir, inner)):
        return inner[0], inner[1]
    return folder, _texts_of(folder)


def _texts_of(folder: str) -> str:
    """Where the text files of a folder of images are: under `labels` instead of `images`, or beside
    them. Of several folders called images the last counts, as for other readers of YOLO's files."""
    parts = Path(folder).parts
    places = [place for place, part in enumerate(parts) if part == "images"]
    if not places:
        return folder
    texts = os.path.join(*parts[: places[-1]], "labels", *parts[places[-1] + 1 :])
    return texts if os.path.isdir(texts) else folder


def _listed(file: str, roots: list[str]) -> Iterator[str]:
    for line in filter(None, map(str.strip, read_text(file).splitlines())):
        tries = [os.path.normpath(os.path.join(root, line)) for root in roots]
        yield next((path for path in tries if os.path.exists(path)), tries[0])


# ---- the names of the classes


def _named(
    builder: SourceBuilder,
    pairing: Pairing,
    declared: LabelMap | None,
    found: dict[str, Annotation],
) -> LabelMap:
    """declared: the classes of data.yaml."""
    file = _names_file([builder.root, *pairing.folders]) if declared is None else None
    if file:
        builder.notes.append(f"names of the classes: {below(file, builder.root)}")
        declared = numbered_labels(file)
    if declared is not None:
        return with_names(declared, builder.names, partial=True)
    if builder.names is not None:
        return numbered_labels(builder.names)
    numbers = {int(thing.category) for labels in found.values() for thing in labels.instances}
    if not numbers:
        raise DataError(
            f"{shown(builder.root)}: no label file has an object and nothing names the classes: "
            "give a names file (--names FILE) with one name per line"
        )
    labels = LabelMap.of_ids(numbers)
    builder.notes.append(
        f"the classes are all numbers that occur: {', '.join(labels.names)}. A names file (--names "
        "FILE) with one name per line, or classes.txt in the folder, names them"
    )
    return labels


def _names_file(folders: list[str]) -> str | None:
    """A file of names; several must have the same content."""
    places = [os.path.join(folder, name) for folder in folders for name in NAMES_FILES]
    found = [place for place in dict.fromkeys(places) if os.path.isfile(place)]
    for other in found[1:]:
        if Path(other).read_bytes() != Path(found[0]).read_bytes():
            both = f"{shown(found[0])} and {shown(other)}"
            raise DataError(f"{both} name the classes differently: keep one")
    return found[0] if found else None
