"""Which folders have images and which their masks, and which mask belongs to which image.

All by names: nothing is opened but Pascal VOC's lists. The tables say which names are understood.
Files of boxes, one for each image, are found in the same way.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from vitreous.data.decode.images import EXTENSIONS, shown
from vitreous.data.formats.folder import SPLIT_FOLDERS, Scan
from vitreous.data.source import SPLITS, Problem, Sample
from vitreous.errors import DataError
from vitreous.labels import natural

IMAGE_FOLDERS = (
    *("images", "image", "imgs", "img", "photos", "pictures", "rgb"),
    *("jpegimages", "leftimg8bit"),
)
MASK_FOLDERS = (
    *("masks", "mask", "labels", "label", "annotations", "annotation", "annots", "annot"),
    *("segmentations", "segmentation", "segs", "seg", "groundtruth", "ground_truth", "gt"),
    *("segmentationclass", "gtfine"),
)
"""What folders are called, in small letters; with the name of a split before or behind it too."""

IMAGE_ENDS = ("_leftimg8bit", "_image", "_img", "_rgb", "_sat")
MASK_ENDS = (
    *("_gtfine_labelids", "_gtfine_labeltrainids", "_labelids", "_labeltrainids"),
    *("_mask", "_masks", "-mask", "_label", "_labels", "_segmentation", "_seg", "_gt", "_annot"),
    "_l",
)
"""What a file's name may have besides the name that an image and its mask share."""

OTHER_ENDS = ("_color", "_instanceids", "_instancetrainids")
"""Files among the masks that show something else: Cityscapes has three of each image."""


@dataclass(frozen=True)
class Partner:
    """What each image has besides: a file of one kind."""

    word: str
    words: str
    """One of them, and many."""
    extensions: tuple[str, ...]
    usual: str
    """The extension that is proposed."""
    ends: tuple[str, ...] = ()
    """What its name may have besides that of the image."""
    image_ends: tuple[str, ...] = ()
    """What the image's name may have besides."""
    apart: bool = True
    """Never in the folder of the images itself."""
    needed: bool = True
    """An image without one is an error."""
    others: tuple[str, ...] = ()
    """Names of files that only look like one."""

    def scan(self) -> Scan:
        return Scan(extensions=self.extensions)


MASKS = Partner("mask", "masks", EXTENSIONS, ".png", MASK_ENDS, IMAGE_ENDS)


# ---- folders


def find_pairs(root: str, notes: list[str], kind: Partner = MASKS) -> dict[str, tuple[str, str]]:
    """For each split the folder of images and that of masks; for "" where there are no splits.

    Nothing where no folder of images has one of masks beside it, with image files in it.
    """
    places = _places(root)
    pairs: dict[str, tuple[str, str]] = {}
    for split in ("", *SPLITS):
        images = places[split, "images"]
        masks = [folder for folder in places[split, "masks"] if kind.scan().images(folder)]
        if not masks and not kind.apart:
            images = masks = [folder for folder in images if kind.scan().look(folder)[0]]
        if images and masks:
            for role, folders in (("images", images), (kind.words, masks)):
                if len(folders) > 1:
                    both = " and ".join(below(folder, root) for folder in folders)
                    what = f"{role} of {split}" if split else role
                    raise DataError(f"{shown(root)}: {both} both mean the {what}: keep one")
            pairs[split] = images[0], masks[0]
    if "" in pairs and len(pairs) > 1:
        both = f"{below(pairs[''][0], root)} and {below(pairs[max(pairs)][0], root)}"
        raise DataError(f"{shown(root)}: {both} both have images with {kind.words}: keep one")
    if not pairs and not kind.apart and Scan().look(root)[0] and kind.scan().look(root)[0]:
        pairs[""] = root, root
    for split in SPLITS if pairs else ():
        if split not in pairs:
            notes += [
                f"{below(folder, root)} has {count} images but no {kind.words}: it is not used"
                for folder in places[split, "images"]
                if (count := len(Scan().images(folder)))
            ]
    return pairs


