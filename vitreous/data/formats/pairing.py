"""Images and the files that label them: where both are, and which belong together.

The label files are masks, Pascal VOC's XML or YOLO's text. They are found by names; only Pascal
VOC's lists of splits are opened. The tables show which names are understood.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from vitreous.data.decode.images import EXTENSIONS, shown
from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.files import SPLIT_FOLDERS, Scan, below, read_text, split_of
from vitreous.data.objects.table import AnnotatedObject, Annotation, ObjectTable
from vitreous.data.source import SPLITS, Problem, Sample
from vitreous.data.threads import in_threads
from vitreous.errors import DataError
from vitreous.labels import natural
from vitreous.wording import counted, none_or

IMAGE_FOLDERS = (
    *("images", "image", "imgs", "img", "photos", "pictures", "rgb"),
    *("jpegimages", "leftimg8bit"),
)
MASK_FOLDERS = (
    *("masks", "mask", "labels", "label", "annotations", "annotation", "annots", "annot"),
    *("segmentations", "segmentation", "segs", "seg", "groundtruth", "ground_truth", "gt"),
    *("segmentationclass", "gtfine"),
)
INSTANCE_FOLDERS = ("instances", "instance_ids", "instanceids", "instance_masks")
"""What folders are called, in small letters; with the name of a split before or behind it too."""

IMAGE_ENDS = ("_leftimg8bit", "_image", "_img", "_rgb", "_sat")
MASK_ENDS = (
    *("_gtfine_labelids", "_gtfine_labeltrainids", "_labelids", "_labeltrainids"),
    *("_mask", "_masks", "-mask", "_label", "_labels", "_segmentation", "_seg", "_gt", "_annot"),
    "_l",
)
"""What a file's name may have behind the name that an image and its mask share."""

_YEAR = re.compile(r"[_-]?(19|20)\d\d$")
_ENDS_BESIDE = tuple(end for end in MASK_ENDS if end != "_l")
"""The same for a mask that lies beside its image; a hand_l.png beside hand.png is a left hand."""

OTHER_ENDS = ("_color", "_instanceids", "_instancetrainids")
"""Other files among the masks: Cityscapes has three for each image."""


@dataclass(frozen=True)
class LabelFiles:
    """The kind of file that says what is in an image."""

    word: str
    """What messages call one; several have an s behind it."""
    extensions: tuple[str, ...]
    usual: str
    """The extension in messages."""
    ends: tuple[str, ...] = ()
    """What its name may have behind that of the image."""
    image_ends: tuple[str, ...] = ()
    """What the image's name may have behind the common one."""
    needed: bool = True
    """An image without one is an error."""
    others: tuple[str, ...] = ()
    """Names of files that only look like one."""
    role: str = "masks"
    """What the folders that have them are called: masks or instances."""

    def scan(self) -> Scan:
        return Scan(extensions=self.extensions)


MASKS = LabelFiles("mask", EXTENSIONS, ".png", MASK_ENDS, IMAGE_ENDS)
INSTANCES = LabelFiles(
    "picture of instance number",
    EXTENSIONS,
    ".png",
    ("_gtfine_instanceids", "_instanceids", "_instances", "_instance", *MASK_ENDS),
    IMAGE_ENDS,
    role="instances",
)


# ---- folders


def find_pairs(root: str, kind: LabelFiles, notes: list[str]) -> dict[str, tuple[str, str]]:
    """For each split the folder of images and that of masks; for "" where there are no splits.
    Empty where no folder of images has a folder of masks beside it with files in it."""
    places = _places(root)
    pairs: dict[str, tuple[str, str]] = {}
    for split in ("", *SPLITS):
        images = places[split, "images"]
        masks = [folder for folder in places[split, kind.role] if kind.scan().images(folder)]
        if not masks and kind is not INSTANCES:
            images = masks = [folder for folder in images if _lie_beside(folder, kind)]
        if images and masks:
            for role, folders in (("images", images), (f"{kind.word}s", masks)):
                if len(folders) > 1:
                    both = " and ".join(below(folder, root) for folder in folders)
                    what = f"{role} of {split}" if split else role
                    raise DataError(f"{shown(root)}: {both} both mean the {what}: keep one")
            pairs[split] = images[0], masks[0]
    if "" in pairs and len(pairs) > 1:
        both = f"{below(pairs[''][0], root)} and {below(pairs[max(pairs)][0], root)}"
        raise DataError(f"{shown(root)}: {both} both have images with {kind.word}s: keep one")
    if kind is INSTANCES:
        return pairs
    if not pairs and (not any(places.values()) if kind is MASKS else Scan().look(root)[0]):
        pairs = {"": (root, root)} if _lie_beside(root, kind) else {}
    for split in SPLITS if pairs else ():
        if split not in pairs:
            notes += [
                f"{below(folder, root)} has {counted(count, 'image')} but no {kind.word}s: it is "
                "not used"
                for folder in places[split, "images"]
                if (count := len(Scan().images(folder)))
            ]
    return pairs


