"""Images without labels: all that lie anywhere below a folder.

Folders named train, val and test are splits if nothing lies beside them; other folders mean
nothing. No other format is so easily content: it is read where no labels are needed, or where its
name stands before the path.
"""

from __future__ import annotations

from vitreous.data.formats.builder import SourceBuilder
from vitreous.data.formats.files import FileSource, claim, split_of
from vitreous.data.source import Sample
from vitreous.labels import NoLabels


def recognise(folder: str) -> bool:
    return False


def read(builder: SourceBuilder) -> FileSource:
    builder.check_folder()
    loose, folders = builder.scan.look(builder.root)
    named: dict[str, str] = {}
    if not loose and folders and all(map(split_of, folders)):
        for folder in sorted(folders):
            claim(named, split_of(folder), folder, builder.root)
    found = {split: builder.scan.images(folder) for split, folder in named.items()}
    if not found.get("train"):
        found = {"train": [*loose, *(f for each in folders for f in builder.scan.images(each))]}
    builder.splits = {
        split: [Sample(builder.id(file), None) for file in files] for split, files in found.items()
    }
    builder.check_images()
    return builder.build(FileSource, NoLabels())