def has_pairs(root: str, kind: Partner, looks_so: Callable[[str], bool]) -> bool:
    """Whether an image has a partner that looks as it should: many things lie beside images."""
    for images, others in find_pairs(root, [], kind).values():
        stems = _by_stem(images, Scan()).keys()
        found = _by_stem(others, kind.scan())
        if any(looks_so(file) for stem in sorted(found.keys() & stems) for file in found[stem]):
            return True
    return False


def _places(root: str) -> dict[tuple[str, str], list[str]]:
    """(split or "", images or masks) -> folders that may be it."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for folder in sorted(Scan().look(root)[1]):
        split, role = _meaning(folder)
        if not split and not role:
            continue
        inner = [(path, *_meaning(path)) for path in sorted(Scan().look(folder)[1])]
        if split and role:  # trainannot
            places[split, role].append(folder)
        elif role:  # images, or images/train
            parts = [(own, path) for path, own, other in inner if own and not other]
            for own, path in parts or [("", folder)]:
                places[own, role].append(path)
        else:  # train/images, or train
            found = [(other, path) for path, own, other in inner if other and not own]
            for other, path in found or [("images", folder)]:
                places[split, other].append(path)
    return places


def _meaning(folder: str) -> tuple[str, str]:
    """The split that a folder's name says and what it has, images or masks; "" if not said."""
    name = os.path.basename(folder).lower()
    if name in SPLIT_FOLDERS:
        return SPLIT_FOLDERS[name], ""
    for word, split in [("", ""), *SPLIT_FOLDERS.items()]:
        if name.startswith(word) and (role := _role(name.removeprefix(word))):
            return split, role
        if name.endswith(word) and (role := _role(name.removesuffix(word))):
            return split, role
    return "", ""


def _role(word: str) -> str:
    word = word.strip("_-. ")
    return "images" if word in IMAGE_FOLDERS else "masks" if word in MASK_FOLDERS else ""


def below(path: str, root: str) -> str:
    return shown(os.path.relpath(path, root)).replace(os.sep, "/")


# ---- files


@dataclass
class Pairing:
    """Finds the mask of each image, by name."""

    root: str
    kind: Partner = MASKS
    problems: list[Problem] = field(default_factory=list)
    odd_names: dict[str, str] = field(default_factory=dict)
    unmasked: dict[str, str] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    def pair(self, image_folder: str, mask_folder: str, scan: Scan) -> list[Sample]:
        """A sample for each image; what has no mask, or no image, is remembered."""
        kind = self.kind
        images = _by_stem(image_folder, scan)
        masks = _by_stem(mask_folder, scan if kind is MASKS else kind.scan())
        found = {stem: masks.pop(stem, []) for stem in images}
        owners = {_without(stem, kind.image_ends): stem for stem in images}
        owners |= {stem: stem for stem in images}
        for stem, files in masks.items():
            owner = owners.get(stem) or owners.get(_without(stem, kind.ends))
            if owner is not None:
                found[owner] += files
            elif kind is MASKS and stem.lower().endswith(OTHER_ENDS):
                self.others += files
            else:
                article = "an" if kind.word[0] in "aeiou" else "a"
                self.problems += [
                    Problem(self.id(file), f"is {article} {kind.word} without an image", False)
                    for file in files
                    if os.path.basename(file).lower() not in kind.others
                ]
        samples = []
        for stem, files in images.items():
            wanted = f"{below(mask_folder, self.root)}/{shown(stem)}{kind.usual}"
            ids = sorted((self.id(file) for file in found[stem]), key=natural)
            samples += [self._sample(self.id(file), files, ids, wanted) for file in files]
        return sorted(samples, key=lambda sample: natural(sample.id))

    def _sample(self, id: str, namesakes: list[str], masks: list[str], wanted: str) -> Sample:
        word, words = self.kind.word, self.kind.words
        if len(namesakes) > 1:
            others = [other for other in map(self.id, namesakes) if other != id]
            self.unmasked[id] = f"has the name of {', '.join(others)} too: whose is the {word}?"
        elif not masks and self.kind.needed:
            like = " and the like" if self.kind.ends else ""
            self.unmasked[id] = f"has no {word}: looked for {wanted}{like}"
        elif len(masks) > 1:
            self.unmasked[id] = f"has {len(masks)} {words}, {' and '.join(masks)}: keep one"
        return Sample(id, "" if id in self.unmasked or not masks else masks[0])

    def id(self, file: str) -> str:
        """The path below the root as text; the real one is kept where that is not the same."""
        real = os.path.relpath(file, self.root)
        if (id := shown(real).replace(os.sep, "/")) != real:
            self.odd_names[id] = real
        return id

    def file(self, id: str) -> str:
        return os.path.join(self.root, self.odd_names.get(id, id))

    def notes(self) -> list[str]:
        if not self.others:
            return []
        return [
            f"{len(self.others)} files beside the masks show something else and are not used: "
            f"{self.id(min(self.others))}{' …' if len(self.others) > 1 else ''}"
        ]


