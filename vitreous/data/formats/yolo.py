"""YOLO's folders: images, and beside them text files with a line for each object.

    data.yaml  images/train/1.jpg  labels/train/1.txt

`data.yaml` says where the images are and what the classes are called. Without it the folders are
found by their names, and the classes are those of `classes.txt`, or the numbers that occur. An
image without a text file has no objects.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vitreous.data.decode.images import EXTENSIONS, shown
from vitreous.data.formats.box_records import Box
from vitreous.data.formats.box_source import BoxSource
from vitreous.data.formats.folder import Scan
from vitreous.data.formats.names import Names, numbered_labels, renamed
from vitreous.data.formats.pairing import Pairing, Partner, below, find_pairs, has_pairs
from vitreous.data.formats.yolo_text import YoloLabels, is_data, is_yaml, read_data, read_labels
from vitreous.data.source import Sample
from vitreous.data.split import VAL_FRACTION, check_apart, with_val
from vitreous.data.threads import in_threads
from vitreous.errors import DataError
from vitreous.labels import LabelMap, natural

NAMES_FILES = ("classes.txt", "obj.names", "classes.names", "classes.json", "names.json")

TEXTS = Partner(
    *("label file", "label files", (".txt",), ".txt"),
    apart=False,
    needed=False,
    others=NAMES_FILES,
)

_YAML = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")


def find_yaml(folder: str) -> str | None:
    """YOLO's data.yaml in a folder."""
    names = sorted(name for name in os.listdir(folder) if is_yaml(name))
    found = [name for name in names if is_data(os.path.join(folder, name))]
    usual = [name for name in _YAML if name in found]
    if len(found) > 1 and not usual:
        raise DataError(f"{shown(folder)}: has {' and '.join(found)}: give the path of one of them")
    return os.path.join(folder, (usual or found)[0]) if found else None


def _broken_yaml(folder: str) -> str | None:
    """A data.yaml beside labels is meant, even if it is not as it should be; reading it tells."""
    names = [name for name in _YAML[:2] if os.path.isfile(os.path.join(folder, name))]
    return os.path.join(folder, names[0]) if names else None


def find_yolo(folder: str) -> bool:
    """Whether a folder is laid out as YOLO's: text files of numbers, named as the images are."""
    return bool(find_yaml(folder)) or has_pairs(folder, TEXTS, _has_numbers)


def _has_numbers(path: str) -> bool:
    """Whether a text begins as labels do; captions lie beside images too."""
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            words = file.readline(1000).split()
            return len(words) >= 5 and all(map(_is_number, words))
    except OSError:
        return False


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


@dataclass
class _Found:
    """Images and their text files, before any of them is read."""

    root: str
    pairing: Pairing
    notes: list[str] = field(default_factory=list)
    scan: Scan = field(default_factory=Scan)
    splits: dict[str, list[Sample]] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    """Of text files."""
    names: dict[int, str] | None = None

    def pair(self, split: str, images: str, texts: str) -> None:
        both = f"{below(images, self.root)} with {below(texts, self.root)}"
        self.notes.append(f"{split}: {both}" if split else both)
        self.folders.append(texts)
        self.splits.setdefault(split or "train", []).extend(
            self.pairing.pair(images, texts, self.scan)
        )


