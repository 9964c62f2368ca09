"""Class folders: `cat/1.jpg`, `dog/2.jpg`, with `train/ val/ test/` above them or without.

All images anywhere below a class folder belong to it. Images and classes are found by names alone;
no file is opened.
"""

from __future__ import annotations

import os

from vitreous.data.decode.images import shown
from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.files import FileSource, Scan, claim, split_of
from vitreous.data.formats.names import with_names
from vitreous.data.source import Problem, Sample
from vitreous.errors import DataError
from vitreous.labels import LabelMap, natural
from vitreous.wording import counted


def recognise(folder: str) -> bool:
    return bool(Scan().look(folder)[1])


def read(builder: SourceBuilder) -> FileSource:
    builder.check_folder()
    loose, folders = builder.scan.look(builder.root)
    split_folders = _split_folders(builder, folders)
    found: dict[str, dict[str, list[str]]] = {}  # split -> class -> files
    for split, folder in split_folders.items():
        beside, folders = builder.scan.look(folder)
        loose += beside
        found[split] = {_base(inner): builder.scan.images(inner) for inner in folders}
    if not split_folders:
        found["train"] = {_base(inner): builder.scan.images(inner) for inner in folders}
    known = {name for by_class in found.values() for name, files in by_class.items() if files}
    empty = {name for by_class in found.values() for name in by_class} - known
    builder.problems += [
        Problem(f"{builder.name}/…/{name}", "the class folder has no images", fatal=False)
        for name in sorted(empty, key=natural)
    ]
    classes = {name: number for number, name in enumerate(sorted(known, key=natural))}
    for split, by_class in found.items():
        builder.splits[split] = [
            Sample(builder.id(file), classes[name])
            for name, files in by_class.items()
            for file in files
        ]
    builder.check_images()
    _note_nested(builder, list(split_folders.values()) or [builder.root])
    if loose:
        builder.notes.append(
            f"beside the class folders, and so of no class: {counted(len(loose), 'image')}, "
            f"like {shown(min(loose))}"
        )
    return builder.build(FileSource, with_names(LabelMap.of_names(known), builder.names))


def _split_folders(builder: SourceBuilder, folders: list[str]) -> dict[str, str]:
    """The folder of each split, or nothing where class folders lie directly in the root. `train`
    can also be the name of a class (bus, car, train): it is one when images lie directly in it and
    other folders have images."""
    named: dict[str, str] = {}
    others = []
    for folder in sorted(folders):
        if split := split_of(folder):
            claim(named, split, folder, builder.root)
        else:
            others.append(folder)
    if not named:
        return {}
    with_classes = {split for split, folder in named.items() if recognise(folder)}
    classes = [folder for folder in others if Scan().images(folder)]
    if classes and with_classes:
        raise DataError(
            f"{builder.name}: {_base(named[min(with_classes)])} looks like a split, but "
            f"{_base(classes[0])} beside it has images too: is it a class or a split?"
        )
    if classes:
        return {}
    for split, folder in list(named.items()):
        if split in with_classes:
            continue
        count = len(Scan().look(folder)[0])
        what = f"{_base(folder)} has {counted(count, 'image')} but no class folders"
        if split == "train":
            raise DataError(f"{builder.name}: {what}: put the images of each class into a folder")
        builder.notes.append(f"{what}: it is not used")
        del named[split]
    if others:
        builder.notes.append(f"not used, without images: {', '.join(map(_base, others))}")
    return named


def _note_nested(builder: SourceBuilder, places: list[str]) -> None:
    """Folders inside class folders are perhaps the classes that are meant."""
    classes = [folder for place in places for folder in Scan().look(place)[1]]
    inside = {folder: [f for f in Scan().look(folder)[1] if Scan().images(f)] for folder in classes}
    if inside and all(len(inner) > 1 and not Scan().look(f)[0] for f, inner in inside.items()):
        folder, inner = min(inside.items())
        some = ", ".join(map(_base, sorted(inner)[:3]))
        builder.notes.append(
            f"the class {_base(folder)!r} has folders of its own ({some} …), and so have all "
            f"others: their images belong to it. Did you mean {shown(folder)}?"
        )


def _base(path: str) -> str:
    return shown(os.path.basename(path))
