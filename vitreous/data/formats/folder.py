"""Class folders: `cat/1.jpg`, `dog/2.jpg`, with `train/ val/ test/` above them or without.

All that lies anywhere below a class folder belongs to it. Which images and classes there are is
found by names alone; nothing is opened.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field

from vitreous.data.decode.images import EXTENSIONS, shown
from vitreous.data.formats.files import FileSource
from vitreous.data.formats.names import Names, with_names
from vitreous.data.source import Problem, Sample
from vitreous.data.split import VAL_FRACTION, with_val
from vitreous.errors import DataError, did_you_mean
from vitreous.labels import LabelMap, natural

SPLIT_FOLDERS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}


@dataclass
class Scan:
    """What a walk through folders has met besides images."""

    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    extensions: tuple[str, ...] = EXTENSIONS
    """What is looked for, if not images."""

    def images(self, folder: str, seen: frozenset[tuple[int, int]] = frozenset()) -> list[str]:
        """The paths of all images below a folder; links are followed, loops are not."""
        here = _identity(folder)
        if here in seen:
            self.problems.append(Problem(shown(folder), "a link that leads round in a loop", False))
            return []
        found, folders = self.look(folder)
        for inner in folders:
            found += self.images(inner, seen | {here})
        return found

    def look(self, folder: str) -> tuple[list[str], list[str]]:
        """(images, folders) directly in a folder."""
        images, folders = [], []
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            what = f"the folder cannot be read: {error.strerror}"
            self.problems.append(Problem(shown(folder), what))
            return [], []
        for entry in entries:
            extension = os.path.splitext(entry.name)[1].lower()
            hidden = entry.name.startswith(".") or entry.name == "__MACOSX"
            if _is_folder(entry) and not hidden:
                folders.append(entry.path)
            elif extension in self.extensions and not hidden:
                images.append(entry.path)
            else:
                self.skipped["hidden" if hidden else extension or "without extension"] += 1
        return images, folders

    def notes(self) -> list[str]:
        if not self.skipped:
            return []
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.skipped.items()))
        return [f"skipped {self.skipped.total()} files or folders that are not images: {kinds}"]


def is_class_folders(path: str) -> bool:
    return bool(Scan().look(path)[1])


def open_folder(
    path: str,
    *,
    seed: int = 0,
    val_fraction: float = VAL_FRACTION,
    names: Names | None = None,
) -> FileSource:
    root = os.path.normpath(os.path.expanduser(path))
    if not os.path.isdir(root):
        raise DataError(f"{shown(path)}: there is no such folder")
    scan = Scan()
    loose, folders = scan.look(root)
    notes: list[str] = []
    split_roots = _split_folders(root, folders, notes)
    found: dict[str, dict[str, list[str]]] = {}  # split -> class -> files
    for split, folder in split_roots.items():
        beside, folders = scan.look(folder)
        loose += beside
        found[split] = {_base(inner): scan.images(inner) for inner in folders}
    if not split_roots:
        found["train"] = {_base(inner): scan.images(inner) for inner in folders}
    labels = _labels(shown(root), found, scan.problems)
    odd_names: dict[str, str] = {}
    splits: dict[str, list[Sample]] = {}
    for split, by_class in found.items():
        splits[split] = []
        for class_name, files in by_class.items():
            target = labels.internal(class_name) if files else -1
            for file in files:
                real = file[len(root) :].lstrip(os.sep)
                if (id := shown(real).replace(os.sep, "/")) != real:
                    odd_names[id] = real
                splits[split].append(Sample(id, target))
        splits[split].sort(key=lambda sample: natural(sample.id))
    notes += scan.notes()
    if loose:
        notes.append(
            f"{len(loose)} images lie beside the class folders and belong to no class: "
            f"{shown(min(loose))}{' …' if len(loose) > 1 else ''}"
        )
    return FileSource(
        name=shown(path),
        kind="folder",
        labels=with_names(labels, names),
        splits=with_val(splits, val_fraction, seed, notes),
        notes=notes,
        problems=scan.problems,
        root=root,
        odd_names=odd_names,
    )


def _split_folders(root: str, folders: list[str], notes: list[str]) -> dict[str, str]:
    """The folder of each split, or nothing where class folders lie directly in the root.

    `train` can be the name of a class too (bus, car, train): it is one when images lie directly in
    it and other folders have images.
    """
    named: dict[str, str] = {}
    others = []
    for folder in sorted(folders):
        split = SPLIT_FOLDERS.get(_base(folder).lower())
        if split is None:
            others.append(folder)
        elif split in named:
            both = f"{_base(named[split])} and {_base(folder)}"
            raise DataError(f"{shown(root)}: the folders {both} both mean {split}: keep one")
        else:
            named[split] = folder
    if not named:
        return {}
    with_classes = {split for split, folder in named.items() if Scan().look(folder)[1]}
    classes = [folder for folder in others if Scan().images(folder)]
    if classes and with_classes:
        raise DataError(
            f"{shown(root)}: {_base(named[min(with_classes)])} looks like a split, but "
            f"{_base(classes[0])} beside it has images too: is it a class or a split?"
        )
    if classes:
        return {}
    for split, folder in list(named.items()):
        if split in with_classes:
            continue
        count = len(Scan().look(folder)[0])
        what = f"{_base(folder)} has {count} images but no class folders"
        if split == "train":
            raise DataError(f"{shown(root)}: {what}: put the images of each class into a folder")
        notes.append(f"{what}: it is not used")
        del named[split]
    if others:
        notes.append(f"not used, without images: {', '.join(map(_base, others))}")
    return named


def _labels(root: str, found: dict[str, dict[str, list[str]]], problems: list[Problem]) -> LabelMap:
    """The classes of all splits together; one that could not be learned is an error."""
    known = {name for by_class in found.values() for name, files in by_class.items() if files}
    empty = {name for by_class in found.values() for name in by_class} - known
    problems += [
        Problem(f"{root}/…/{name}", "the class folder has no images", fatal=False)
        for name in sorted(empty, key=natural)
    ]
    if not known:
        raise DataError(f"{root}: no images in its folders ({' '.join(EXTENSIONS)})")
    if "train" in found:
        learned = [name for name, files in found["train"].items() if files]
        for split, by_class in found.items():
            for name in sorted(by_class, key=natural):
                if by_class[name] and name not in learned:
                    raise DataError(
                        f"{root}: class {name!r} has images in {split} but none in train"
                        f"{did_you_mean(name, learned)}"
                    )
    return LabelMap.of_names(known)


def _identity(folder: str) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _base(path: str) -> str:
    return shown(os.path.basename(path))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False