def open_yolo(
    path: str,
    *,
    seed: int = 0,
    val_fraction: float = VAL_FRACTION,
    names: Names | None = None,
) -> BoxSource:
    """A folder, or its data.yaml."""
    given = os.path.normpath(os.path.expanduser(path))
    if not os.path.exists(given):
        raise DataError(f"{shown(path)}: there is no such file or folder")
    file = find_yaml(given) or _broken_yaml(given) if os.path.isdir(given) else given
    found = _by_yaml(file) if file else _by_folders(given)
    if not any(found.splits.values()):
        raise DataError(f"{shown(path)}: no images in its folders ({' '.join(EXTENSIONS)})")
    check_apart(found.splits, shown(file or path))
    pairing = found.pairing
    samples = [sample for part in found.splits.values() for sample in part]
    if not any(sample.target for sample in samples):
        looked = ", ".join(dict.fromkeys(shown(folder) for folder in found.folders))
        raise DataError(f"{shown(path)}: no image has a label file: looked in {looked}")
    targets = [sample.target and pairing.file(sample.target) for sample in samples]
    read = in_threads(_try, targets, "reading label files")
    found.scan.skipped.pop(".txt", None)  # beside the images
    source = BoxSource(
        name=shown(path),
        kind="yolo",
        truth_kind="boxes",
        labels=_labels(found, [labels for labels in read if isinstance(labels, YoloLabels)], names),
        splits=with_val(found.splits, val_fraction, seed, found.notes, by_class=False),
        notes=found.notes + found.scan.notes(),
        problems=list(dict.fromkeys(found.scan.problems + pairing.problems)),
        root=found.root,
        odd_names=pairing.odd_names,
        parts=True,
    )
    for sample, labels in zip(samples, read, strict=True):
        _put(source, sample, pairing.unmasked.get(sample.id) or labels)
    without = sum(not s.target and s.id not in pairing.unmasked for s in samples)
    if without:
        source.notes.append(f"{without} images have no label file, which means no objects")
    source.count()
    return source


def _try(path: str) -> YoloLabels | str:
    """What a file has, or what is wrong with it; an image without one has no objects."""
    if not path:
        return YoloLabels()
    try:
        return read_labels(path)
    except DataError as error:
        return str(error).removeprefix(f"{shown(path)}: ")


def _put(source: BoxSource, sample: Sample, labels: YoloLabels | str) -> None:
    if isinstance(labels, str):
        source.put(sample, (), [labels])
        return
    known = {id: number for number, id in enumerate(source.labels.external)}
    boxes, wrong = [], list(labels.wrong)
    for thing in labels.objects:
        if thing.number in known:
            boxes.append(Box(thing.name, known[thing.number], thing.corners))
        elif thing.number in source.labels.ignored:
            source.unused[str(thing.number)] += 1
        else:
            last = source.labels.external[-1]
            what = f"class {thing.number} has no name, the last that has one is {last}"
            wrong.append(f"{thing.name}: {what}")
    source.put(sample, boxes, wrong)


# ---- where the files are


def _by_folders(root: str) -> _Found:
    found = _Found(root, Pairing(root, TEXTS))
    pairs = find_pairs(root, found.notes, TEXTS)
    if not pairs:
        raise DataError(
            f"{shown(root)}: no images with label files: looked for data.yaml, images/train + "
            "labels/train, train/images + train/labels, images + labels, and text files beside "
            "images"
        )
    for split, (images, texts) in pairs.items():
        found.pair(split, images, texts)
    return found


def _by_yaml(file: str) -> _Found:
    data = read_data(file)
    beside = os.path.dirname(file)
    # Where the folders are meant from: what the file says, or where it lies.
    said = os.path.normpath(os.path.join(beside, os.path.expanduser(data.path)))
    roots = list(dict.fromkeys((said, beside)))
    places = {
        split: [_place(part, roots, split, shown(file)) for part in parts]
        for split, parts in data.splits.items()
    }
    root = said if os.path.isdir(said) else beside
    found = _Found(root, Pairing(root, TEXTS), names=data.names)
    name = shown(os.path.basename(file))
    found.notes.append(f"folders and names of the classes: {name}")
    if root != said:
        found.notes.append(f"{name}: path: there is no {shown(said)}; looked beside the file")
    for split, parts in places.items():
        for part in parts:
            if os.path.isdir(part):
                found.pair(split, *_both(part))
            else:
                _by_list(found, split, part, roots)
        once = dict.fromkeys(found.splits[split])  # folders may lie in each other
        found.splits[split] = sorted(once, key=lambda sample: natural(sample.id))
    return found