def _by_stem(folder: str, scan: Scan) -> dict[str, list[str]]:
    """The path below the folder without extension -> files."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(scan.images(folder)):
        found[os.path.splitext(os.path.relpath(file, folder))[0]].append(file)
    return dict(found)


def _without(stem: str, ends: tuple[str, ...]) -> str:
    for end in ends:
        if stem.lower().endswith(end):
            return stem[: -len(end)]
    return stem


def listed(
    folder: str, samples: list[Sample], pairing: Pairing, notes: list[str]
) -> dict[str, list[Sample]]:
    """Pascal VOC: text files with the names of the images of each split."""
    lists = {
        SPLIT_FOLDERS[stem]: name
        for name in sorted(os.listdir(folder))
        if (stem := os.path.splitext(name)[0].lower()) in SPLIT_FOLDERS
    }
    if "train" not in lists and os.path.exists(os.path.join(folder, "trainval.txt")):
        lists["train"] = "trainval.txt"
    if not lists:
        raise DataError(f"{shown(folder)}: has no train.txt, val.txt or test.txt")
    by_stem = {os.path.splitext(os.path.basename(sample.id))[0]: sample for sample in samples}
    splits: dict[str, list[Sample]] = {}
    used: dict[str, str] = {}
    for split, name in lists.items():
        splits[split] = []
        for stem in _lines(os.path.join(folder, name)):
            if used.setdefault(stem, name) != name:
                where = shown(os.path.join(folder, name))
                raise DataError(f"{where}: {stem} is in {used[stem]} too: an image is in one split")
            sample = by_stem.get(stem)
            if sample is None:
                beside = os.path.dirname(samples[0].id)
                sample = Sample(f"{beside}/{stem}.jpg", "")
                pairing.unmasked[sample.id] = f"is in {name}, but there is no such image"
            splits[split].append(sample)
        splits[split].sort(key=lambda sample: natural(sample.id))
    left = len(by_stem.keys() - used.keys())
    told = ", ".join(f"{name} ({len(splits[split])})" for split, name in lists.items())
    notes.append(f"splits as listed: {told}; {left} images are in none of them and not used")
    return splits


def _lines(path: str) -> list[str]:
    """The names in a list, each once: a line may have a path, an extension and more columns."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise DataError(f"{shown(path)}: cannot be read: {error}") from None
    first = [line.split()[0] for line in text.splitlines() if line.strip()]
    return list(dict.fromkeys(_stem(word) for word in first))


def _stem(path: str) -> str:
    name = os.path.basename(path)
    stem, extension = os.path.splitext(name)
    return stem if extension.lower() in EXTENSIONS else name