def _lie_beside(folder: str, kind: LabelFiles) -> bool:
    """Whether label files lie among the images; masks do if at least half of the images have one,
    by a name like `1_mask.png`."""
    if kind is not MASKS:
        return bool(kind.scan().look(folder)[0])
    stems = {os.path.splitext(file)[0] for file in Scan().images(folder)}
    owners = masks_beside(stems)
    return bool(owners) and 2 * len(set(owners.values())) >= len(stems) - len(owners)


def masks_beside(stems: Collection[str]) -> dict[str, str]:
    """Of files in one folder, the masks of others, by their names: mask -> image."""
    owners: dict[str, str] = {}
    for stem in stems:
        numbered = stem.rstrip("0123456789").rstrip("_-")  # 1_mask_2
        whole = next((each for each in (stem, numbered) if each.lower().endswith(_ENDS_BESIDE)), "")
        if not whole:
            continue
        common = _without(whole, _ENDS_BESIDE)
        names = [common, *(common + end for end in IMAGE_ENDS)]
        if owner := next((name for name in names if name in stems), ""):
            owners[stem] = owner
    return owners


def has_pairs(root: str, kind: LabelFiles, looks_right: Callable[[str], bool]) -> bool:
    """Whether an image has a label file that looks right: other files may lie beside images too."""
    for images, others in find_pairs(root, kind, []).values():
        stems = _by_stem(images, Scan()).keys()
        found = _by_stem(others, kind.scan())
        if any(looks_right(file) for stem in sorted(found.keys() & stems) for file in found[stem]):
            return True
    return False