def _place(part: str, roots: list[str], split: str, name: str) -> str:
    """The folder or list that data.yaml means. Roboflow writes ../train/images for train/images."""
    tries = [os.path.join(root, part) for root in roots]
    tries += [os.path.join(root, part[3:]) for root in roots if part.startswith("../")]
    tries = [os.path.normpath(each) for each in tries]
    for each in tries:
        if os.path.exists(each):
            return each
    raise DataError(f"{name}: {split}: there is no {' or '.join(map(shown, tries))}")


def _both(folder: str) -> tuple[str, str]:
    """The folders of images and of text files that a folder of data.yaml means."""
    inner = [os.path.join(folder, name) for name in ("images", "labels")]
    if all(map(os.path.isdir, inner)):
        return inner[0], inner[1]
    return folder, _texts_of(folder)


def _texts_of(folder: str) -> str:
    """Where the text files of a folder of images are: under labels in place of images, or beside.

    Of several folders called images, the last counts, as for other programs that read YOLO's files.
    """
    parts = Path(folder).parts
    places = [place for place, part in enumerate(parts) if part == "images"]
    if not places:
        return folder
    mirrored = os.path.join(*parts[: places[-1]], "labels", *parts[places[-1] + 1 :])
    return mirrored if os.path.isdir(mirrored) else folder


def _by_list(found: _Found, split: str, file: str, roots: list[str]) -> None:
    """The images that a text file lists, one path on each line."""
    listed = dict.fromkeys(_listed(file, [os.path.dirname(file), *roots]))
    samples: dict[str, Sample] = {}
    for folder in dict.fromkeys(map(os.path.dirname, listed)):
        if os.path.isdir(folder):
            paired = found.pairing.pair(folder, _texts_of(folder), found.scan)
            samples |= {found.pairing.file(sample.id): sample for sample in paired}
            found.folders.append(_texts_of(folder))
    wanted = [
        samples.get(os.path.join(found.root, os.path.relpath(path, found.root)))
        or Sample(found.pairing.id(path), "")
        for path in listed
    ]
    found.notes.append(f"{split}: {len(wanted)} images listed in {below(file, found.root)}")
    found.splits.setdefault(split, []).extend(wanted)


def _listed(file: str, roots: list[str]) -> Iterator[str]:
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise DataError(f"{shown(file)}: cannot be read: {error}") from None
    for line in filter(None, map(str.strip, lines)):
        tries = [os.path.normpath(os.path.join(root, line)) for root in roots]
        yield next((path for path in tries if os.path.exists(path)), tries[0])


# ---- what the classes are called


def _labels(found: _Found, read: list[YoloLabels], names: Names | None) -> LabelMap:
    declared = None
    if found.names is not None:
        declared = LabelMap.of_ids(found.names, found.names)
    elif file := _names_file([found.root, *found.folders]):
        found.notes.append(f"names of the classes: {below(file, found.root)}")
        declared = numbered_labels(Path(file))
    if declared is not None:
        return renamed(declared, names)
    if names is not None:
        return numbered_labels(names)
    numbers = {thing.number for labels in read for thing in labels.objects}
    if not numbers:
        raise DataError(
            f"{shown(found.root)}: no label file has an object and nothing names the classes: give "
            "a names file (--names FILE) with one name a line"
        )
    labels = LabelMap.of_ids(numbers)
    found.notes.append(
        f"the classes are all numbers that occur: {', '.join(labels.names)}. A names file (--names "
        "FILE) with one name a line, or classes.txt in the folder, says more"
    )
    return labels


def _names_file(folders: list[str]) -> str | None:
    """A file of names; several are fine as long as they say the same."""
    places = [os.path.join(folder, name) for folder in folders for name in NAMES_FILES]
    found = [place for place in dict.fromkeys(places) if os.path.isfile(place)]
    for other in found[1:]:
        if Path(other).read_bytes() != Path(found[0]).read_bytes():
            both = f"{shown(found[0])} and {shown(other)}"
            raise DataError(f"{both} name the classes differently: keep one")
    return found[0] if found else None