def _places(root: str) -> dict[tuple[str, str], list[str]]:
    """(split or "", images, masks or instances) -> folders that may be it."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for folder in sorted(Scan().look(root)[1]):
        split, role = meaning(folder)
        if not split and not role:
            continue
        # train/images or images/train: one folder says what the other does not
        missing = (not split, not role)
        inner = [(*meaning(path), path) for path in sorted(Scan().look(folder)[1])]
        found = [each for each in inner if any(missing) and (each[0] > "", each[1] > "") == missing]
        for own, other, path in found or [("", "images", folder)]:
            places[split or own, role or other].append(path)
    return places


def meaning(folder: str) -> tuple[str, str]:
    """The split that a folder is named after and what it has, images, masks or instances; "" if
    neither."""
    if split := split_of(folder):
        return split, ""
    name = _YEAR.sub("", os.path.basename(folder).lower())
    for word, split in [("", ""), *SPLIT_FOLDERS.items()]:
        if name.startswith(word) and (role := _role(name.removeprefix(word))):
            return split, role
        if name.endswith(word) and (role := _role(name.removesuffix(word))):
            return split, role
    # color_masks; but with_mask may be a class
    several = {"masks", "labels", "annotations"} & set(re.split(r"[_\-. ]+", name))
    return "", "masks" if several else ""


def _role(word: str) -> str:
    word = word.strip("_-. ")
    if word in IMAGE_FOLDERS:
        return "images"
    if word in INSTANCE_FOLDERS:
        return "instances"
    return "masks" if word in MASK_FOLDERS else ""


# ---- files


@dataclass
class Pairing:
    """Finds the label file of each image by name, and fills the builder with samples. A sample's
    target is the path of its label file below the root, or "" where it has none."""

    builder: SourceBuilder
    kind: LabelFiles
    unpaired: dict[str, str] = field(default_factory=dict)
    """By id, what is wrong with images that have no label file, or more than one."""
    others: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    """Of label files."""

    def read_folders(self, lists: str, looked_for: str) -> None:
        """Samples of all folders that are laid out as images with label files. lists: where Pascal
        VOC keeps its lists of splits, below the root. looked_for: the layouts, for an error."""
        builder = self.builder
        builder.check_folder()
        pairs = find_pairs(builder.root, self.kind, builder.notes)
        if not pairs:
            what = f"no images with {self.kind.word}s: looked for {looked_for}"
            raise DataError(f"{builder.name}: {what}")
        for split, (images, labels) in pairs.items():
            self.pair(split, images, labels)
        builder.check_images()
        folder = os.path.join(builder.root, lists)
        if lists and os.path.isdir(folder) and "" in pairs:
            self._split_by_lists(folder)

    def pair(self, split: str, images: str, labels: str) -> None:
        """Adds the images of a folder, whose label files are in another, to a split."""
        both = " with ".join(below(folder, self.builder.root) for folder in (images, labels))
        if images == labels:
            where = (
                "the folder" if images == self.builder.root else below(images, self.builder.root)
            )
            both = f"images and {self.kind.word}s beside each other in {where}"
        self.builder.notes.append(f"{split}: {both}" if split else both)
        self.builder.splits.setdefault(split or "train", []).extend(self.samples(images, labels))

    def samples(self, image_folder: str, label_folder: str) -> list[Sample]:
        """A sample for each image; images and label files that are alone are remembered."""
        builder, kind = self.builder, self.kind
        self.folders.append(label_folder)
        images = _by_stem(image_folder, builder.scan)
        beside = masks_beside(images) if kind is MASKS and image_folder == label_folder else {}
        if beside:
            labels = {stem: images.pop(stem) for stem in beside}
        else:
            labels = _by_stem(label_folder, builder.scan if kind is MASKS else kind.scan())
        found = {stem: labels.pop(stem, []) for stem in images}
        owners = {_without(stem, kind.image_ends): stem for stem in images}
        owners |= {stem: stem for stem in images} | beside
        for stem, files in labels.items():
            owner = owners.get(stem) or owners.get(_without(stem, kind.ends))
            if owner is not None:
                found[owner] += files
            elif kind is MASKS and stem.lower().endswith(OTHER_ENDS):
                self.others += files
            else:
                builder.problems += [
                    Problem(builder.id(file), f"there is no image for this {kind.word}", False)
                    for file in files
                    if os.path.basename(file).lower() not in kind.others
                ]
        samples = []
        for stem, files in images.items():
            usual = f"_mask{kind.usual}" if beside else kind.usual
            wanted = f"{below(label_folder, builder.root)}/{shown(stem)}{usual}"
            ids = sorted((builder.id(file) for file in found[stem]), key=natural)
            samples += [self._sample(builder.id(file), files, ids, wanted) for file in files]
        return samples

    def _sample(self, id: str, namesakes: list[str], labels: list[str], wanted: str) -> Sample:
        word = self.kind.word
        if len(namesakes) > 1:
            others = [other for other in map(self.builder.id, namesakes) if other != id]
            self.unpaired[id] = f"has the same name as {', '.join(others)}: whose is the {word}?"
        elif not labels and self.kind.needed:
            like = " and the like" if self.kind.ends else ""
            self.unpaired[id] = f"has no {word}: looked for {wanted}{like}"
        elif len(labels) > 1:
            self.unpaired[id] = f"has {len(labels)} {word}s, {' and '.join(labels)}: keep one"
        return Sample(id, "" if id in self.unpaired or not labels else labels[0])

    def _split_by_lists(self, folder: str) -> None:
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
        samples = self.builder.splits["train"]
        by_stem = {os.path.splitext(os.path.basename(sample.id))[0]: sample for sample in samples}
        splits: dict[str, list[Sample]] = {}
        used: dict[str, str] = {}
        for split, name in lists.items():
            splits[split] = []
            for stem in _lines(os.path.join(folder, name)):
                if used.setdefault(stem, name) != name:
                    where = shown(os.path.join(folder, name))
                    what = f"{stem} is in {used[stem]} too: keep it in one split"
                    raise DataError(f"{where}: {what}")
                sample = by_stem.get(stem)
                if sample is None:
                    sample = Sample(f"{os.path.dirname(samples[0].id)}/{stem}.jpg", "")
                    self.unpaired[sample.id] = f"is in {name}, but there is no such image"
                splits[split].append(sample)
        left = len(by_stem.keys() - used.keys())
        counts = ", ".join(f"{name} ({len(splits[split])})" for split, name in lists.items())
        what = (
            f"splits as listed: {counts}; in none of them, and not used: {none_or(left, 'image')}"
        )
        self.builder.notes.append(what)
        self.builder.splits = splits

    def read_label_files(
        self,
        table: ObjectTable,
        read: Callable[[str, Annotation], Iterable[AnnotatedObject]],
        what: str,
    ) -> dict[str, Annotation]:
        """Fills the table with what `read` makes of the label file of each sample, and closes it;
        an error makes the image unusable. `what` is shown beside the progress bar."""
        samples = {sample.id: sample for sample in self.builder.samples()}
        found = {id: table.add_image(Annotation()) for id in samples}

        def attempt(sample: Sample) -> None:
            annotation = found[sample.id]
            if sample.id in self.unpaired:
                annotation.errors.append(self.unpaired[sample.id])
            elif sample.target:
                path = self.builder.file(sample.target)
                try:
                    table.add(annotation, read(path, annotation))
                except DataError as error:
                    annotation.errors.append(str(error).removeprefix(f"{shown(path)}: "))

        for extension in self.kind.extensions:  # beside the images
            self.builder.scan.skipped.pop(extension, None)
        in_threads(attempt, list(samples.values()), what)
        table.close()
        return found


def _by_stem(folder: str, scan: Scan) -> dict[str, list[str]]:
    """The path below the folder without extension -> files."""
    found: dict[str, list[str]] = defaultdict(list)
    begin = len(os.path.join(folder, ""))  # relpath is slow, and images are many
    for file in sorted(scan.images(folder)):
        found[os.path.splitext(file[begin:])[0]].append(file)
    return dict(found)


def _without(stem: str, ends: tuple[str, ...]) -> str:
    for end in ends:
        if stem.lower().endswith(end):
            return stem[: -len(end)]
    return stem


def _lines(path: str) -> list[str]:
    """The names in a list, each once. A line may have a path, an extension and more columns."""
    first = [line.split()[0] for line in read_text(path).splitlines() if line.strip()]
    names = [(name, os.path.splitext(name)) for name in map(os.path.basename, first)]
    return list(
        dict.fromkeys(stem if end.lower() in EXTENSIONS else name for name, (stem, end) in names)
    )
